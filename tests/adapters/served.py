"""A process's HTTP port, whose answers a test sets."""

import contextlib
import http.client
import socket

from redrive.adapters.http_probe import Shown, start_probe
from redrive.core.health import Health, ListenerHealth

LISTENER = ListenerHealth(
    name="charge",
    paused=False,
    brake_on=True,
    breaker="closed",
    held_in_outage=0,
    partitions=4,
    held=3,
    unconfirmed=2,
    refused=1,
    oldest_handler_s=0.5,
)
WELL = Health(is_live=True, is_ready=True, why=(), step_age_s=0.01, last_problem="", listeners=(LISTENER,))
NOT_READY = Health(
    is_live=True, is_ready=False, why=("it has not joined its group yet", "it can't write: fenced"),
    step_age_s=0.01, last_problem="", listeners=(),
)  # fmt: skip
DEAD = Health(
    is_live=False, is_ready=False, why=("the pump has not moved for 61 s",), step_age_s=61.0, last_problem="", listeners=()
)  # fmt: skip


TOKEN = "s3cret-s3cret-s3cret"
NOTHING = Shown(lambda: WELL, bytes)


class Served:
    """A probe whose health and metrics a test sets."""

    def __init__(self, token=TOKEN):
        self.reset()
        self.probe = start_probe("127.0.0.1:0", Shown(lambda: self.health, self._metrics, self._state, token))

    def reset(self):
        self.health = WELL
        self.metrics = lambda: b"# HELP a b\na 1\n"
        self.state = lambda: b'{"workers": []}\n'

    def _metrics(self):
        return self.metrics()

    def _state(self):
        return self.state()

    def request(self, method, path, headers=()):
        """Status, headers and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.probe.port, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def get(self, path, **headers):
        status, _, body = self.request("GET", path, headers.items())
        return status, body.decode()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.probe.port), timeout=10)

    def raw(self, data):
        """All that comes back for these bytes."""
        with self.connect() as connection:
            connection.sendall(data)
            return b"".join(iter(lambda: connection.recv(65536), b""))
