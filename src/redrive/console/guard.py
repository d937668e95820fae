"""
What stands before every route: nobody is heard without the token, nothing endless is read, each error is a problem.

A server that closes a connection on which the client still writes makes the client lose the answer. So what is left of a
refused body is read and thrown away, up to a bound.
"""

import asyncio
import logging
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from redrive.console.access import Asked, Gate
from redrive.console.audit import Audit, action_of
from redrive.console.pages import PAGES
from redrive.console.problems import CONTENT_TYPE, Problem, problem_of
from redrive.errors import RedriveError

#: Line and headers of a request: a page of positions in a query is 25 kB.
HEAD_BYTES = 32 * 1024
#: A hundred positions are about 5 kB.
BODY_BYTES = 64 * 1024
#: How long a body may take.
BODY_S = 10.0
#: Of a body that is too long so much is thrown away, within so long, before the connection is cut.
_DRAIN_BYTES = 16 << 20
_DRAIN_S = 5.0
#: Answers are for the one who asked, now.
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_log = logging.getLogger("redrive")


def problem_response(problem: Problem) -> Response:
    """Gives a problem as an answer."""
    return Response(problem.body(), problem.status, dict(problem.headers), CONTENT_TYPE)


def place_of(scope: Scope) -> str:
    """Gives where a request comes from, `host:port`."""
    host, port = scope.get("client") or ("?", 0)
    return f"{host}:{port}"


class Guard:
    """Lets through who may; `state.who` of the request is their name then."""

    def __init__(self, app: ASGIApp, gate: Gate, audit: Audit, *, body_s: float = BODY_S) -> None:
        self._app = app
        self._gate = gate
        self._audit = audit
        self._body_s = body_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        asked = _asked(scope)
        body = _Body(receive, asked.headers, self._body_s)
        sending = _Sending(send, body)
        try:
            self._admit(scope, asked)
            body.require_short()
            await self._app(scope, body.receive, sending)
        except ClientDisconnect:
            return  # nobody is there to be answered
        except Exception as error:
            problem = self._problem(error, asked, scope)
            if not sending.has_begun:
                await problem_response(problem)(scope, body.receive, sending)

    def _admit(self, scope: Scope, asked: Asked) -> None:
        head = (
            scope["raw_path"],
            scope["query_string"],
            *(part for pair in scope["headers"] for part in pair),
        )
        if sum(map(len, head)) > HEAD_BYTES:
            raise Problem(431, f"line and headers of a request have at most {HEAD_BYTES} bytes here")
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        if asked.path in PAGES and asked.method in {"GET", "HEAD"}:
            # It holds nothing, so a link from anywhere may lead there.
            self._gate.require_name(asked)
            state["who"] = "anybody"
        else:
            state["who"] = self._gate.require(asked)

    def _problem(self, error: Exception, asked: Asked, scope: Scope) -> Problem:
        if isinstance(error, RedriveError):
            return problem_of(error)
        if not isinstance(error, Problem):
            _log.error("The console can't answer a request; this is a defect.", exc_info=error)
            return Problem(500, "this is a defect of redrive; its log has the stack")
        if error.denied:
            self._audit.denied(place_of(scope), action_of(asked.method, asked.path), error.detail)
        return error


class _Body:
    """A request's body as it comes in: bounded in size and in time."""

    def __init__(self, receive: Receive, headers: Mapping[str, Sequence[str]], within_s: float) -> None:
        self._receive = receive
        self._size = 0
        self._length = "".join(headers.get("content-length", ("0",))[:1])
        has_body = self._length != "0" or "transfer-encoding" in headers
        #: Whether the client still writes; who waits for `100 Continue` doesn't.
        self.is_coming = has_body and "expect" not in headers
        self._deadline_s = asyncio.get_running_loop().time() + within_s

    def require_short(self) -> None:
        """Raises Problem for a body that is too long by its own word."""
        if not self._length.isdecimal() or len(self._length) > 12 or int(self._length) > BODY_BYTES:
            raise _too_long()

    async def receive(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline_s):
                message = await self._receive()
        except TimeoutError:
            self.is_coming = False  # it would take as long to throw the rest away
            raise Problem(408, "the body took too long to come") from None
        self.is_coming = bool(message.get("more_body"))
        self._size += len(message.get("body", b""))
        if self._size > BODY_BYTES:
            raise _too_long()
        return message

    async def drain(self) -> None:
        """Throw away what is still coming."""
        seen = 0
        try:
            async with asyncio.timeout(_DRAIN_S):
                while self.is_coming and seen < _DRAIN_BYTES:
                    message = await self._receive()
                    seen += len(message.get("body", b""))
                    self.is_coming = bool(message.get("more_body"))
        except TimeoutError:
            return


class _Sending:
    """Sends an answer with what all have in common; its end only when the client has stopped writing."""

    def __init__(self, send: Send, body: _Body) -> None:
        self._send = send
        self._body = body
        self.has_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        elif not message.get("more_body") and self._body.is_coming:
            await self._send({**message, "more_body": True})
            await self._body.drain()
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)


def _asked(scope: Scope) -> Asked:
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return Asked(scope["method"], scope["path"], scope["query_string"].decode("latin-1"), headers)


def _too_long() -> Problem:
    return Problem(413, f"a body has at most {BODY_BYTES} bytes here")
