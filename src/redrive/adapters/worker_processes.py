"""
Worker processes of a supervisor on POSIX: started afresh, never forked, each with a socket pair of its own.

Over that the supervisor asks and the worker answers (`worker_channel.py` is its end). Whichever side ends, however it
ends, the other one notices by the end of the stream.
"""

import contextlib
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import msgspec

from redrive.errors import PortError
from redrive.runtime.ports import Answer, Question, WorkerEnded, WorkerEvent, WorkerTold

#: A page of metrics is some hundred kilobytes at most; a worker leaves a larger one out.
MOST_BYTES = 32 << 20
LENGTH = struct.Struct(">I")
#: After a process has ended its last words are there already; a child of its own may hold the stream open for ever.
_LAST_WORDS_S = 1.0


class WorkerProcesses:
    """`command`: what to run for a worker, by its number and the descriptor of its end of the socket pair."""

    def __init__(self, command: Callable[[int, int], Sequence[str]]) -> None:
        self._command = command
        self._processes: dict[int, _Process] = {}
        # Of all queues the one that a signal handler may put into.
        self._events: queue.SimpleQueue[WorkerEvent | None] = queue.SimpleQueue()

    def start(self, worker: int) -> int:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                process = subprocess.Popen(  # noqa: S603  this very command
                    self._command(worker, theirs.fileno()),
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    # What a terminal signals is for the supervisor alone: its closing would end workers at once, and a
                    # second Ctrl-C would not wait for the supervisor's order.
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise PortError(f"a process can't be started: {error}", retriable=True) from error
        self._processes[worker] = _Process(worker, process, ours, self._events.put)
        return process.pid

    def ask(self, worker: int, serial: int, question: Question) -> None:
        self._say(worker, f"{question} {serial}\n")

    def drain(self, worker: int) -> None:
        # Not by a signal: service managers signal all processes themselves, and a second one would end it at once.
        self._say(worker, "drain\n")

    def kill(self, worker: int) -> None:
        if (process := self._processes.get(worker)) is not None:
            process.kill()

    def events(self, timeout_s: float) -> list[WorkerEvent]:
        found: list[WorkerEvent] = []
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=timeout_s)
            while event is not None:
                found.append(event)
                event = self._events.get_nowait()
        return found

    def wake(self) -> None:
        self._events.put(None)

    def _say(self, worker: int, line: str) -> None:
        if (process := self._processes.get(worker)) is not None:
            process.say(line)


class _Process:
    """One process, and the threads that listen to it and wait for its end."""

    def __init__(
        self,
        worker: int,
        process: "subprocess.Popen[bytes]",
        stream: socket.socket,
        tell: Callable[[WorkerEvent], None],
    ) -> None:
        self._worker, self._process, self._stream, self._tell = worker, process, stream, tell
        self._listener = threading.Thread(target=self._listen, name=f"redrive-worker-{worker}", daemon=True)
        self._listener.start()
        threading.Thread(target=self._attend, name=f"redrive-end-of-{worker}", daemon=True).start()

    def say(self, line: str) -> None:
        # Gone, or frozen for so long that the stream is full: its end, or its silence, tells the rest.
        with contextlib.suppress(OSError):
            self._stream.send(line.encode(), socket.MSG_DONTWAIT)

    def kill(self) -> None:
        self._process.kill()

    def _listen(self) -> None:
        decoder = msgspec.msgpack.Decoder(Answer)
        with contextlib.suppress(OSError, EOFError, msgspec.DecodeError):
            while True:
                (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
                if length > MOST_BYTES:
                    return
                self._tell(WorkerTold(self._worker, decoder.decode(self._exactly(length))))

    def _exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            part = self._stream.recv(min(count - len(found), 1 << 16))
            if not part:
                raise EOFError
            found += part
        return bytes(found)

    def _attend(self) -> None:
        code = self._process.wait()
        self._listener.join(_LAST_WORDS_S)
        with contextlib.suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._listener.join()
        self._stream.close()
        self._tell(WorkerEnded(self._worker, code, _how(code)))


def refuse_where_workers_cannot_be() -> None:
    """Raise PortError on Windows, with what to do there."""
    if sys.platform == "win32":
        raise PortError(
            "--workers needs a POSIX system: Windows has no signals and no descriptors to supervise processes by. There, start "
            "`redrive run` several times; the group shares the partitions between them just the same"
        )


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        name = signal.Signals(-code).name
        return f"killed by {name}" + (", as by the kernel when memory is short" if name == "SIGKILL" else "")
    return f"killed by signal {-code}"
