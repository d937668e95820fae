"""
What a supervisor does about its workers: which to start, to drain or to kill, and when it ends itself.

Events in, orders out; time is an argument. Of each number there is at most one process. A worker that dies is started
again after a wait that grows with its deaths in a row; a rolling restart replaces one worker at a time, and the next
only when all that were replaced are ready.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from redrive.core.commands import Report
from redrive.core.health import Health

#: The first restart comes so soon, each further one after twice the wait, up to the longest.
FIRST_WAIT_MS = 1_000.0
LONGEST_WAIT_MS = 30_000.0
#: A worker that was ready for so long has proved its worth: its next death counts as a first one.
HEALTHY_MS = 60_000.0
#: A worker of which nobody heard for so long that its pump moves is replaced. Its own judgement has allowed a minute
#: already, see `health.LIVE_MS`; without any answer at all (a frozen process) it is this alone.
HUNG_MS = 60_000.0
#: Asked every second, a worker that hasn't answered for so long can't be called ready.
SILENT_MS = 10_000.0
#: A supervisor that itself stood still for so long (suspended, frozen) can't blame its workers for the silence.
GAP_MS = 5_000.0
#: Its loop moves several times a second.
LIVE_MS = 10_000.0

#: The exit codes that mean something here; see docs/reference/exit-codes.md.
DONE, FAILED, USAGE, STOPPED = 0, 1, 2, 6
#: By its number in POSIX: how a process ends that hasn't learned yet what else to do at SIGTERM.
_BY_SIGTERM = -15


class Phase(StrEnum):
    """What a worker's process is about: none yet or no more, at work, told to end, gone for good."""

    WAITING = "waiting"
    RUNNING = "running"
    DRAINING = "draining"
    ENDED = "ended"


class Start(msgspec.Struct, frozen=True):
    """Start a process for this worker."""

    worker: int


class Drain(msgspec.Struct, frozen=True):
    """Ask the worker's process to finish what it is at, and to end."""

    worker: int


class Kill(msgspec.Struct, frozen=True):
    """End the worker's process at once."""

    worker: int


Order = Start | Drain | Kill | Report


class WorkerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """
    One worker as its supervisor sees it. `restarts`: how often it was started again, for whatever reason. `why`: what
    it lacks to be ready. `health`: what it last said of itself, None before it said anything.
    """

    worker: int
    phase: Phase
    pid: int
    restarts: int
    is_ready: bool
    why: tuple[str, ...]
    health: Health | None


class SupervisorHealth(msgspec.Struct, frozen=True, kw_only=True):
    """`is_live`: the supervisor's loop moves, so that it sees to its workers. `is_ready`: every worker is ready."""

    is_live: bool
    is_ready: bool
    why: tuple[str, ...]
    workers: tuple[WorkerHealth, ...]


def restart_wait_ms(deaths: int) -> float:
    """How long to wait after so many deaths in a row, the first is 1."""
    doublings = min(deaths - 1, 10)
    return min(LONGEST_WAIT_MS, FIRST_WAIT_MS * (1 << doublings))


class Worker:
    """One number: its process, and what became of those before. Owned by `Supervision`; others read."""

    __slots__ = (
        "began_mono_ms",
        "deaths",
        "due_mono_ms",
        "generation",
        "health",
        "heard_mono_ms",
        "is_hung",
        "is_killed",
        "live_mono_ms",
        "number",
        "phase",
        "pid",
        "ready_mono_ms",
        "starts",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.phase = Phase.WAITING
        self.pid = 0
        #: Which rolling restart its process belongs to.
        self.generation = 0
        self.starts = 0
        self.deaths = 0
        #: When a waiting one is started, when the present phase of another one began.
        self.due_mono_ms = self.began_mono_ms = 0.0
        self.forget_process()

    def forget_process(self) -> None:
        """What was known of its last process means nothing for the next."""
        self.health: Health | None = None
        #: When it last said how it is, and that its pump moves.
        self.heard_mono_ms: float | None = None
        self.live_mono_ms: float | None = None
        self.ready_mono_ms: float | None = None
        self.is_hung = self.is_killed = False

    @property
    def is_ready(self) -> bool:
        """Whether its process runs, and said so last."""
        return self.phase is Phase.RUNNING and self.health is not None and self.health.is_ready

    def lacks(self, now_mono_ms: float) -> tuple[str, ...]:
        """What keeps it from being ready, in words."""
        if self.phase is Phase.RUNNING:
            if self.health is None or self.heard_mono_ms is None:
                return ("it is starting",)
            silent_ms = now_mono_ms - self.heard_mono_ms
            return (
                self.health.why
                if silent_ms < SILENT_MS
                else (f"it has not answered for {silent_ms / 1000:.0f} s",)
            )
        if self.phase is Phase.WAITING:
            left_s = max(0.0, self.due_mono_ms - now_mono_ms) / 1000
            return (f"it ended by itself and is started again in {left_s:.0f} s",)
        return ("it is shutting down" if self.phase is Phase.DRAINING else "it has ended",)


class Supervision:
    """
    The state of a supervisor over `count` workers. `exit_code` is None until nothing is left to supervise.

    `drain_most_ms`: who was told to end and hasn't after so long is killed.
    """

    def __init__(self, count: int, *, drain_most_ms: float) -> None:
        self.workers: Sequence[Worker] = tuple(Worker(number) for number in range(count))
        self.exit_code: int | None = None
        self.is_stopping = False
        self._drain_most_ms = drain_most_ms
        self._generation = 0
        self._is_rolling = False
        self._was_any_ready = False
        self._code = DONE
        self._ticked_mono_ms = 0.0

    # -- events: each gives the orders that follow from it ---------------------------------------------------------

    def begin(self, now_mono_ms: float) -> list[Order]:
        """Start them all."""
        self._ticked_mono_ms = now_mono_ms
        for worker in self.workers:
            worker.due_mono_ms = now_mono_ms
        return list(self._due(now_mono_ms))

    def started(self, number: int, pid: int) -> list[Order]:
        """A process was started, as ordered."""
        self.workers[number].pid = pid
        return [Report("worker-started", {"worker": number, "pid": pid})]

    def told(self, number: int, health: Health | None, now_mono_ms: float) -> list[Order]:
        """A worker answered how it is; `health` None: it has nothing to say yet, since it is starting."""
        worker = self.workers[number]
        if health is not None:
            worker.health = health
            worker.heard_mono_ms = now_mono_ms
            if health.is_live or worker.live_mono_ms is None:
                worker.live_mono_ms = now_mono_ms
            if worker.is_ready and worker.ready_mono_ms is None:
                worker.ready_mono_ms = now_mono_ms
                self._was_any_ready = True
        return list(self._due(now_mono_ms))

    def ended(self, number: int, code: int, how: str, now_mono_ms: float) -> list[Order]:
        """A worker's process ended: `code` as its parent sees it, negative by a signal; `how` in words."""
        worker = self.workers[number]
        about = {"worker": number, "pid": worker.pid, "how": how}
        was_ordered = worker.phase is Phase.DRAINING and not worker.is_hung
        was_healthy = worker.ready_mono_ms is not None and now_mono_ms - worker.ready_mono_ms >= HEALTHY_MS
        orders: list[Order] = []
        if self.is_stopping:
            is_well = code == DONE or (code == _BY_SIGTERM and worker.ready_mono_ms is None)
            self._code = self._code if is_well else self._code or (STOPPED if code == STOPPED else FAILED)
            self._enter(worker, Phase.ENDED, now_mono_ms)
            orders.append(Report("worker-drained", about))
        elif code == STOPPED or (code == USAGE and not self._was_any_ready):
            # Another start would end the same way.
            self._code = code
            self._enter(worker, Phase.ENDED, now_mono_ms)
            event = "worker-stopped" if code == STOPPED else "worker-unusable"
            orders += [Report(event, about), *self.stop_asked(now_mono_ms)]
        else:
            worker.deaths = 0 if was_ordered else 1 if was_healthy else worker.deaths + 1
            wait_ms = 0.0 if was_ordered else restart_wait_ms(worker.deaths)
            worker.due_mono_ms = now_mono_ms + wait_ms
            self._enter(worker, Phase.WAITING, now_mono_ms)
            event = "worker-drained" if was_ordered else "worker-ended"
            orders.append(Report(event, {**about, "wait_s": round(wait_ms / 1000)}))
        worker.pid = 0
        worker.forget_process()
        return [*orders, *self._due(now_mono_ms)]

    def stop_asked(self, now_mono_ms: float) -> list[Order]:
        """Drain all, start none, then end."""
        self.is_stopping = True
        orders: list[Order] = []
        for worker in self.workers:
            if worker.phase is Phase.RUNNING:
                orders.append(self._drain(worker, now_mono_ms))
            elif worker.phase is Phase.WAITING:
                self._enter(worker, Phase.ENDED, now_mono_ms)
        return [*orders, *self._due(now_mono_ms)]

    def kill_asked(self, now_mono_ms: float) -> list[Order]:
        """End all at once."""
        orders = self.stop_asked(now_mono_ms)
        left = [worker for worker in self.workers if worker.phase is Phase.DRAINING]
        for worker in left:
            worker.is_killed = True
        return [*orders, *(Kill(worker.number) for worker in left)]

    def restart_asked(self, now_mono_ms: float) -> list[Order]:
        """Replace all, one after another. Asked again meanwhile, those that were replaced are replaced once more."""
        if self.is_stopping:
            return []
        self._generation += 1
        self._is_rolling = True
        for worker in self.workers:
            if worker.phase is Phase.WAITING:
                # Who waits after a death may be mended by what was rolled out just now.
                worker.due_mono_ms, worker.deaths = now_mono_ms, 0
        return [Report("rolling-restart", {"workers": len(self.workers)}), *self._due(now_mono_ms)]

    def tick(self, now_mono_ms: float) -> list[Order]:
        """Nothing happened but time."""
        if now_mono_ms - self._ticked_mono_ms > GAP_MS:
            for worker in self.workers:
                worker.live_mono_ms = None if worker.live_mono_ms is None else now_mono_ms
                worker.heard_mono_ms = None if worker.heard_mono_ms is None else now_mono_ms
        self._ticked_mono_ms = now_mono_ms
        return list(self._due(now_mono_ms))

    def judge(self, now_mono_ms: float) -> SupervisorHealth:
        """How it all is, by any thread."""
        workers = tuple(_seen(worker, now_mono_ms) for worker in self.workers)
        age_ms = now_mono_ms - self._ticked_mono_ms
        is_live = age_ms < LIVE_MS
        why = [] if is_live else [f"the supervisor has not moved for {age_ms / 1000:.0f} s"]
        why += [f"worker {worker.worker}: {text}" for worker in workers for text in worker.why]
        return SupervisorHealth(is_live=is_live, is_ready=not why, why=tuple(why), workers=workers)

    # -- what is due now ---------------------------------------------------------------------------------------

    def _due(self, now_mono_ms: float) -> Iterator[Order]:
        for worker in self.workers:
            if worker.phase is Phase.WAITING and now_mono_ms >= worker.due_mono_ms:
                yield self._start(worker, now_mono_ms)
            elif worker.phase is Phase.DRAINING:
                yield from self._overdue(worker, now_mono_ms)
            elif worker.phase is Phase.RUNNING and _is_silent(worker, now_mono_ms):
                worker.is_hung = True
                yield Report(
                    "worker-hung", {"worker": worker.number, "pid": worker.pid, "seconds": HUNG_MS / 1000}
                )
                yield self._drain(worker, now_mono_ms)
        if self.is_stopping:
            if all(worker.phase is Phase.ENDED for worker in self.workers):
                self.exit_code = self._code
        elif self._is_rolling:
            yield from self._roll(now_mono_ms)

    def _roll(self, now_mono_ms: float) -> Iterator[Order]:
        outdated = [worker for worker in self.workers if worker.generation < self._generation]
        replaced = [worker for worker in self.workers if worker.generation == self._generation]
        if not all(worker.phase is Phase.RUNNING for worker in outdated) or not all(
            worker.is_ready for worker in replaced
        ):
            return
        if outdated:
            # Who does no work goes first: where the old version works nowhere, the new one must still get through.
            yield self._drain(min(outdated, key=lambda worker: (worker.is_ready, worker.number)), now_mono_ms)
        else:
            self._is_rolling = False
            yield Report("rolling-restart-over", {"workers": len(self.workers)})

    def _start(self, worker: Worker, now_mono_ms: float) -> Order:
        self._enter(worker, Phase.RUNNING, now_mono_ms)
        worker.generation = self._generation
        worker.starts += 1
        return Start(worker.number)

    def _drain(self, worker: Worker, now_mono_ms: float) -> Order:
        self._enter(worker, Phase.DRAINING, now_mono_ms)
        return Drain(worker.number)

    def _overdue(self, worker: Worker, now_mono_ms: float) -> Iterator[Order]:
        if not worker.is_killed and now_mono_ms - worker.began_mono_ms > self._drain_most_ms:
            worker.is_killed = True
            about = {"worker": worker.number, "pid": worker.pid, "seconds": round(self._drain_most_ms / 1000)}
            yield Report("worker-killed", about)
            yield Kill(worker.number)

    def _enter(self, worker: Worker, phase: Phase, now_mono_ms: float) -> None:
        worker.phase, worker.began_mono_ms = phase, now_mono_ms


def _is_silent(worker: Worker, now_mono_ms: float) -> bool:
    # Before its first word it is starting: imports and a lifespan may take as long as they want.
    return worker.live_mono_ms is not None and now_mono_ms - worker.live_mono_ms > HUNG_MS


def _seen(worker: Worker, now_mono_ms: float) -> WorkerHealth:
    why = worker.lacks(now_mono_ms)
    return WorkerHealth(
        worker=worker.number,
        phase=worker.phase,
        pid=worker.pid,
        restarts=max(0, worker.starts - 1),
        is_ready=worker.is_ready and not why,
        why=why,
        health=worker.health,
    )
