"""An app at work: its pump in a thread of its own, and what watches over it on the event loop."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from redrive.core.commands import Report
from redrive.errors import PortError
from redrive.runtime.clock import Clock
from redrive.runtime.handlers import Invoker
from redrive.runtime.pump import Pump

#: How often the watch looks; what its own turn comes late by is how long something blocked the loop.
WATCH_S = 1.0
STALL_MS = 1000.0


class Service:
    """
    Runs `pump` from `start` to `stop`. Handlers find `resources`; `watched` is called about once a second.

    The pump's membership in the group does not depend on the event loop: a loop that a handler blocks is told and
    counted, and its records wait. `tells_stalls`: False where another service on the same loop does.
    """

    def __init__(
        self,
        pump: Pump,
        invokers: Sequence[Invoker],
        clock: Clock,
        *,
        watched: Callable[[], None],
        start_timeout_ms: int,
        tells_stalls: bool = True,
    ) -> None:
        self.pump = pump
        self.loop_stalls = 0
        #: Set when the pump has ended: what could be was committed, the group was left.
        self.drained: threading.Event = threading.Event()
        self._invokers = invokers
        self._clock = clock
        self._watched = watched
        self._start_timeout_ms = start_timeout_ms
        self._tells_stalls = tells_stalls
        self._error: BaseException | None = None
        self._ended: asyncio.Future[None] | None = None
        self._watch: asyncio.Task[None] | None = None

    def start(self, resources: Any) -> None:
        """Begin to work, on the running loop."""
        for invoker in self._invokers:
            invoker.resources = resources
        loop = asyncio.get_running_loop()
        self._ended = loop.create_future()
        # Not a daemon: a process that ends by its last line still drains and leaves the group.
        thread = threading.Thread(target=self._run, args=(loop, self._ended), name="redrive-pump")
        thread.start()
        self._watch = loop.create_task(self._watch_over(), name="redrive-watch")

    async def stopped(self) -> None:
        """Wait until it has ended by itself. Raises what made going on impossible."""
        if self._ended is None:
            raise RuntimeError("the service was not started")
        await asyncio.shield(self._ended)
        if self._error is not None:
            raise self._error

    @property
    def drain_s(self) -> float:
        """How long handlers may take to end when it stops."""
        return self.pump.drain_s

    def request_stop(self) -> None:
        """Begin to drain. Returns at once; any thread."""
        self.pump.stop_requested.set()

    async def stop(self) -> None:
        """Drain and leave the group: handlers may end the record they are at. Bounded by the drain time."""
        self.request_stop()
        if self._ended is not None:
            await asyncio.shield(self._ended)
        if self._watch is not None:
            self._watch.cancel()
        self._watched()

    def _run(self, loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[None]") -> None:
        try:
            self.pump.run()
        except BaseException as error:
            self._error = error
        finally:
            self.drained.set()
            loop.call_soon_threadsafe(_resolve, ended)

    async def _watch_over(self) -> None:
        began_ms = self._clock.mono_ms()
        ended = self._ended
        while ended is not None and not ended.done():
            looked_ms = self._clock.mono_ms()
            await asyncio.wait([ended], timeout=WATCH_S)
            late_ms = self._clock.mono_ms() - looked_ms - WATCH_S * 1000
            if late_ms > STALL_MS and self._tells_stalls and not ended.done():
                self.loop_stalls += 1
                self.pump.report(Report("loop-stalled", {"seconds": round(late_ms / 1000, 1)}))
            if not self.pump.has_joined and self._clock.mono_ms() - began_ms > self._start_timeout_ms:
                self._give_up()
            self._watched()

    def _give_up(self) -> None:
        problem = self.pump.last_problem
        told = (
            problem.detail
            if problem is not None
            else "no member of the group came through; the broker said nothing"
        )
        self._error = PortError(
            f"the consumer group could not be joined within start_timeout: {told}", retriable=True
        )
        self.pump.stop_requested.set()


def _resolve(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)
