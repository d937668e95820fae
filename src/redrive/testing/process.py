"""One simulated process of an app: the real pump and engine, with handlers that run when they are told to."""

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from redrive.core.commands import Report, Run, RunResult
from redrive.core.engine import Engine
from redrive.core.lane import Lane
from redrive.core.metadata import identity_of
from redrive.core.plan import GroupPlan
from redrive.core.settings import Settings
from redrive.runtime.checkups import Ways, checkups_of
from redrive.runtime.declaration import Lifespan, ResolvedApp
from redrive.runtime.handlers import Invoker
from redrive.runtime.pump import Pump, PumpSettings
from redrive.sim.clock import VirtualClock
from redrive.sim.cluster import SimCluster
from redrive.sim.faults import Chance
from redrive.sim.loop import VirtualLoop
from redrive.sim.transactor import SimTransactor

#: Where something waits for a time that only the engine knows, time moves in steps as an idle pump's.
_STEP_MS = 100.0
STEP_MOST_MS = 400.0
#: How soon the pump looks for acknowledgements while handlers run.
_ACKNOWLEDGEMENT_MS = 2.0
#: More steps at one instant are an endless loop: a handler that feeds its own topic.
_STEPS_MOST = 20_000
#: Each process has a name of its own, by which the next one tells that it was killed.
_NUMBERS = itertools.count(1)

_Slot = tuple[int, int]


class Handlers:
    """
    Implements the executor port without threads. Plain functions run when results are asked for, one after another. `chance`:
    some results come later when a seed says so.
    """

    def __init__(
        self, invokers: Sequence[Invoker], clock: VirtualClock, loop: VirtualLoop, chance: Chance
    ) -> None:
        self._invokers = invokers
        self._clock = clock
        self._chance = chance
        self._loop = loop
        self._queues: dict[_Slot, deque[Run]] = {}
        self._tasks: dict[_Slot, asyncio.Task[None]] = {}
        self._results: list[RunResult] = []
        #: How many results were handed over.
        self.finished = 0

    @property
    def is_waiting(self) -> bool:
        """Whether coroutines are out that wait for something."""
        return bool(self._tasks)

    @property
    def has_results(self) -> bool:
        """Whether results are on their way."""
        return bool(self._results)

    def submit(self, run: Run) -> None:
        self._queues.setdefault((run.listener, run.slot), deque()).append(run)

    def move_on(self) -> None:
        """Coroutines go on while the pump is elsewhere, when a seed says so: it finds what they have done, and no result yet."""
        if self._tasks and self._chance.below(2):
            self._loop.run_until_idle()

    def results(self, timeout_s: float) -> list[RunResult]:
        for slot, queue in self._queues.items():
            if not self._invokers[slot[0]].listener.is_async:
                self._run(slot, queue)
            elif queue and slot not in self._tasks:
                self._tasks[slot] = self._loop.create_task(self._run_awaited(slot, queue))
        if self._tasks:
            self._loop.run_until_idle()
            self._collect()
        if not self._results:
            self._clock.pass_time(timeout_s * 1000)
        ready = len(self._results) - self._chance.below(len(self._results) + 1)
        taken, self._results = self._results[:ready], self._results[ready:]
        self.finished += len(taken)
        return taken

    def close(self, timeout_s: float) -> bool:
        for invoker in self._invokers:
            invoker.stop()
        running = list(self._tasks.values())
        for task in running:
            task.cancel()
        if running:
            self._loop.run_until_idle()
        self._tasks.clear()
        self._queues.clear()
        return not running

    def _run(self, slot: _Slot, queue: deque[Run]) -> None:
        with self._clock.unbounded():  # pauses between tries in place take their time
            while queue:
                self._results.append(self._invokers[slot[0]].run(queue.popleft()))

    async def _run_awaited(self, slot: _Slot, queue: deque[Run]) -> None:
        while queue:
            result = await self._invokers[slot[0]].run_async(queue.popleft())
            self._results.append(result)

    def _collect(self) -> None:
        ended = [slot for slot, task in self._tasks.items() if task.done()]
        for slot in ended:
            self._tasks.pop(slot).result()  # an error here is redrive's own


class Process:
    """
    One group of an app at work, from its join to its end. Nothing happens between two calls. `resources`: what handlers
    find where the app has no lifespan of its own.
    """

    def __init__(
        self,
        app: ResolvedApp,
        plan: GroupPlan,
        settings: Settings,
        cluster: SimCluster,
        loop: VirtualLoop,
        *,
        resources: Any = None,
        name: str = "0",
    ) -> None:
        self._cluster = cluster
        self._clock = cluster.clock
        self._loop = loop
        self.source = cluster.source(app.group)
        self._life = _Life(app.lifespan, loop) if app.lifespan else None
        invokers = [
            Invoker(listener, self._clock, threading.Event(), plan.translator) for listener in app.listeners
        ]
        self.resources = self._life.resources if self._life else resources
        for invoker in invokers:
            invoker.resources = self.resources
        self._handlers = Handlers(invokers, self._clock, loop, cluster.chance)
        self.reports: list[Report] = []
        self._checkups = checkups_of(app.listeners, _ways_of(loop), self._clock, self.reports.append)
        self._engine = Engine(plan, cluster.counts, self._identity, f"sim-{next(_NUMBERS)}")
        self._pump = Pump(
            engine=self._engine,
            source=self.source,
            sink=cluster.sink(),
            executor=self._handlers,
            cluster=cluster.admin(),
            clock=self._clock,
            settings=_pump_settings(app, settings),
            identity=self._identity,
            report=self.reports.append,
            transactor=_transactor(plan, cluster, name),
            checkups=self._checkups,
        )
        self._pump.join()

    @property
    def engine(self) -> Engine:
        """What it knows of its partitions."""
        return self._engine

    def step(self) -> bool:
        """Let the pump make one round in no time. Whether anything happened."""
        before = self._signature()
        self._clock.horizon_mono_ms = self._clock.mono_ms()
        try:
            self._handlers.move_on()
            self._pump.step()
            if self._checkups is not None and self._checkups.is_waiting:
                self._loop.run_until_idle()
        finally:
            self._clock.horizon_mono_ms = float("inf")
        return self._signature() != before

    def next_ms(self, step_ms: float = _STEP_MS) -> float:
        """After how long something may happen by itself. `step_ms`: how soon to look where only the engine knows."""
        waits = [self._engine.next_wake_ms - self._clock.wall_ms()]
        is_asked = self._checkups is not None and self._checkups.is_waiting
        if (self._handlers.is_waiting or is_asked) and self._loop.idle_for_ms is not None:
            waits.append(self._loop.idle_for_ms)
        answers_come = not (self._cluster.is_down or self._cluster.faults.acks_are_held)
        transacting = self._engine.transacting
        outcomes_come = not (self._cluster.is_down or self._cluster.faults.transactions_are_held)
        if transacting is not None and transacting.is_out and outcomes_come:
            waits.append(_ACKNOWLEDGEMENT_MS)
        if answers_come and any(
            lane.writes.count > lane.writes.waiting for lane in self._engine.lanes.values()
        ):
            waits.append(_ACKNOWLEDGEMENT_MS)
        commits_come = not self._cluster.faults.commits_are_held if transacting is None else outcomes_come
        if commits_come and not self._cluster.is_down and self._engine.caution.guard.wanting():
            waits.append(_ACKNOWLEDGEMENT_MS)
        if self._handlers.has_results:
            waits.append(_ACKNOWLEDGEMENT_MS)
        if self._waits_for_engine():
            waits.append(step_ms)
        waits += self._until_probes_ms(step_ms)
        return max(min(waits), 0.001)

    def stop(self) -> None:
        """End in order: handlers may finish, what is done is committed."""
        self._pump.shut_down()
        if self._life is not None:
            self._life.end()

    def kill(self) -> None:
        """End at once: nothing more is committed or confirmed, and the group gives its partitions to others."""
        self._handlers.close(0)
        self._cluster.expel(self.source)

    def _until_probes_ms(self, step_ms: float) -> list[float]:
        """After how long listeners whose breakers are open try a record."""
        tried = [one.breaker for one in self._engine.listeners if one.ready and not one.breaker.is_closed]
        waits = (each.probe_ms - self._clock.mono_ms() for each in tried)
        return [wait_ms if wait_ms > 0 else step_ms for wait_ms in waits]

    def _waits_for_engine(self) -> bool:
        """Commits, back-off, brake, pauses, partitions that aren't there yet: all that is looked after in time."""
        engine, member = self._engine, self.source.member
        return (
            self._cluster.is_down
            or (engine.transacting is not None and engine.transacting.is_out)
            or member is None
            or member.target != engine.lanes.keys()
            or any(
                lane.writes.count or lane.is_paused or _is_uncommitted(lane) for lane in engine.lanes.values()
            )
            or engine.commits.awaited_in_ms(self._clock.mono_ms()) < _STEP_MS
            or any(engine.lanes[key].is_ready for key in engine.caution.guard.watched)
            or any(one.brake.is_on for one in engine.listeners)
            or any(one.queued and not any(one.slots) for one in engine.listeners)
        )

    def _signature(self) -> tuple[int, ...]:
        """Changes with whatever happens."""
        lanes, commits = self._engine.lanes.values(), self._engine.commits
        ends = (log.end for topic in self._cluster.topics.values() for log in topic.partitions)
        return (
            sum(ends),
            len(lanes),
            sum(lane.next_offset for lane in lanes),
            sum(lane.writes.count for lane in lanes),
            self._handlers.finished,
            commits.confirmed,
            commits.refused,
        )

    def _identity(self, topic: str) -> str:
        known = self._cluster.topics.get(topic)
        return identity_of("sim", known.topic_id if known else topic)


def _pump_settings(app: ResolvedApp, settings: Settings) -> PumpSettings:
    starts = {listener.topic: listener.start for listener in app.listeners}
    return PumpSettings(starts=starts, drain_ms=settings.shutdown_timeout_ms)


def _transactor(plan: GroupPlan, cluster: SimCluster, name: str) -> SimTransactor | None:
    if plan.delivery == "at-least-once":
        return None
    return SimTransactor(cluster, f"{plan.group}-{name}")


def settle(*processes: Process) -> bool:
    """Let them do all that can be done at this instant. Whether anything was."""
    quiet = 0
    for number in range(_STEPS_MOST):
        quiet = 0 if sum(process.step() for process in processes) else quiet + 1
        if quiet == 2:
            return number > 1
    raise RuntimeError("the app doesn't come to rest: it may send itself a record for each record it handles")


def let_pass(
    ms: float,
    clock: VirtualClock,
    processes: Callable[[], Sequence[Process]],
    settled: Callable[[], bool],
    step_most_ms: float = STEP_MOST_MS,
) -> None:
    """
    Time passes, and the `processes` (asked for anew each time) do what becomes due in it, each thing at its time: `settled`
    lets them, and says whether anything was. Where only an engine knows the time, it is looked after the more seldom the
    longer nothing has happened, but each `step_most_ms`.
    """
    settled()
    end_ms, step_ms = clock.mono_ms() + ms, _STEP_MS
    while (left_ms := end_ms - clock.mono_ms()) > 0:
        clock.advance(min([left_ms, *(process.next_ms(step_ms) for process in processes())]))
        step_ms = _STEP_MS if settled() else min(2 * step_ms, step_most_ms)


def _is_uncommitted(lane: Lane) -> bool:
    return lane.offsets.started and (lane.acked is None or lane.acked[0] != lane.offsets.frontier)


class _Life:
    """An app's lifespan, entered and left by one task, as on a real loop."""

    def __init__(self, lifespan: Lifespan, loop: VirtualLoop) -> None:
        self._loop = loop
        self._leave = asyncio.Event()
        self._entered: asyncio.Future[Any] = loop.create_future()
        self._task = loop.create_task(self._live(lifespan))
        self.resources = loop.complete(self._begun())

    def end(self) -> None:
        """Leave it. Raises what it raises."""
        self._leave.set()
        self._loop.complete(_awaited(self._task))

    async def _begun(self) -> Any:
        await asyncio.wait([self._task, self._entered], return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()
        return self._entered.result()

    async def _live(self, lifespan: Lifespan) -> None:
        async with lifespan() as resources:
            self._entered.set_result(resources)
            await self._leave.wait()


async def _awaited(task: "asyncio.Task[None]") -> None:
    await task


def _ways_of(loop: VirtualLoop) -> Ways:
    """Plain health functions are called at once, as plain handlers are."""
    return Ways(lambda function: function(), loop.create_task)
