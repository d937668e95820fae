"""Runs an app as the main thing of its process: blocks, and stops at a signal."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from types import FrameType
from typing import Any, Protocol

from redrive.errors import RedriveError
from redrive.runtime.declaration import Serving

_log = logging.getLogger("redrive")

#: Windows has no SIGTERM that anybody sends; its SIGBREAK is Ctrl-Break, and what service managers send.
_STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)
)


#: A drain is bounded by itself; this is for a broker that went away in the middle of it.
_DRAIN_MOST_S = 30.0
#: What comes after the drain (the app's lifespan, coroutines that are cancelled) may take as long, but at least this.
_EXIT_S = 3.0


def most_drain_s(drain_s: float) -> float:
    """How long a process may take from the first signal to its end, if its handlers may take `drain_s`."""
    return drain_s + _DRAIN_MOST_S + max(drain_s, _EXIT_S)


class Stoppable(Serving, Protocol):
    """An app that runs, as its process sees it."""

    @property
    def drained(self) -> threading.Event:
        """Set when all is committed that can be, and the group was left."""
        ...

    @property
    def drain_s(self) -> float:
        """How long handlers may take to end when it stops."""
        ...

    def request_stop(self) -> None:
        """Begin to drain. Returns at once; needs no event loop."""
        ...


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


def _by_signals_only(_: Callable[[], None]) -> None:
    pass


def run_until_stopped(
    serve: Callable[[], AbstractAsyncContextManager[Stoppable]],
    *,
    also_by: Callable[[Callable[[], None]], None] = _by_signals_only,
) -> None:
    """
    Serve until SIGTERM or SIGINT, or until it ends by itself; then leave `serve`, which drains.

    `also_by` is given what asks for the same as the first signal: any thread may call it, and again.

    A signal also ends a start that hasn't come through yet. A second one ends the process at once. So does, with exit
    code 1, a handler that blocks the loop or refuses to be cancelled, some time after the drain. Raises what the start
    or the app raised.
    """
    has_ended = threading.Event()
    try:
        asyncio.run(_serve(serve, has_ended, also_by))
    finally:
        has_ended.set()


async def _serve(
    serve: Callable[[], AbstractAsyncContextManager[Stoppable]],
    has_ended: threading.Event,
    also_by: Callable[[Callable[[], None]], None],
) -> None:
    stop = _Stop(asyncio.get_running_loop(), asyncio.current_task(), has_ended)
    with _first_signal_calls(stop.ask):
        also_by(stop.ask)
        try:
            async with serve() as serving:
                stop.serving = serving
                try:
                    await serving.stopped()
                finally:
                    stop.is_ending = True
                    stop.end_in_any_case()
        except asyncio.CancelledError:
            if not stop.was_asked:
                raise


class _Stop:
    """Cancels the wait (for the start, or for the end) of a task, once; never its drain."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        task: "asyncio.Task[Any] | None",
        has_ended: threading.Event,
    ) -> None:
        self._loop, self._task, self._has_ended = loop, task, has_ended
        self._last_resort: threading.Thread | None = None
        self.serving: Stoppable | None = None
        self.was_asked = False
        self.is_ending = False

    def ask(self) -> None:
        self.was_asked = True
        if self.serving is not None:
            # Not only through the loop: a handler may block that.
            self.serving.request_stop()
            self.end_in_any_case()
        self._loop.call_soon_threadsafe(self._cancel)

    def end_in_any_case(self) -> None:
        """From now on the process ends in bounded time, whatever handlers do."""
        if self._last_resort is None:
            self._last_resort = threading.Thread(target=self._end_late, name="redrive-end", daemon=True)
            self._last_resort.start()

    def _end_late(self) -> None:
        serving = self.serving
        if serving is not None:
            serving.drained.wait(serving.drain_s + _DRAIN_MOST_S)
            if not self._has_ended.wait(max(serving.drain_s, _EXIT_S)):
                _log.error(
                    "A handler blocks the event loop or refuses to be cancelled: the process ends without it. "
                    "What was not committed runs again; what handlers wrote elsewhere may be half done."
                )
                os._exit(1)

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
