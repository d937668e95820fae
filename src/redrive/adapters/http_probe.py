"""
`/livez`, `/readyz` and `/metrics` for orchestrators and Prometheus, `/worker` for operators; from the standard library.

Read-only: whoever wants something done writes it to Kafka, where rights are kept. The first three tell states, counts
and names of listeners to anybody; what a worker is at (`/worker`) is told to the bearer of a token, and without a token
to nobody. Nothing that a client sends or leaves undone holds up anything: a request head is short and comes within
seconds, a body is never read, and when connections pile up the oldest gives way.
"""

import errno
import hmac
import io
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from redrive.core.settings import is_address
from redrive.errors import PortError, SettingsError

#: Line and headers of a request: a probe's or Prometheus's are a few hundred bytes.
HEAD_BYTES = 8192
#: A head comes in at most so many parts, each within so long: half a minute at the very worst.
HEAD_PARTS = 16
PART_TIMEOUT_S = 2.0
CONNECTIONS = 16

_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"
_JSON = "application/json"
_LOGGER = logging.getLogger("redrive")


class Judged(Protocol):
    """A state with its judgement; all of it can be written as JSON (`core.health.Health`, `SupervisorHealth`)."""

    @property
    def is_live(self) -> bool: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def why(self) -> tuple[str, ...]: ...


class Shown(NamedTuple):
    """
    What is told where. `health`, `metrics`: to anybody. `state`: what the process is at, as JSON, to whoever sends `token`;
    with an empty one to nobody. All three are called by several threads.
    """

    health: Callable[[], Judged]
    metrics: Callable[[], bytes]
    state: Callable[[], bytes] = bytes
    token: str = ""


class Probe:
    """A running probe server. `port` is the real one, also when 0 was asked for."""

    def __init__(self, server: "_Server") -> None:
        self._server = server
        self.port: int = server.server_address[1]
        self._thread = threading.Thread(
            target=server.serve_forever, args=(0.2,), name="redrive-probe", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering and free the port. Calling it twice is harmless."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def start_probe(address: str, shown: Shown) -> Probe:
    """
    Answer GET and HEAD at `address` (`host:port`; `[::1]:9600` for IPv6; port 0: any free one) in threads of its own.

    `/livez` and `/readyz`: 200 and `ok`, or 503 and why; with `?verbose` or `Accept: application/json` all of `health`.
    `/metrics`: what `metrics` gives. `/worker`: what `state` gives; 401 without the token, 404 where there is none.

    Raises SettingsError for an address that can't be read, PortError for one that can't be used.
    """
    host, port = _host_and_port(address)
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        server = _Server(place, family, shown)
    except (OSError, UnicodeError) as error:  # the latter: no name of a host
        raise PortError(f"http: can't listen on {address}: {_reason(error)}") from error
    return Probe(server)


class _Server(ThreadingMixIn, TCPServer):
    """Not the standard library's HTTP server: that one asks DNS for its own name, which may take seconds."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    # On Windows this option means to take a port that another process has.
    allow_reuse_address = os.name != "nt"

    def __init__(self, place: Any, family: int, shown: Shown) -> None:
        self.address_family = family
        self.shown = shown
        #: Connections that have a thread, oldest first.
        self._open: dict[socket.socket, None] = {}
        super().__init__(place, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """A thread for the connection; with too many of them the oldest is cut, since it is the one that waits."""
        if len(self._open) >= 2 * CONNECTIONS:
            self.shutdown_request(request)
            return
        for oldest in list(self._open)[: max(0, len(self._open) - CONNECTIONS + 1)]:
            _cut(oldest)
        self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):  # a client that goes away or dawdles is no news
            _LOGGER.error("A request for probes or metrics broke off; records go on.", exc_info=error)


class _Found(NamedTuple):
    """An answer; `more`: headers besides those that each has."""

    status: HTTPStatus
    content_type: str
    body: bytes
    more: tuple[tuple[str, str], ...] = ()


_ONLY_READS = _Found(
    HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"405 only GET and HEAD\n", (("Allow", "GET, HEAD"),)
)
_NO_TOKEN_SET = _Found(
    HTTPStatus.NOT_FOUND,
    _TEXT,
    b"404 no http_token is set, so this process tells nobody what it is at; set REDRIVE_HTTP_TOKEN and restart it\n",
)
_NOT_TOLD = _Found(
    HTTPStatus.UNAUTHORIZED,
    _TEXT,
    b"401 send the http_token of this process: Authorization: Bearer ...\n",
    (("WWW-Authenticate", 'Bearer realm="redrive"'),),
)


class _Handler(BaseHTTPRequestHandler):
    """One request on one connection."""

    error_message_format = "%(code)d %(message)s\n"
    error_content_type = _TEXT
    timeout = PART_TIMEOUT_S

    def handle(self) -> None:
        # What an error page needs before there is a request.
        self.command, self.requestline = "", ""
        self.close_connection = True
        head = self._read_head()
        if head is None:
            return
        if len(head) > HEAD_BYTES:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return
        self.rfile = io.BufferedReader(io.BytesIO(head))
        self.raw_requestline = self.rfile.readline()
        if self.parse_request():
            self._answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class calls it so
        """A line for each probe of each process is nothing anybody reads."""

    def version_string(self) -> str:
        return "redrive"

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        # What can't be read counts as HTTP 0.9 for the base class, which then leaves out the status.
        self.request_version = "HTTP/1.0"
        super().send_error(code, message, explain)

    def _read_head(self) -> bytes | None:
        """The request up to its empty line, and what came with that; None when the client gave up or is too slow."""
        head = b""
        for _ in range(HEAD_PARTS):
            part: bytes = self.request.recv(HEAD_BYTES)
            head += part
            if not part:
                return None
            if len(head) > HEAD_BYTES or b"\r\n\r\n" in head or b"\n\n" in head:
                return head
        return None

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        try:
            answer = self._found(path, query) if self.command in ("GET", "HEAD") else _ONLY_READS
        except Exception:
            _LOGGER.exception("%s can't be answered; records go on.", path)
            answer = _Found(HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"500 see the log\n")
        self.send_response(answer.status)
        headers = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body))}
        for name, value in (headers | {"Cache-Control": "no-store"} | dict(answer.more)).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _found(self, path: str, query: str) -> "_Found":
        shown = self._server.shown
        if path == "/metrics":
            return _Found(HTTPStatus.OK, _METRICS, shown.metrics())
        if path == "/worker":
            return self._state(shown)
        if path not in ("/livez", "/readyz"):
            return _Found(
                HTTPStatus.NOT_FOUND, _TEXT, b"404 there are /livez, /readyz, /metrics and /worker\n"
            )
        health = shown.health()
        is_well = health.is_live if path == "/livez" else health.is_ready
        status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
        is_verbose = any(part.partition("=")[0] == "verbose" for part in query.split("&"))
        if is_verbose or _JSON in self.headers.get("Accept", ""):
            return _Found(status, _JSON, msgspec.json.format(msgspec.json.encode(health)) + b"\n")
        why = ("ok",) if is_well else health.why
        return _Found(status, _TEXT, "".join(f"{text}\n" for text in why).encode())

    def _state(self, shown: Shown) -> "_Found":
        if not shown.token:
            return _NO_TOKEN_SET
        scheme, _, given = self.headers.get("Authorization", "").partition(" ")
        # Not by ==, whose time tells how many characters were right.
        is_right = hmac.compare_digest(given.strip().encode(), shown.token.encode())
        if scheme.lower() != "bearer" or not is_right:
            return _NOT_TOLD
        return _Found(HTTPStatus.OK, _JSON, shown.state())

    @property
    def _server(self) -> _Server:
        return cast("_Server", self.server)


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)  # its thread wakes up and ends
    except OSError:
        return  # it has just ended by itself


def _host_and_port(address: str) -> tuple[str, int]:
    if not is_address(address):
        raise SettingsError([("http", f"{address!r} is no address; write host:port, such as 127.0.0.1:9600")])
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, UnicodeError):
        return f"this machine has no such address ({error}); 0.0.0.0 stands for all it has"
    if error.errno == errno.EADDRINUSE:
        return "another process has this port; choose another one, or port 0 for any that is free"
    if error.errno == errno.EACCES:
        return "this user may not; choose a port above 1023"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"this machine has no such address ({error.strerror}); 0.0.0.0 stands for all it has"
    return error.strerror or str(error)
