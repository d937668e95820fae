"""Processes that die of records, are killed from outside, and are replaced as by a supervisor; and who was blamed for it."""

import asyncio
from collections import Counter

import msgspec

from redrive import App, Record, RetryPolicy
from redrive.core.dialects import read_envelope
from tests.sim.fleet import Away, Fleet

REPLACED_AFTER_MS = 1_000


class Task(msgspec.Struct):
    """A record's value: `fails`: so many first runs fail. `kills_at`: the run that kills its process, 0 for none."""

    id: int
    fails: int = 0
    takes_s: float = 0.0
    kills_at: int = 0


class Mortal:
    """A process that is gone, with all that it had in memory, once one of its handlers has killed it; `dies(number)` tells."""

    def __init__(self, process, dies):
        self.process = process
        self.is_dead = False
        self._dies = dies

    def step(self):
        moved = not self.is_dead and self.process.step()
        if not self.is_dead and self._dies(self.process.resources):
            self.kill()
            moved = True
        return moved

    @property
    def source(self):
        return self.process.source

    def next_ms(self, *step_ms):
        return float("inf") if self.is_dead else self.process.next_ms(*step_ms)

    def stop(self):
        self.process.stop()

    def kill(self):
        if not self.is_dead:
            self.is_dead = True
            self.process.kill()


class MortalFleet:
    """A fleet of one listener; `policy`: of its retries."""

    def __init__(
        self,
        *,
        partitions=1,
        seed=None,
        order="partition",
        concurrency=1,
        policy=None,
        processes=1,
        delivery="at-least-once",
    ):
        self.runs, self.deaths, self.handled = Counter(), Counter(), Counter()
        self.sent: list[Task] = []
        #: Records that were alone in a process when it was killed from outside.
        self.unlucky: set[int] = set()
        #: Records that ran in a process which a suspect had to itself.
        self.beside: set[int] = set()
        #: When a record killed which process.
        self._dying: dict[int, float] = {}
        self._at_work: dict[int, set[int]] = {}
        self.late_ends = 0
        app = App("shop")
        policy = policy or RetryPolicy("5s", "30s")
        app.listener("orders", name="work", retry=policy, order=order, concurrency=concurrency)(self._work)
        self.fleet = Fleet(partitions=partitions, seed=seed, app=app, delivery=delivery)
        self.reports = []
        self.wanted = processes
        self.replace()

    async def _work(self, task: Task, record: Record) -> None:
        at_work = self._at_work.setdefault(record.resources, set())
        self.runs[task.id] += 1
        at_work.add(task.id)
        if len(at_work) > 1 and self._is_alone(record.resources):
            self.beside.add(task.id)
        try:
            if record.attempt == task.kills_at:
                self.deaths[task.id] += 1
                self._dying[record.resources] = self.fleet.clock.mono_ms()
                await asyncio.Event().wait()
            await asyncio.sleep(task.takes_s)
            if record.attempt <= task.fails:
                raise Away
            self.handled[task.id] += 1
        finally:
            at_work.discard(task.id)

    def _dies(self, number) -> bool:
        if number not in self._dying:
            return False
        self.late_ends += self.fleet.clock.mono_ms() > self._dying[number]
        return True

    def _is_alone(self, resources) -> bool:
        """Whether a suspect has this process to itself."""
        [guard] = [
            one.process.engine.caution.guard
            for one in self.fleet.processes
            if one.process.resources == resources
        ]
        return guard.turn is not None and guard.turn.is_alone

    # -- what happens --------------------------------------------------------------------------------------------

    def send(self, count=1, *, partition=-1, key=None, **task):
        for _ in range(count):
            self.sent.append(Task(len(self.sent), **task))
            name = b"%d" % (len(self.sent) % 5) if key is None else key
            self.fleet.cluster.append(
                "orders", msgspec.json.encode(self.sent[-1]), key=name, partition=partition
            )

    def replace(self):
        """Start as many processes as are missing."""
        alive = [one for one in self.fleet.processes if not one.is_dead]
        for dead in [one for one in self.fleet.processes if one.is_dead]:
            self.reports += dead.process.reports
        self.fleet.processes = alive
        while len(self.fleet.processes) < self.wanted:
            self.fleet.start()
            self.fleet.processes[-1] = Mortal(self.fleet.processes[-1], self._dies)

    def kill(self, index):
        """SIGKILL from outside."""
        mortal = self.fleet.processes[index]
        if mortal.process.engine.caution.guard.turn is not None:
            self.unlucky |= {task.id for task in self.sent}
        mortal.kill()

    def stop(self, index):
        self.fleet.processes.pop(index).stop()

    def advance(self, ms):
        """Time passes; who died is replaced after a second."""
        end_ms = self.fleet.clock.mono_ms() + ms
        while self.fleet.clock.mono_ms() < end_ms:
            self.fleet.advance(min(REPLACED_AFTER_MS, end_ms - self.fleet.clock.mono_ms()))
            self.replace()

    def finish(self, most_ms=900_000):
        """All gets its time."""
        for _ in range(int(most_ms / 5_000)):
            self.advance(5_000)
            if self.is_done():
                return
        raise AssertionError(f"not done: {self.open()}, {self.fleet.not_committed()}")

    def open(self):
        """The tasks that have no end."""
        ended = self.letters()
        return [task.id for task in self.sent if not self.handled[task.id] and not ended[task.id]]

    def is_done(self):
        return not self.open() and not self.fleet.not_committed()

    # -- what became of it ---------------------------------------------------------------------------------------

    @property
    def ends(self):
        """
        How many processes records have killed; but for those that gave the partition up meanwhile, which only happens here:
        a process of the simulation ends with the step that it is at, in which it may have waited in vain for its handlers.
        """
        return len(self._dying) - self.late_ends

    def letters(self, reason=None):
        """How many dead letters each task has, of one reason."""
        found = Counter()
        for record in self.fleet.cluster.records("orders.dlq"):
            if reason in (None, read_envelope(record.headers())[0].reason):
                found[msgspec.json.decode(record.value(), type=Task).id] += 1
        return found

    def told(self, event):
        """The reports of one event, of all processes so far."""
        alive = [report for one in self.fleet.processes for report in one.process.reports]
        return [report.fields for report in (*self.reports, *alive) if report.event == event]
