"""A worker's end of the socket pair that its supervisor started it with (`worker_processes.py` is the other one)."""

import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import msgspec

from redrive.adapters.worker_processes import LENGTH, MOST_BYTES
from redrive.runtime.ports import Answer, Views

#: A supervisor that is frozen takes no last words; the end of this process doesn't wait for it.
_SEND_TIMEOUT_S = 5

_log = logging.getLogger("redrive")


class WorkerChannel:
    """
    Answers the supervisor in a thread of its own, from now on; and ends this process when it is asked to, or when
    the supervisor is gone: at once as long as nobody has called `when_told`, since nothing has begun then.

    `descriptor`: the inherited end. Raises OSError when it is none.
    """

    def __init__(self, descriptor: int) -> None:
        # What handlers start must not hold the stream open after this process.
        os.set_inheritable(descriptor, False)
        self._stream = socket.socket(fileno=descriptor)
        # Only of sending, since listening may take for ever.
        self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_TIMEOUT_S, 0))
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._is_told = False
        self._views: Views | None = None
        threading.Thread(target=self._listen, name="redrive-supervised", daemon=True).start()

    def when_told(self, stop: Callable[[], None]) -> None:
        """Call `stop`, by another thread, when this process shall drain; perhaps more than once."""
        self._stop = stop

    @contextmanager
    def answering(self, views: Views) -> Generator[None, None, None]:
        """Answer by these while the block runs, and unasked once more at its end: those are the last words."""
        self._views = views
        try:
            yield
        finally:
            self._answer(0, "metrics")
            self._views = None

    def _listen(self) -> None:
        with contextlib.suppress(OSError), self._stream.makefile("rb") as lines:
            for line in lines:
                word, _, serial = line.decode().strip().partition(" ")
                if word == "drain":
                    self._end("The supervisor asks this worker to end")
                else:
                    self._answer(int(serial), word)
        self._end("The supervisor is gone, so this worker ends too")

    def _end(self, why: str) -> None:
        if self._stop is None:
            os._exit(0)
        if not self._is_told:
            self._is_told = True
            _log.info("%s: no new records; waiting for the handlers that run.", why)
        with contextlib.suppress(RuntimeError):  # it has ended meanwhile, and its event loop with it
            self._stop()

    def _answer(self, serial: int, question: str) -> None:
        views = self._views
        try:
            answer = Answer(serial)
            if views is not None:
                page = _bounded(views.metrics()) if question == "metrics" else b""
                answer = Answer(serial, views.health(), page, views.state() if question == "state" else None)
        except Exception:
            _log.exception("The supervisor's question can't be answered; records go on.")
            return
        body = msgspec.msgpack.encode(answer)
        with contextlib.suppress(OSError), self._lock:
            self._stream.sendall(LENGTH.pack(len(body)) + body)


def _bounded(page: bytes) -> bytes:
    if len(page) < MOST_BYTES - (1 << 20):
        return page
    _log.error("A page of %s bytes of metrics is too large to be handed on, and left out.", len(page))
    return b""
