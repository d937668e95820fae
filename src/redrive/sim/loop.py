"""An event loop that runs by a virtual clock: `asyncio.sleep(3600)` costs nothing but the hour on that clock."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

from redrive.sim.clock import VirtualClock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: How long real work (a function in a thread pool) is waited for, before its future is looked at again.
_REAL_WAIT_S = 0.05
#: Time that is moved up to a timer goes this much beyond it: adding and subtracting floats loses more than nothing.
_SLACK_MS = 0.001


class VirtualLoop(asyncio.SelectorEventLoop):
    """
    Its time is the virtual clock's, which somebody else moves; it never waits for a timer.

    What is really on its way in a thread pool (`asyncio.to_thread`) is waited for. Sockets are not: what a handler in a
    test wants from the network doesn't come.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._threads_busy = 0
        #: How long it would wait for its next timer, as it was last left; None: it has none.
        self.idle_for_ms: float | None = None
        super().__init__(_Selector(self._waits_in_vain))

    def time(self) -> float:
        return self._clock.mono_ms() / 1000

    def run_until_idle(self) -> None:
        """Run all that can run at this instant."""
        # Tests may be coroutines themselves: theirs is another loop.
        outer = asyncio._get_running_loop()  # noqa: SLF001  exported by asyncio.events for such uses
        asyncio._set_running_loop(None)  # noqa: SLF001
        try:
            self.run_forever()
        finally:
            asyncio._set_running_loop(outer)  # noqa: SLF001

    def complete(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run one coroutine to its end, moving the clock as far as it takes. Raises what it raises."""
        task = self.create_task(coroutine)
        self.run_until_idle()
        while not task.done():
            if self.idle_for_ms is None:
                task.cancel()
                self.run_until_idle()
                raise RuntimeError("it waits for something that never comes")
            self._clock.advance(self.idle_for_ms)
            self.run_until_idle()
        return task.result()

    def close(self) -> None:
        """End tasks, generators and threads that handlers and killed processes left behind, then the loop."""
        if not self.is_closed():
            for task in asyncio.all_tasks(self):
                task.cancel()
            self.run_until_idle()
            self.complete(self.shutdown_asyncgens())
            self.complete(self._shut_down_threads())
        super().close()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        future = super().run_in_executor(executor, func, *args)
        self._threads_busy += 1
        future.add_done_callback(self._thread_done)
        return future

    async def _shut_down_threads(self) -> None:
        self._threads_busy += 1  # their end is told by a thread, too
        await self.shutdown_default_executor()
        self._threads_busy -= 1

    def _thread_done(self, _: "asyncio.Future[Any]") -> None:
        self._threads_busy -= 1

    def _waits_in_vain(self, timeout_s: float | None) -> bool:
        """Asked when nothing can run. Whether only the clock can change that; then the loop is left."""
        if self._threads_busy:
            return False
        self.idle_for_ms = None if timeout_s is None else timeout_s * 1000 + _SLACK_MS
        self.stop()
        return True


class _Selector(selectors.DefaultSelector):
    def __init__(self, waits_in_vain: Callable[[float | None], bool]) -> None:
        super().__init__()
        self._waits_in_vain = waits_in_vain

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        return [] if self._waits_in_vain(timeout) else super().select(_REAL_WAIT_S)
