"""
Where handlers run: plain functions in worker threads, coroutine functions on one event loop.

A slot is one thread, or one task on the loop: it takes the runs queued for it one after another. Slots come to life
when they get their first run, so `concurrency=200` costs nothing until it is needed.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from redrive.core.commands import Run, RunResult
from redrive.runtime.handlers import Invoker

Put = Callable[[Run | None], None]


class Executors:
    """
    All slots of all listeners of a process. `loop`: where coroutine functions run; None when there are none.

    What breaks in our own code, outside of handlers, comes out of `results` and ends the process: it is a bug, and
    going on would mean to pretend that records were handled.
    """

    def __init__(self, invokers: Sequence[Invoker], loop: asyncio.AbstractEventLoop | None) -> None:
        self._invokers = invokers
        self._loop = loop
        self._slots: dict[tuple[int, int], Put] = {}
        self._results: deque[RunResult | BaseException] = deque()
        #: Wakes the pump while it waits for a result: to pass each of them this way takes the GIL twice.
        self._news: SimpleQueue[None] = SimpleQueue()
        self._is_waiting = False
        self._threads: list[threading.Thread] = []
        self._tasks: set[asyncio.Task[None]] = set()
        #: Runs on their way to tasks, and whether the loop was told: to wake it costs as much as a small run.
        self._sent: deque[tuple[asyncio.Queue[Run | None], Run | None]] = deque()
        self._is_told = False

    def submit(self, run: Run) -> None:
        """Queue a run in its slot."""
        key = (run.listener, run.slot)
        put = self._slots.get(key)
        if put is None:
            put = self._slots[key] = self._open(self._invokers[run.listener], run.slot)
        put(run)

    def results(self, timeout_s: float) -> list[RunResult]:
        """Results since the last call; waits at most so long for the first."""
        results = self._results
        if not results and timeout_s > 0:
            # First the mark: a worker that doesn't see it has put its result where it is looked for next.
            self._is_waiting = True
            if not results:
                with contextlib.suppress(Empty):
                    self._news.get(timeout=timeout_s)
            self._is_waiting = False
            self._forget_news()
        taken = [results.popleft() for _ in range(len(results))]
        for one in taken:
            if isinstance(one, BaseException):
                raise one
        return [one for one in taken if isinstance(one, RunResult)]

    def close(self, timeout_s: float) -> bool:
        """
        Let the slots end. False when handlers are still running after so long: threads can't be stopped, they are
        daemons and end with the process; coroutines are cancelled.
        """
        for invoker in self._invokers:
            invoker.stop()
        for put in self._slots.values():
            put(None)
        for thread in self._threads:
            thread.join(timeout_s / max(1, len(self._threads)))
        stuck = [thread for thread in self._threads if thread.is_alive()]
        return self._close_tasks(timeout_s) and not stuck

    def _close_tasks(self, timeout_s: float) -> bool:
        if self._loop is None or self._loop.is_closed():
            return True
        waiting = asyncio.run_coroutine_threadsafe(_ended(self._tasks, timeout_s), self._loop)
        try:
            return waiting.result(2 * timeout_s)
        except TimeoutError:  # a handler blocks the loop
            return False

    def _forget_news(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                self._news.get_nowait()

    def _put(self, result: RunResult | BaseException) -> None:
        self._results.append(result)
        if self._is_waiting:
            self._news.put(None)

    def _open(self, invoker: Invoker, slot: int) -> Put:
        return self._open_task(invoker) if invoker.listener.is_async else self._open_thread(invoker, slot)

    def _open_thread(self, invoker: Invoker, slot: int) -> Put:
        inbox: SimpleQueue[Run | None] = SimpleQueue()
        name = f"redrive-{invoker.listener.name}-{slot}"
        thread = threading.Thread(target=self._work, args=(invoker, inbox), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return inbox.put

    def _work(self, invoker: Invoker, inbox: "SimpleQueue[Run | None]") -> None:
        put, get, handle = self._put, inbox.get, invoker.run
        try:
            while (run := get()) is not None:
                put(handle(run))
        except BaseException as error:
            put(error)

    def _open_task(self, invoker: Invoker) -> Put:
        loop = self._loop
        if loop is None:
            raise RuntimeError("a coroutine handler needs an event loop")
        inbox: asyncio.Queue[Run | None] = asyncio.Queue()

        def begin() -> None:
            task = loop.create_task(
                self._work_awaited(invoker, inbox), name=f"redrive-{invoker.listener.name}"
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        def put(run: Run | None) -> None:
            self._sent.append((inbox, run))
            if not self._is_told:
                self._is_told = True
                with contextlib.suppress(RuntimeError):  # the loop is closed: nothing runs any more
                    loop.call_soon_threadsafe(self._deliver)

        loop.call_soon_threadsafe(begin)
        return put

    def _deliver(self) -> None:
        # First the mark: what is sent from now on is told again.
        self._is_told = False
        sent = self._sent
        while sent:
            inbox, run = sent.popleft()
            inbox.put_nowait(run)

    async def _work_awaited(self, invoker: Invoker, inbox: "asyncio.Queue[Run | None]") -> None:
        try:
            while (run := await _next_run(invoker, inbox)) is not None:
                self._put(await invoker.run_async(run))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._put(error)


async def _next_run(invoker: Invoker, inbox: "asyncio.Queue[Run | None]") -> Run | None:
    """
    The slot's next run; the loop's other work gets its turn before. None: it is to end.

    A handler that cancelled its own task (as timeouts made at home do) and returned, or one whose timer fires when its
    record is long done, has its cancellation end here: the slot is not its to end.
    """
    while True:
        try:
            if not inbox.empty():  # else it waits anyway
                await asyncio.sleep(0)
            return await inbox.get()
        except asyncio.CancelledError as error:
            invoker.outlive_cancellation(error)


async def _ended(tasks: "set[asyncio.Task[None]]", timeout_s: float) -> bool:
    """Wait for the slots to end, cancel those that don't. Whether none had to be cancelled."""
    if not tasks:
        return True
    _, late = await asyncio.wait(list(tasks), timeout=timeout_s)
    for task in late:
        task.cancel()
    return not late
