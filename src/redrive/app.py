"""What a service declares: the app, its listeners, and how it is run."""

import sys
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any, TypeVar

from redrive.core.failure import Failures, no_outage
from redrive.core.plan import Delivery
from redrive.core.policy import Backoff, Criticality, Duration, GiveUp, Order, RetryPolicy
from redrive.core.record import Record
from redrive.core.settings import Settings
from redrive.deadletters.dead_letter import DeadLetter
from redrive.errors import ListenerError, Problem, SettingsError
from redrive.runtime.declaration import Declaration, HealthCheck, Lifespan, ResolvedApp, Serving, Start

#: What `@app.listener` takes: plain or coroutine functions of the value, the value and the record, or the record.
HandlerT = TypeVar("HandlerT", bound=Callable[[Any], object] | Callable[[Any, Record], object])

#: What `@app.on_dead_letter` takes: the same of the letter.
LetterHandlerT = TypeVar(
    "LetterHandlerT", bound=Callable[[Any], object] | Callable[[Any, DeadLetter], object]
)

DEFAULT_RETRY = RetryPolicy("5s", "30s", "10m")
_WITHOUT_TOPIC = 'write @app.listener("topic"): it needs the topic to read'
_NO_FAILURES = Failures()
#: A letter is worth a few tries, not a ladder: it is safe in its topic.
LETTER_RETRY = RetryPolicy(immediate=Backoff(retries=3, wait="1s"))
#: Nothing holds the letters up: what would be an outage for a listener is a failure like others.
LETTER_FAILURES = Failures(rules=no_outage)
_NOTHING: Mapping[str, object] = MappingProxyType({})


class App:
    """
    A service: one consumer group and its listeners.

    `group`: the consumer group. `settings`: by default they are read when the app is run, from `REDRIVE_*` and
    `redrive.toml`; a mapping of settings by their paths (`{"bootstrap_servers": …}`) goes before both, and a `Settings`
    is taken as it is. `lifespan`: a function without arguments that gives an async context manager, entered on the
    handlers' event loop before the first record; what it yields is `record.resources`. `accepts_groups`: groups whose
    retries and replays are this one's too, after a rename. `dialects`: in which dialects headers are written, such as
    `["redrive", "spring"]` where a Spring service reads the same retry topics; by default the setting's, `redrive`.
    `delivery`: with `"exactly-once"` what is written for a record (its retry, its dead letter, what its handler emits) and the
    offset that passes it are one transaction, so a crash leaves none of it twice; what handlers do besides may still happen
    twice. By default the setting's, `"at-least-once"`.

    Making an app reads nothing and connects to nothing. What is wrong with it is told all at once, with file and line,
    when it is run, planned or put in a test's harness.
    """

    def __init__(
        self,
        group: str,
        *,
        settings: Settings | Mapping[str, object] | None = None,
        lifespan: Lifespan | None = None,
        accepts_groups: Collection[str] = (),
        dialects: Collection[str] = (),
        delivery: Delivery | None = None,
    ) -> None:
        self._group = group
        self._settings = settings
        self._lifespan = lifespan
        self._accepts_groups = accepts_groups
        self._dialects = dialects
        self._delivery: Delivery | None = delivery
        self._where = _place(_caller())
        self._declarations: list[Declaration] = []
        self._on_dead_letter: list[Declaration] = []

    def __repr__(self) -> str:
        return f"App({self._group!r}, {len(self._declarations)} listeners, {self._where})"

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._group

    def listener(
        self,
        topic: str,
        *,
        retry: RetryPolicy = DEFAULT_RETRY,
        name: str | None = None,
        order: Order = "partition",
        concurrency: int = 1,
        time_limit: Duration | None = None,
        give_up: GiveUp = "dead-letter",
        criticality: Criticality = "normal",
        failures: Failures = _NO_FAILURES,
        start: Start = "earliest",
        id_header: str = "",
        health: HealthCheck | None = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """
        Declare that a function handles the records of a topic. The function itself is returned unchanged.

        It is a `def` or an `async def` of the value, of the value and a parameter annotated `Record`, or of the record
        alone. The value is decoded as it is annotated: `bytes` and `str` as they came; pydantic models, msgspec
        structs, dataclasses, `TypedDict`, `dict`, `list[…]` and so on from JSON; without annotation any JSON. A null
        value is poison unless the annotation allows `None`. What the function returns is not looked at.

        `retry`: when a failing record is tried again, by default after 5 s, 30 s and 10 min: a hiccup, a restart, a
        small outage of what the handler calls. `name`: labels metrics and commands, by default the function's.
        `order`: what is handled one after another, in the order of its offsets: the records of a `"partition"`, those of
        one `"key"` (in one partition; records without a key have no order), or `"none"`. `concurrency`: handlers that run
        at once in this process, over all partitions: never two of one partition with `order="partition"`, so more
        than its partitions is of use with the others only. `time_limit`: of one
        run of a coroutine function; beyond it TimeoutError is raised inside, a transient failure; by default none.
        `give_up`: what becomes of a record at the end of its retries: `"dead-letter"`; `"skip"`, logged and
        counted; or `"stop"`: it stays unfinished, the process drains its other work and ends (exit code 6), until a person has
        mended what is wrong or skips the record by `redrive worker skip`.
        `criticality`: how many dead letters an hour call somebody by the rules of `redrive alerts`: `"money"` 1,
        `"normal"` 10, `"analytics"` 1,000. It changes nothing of how records are handled.
        `failures`: which exceptions are transient, permanent or an outage, where that differs from the built-in
        table. `start`: where the group begins in partitions for which it has committed nothing yet. `id_header`: the
        header in which producers put an event's own id, for `record.event_id`; by default its topic, partition and offset.
        `health`: a function, or a coroutine function, without arguments that says True when what the handler calls is well.
        While the breaker is open a record is tried only when it does; it is asked once a pause at most, and ends no outage
        by itself. By default records alone tell.
        """
        if callable(topic):
            raise ListenerError([(_place(_caller()), _WITHOUT_TOPIC)])

        def declare(handler: HandlerT) -> HandlerT:
            frame = _caller()
            declared = Declaration(
                handler=handler,
                topic=topic,
                name=name,
                retry=retry,
                order=order,
                concurrency=concurrency,
                time_limit=time_limit,
                give_up=give_up,
                criticality=criticality,
                failures=failures,
                start=start,
                id_header=id_header,
                health=health,
                where=_place(frame),
                local_names=_local_names(handler, frame),
            )
            self._declarations.append(declared)
            return handler

        return declare

    def on_dead_letter(
        self,
        source: str,
        *,
        name: str | None = None,
        concurrency: int = 1,
        time_limit: Duration | None = None,
        start: Start = "latest",
    ) -> Callable[[LetterHandlerT], LetterHandlerT]:
        """
        Declare that a function handles the new dead letters of a source topic: to log, alert, triage. It is returned
        unchanged.

        It is a `def` or an `async def` of the letter (annotated `DeadLetter`, or not at all), of the value, annotated, or of the
        value and a parameter annotated `DeadLetter`. A value is decoded as for listeners; letters whose value can't be are passed by then, so
        take the letter alone to get poison too. Called once for each letter that this app's group makes (more than once after a crash,
        as listeners are), in the consumer group `{group}.on-dead-letter`; the letter stays where it is, open.

        What it raises never makes a dead letter, and never stops it or a listener: it is tried again in place, a second
        apart, four runs in all (errors of programming and handler signals once), then logged, counted and passed by.

        `source`: the topic of one of this app's listeners. `name`: labels metrics and log lines, by default the
        function's. `concurrency`: handlers that run at once in this process. `time_limit`: of one run of a coroutine
        function. `start`: where the group begins that has never run; by default it leaves the letters alone that are there already.
        """
        if callable(source):
            what = 'write @app.on_dead_letter("topic"): it needs the topic of the listener whose dead letters are meant'
            raise ListenerError([(_place(_caller()), what)])

        def declare(handler: LetterHandlerT) -> LetterHandlerT:
            frame = _caller()
            declared = Declaration(
                handler=handler,
                topic=source,
                name=name,
                retry=LETTER_RETRY,
                order="partition",
                concurrency=concurrency,
                time_limit=time_limit,
                give_up="skip",
                criticality="normal",
                failures=LETTER_FAILURES,
                start=start,
                where=_place(frame),
                local_names=_local_names(handler, frame),
            )
            self._on_dead_letter.append(declared)
            return handler

        return declare

    def resolve(self) -> ResolvedApp:
        """
        Check everything and resolve annotations: what `run`, `redrive topics` and the tests' harness start with.

        Raises ListenerError with all that is wrong, each with file and line.
        """
        from redrive.runtime.resolving import AppDeclaration, resolve

        return resolve(
            AppDeclaration(
                self._group,
                self._declarations,
                self._on_dead_letter,
                self._accepts_groups,
                self._lifespan,
                self._where,
                self._dialects,
                self._delivery,
            )
        )

    def load_settings(
        self, *, config_file: Path | None = None, overrides: Mapping[str, object] = _NOTHING
    ) -> Settings:
        """
        Read the settings: from `overrides` (a command's options) first, then the app's own, the environment, the file.

        `config_file`: by default `redrive.toml` in the working directory, if it is there. Raises SettingsError with
        all that is wrong, each with its path.
        """
        given = {path: value for path, value in overrides.items() if value is not None}
        own = self._settings if self._settings is not None else {}
        if isinstance(own, Settings):
            if self._dialects:
                own = replace(own, dialects=tuple(self._dialects))
            if self._delivery:
                own = replace(own, delivery=self._delivery)
            _use_as_it_is(own, sorted(given) + (["config"] if config_file else []), self._where)
            return own
        if not isinstance(own, Mapping):
            what = (
                f"App(settings={own!r}) is no mapping; give {{'bootstrap_servers': …}}, or leave it out: redrive.toml and "
                "REDRIVE_* are read by themselves"
            )
            raise SettingsError([(self._where, what)])
        from redrive.adapters.settings_source import load_settings

        said: dict[str, object] = {"dialects": list(self._dialects)} if self._dialects else {}
        if self._delivery:
            said["delivery"] = self._delivery
        return load_settings(config_file=config_file, overrides={**own, **said, **given})

    def run(self) -> None:
        """
        Run all listeners until SIGTERM or Ctrl-C; handlers that run then may finish, for at most `shutdown_timeout`.

        Blocks, so it belongs in the main thread, outside of any event loop; inside of one use `serving()`. A second
        signal ends the process at once. Raises ListenerError, SettingsError and TopologyError for what is wrong before
        anything connects, PortError when Kafka can't be reached within `start_timeout` or fails for good.
        """
        from redrive.runtime.running import refuse_where_it_cannot_block, run_until_stopped
        from redrive.wiring import serve

        refuse_where_it_cannot_block()
        app, settings = self.resolve(), self.load_settings()
        run_until_stopped(lambda: serve(app, settings))

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[Serving, None]:
        """
        Run all listeners while the block runs: `async with app.serving():`, in a host's lifespan.

        Coroutine handlers run on this very event loop, others in threads. At the end of the block handlers may finish,
        for at most `shutdown_timeout`. An app that ends by itself doesn't end the block: wait for `stopped()` of what
        is given, which raises why. Raises what `run` raises.
        """
        from redrive.wiring import serve

        async with serve(self.resolve(), self.load_settings()) as service:
            yield service


def _use_as_it_is(settings: Settings, asked_besides: list[str], where: str) -> None:
    problems = list(settings.problems())
    if asked_besides:
        options = ", ".join(asked_besides)
        what = f"{options} can't be set besides: the app has its Settings from code; give it a mapping there"
        problems.append(Problem(where, what))
    if problems:
        raise SettingsError(problems)


def _local_names(handler: object, frame: FrameType) -> Mapping[str, Any]:
    """What annotations may name besides the module's globals, where the handler is declared in a function or class."""
    from redrive.runtime.signatures import local_names_for

    return local_names_for(handler, frame.f_locals) if frame.f_locals is not frame.f_globals else {}


def _caller() -> FrameType:
    """The frame that called the function that asks."""
    return sys._getframe(2)  # noqa: SLF001  inspect's way to it reads source files


def _place(frame: FrameType) -> str:
    """File and line, the file as seen from the working directory where it is below that."""
    path = Path(frame.f_code.co_filename)
    with suppress(ValueError, OSError):  # elsewhere, or the working directory is gone
        path = path.relative_to(Path.cwd())
    return f"{path}:{frame.f_lineno}"
