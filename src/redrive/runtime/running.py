"""Runs an app as the main thing of its process: blocks, and stops at a signal."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from types import FrameType
from typing import Any

from redrive.errors import RedriveError
from redrive.runtime.declaration import Serving

_log = logging.getLogger("redrive")

#: Windows has no SIGTERM that anybody sends; its SIGBREAK is Ctrl-Break, and what service managers send.
_STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)
)


def refuse_where_it_cannot_block() -> None:
    """Raise RedriveError inside a running event loop and off the main thread."""
    instead = "there use `async with app.serving():`, which runs the app on the loop that is there"
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise RedriveError(
            f"app.run() blocks, and here an event loop is running that it would stop; {instead}"
        )
    if threading.current_thread() is not threading.main_thread():
        raise RedriveError(
            f"app.run() handles signals, which Python allows in the main thread only, and this is "
            f"{threading.current_thread().name!r}; call it from the main thread. In a thread with an event loop, {instead[6:]}"
        )


def run_until_stopped(serve: Callable[[], AbstractAsyncContextManager[Serving]]) -> None:
    """
    Serve until SIGTERM or SIGINT, or until it ends by itself; then leave `serve`, which drains.

    A signal also ends a start that hasn't come through yet. A second one ends the process at once. Raises what the
    start or the app raised.
    """
    asyncio.run(_serve(serve))


async def _serve(serve: Callable[[], AbstractAsyncContextManager[Serving]]) -> None:
    stop = _Stop(asyncio.get_running_loop(), asyncio.current_task())
    with _first_signal_calls(stop.ask):
        try:
            async with serve() as serving:
                try:
                    await serving.stopped()
                finally:
                    stop.is_ending = True
        except asyncio.CancelledError:
            if not stop.was_asked:
                raise


class _Stop:
    """Cancels the wait (for the start, or for the end) of a task, once; never its drain."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any] | None") -> None:
        self._loop, self._task = loop, task
        self.was_asked = False
        self.is_ending = False

    def ask(self) -> None:
        self.was_asked = True
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None and not self.is_ending:
            self._task.cancel()


@contextmanager
def _first_signal_calls(ask: Callable[[], None]) -> Generator[None, None, None]:
    """
    Not by the loop's own means: these work on Windows too, and a loop that a handler blocks still ends at the second.
    """

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in _STOP_SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        _log.info(
            "%s: no new records; waiting for the handlers that run. Once more ends at once: their records run again",
            signal.Signals(number).name,
        )
        ask()

    before = {each: signal.signal(each, stop) for each in _STOP_SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)
