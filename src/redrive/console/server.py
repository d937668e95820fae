"""
Serves the API at an address: one request a connection, each of them bounded in time, with an end that accounts for all.
"""

import asyncio
import errno
import os
import secrets
import signal
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar, NamedTuple

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from redrive.console.access import Credential, Gate, is_loopback
from redrive.console.api import Api, Limits
from redrive.console.clerk import Clerk
from redrive.console.guard import HEAD_BYTES
from redrive.console.memory import Memory
from redrive.console.problems import CONTENT_TYPE, Problem
from redrive.core.settings import ConsoleSettings
from redrive.errors import PortError, SettingsError
from redrive.runtime.clock import Clock
from redrive.runtime.reporting import Reporter

CONNECTIONS = 64
#: How long what is at work may take to end when the server stops.
_DRAIN_S = 30
_BACKLOG = 64
#: Windows has no SIGTERM that anybody sends; its SIGBREAK is what service managers send.
_STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)
)
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Place(NamedTuple):
    """A socket that is bound, not yet listening, and who is let in there. `is_made`: the token is of this run only."""

    socket: socket.socket
    credential: Credential
    is_made: bool
    hosts: frozenset[str] | None

    @property
    def address(self) -> str:
        """`host:port`, with the real port."""
        host, port = self.socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def take_place(settings: ConsoleSettings) -> Place:
    """
    Bind the address of the settings; a token is made where there is none.

    Raises SettingsError where others than this machine could come without a token, PortError for an address that can't be
    used.
    """
    host, _, port = settings.bind.rpartition(":")
    name = host.removeprefix("[").removesuffix("]")
    bound = _bind(name, int(port), settings.bind)
    is_local = is_loopback(bound.getsockname()[0])
    if not is_local and not settings.token:
        bound.close()
        raise SettingsError(
            [
                (
                    "console.token",
                    (
                        f"missing, and {settings.bind} can be reached from other machines: set REDRIVE_CONSOLE__TOKEN (or token in "
                        "[console] of redrive.toml) to what `openssl rand -hex 32` gives, or bind 127.0.0.1:9601"
                    ),
                )
            ]
        )
    credential = Credential(
        settings.token_name if settings.token else "one-time", settings.token or secrets.token_urlsafe(32)
    )
    return Place(
        bound, credential, not settings.token, _LOOPBACK_NAMES | {name.lower()} if is_local else None
    )


class Server(uvicorn.Server):
    """
    `run` answers until SIGTERM, Ctrl-C, or `should_exit` is set; then what is at work ends, for half a minute at most. A
    second signal ends at once: what was being sent shows as unknown then.
    """

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        # uvicorn would raise the signal once more at the end, and the process die of it.
        def stop(_: int, __: FrameType | None) -> None:
            for each in _STOP_SIGNALS:
                signal.signal(each, signal.SIG_DFL)
            self.should_exit = True

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, stop) for each in _STOP_SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def make_server(place: Place, clerk: Clerk, clock: Clock, limits: Limits | None = None) -> Server:
    """Gives what serves the letters of `clerk`; `run(sockets=[place.socket])` begins."""
    bounds = limits or Limits()
    api = Api(clerk, Gate(place.credential, place.hosts), Memory(clock), Reporter(clock), bounds)

    class Connection(_Connection):
        limits = bounds
        waiting: ClassVar[dict[_Connection, None]] = {}

    config = uvicorn.Config(
        api.asgi,
        http=Connection,
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        log_level="error",  # it would tell each request that can't be read
        access_log=False,  # the audit lines say more, and never a URL's query
        proxy_headers=False,  # whoever sends X-Forwarded-For could be anybody
        server_header=False,
        headers=[("Connection", "close")],
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_DRAIN_S,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )
    return Server(config)


class _Connection(H11Protocol):
    """A connection that waits for nobody: neither for a head that comes slowly nor for a client that never reads."""

    limits: ClassVar[Limits]
    #: Connections of this server whose head hasn't come yet, oldest first.
    waiting: ClassVar[dict["_Connection", None]]
    _timers: tuple[asyncio.TimerHandle, ...] = ()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timers = (
            self.loop.call_later(self.limits.head_s, self._give_up_head),
            self.loop.call_later(self.limits.connection_s, transport.abort),
        )
        self.waiting[self] = None
        if len(self.connections) > CONNECTIONS:
            # The oldest that has said nothing gives way: a crowd of silent ones must not keep out who has something to say.
            next(iter(self.waiting)).transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and self in self.waiting:
            del self.waiting[self]
            self._timers[0].cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self.waiting.pop(self, None)
        for timer in self._timers:
            timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._answer(Problem(400, "that is no HTTP request that can be read, or its head is too long"))

    def _give_up_head(self) -> None:
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._answer(Problem(408, "the head of the request took too long to come"))
        else:
            self.transport.close()

    def _answer(self, problem: Problem) -> None:
        headers = [("Content-Type", CONTENT_TYPE), ("Connection", "close"), ("Cache-Control", "no-store")]
        events: list[Any] = [
            h11.Response(status_code=problem.status, headers=headers, reason=problem.status.phrase.encode()),
            h11.Data(data=problem.body()),
            h11.EndOfMessage(),
        ]
        try:
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        except h11.LocalProtocolError:
            pass  # an answer is on its way already
        self.transport.close()


def _bind(host: str, port: int, shown: str) -> socket.socket:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # the latter: no name of a host
        why = getattr(error, "strerror", None) or error
        raise PortError(f"console: can't listen on {shown}: {why}") from error
    try:
        # On Windows this option means to take a port that another process has.
        if os.name != "nt":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(place)
    except OSError as error:
        bound.close()
        why = error.strerror or str(error)
        if error.errno == errno.EADDRINUSE:
            why = "another process has this port; choose another one with --bind, or port 0 for any that is free"
        raise PortError(f"console: can't listen on {shown}: {why}") from error
    return bound
