"""
The engine alone, in a world that keeps the truth.

No pump: a test decides what happens next, and one thing at a time. The world performs the engine's commands on a
simulated cluster, and notes what really happened to each record; `check` compares that with what the engine claims.
"""

import itertools
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

import msgspec

from redrive.core.commands import (
    Commit,
    Pause,
    Produce,
    Refusal,
    Report,
    Resume,
    Run,
)
from redrive.core.engine import Engine
from redrive.core.listener_state import RUNS_PER_SLOT_MOST
from redrive.core.metadata import decode_metadata
from redrive.core.notices import Notice, Posted
from redrive.core.pausing import Pausing
from redrive.core.plan import GroupPlan, ListenerPlan, Tier
from redrive.core.policy import RetryPolicy
from redrive.core.record import TopicPartition
from redrive.core.starts import Start, start_at_committed
from redrive.sim.cluster import SimCluster
from tests.sim.truth import Truth, end_of, has_left
from tests.sim.worker import Worker

_NUMBERS = itertools.count(1)

#: What a simulated handler does with a record.
OUTCOMES = ("ok", "transient", "permanent", "poison", "outage", "skip", "dead-letter", "retry-later")


def plan_of(
    *delays: str,
    name: str = "orders",
    give_up: str = "dead-letter",
    concurrency: int = 1,
    brake: bool = True,
    breaker: bool = True,
    order: str = "partition",
    **policy,
) -> ListenerPlan:
    """A listener on the topic `name`, with its topics called as by default."""
    ladder = RetryPolicy(*delays, **policy)
    delays = () if ladder.blocking else delays
    tiers = tuple(
        Tier(f"{name}.retry.{delay}", delay_ms, index)
        for index, (delay, delay_ms) in enumerate(zip(delays, ladder.tier_delays_ms, strict=True))
    )
    replay = tiers[0].topic if tiers else f"{name}.replay"
    return ListenerPlan(
        name=name,
        source=name,
        dlq=f"{name}.dlq",
        state=f"{name}.dlq.state",
        replay=replay,
        policy=ladder,
        tiers=tiers,
        drained=() if tiers else (Tier(replay, 0),),
        give_up=give_up,
        order=order,
        concurrency=concurrency,
        brake=brake,
        breaker=breaker,
    )


def identity(topic: str) -> str:
    return f"id-of-{topic}"


class World:  # size: what happens to a process, a method each
    """
    One process's engine over a simulated cluster. `plans`: its listeners; every topic has `partitions`. `is_quick`: each
    slot has eight runs of a few records queued, as with handlers that take no time.
    """

    def __init__(
        self,
        *plans: ListenerPlan,
        partitions: int = 2,
        window_bytes: int = 64 << 20,
        is_quick: bool = False,
    ) -> None:
        self.cluster = SimCluster()
        self.clock = self.cluster.clock
        self.plan = GroupPlan(group="shop", listeners=plans, window_bytes=window_bytes)
        #: How long a handler is said to take for a record.
        self.record_s = 0.001
        if is_quick:
            self.plan = msgspec.structs.replace(self.plan, run_records=4)
            self.record_s = 1e-6
        self.retry_after_ms = 7_000
        self.failure_message = "it failed"
        #: Whether workers are seen in the middle of a record, or between two.
        self.is_seen_at_work = True
        for topic in (*self.plan.topics, *(topic for plan in plans for topic in (plan.dlq, plan.state))):
            self.cluster.create_topic(topic, partitions)
        self.committed: dict[TopicPartition, tuple[int, str]] = {}
        self.truth = Truth(self.cluster)
        self.reports: list[Report] = []
        self.posted: list[Posted] = []
        #: How much the engine has asked for.
        self._moves = 0
        #: What this process knows to be discarded.
        self.discarded: set[tuple[TopicPartition, int]] = set()
        self.restart()

    # -- processes and partitions --------------------------------------------------------------------------------

    def restart(self) -> None:
        """A new process: the one before, if any, is gone with all that it had in memory."""
        self.engine = Engine(self.plan, self.cluster.counts, identity, f"n{next(_NUMBERS)}")
        self.slots: dict[tuple[int, int], deque[Run]] = defaultdict(deque)
        self.workers: dict[tuple[int, int], Worker] = {}
        self.writes: list[Produce] = []
        self.commits: list[Commit] = []
        self.given_up: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.draining: set[TopicPartition] = set()
        if self.posted:
            self._notify(self.posted)

    def assign(self, *keys: TopicPartition) -> None:
        """Partitions come to the process, and begin where the group has committed."""
        starts = {}
        for key in keys:
            offset, metadata = self.committed.get(key, (None, ""))
            start = (
                Start(None) if offset is None else start_at_committed(offset, metadata, identity(key.topic))
            )
            starts[key] = msgspec.structs.replace(start, end=self.cluster.partition(key).end)
            self.positions[key] = offset or self.cluster.partition(key).start
            self.paused.discard(key)
        self.engine.assigned(starts)
        for key, start in starts.items():
            lane = self.engine.lanes[key]
            self.truth.began(lane, self.positions[key], start.restored)
            if start.acked is not None:
                self._tell(key)
        self._perform()
        self._open()

    def _open(self) -> None:
        """Nothing starts before a commit of a partition's opened ledger was answered: at once where none is on its way."""
        if not self.commits:
            self.open_ledgers()

    def open_ledgers(self) -> None:
        """Answer commits until no partition waits for one."""
        while self.engine.caution.guard.wanting():
            self.pass_time(0)
            if not self.commits:
                return
            self.answer_commit()
            self.pass_time(0)

    def revoke(self, *keys: TopicPartition) -> None:
        """The first half of a revoke: nothing more is handed out."""
        self.engine.stop(keys)
        self.draining.update(keys)
        self._perform()

    def let_go(self, *keys: TopicPartition, last_commit: str = "stored") -> None:
        """Partitions are somebody else's. The `last_commit` was "stored", or "refused", or "none" was tried."""
        lanes = [self.engine.lanes[key] for key in keys]
        if last_commit != "none":
            self.engine.commits.send_last(lanes, lambda last: self._last_sent(last, last_commit))
        self.engine.forget(keys)
        for commit in self.commits:
            self.given_up[commit.snapshot].update(keys)
        for key in keys:
            self.positions.pop(key, None)
            self.draining.discard(key)
        self._perform()

    def _last_sent(self, last: Mapping[TopicPartition, tuple[int, str]], last_commit: str) -> bool:
        self._check_claims(last)
        is_stored = last_commit == "stored"
        if is_stored:
            self.committed.update(last)
        return is_stored

    # -- what happens --------------------------------------------------------------------------------------------

    def append(self, topic: str, partition: int = 0, count: int = 1, *, headers: Sequence = ()) -> None:
        """Another client writes records."""
        for number in range(count):
            key = None if number % 7 == 6 else b"%d" % (number % 3)
            self.cluster.append(topic, b"{}", key=key, partition=partition, headers=headers)

    def fetch(self, key: TopicPartition, most: int = 100) -> None:
        """The consumer delivers what comes next, unless the partition is paused."""
        if key not in self.positions or key in self.paused:
            return
        records = self.cluster.partition(key).read(self.positions[key], most)
        if records:
            self.positions[key] = records[-1].offset() + 1
            self.engine.fetched(key, list(records), self.clock.now())
            self._perform()
            self._open()

    def _notify(self, posted: Sequence[Posted]) -> None:
        out = {
            (run.lane.key, record.offset())
            for run in self.engine.runs
            for record in run.records[run.settled :]
        }
        for _, key, notice in posted:
            if notice.action == "skip":
                self.truth.to_skip |= {
                    (key, offset) for first, end in notice.ranges for offset in range(first, end)
                }
            if notice.action == "discard":
                offsets = {(key, offset) for first, end in notice.ranges for offset in range(first, end)}
                self.discarded |= offsets - out
        self.engine.notices.post(posted, self.clock.now())
        self.engine.tick(self.clock.now())
        self._perform()

    def work(self, listener: int = 0, slot: int = 0, outcomes: Sequence[str] = ("ok",)) -> None:
        """The slot's worker takes up as many records as there are outcomes, and reports when its run has ended."""
        for outcome in outcomes:
            worker = self._worker(listener, slot)
            if worker is None:
                return
            if worker.result is None:
                worker.step(outcome)
            if worker.result is not None:
                del self.workers[listener, slot]
                self.engine.finished(worker.result, self.clock.now())
                self._perform()

    def answer(self, index: int = 0, refusal: Refusal | None = None, *, written: bool = True) -> None:
        """One of the outstanding writes gets its answer. A refused one may have been `written` all the same."""
        produce = self.writes.pop(index)
        if refusal is None or written:
            self.cluster.append(
                produce.topic,
                produce.value,
                key=produce.key,
                headers=produce.headers,
                partition=produce.partition,
            )
        token = produce.token
        if refusal is None:
            self.truth.confirmed(token.lane, token.record.offset())
        self.engine.successors.answered([(token, refusal)], self.clock.now())
        self._perform()

    def answer_commit(self, *refused: TopicPartition) -> None:
        """The oldest commit on its way is stored and answered."""
        if self.commits:
            commit = self.commits.pop(0)
            # A broker takes a member's commits in their order, and none of a partition that the member has given up:
            # a late answer never undoes what was committed after it.
            kept = [
                key
                for key in commit.offsets
                if key not in refused and key not in self.given_up[commit.snapshot]
            ]
            self.committed.update({key: commit.offsets[key] for key in kept})
            for key in kept:
                self._tell(key)
            self.engine.commits.answered(commit.snapshot, refused, self.clock.now())
            self._perform()

    def _tell(self, key: TopicPartition) -> None:
        offset, metadata = self.committed[key]
        for head_offset, head in decode_metadata(metadata, offset, identity(key.topic)).heads.items():
            if (lane := self.engine.lanes.get(key)) is not None:
                self.truth.told(lane, head_offset, head.attempt)

    def pass_time(self, ms: float) -> None:
        """Time passes, and the engine is told."""
        self.clock.advance(ms)
        self.engine.tick(self.clock.now())
        self._perform()

    # -- what the engine asks for --------------------------------------------------------------------------------

    def _perform(self) -> None:
        """Do what the engine asks."""
        for command in self.engine.take_commands():
            self._moves += 1
            match command:
                case Run():
                    self._submit(command)
                case Produce():
                    assert self.engine.lanes.get(command.token.lane.key) is command.token.lane, (
                        "a successor of a partition that is gone"
                    )
                    self.writes.append(command)
                case Commit():
                    self._check_claims(command.offsets)
                    self.commits.append(command)
                case Pause():
                    self.paused.update(command.partitions)
                case Resume():
                    for key, offset in command.offsets.items():
                        self.paused.discard(key)
                        self.positions[key] = self.cluster.partition(key).start if offset is None else offset
                case Report():
                    self.reports.append(command)
                    if command.event == "crash-named":
                        said = command.fields
                        self.truth.crashed.add(
                            (
                                TopicPartition(str(said["topic"]), int(str(said["partition"]))),
                                int(str(said["offset"])),
                            )
                        )

    def _submit(self, run: Run) -> None:
        lane = run.lane
        assert lane.alive, "a run of a partition that is gone"
        assert not lane.is_stopping, "a run of a partition that goes"
        assert run.records, "an empty run"
        assert run.budget >= 1
        if run.wakes_ms is not None:
            assert max(run.wakes_ms) <= self.clock.wall_ms(), "a record that isn't due"
            again = {(lane.key, record.offset()) for record in run.records} & self.discarded
            assert not again, f"discarded and run: {again}"
        out = [key for key, runs in self.slots.items() if any(other.lane is lane for other in runs)]
        assert run.key_lanes or out in ([], [(run.listener, run.slot)]), "a lane in two slots"
        self.slots[run.listener, run.slot].append(run)
        assert len(self.slots[run.listener, run.slot]) <= RUNS_PER_SLOT_MOST
        assert run.slot < self.plan.listeners[run.listener].concurrency

    def _worker(self, listener: int, slot: int) -> Worker | None:
        place = listener, slot
        if place not in self.workers:
            if not self.slots[place]:
                return None
            self.workers[place] = Worker(self, self.slots[place].popleft())
        return self.workers[place]

    # -- is it so? -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Whatever is going on: no claim without a fact, no number below zero, no wake-up forgotten."""
        assert self.engine.successors.outstanding == len(self.writes)
        for lane in self.engine.lanes.values():
            self.truth.check_claim(lane, lane.offsets.frontier, lane.offsets.finished_above_frontier())
            assert lane.writes.count >= lane.writes.waiting >= 0
            assert lane.writes.size_bytes >= 0
            assert lane.window.held_bytes >= 0
            if lane.tier is not None and not (lane.is_ready or lane.gate.is_shut):
                assert self.engine.next_wake_ms <= lane.window.next_wake_ms()
        for listener in self.engine.listeners:
            assert listener.queued == sum(lane.queued() for lane in listener.lanes)
            assert listener.budget_out >= 0
            assert all(0 <= runs <= RUNS_PER_SLOT_MOST for runs in listener.slots)
            assert listener.counters.handled >= 0

    def settle(self) -> None:
        """Let everything go well until nothing is left to do; then nothing may be left anywhere."""
        step_ms = 1.0
        for _ in range(4_000):  # suspects of a crash run one by one, each with a commit
            moves = self._moves
            for key in list(self.positions):
                self.fetch(key)
            for listener, slot in list(self.slots):
                self.work(listener, slot, ["ok"] * 300)
            while self.writes:
                self.answer()
            while self.commits:  # with one given up the next may be on its way
                self.answer_commit()
            self.check()
            if self._is_done():
                break
            # Who has the process to itself gives it back unless it uses it at once; but the answer to a commit may be
            # waited for in vain, and for long.
            step_ms = 1.0 if moves != self._moves else min(2 * step_ms, 1_000.0)
            if self.engine.caution.guard.turn is None:
                self.pass_time(
                    min(3_600_000.0, max(1_000.0, self.engine.next_wake_ms - self.clock.wall_ms()))
                )
            else:
                self.pass_time(step_ms)
        self._check_nothing_is_left()

    def _is_done(self) -> bool:
        lanes = self.engine.lanes.values()
        is_read = all(self.positions[key] >= end_of(self.cluster, key) for key in self.positions)
        return is_read and not self.engine.runs and not any(has_left(lane) for lane in lanes)

    def _check_nothing_is_left(self) -> None:
        for _ in range(20):  # the answer to one may be waited for in vain, the rest may come one by one
            self.pass_time(10_000)
            while self.commits:
                self.answer_commit()
        for key, lane in self.engine.lanes.items():
            self.truth.check_end(lane)
            assert self.committed.get(key, (0, ""))[0] >= end_of(self.cluster, key), f"{key}: not committed"
        for listener in self.engine.listeners:
            assert (listener.queued, listener.budget_out, sum(listener.slots)) == (0, 0, 0)

    def _check_claims(self, offsets: dict[TopicPartition, tuple[int, str]]) -> None:
        for key, (offset, metadata) in offsets.items():
            restored = decode_metadata(metadata, offset, identity(key.topic))
            assert restored.ignored == ""
            self.truth.check_claim(self.engine.lanes[key], offset, restored.ranges)


def say(world: World, action: str, listener: str) -> None:
    """A person pauses or resumes a listener, and the process reads it."""
    pausing = Pausing(action, "shop", listener, "ann", int(world.clock.wall_ms()), "bank is down")
    world.engine.notices.post([pausing], world.clock.now())
    world.pass_time(200)


def post(world: World, action: str, key: TopicPartition, *ranges: tuple[int, int]) -> None:
    """A person hurries or discards records of a tier, and the process reads it."""
    notice = Notice(action, "shop", identity(key.topic), ranges, "ann", int(world.clock.wall_ms()), "job", "")
    world.posted.append(Posted(f"notice:{len(world.posted)}", key, notice))
    world._notify(world.posted[-1:])
