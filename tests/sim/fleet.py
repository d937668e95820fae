"""Several processes of one app on a simulated cluster, and a ledger of every record."""

from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

import msgspec

from redrive import App, Record, RetryPolicy
from redrive.core.dialects import read_envelope
from redrive.core.plan import Delivery
from redrive.core.record import TopicPartition
from redrive.core.settings import Settings
from redrive.runtime.planning import plan_group, wanted_topics
from redrive.runtime.provisioning import carry_out, compare, with_source_partitions
from redrive.sim.cluster import SimCluster
from redrive.sim.faults import Faults
from redrive.sim.loop import VirtualLoop
from redrive.sim.records import SimRecord
from redrive.testing.process import STEP_MOST_MS, Process, let_pass, settle

#: So many processes must have ended with a record before the crash guard blames it: rightly, for all that it can know.
KILLS_TO_BLAME = 3


class Task(msgspec.Struct):
    """A record's value: how many runs of it fail, and how long each one takes."""

    id: int
    fails: int = 0
    takes_s: float = 0.0


class Run(NamedTuple):
    """A run of a handler, from its start."""

    attempt: int
    at_ms: float
    due_ms: int | None


class Away(Exception):
    """What failing handlers raise."""


class Fleet:  # size: what happens to processes and records, a method each
    """
    Processes of an app with the ladder 5 s, 30 s; `partitions` of its one source. `is_async`: its handler's kind. `app`:
    another one to run, which keeps its own ledger; its handlers find the number of their process as `record.resources`.
    With `delivery` exactly-once each run that succeeds emits a record to `mails`.
    """

    def __init__(
        self,
        *,
        partitions: int = 3,
        seed: int | None = None,
        is_async: bool = False,
        app: App | None = None,
        delivery: Delivery = "at-least-once",
        breaker: bool = False,
    ) -> None:
        self.cluster = SimCluster(seed=seed)
        self.clock = self.cluster.clock
        self.runs: dict[int, list[Run]] = defaultdict(list)
        self.handled: dict[int, int] = defaultdict(int)
        self.sent: list[Task] = []
        self.garbage = 0
        self._emits = delivery == "exactly-once"
        self.cluster.create_topic("mails")
        self.app = (app or self._app(is_async)).resolve()
        # Tasks fail for reasons of their own, all of them at times: the breaker would hold them for ever.
        self.settings = Settings(bootstrap_servers="sim:9092", delivery=delivery, breaker=breaker)
        wanted = with_source_partitions(
            wanted_topics(self.app, self.settings), {}, missing=partitions, by_source={}
        )
        admin = self.cluster.admin()
        assert carry_out(admin, compare(admin, wanted), replication=3) == {}
        self.plan = plan_group(self.app, self.settings, self.cluster.topics)
        self.loop = VirtualLoop(self.clock)
        self.processes: list[Process] = []
        #: Those that have ended, too.
        self.everyone: list[Process] = []
        #: Those that stand still, as by SIGSTOP.
        self.frozen: list[Process] = []
        #: How seldom engines are looked after when nothing happens.
        self.step_most_ms = STEP_MOST_MS
        self._numbers = count(1)

    def _app(self, is_async: bool) -> App:
        app = App("shop")

        def begin(task: Task, record: Record) -> None:
            self.runs[task.id].append(Run(record.attempt, self.clock.wall_ms(), record.due_ms))

        def end(task: Task, record: Record) -> None:
            if record.attempt <= task.fails:
                raise Away
            if self._emits:
                record.emit("mails", b"%d" % task.id)
            self.handled[task.id] += 1

        if is_async:

            @app.listener("orders", name="work", retry=RetryPolicy("5s", "30s"), concurrency=2)
            async def work(task: Task, record: Record) -> None:
                import asyncio

                begin(task, record)
                await asyncio.sleep(task.takes_s)
                end(task, record)
        else:

            @app.listener("orders", name="work", retry=RetryPolicy("5s", "30s"))
            def work_at_once(task: Task, record: Record) -> None:
                begin(task, record)
                end(task, record)

        return app

    # -- what happens --------------------------------------------------------------------------------------------

    def start(self) -> None:
        number = next(self._numbers)
        self.everyone.append(
            Process(
                self.app,
                self.plan,
                self.settings,
                self.cluster,
                self.loop,
                resources=number,
                name=str(number),
            )
        )
        self.processes.append(self.everyone[-1])

    def stop(self, index: int) -> None:
        self.processes.pop(index).stop()

    def kill(self, index: int) -> None:
        self.processes.pop(index).kill()

    def lose(self, index: int) -> None:
        """The group gives a process up that lives: it hears of that when it polls next."""
        self.cluster.expel(self.processes[index].source)

    def freeze(self, index: int) -> None:
        """A process stands still. When its session has ended, its partitions go to others."""
        self.frozen.append(self.processes.pop(index))
        self.cluster.kill(self.frozen[-1].source)

    def thaw(self) -> None:
        """All that stood still goes on."""
        for process in self.frozen:
            if (member := process.source.member) is not None:
                member.killed_mono_ms = None
        self.processes += self.frozen
        self.frozen = []

    def send(self, fails: int = 0, takes_s: float = 0.0, partition: int = -1) -> None:
        task = Task(len(self.sent), fails, takes_s)
        self.sent.append(task)
        key = b"%d" % task.id
        self.cluster.append("orders", msgspec.json.encode(task), key=key, partition=partition)

    def send_garbage(self) -> None:
        self.garbage += 1
        self.cluster.append("orders", b"\xff%d" % self.garbage)

    def advance(self, ms: float) -> None:
        """Time passes, and every process does what becomes due in it."""
        let_pass(ms, self.clock, lambda: self.processes, lambda: settle(*self.processes), self.step_most_ms)

    def calm_down(self, is_done: Callable[[], bool] | None = None, round_ms: float = 60_000) -> None:
        """
        The faults are over; all that waits gets its time, until it `is_done`: by this ledger, or one of the app's own, asked
        each `round_ms`.
        """
        self.cluster.is_down, self.cluster.faults = False, Faults()
        self.thaw()
        if not self.processes:
            self.start()
        for _ in range(200):
            self.advance(round_ms)
            if (is_done or self.is_done)():
                break

    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        dead = self.dead_letters()
        ended = all(self.handled[task.id] or dead[task.id] for task in self.sent)
        return ended and dead[-1] >= self.garbage and not self.not_committed()

    def close(self) -> None:
        self.thaw()
        while self.processes:
            self.kill(0)
        self.loop.close()

    # -- what became of it ---------------------------------------------------------------------------------------

    def dead_letters(self) -> dict[int, int]:
        """How many dead letters each task has; garbage counts for -1."""
        found: dict[int, int] = defaultdict(int)
        for record in self.cluster.records("orders.dlq"):
            found[self._task_of(record)] += 1
        return found

    def blamed(self) -> set[int]:
        """Tasks that died since the crash guard found them to kill their processes."""
        letters = self.cluster.records("orders.dlq")
        return {
            self._task_of(record)
            for record in letters
            if read_envelope(record.headers())[0].reason == "crashed"
        }

    def _task_of(self, letter: SimRecord) -> int:
        value = letter.value()
        if value is None:  # cut, since it was refused as too large again and again
            said, _ = read_envelope(letter.headers())
            sent = self.cluster.partition(TopicPartition("orders", said.source_partition or 0))
            value = next(each.value() for each in sent if each.offset() == said.source_offset)
        try:
            return msgspec.json.decode(value or b"", type=Task).id
        except msgspec.DecodeError:
            return -1

    def attempts_on_dead_letters(self) -> set[int]:
        records = self.cluster.records("orders.dlq")
        said = [read_envelope(record.headers())[0] for record in records]
        return {each.attempt for each in said if each.reason == "exhausted"}

    def not_committed(self) -> list[TopicPartition]:
        """Partitions of which the group has not committed everything."""
        offsets = self.cluster.group("shop").offsets
        keys = [
            TopicPartition(topic, number)
            for topic in self.plan.topics
            for number in range(self.cluster.counts[topic])
        ]
        return [
            key
            for key in keys
            if (end := self._end(key)) and (key not in offsets or (offsets[key].offset or 0) < end)
        ]

    def _end(self, key: TopicPartition) -> int:
        """Behind the last record: transaction markers are nothing that a group could commit."""
        return max((record.offset() + 1 for record in self.cluster.partition(key)), default=0)
