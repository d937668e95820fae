"""The routes under `/api/v1`: what is asked, done in a thread, answered, and written down. One action a topic at a time."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from redrive.console import asking
from redrive.console.access import Gate
from redrive.console.audit import Audit, action_of
from redrive.console.clerk import Clerk, Order
from redrive.console.guard import Guard, place_of
from redrive.console.memory import Answer, Memory, fingerprint
from redrive.console.openapi import document
from redrive.console.operations import OPERATIONS
from redrive.console.pages import PAGES, Page
from redrive.console.problems import CONTENT_TYPE, Problem, problem_of
from redrive.console.workers import Workers
from redrive.deadletters.letters import Position
from redrive.deadletters.selection import Kind
from redrive.errors import RedriveError
from redrive.runtime.reporting import LOGGER, Reporter

_FLUSH_S = 1.0


class Limits(NamedTuple):
    """
    Bounds of a server. `head_s`, `body_s`: how long they may take to come; `read_s`, `act_s`: how long an answer may take;
    `connection_s`: a connection at most, whatever it does, as reading slowly. `threads`: as many requests are worked on
    at once; `waiting`: so many more wait.
    """

    head_s: float = 10.0
    body_s: float = 10.0
    read_s: float = 30.0
    act_s: float = 60.0
    threads: int = 4
    waiting: int = 16
    connection_s: float = 120.0


class Caller(NamedTuple):
    """Who asks, from where, for what: as audit lines tell it."""

    who: str
    place: str
    action: str

    @property
    def signature(self) -> str:
        """Who is said to have changed a letter's state."""
        return f"{self.who}@{self.place.rpartition(':')[0]}"


class Api:
    """The application; `asgi` is what a server runs."""

    def __init__(
        self, clerk: Clerk, gate: Gate, memory: Memory, reporter: Reporter, limits: Limits | None = None
    ) -> None:
        self._clerk = clerk
        self._memory = memory
        self._reporter = reporter
        self._limits = limits or Limits()
        self._audit = Audit(reporter, gate.credential)
        self._workers = Workers(self._limits.threads, self._limits.waiting)
        self._busy: set[str] = set()
        self._tasks: set[asyncio.Task[Answer]] = set()
        handlers = {
            "overview": self._overview,
            "page": self._page,
            "letter": self._letter,
            "replay": self._replay,
            "discard": self._discard,
            "openapi": self._openapi,
        }
        routes = [Route(one.path, handlers[one.name], methods=[one.method]) for one in OPERATIONS]
        pages = [Route(path, _page_handler(page), methods=["GET"]) for path, page in PAGES.items()]
        self.asgi = Starlette(
            routes=[*routes, *pages],
            middleware=[Middleware(Guard, gate=gate, audit=self._audit, body_s=self._limits.body_s)],
            exception_handlers={HTTPException: _raise_problem},
            lifespan=self._lifespan,
        )
        # A redirect would answer for a path that isn't there, with a place made of the client's own Host.
        self.asgi.router.redirect_slashes = False

    # -- reading -----------------------------------------------------------------------------------------------------

    async def _overview(self, request: Request) -> Response:
        with self._told(request) as caller:
            _query(request, ())
            return await self._read(caller, self._clerk.overview)

    async def _page(self, request: Request) -> Response:
        with self._told(request) as caller:
            topic, values = request.path_params["topic"], _query(request, asking.PAGE)
            selection = asking.selection_of(
                values, topic, groups=self._clerk.groups, now_ms=self._clerk.now_ms()
            )
            limit, start = asking.count_of(values, asking.PAGE), asking.start_of(values, topic)
            states = asking.states_of(values)
            return await self._read(
                caller,
                lambda stop: self._clerk.page(
                    topic, selection, stop, limit=limit, start=start, states=states
                ),
            )

    async def _letter(self, request: Request) -> Response:
        with self._told(request) as caller:
            payload = asking.is_asked(_query(request, asking.LETTER), "payload")
            at = "/".join(request.path_params[name] for name in ("topic", "partition", "offset"))
            try:
                position = Position.parse(at)
            except ValueError as error:
                raise Problem(404, str(error)) from None
            outcome = "answered with its payload" if payload else "answered"
            return await self._read(
                caller, lambda stop: self._clerk.letter(position, stop, payload=payload), outcome
            )

    async def _openapi(self, request: Request) -> Response:
        _query(request, ())
        return _json(document())

    async def _read(
        self, caller: Caller, call: Callable[[threading.Event], dict[str, Any]], outcome: str = "answered"
    ) -> Response:
        values = await self._workers.run(call, within_s=self._limits.read_s)
        self._audit.allowed(*caller, outcome)
        return _json(values)

    # -- acting ------------------------------------------------------------------------------------------------------

    async def _replay(self, request: Request) -> Response:
        return await self._act(request, "replay")

    async def _discard(self, request: Request) -> Response:
        return await self._act(request, "discard")

    async def _act(self, request: Request, kind: Kind) -> Response:
        with self._told(request) as caller:
            topic, body = request.path_params["topic"], await request.body()
            order = self._order(request, topic, body, kind)
            key = _key_of(request)
            asked = fingerprint(kind.encode(), topic.encode(), request.scope["query_string"], body)
            if key and (first := self._memory.begin(key, asked)) is not None:
                self._audit.allowed(*caller, "answered as the first time, nothing done (Idempotency-Key)")
                return _response(first, {"Idempotency-Replayed": "true"})
        # On its own from here: who asked may go away, what is begun is ended and written down.
        task = asyncio.create_task(self._remembered(caller, topic, order, key))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        done, _ = await asyncio.wait({task}, timeout=self._limits.act_s)
        if done:
            return _response(task.result())
        raise Problem(
            504,
            f"it took longer than {self._limits.act_s:g} s. What wasn't begun by now is left; what was is ended. Ask "
            "again with the same Idempotency-Key for what became of it, or look at the letters' states",
        )

    def _order(self, request: Request, topic: str, body: bytes, kind: Kind) -> Order:
        """What is asked for. Raises Problem for what can't be meant."""
        query = _query(request, asking.ACTION)
        fields = asking.REPLAY if kind == "replay" else asking.DISCARD
        values = asking.read_body(body, request.headers.get("content-type", ""), fields)
        asking.require_choice(kind, query, values)
        selection = asking.selection_of(
            values,
            topic,
            groups=self._clerk.groups,
            now_ms=self._clerk.now_ms(),
            limit=asking.count_of(query, asking.ACTION),
        )
        why = asking.why_of(values) if kind == "discard" else ""
        return Order(kind, selection, asking.is_asked(query, "dry_run"), why)

    async def _remembered(self, caller: Caller, topic: str, order: Order, key: str) -> Answer:
        """Do it, write down what came of it, and keep the answer for the same request again."""
        try:
            values = await self._done(caller, topic, order)
        except (Problem, RedriveError) as error:  # nothing was done: the same request may try again
            self._audit.allowed(*caller, _refusal(error))
            if key:
                self._memory.forget(key)
            raise
        except Exception as error:  # nobody knows what was done: it isn't tried again
            LOGGER.error(
                "The console can't tell what became of %s; this is a defect.", caller.action, exc_info=error
            )
            self._audit.allowed(*caller, _refusal(error))
            problem = Problem(
                500, "this is a defect of redrive; look at the letters' states for what was done"
            )
            answer = Answer(problem.status, problem.body(), CONTENT_TYPE)
        else:
            self._audit.allowed(*caller, _outcome(order, values))
            answer = Answer(200, msgspec.json.encode(values))
        if key:
            self._memory.finish(key, answer)
        return answer

    async def _done(self, caller: Caller, topic: str, order: Order) -> dict[str, Any]:
        if order.dry_run:
            return await self._workers.run(
                lambda stop: self._clerk.carry_out(topic, order, caller.signature, stop),
                within_s=self._limits.act_s,
            )
        if topic in self._busy:
            raise Problem(
                409,
                f"another replay or discard of {topic} is at work here; ask again when it has ended",
                headers=(("Retry-After", "1"),),
            )
        self._busy.add(topic)
        try:
            future, stop = self._workers.start(
                lambda stop: self._clerk.carry_out(topic, order, caller.signature, stop)
            )
            await asyncio.wait({future}, timeout=self._limits.act_s)
            stop.set()
            return await future
        finally:
            self._busy.discard(topic)

    # -- the frame ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _told(self, request: Request) -> Generator[Caller]:
        """What ends badly in here is written down."""
        caller = Caller(
            request.state.who, place_of(request.scope), action_of(request.method, request.scope["path"])
        )
        try:
            yield caller
        except Exception as error:
            self._audit.allowed(*caller, _refusal(error))
            raise

    def _forget(self, task: "asyncio.Task[Answer]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be waiting for it any more

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        ended = asyncio.Event()
        flushing = asyncio.create_task(self._flush(ended))
        try:
            yield
        finally:
            ended.set()
            await flushing
            await asyncio.to_thread(self._workers.close)
            if self._tasks:
                await asyncio.wait(self._tasks)
            self._reporter.flush(at_end=True)

    async def _flush(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_S):
                    await ended.wait()
            self._reporter.flush()


def _query(request: Request, fields: Sequence[asking.Field]) -> asking.Values:
    return asking.read_query(request.scope["query_string"].decode("latin-1"), fields)


def _key_of(request: Request) -> str:
    keys = request.headers.getlist("idempotency-key")
    if len(keys) > 1:
        raise Problem(400, "Idempotency-Key is given more than once")
    if keys and not keys[0]:
        raise Problem(400, "Idempotency-Key is empty; give a UUID, or leave it out")
    return keys[0] if keys else ""


def _json(values: Any) -> Response:
    return Response(msgspec.json.encode(values), media_type="application/json")


def _response(answer: Answer, headers: dict[str, str] | None = None) -> Response:
    return Response(answer.body, answer.status, headers, answer.content_type)


def _refusal(error: Exception) -> str:
    if not isinstance(error, (Problem, RedriveError)):
        return "broke off by a defect"
    problem = error if isinstance(error, Problem) else problem_of(error)
    return f"refused with {int(problem.status)}: {problem.detail}"


def _outcome(order: Order, values: dict[str, Any]) -> str:
    if order.dry_run:
        return f"planned, {values['selected']} selected"
    done = values["replayed" if order.kind == "replay" else "discarded"]
    told = f"{done} of {values['selected']} {'replayed' if order.kind == 'replay' else 'discarded'}"
    stopped = f", stopped: {values['stopped']}" if values["stopped"] else ""
    why = f", why: {order.why}" if order.why else ""
    return f"{told}, job {values['job']}{stopped}{why}"


def _page_handler(page: Page) -> Any:
    async def show(_: Request) -> Response:
        return Response(page.body, headers=dict(page.headers), media_type=page.content_type)

    return show


async def _raise_problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    told = {404: "there is nothing at this path; /api/v1/openapi.json tells what there is"}
    allowed = (error.headers or {}).get("Allow", "")
    detail = told.get(error.status_code, f"only {allowed} here" if allowed else error.detail)
    raise Problem(error.status_code, detail, headers=tuple((error.headers or {}).items())) from None
