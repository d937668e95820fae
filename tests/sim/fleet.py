"""Several processes of one app on a simulated cluster, and a ledger of every record."""

from collections import defaultdict
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
from redrive.sim.loop import VirtualLoop
from redrive.testing.process import Process, let_pass, settle


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


class Fleet:
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
        let_pass(ms, self.clock, lambda: self.processes, lambda: settle(*self.processes))

    def calm_down(self) -> None:
        """The faults are over; all that waits gets its time."""
        self.cluster.is_down = False
        self.cluster.faults.acks_are_held = False
        self.cluster.faults.commits_are_held = False
        self.cluster.faults.transactions_are_held = False
        self.cluster.faults.uncertain.clear()
        if not self.processes:
            self.start()
        for _ in range(200):
            self.advance(60_000)
            if self.is_done():
                break

    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        dead = self.dead_letters()
        ended = all(self.handled[task.id] or dead[task.id] for task in self.sent)
        return ended and dead[-1] >= self.garbage and not self.not_committed()

    def close(self) -> None:
        while self.processes:
            self.kill(0)
        self.loop.close()

    # -- what became of it ---------------------------------------------------------------------------------------

    def dead_letters(self) -> dict[int, int]:
        """How many dead letters each task has; garbage counts for -1."""
        found: dict[int, int] = defaultdict(int)
        for record in self.cluster.records("orders.dlq"):
            value = record.value()
            if value is None:  # cut, since it was refused as too large again and again
                said, _ = read_envelope(record.headers())
                sent = self.cluster.partition(TopicPartition("orders", said.source_partition or 0))
                value = next(each.value() for each in sent if each.offset() == said.source_offset)
            try:
                found[msgspec.json.decode(value or b"", type=Task).id] += 1
            except msgspec.DecodeError:
                found[-1] += 1
        return found

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
