"""
The engine's state: an assigned partition, a listener, and the slots in which its handlers run.

A partition is one lane, whose records run one after another; it stays with its slot while it has a run out, so that a
second run can be queued behind the first without overtaking it. Or it is divided into lanes by key (`key_lanes.py`).
"""

from collections import deque
from collections.abc import Hashable, Mapping
from math import inf
from typing import TYPE_CHECKING

import msgspec

from redrive.core.brake import WINDOW_MS, Brake
from redrive.core.breaker import Breaker
from redrive.core.commands import Gate, Run
from redrive.core.counters import ListenerCounters
from redrive.core.crash_guard import Watch
from redrive.core.heads import Heads
from redrive.core.key_lanes import KeyLane, KeyLanes, lane_key
from redrive.core.metadata import Head
from redrive.core.offsets import OffsetMap
from redrive.core.pausing import Pausing
from redrive.core.plan import ListenerPlan, Now, Tier
from redrive.core.record import RawRecord, TopicPartition, headers_of
from redrive.core.router import Reason
from redrive.core.schedule import Window

if TYPE_CHECKING:
    from redrive.core.parked import Parked

#: A run is planned to last this long: short enough for a rebalance, long enough to cost little per record.
RUN_TARGET_MS = 20.0
#: Of a run that is made of several lanes, what the worker hasn't taken up can be taken back: it may be longer.
BUNDLE_TARGET_MS = 250.0
#: Less work than this isn't worth being divided among handlers.
INDIVISIBLE_MS = 2.0
#: The first run tells how long the handler takes.
FIRST_RUN_RECORDS = 16
#: Two runs to a slot: the worker finds the next one waiting when it ends the first. More of them while they are short,
#: since the pump may be at work on failures for longer than two of them last.
RUNS_PER_SLOT_LEAST = 2
RUNS_PER_SLOT_MOST = 8
#: One look at what the client has fetched brings records for so many runs.
FETCHED_RUNS = 2
CAUSES_MOST = 100
SAMPLE_RECORDS = 50
#: To ask for key and headers costs ten times as much as for the length of the value: only of each eighth of the sample.
LOOKED_INTO_EACH = 8
#: How much is fetched ahead of the handlers: by their pace, and by memory.
BACKLOG_MS = 10_000.0
BACKLOG_BYTES = 16 << 20
#: The same where records wait in lanes by key: enough of them that all handlers find a lane of their own.
LANES_BACKLOG_MS = 1_000.0
LANES_BACKLOG_RECORDS = 20_000
#: While few lanes can run, it is fetched past the records of a busy or failing key, within this memory.
LANES_BYTES = 128 << 20
#: What a fetched record takes besides its key, value and headers.
FETCHED_OVERHEAD_BYTES = 600
#: Unacknowledged successors of one lane: beyond this its intake waits, so that memory stays bounded while the
#: dead-letter topic is away. More of them than a commit's map can say (some 1,600 lone holes) cost repeats after a crash.
PENDING_RECORDS = 10_000
PENDING_BYTES = 16 << 20


class Batch(msgspec.Struct):
    """Fetched records of a source lane, and the offset behind them: gaps at their end belong to them."""

    records: list[RawRecord]
    end: int


class Stopped(msgspec.Struct, frozen=True):
    """Where a listener stopped (`give_up="stop"`), as `topic/partition/offset`, and why."""

    record: str
    why: str


class ListenerState:
    """One listener at work in this process, over all its partitions."""

    __slots__ = (
        "brake",
        "breaker",
        "budget_out",
        "causes",
        "causes_since_ms",
        "counters",
        "free_slots",
        "index",
        "is_divided",
        "lanes",
        "mean_bytes",
        "mean_ms",
        "paused",
        "plan",
        "probe",
        "queued",
        "ready",
        "run_records_most",
        "runs_out",
        "slots",
        "stopped",
    )

    def __init__(self, index: int, plan: ListenerPlan, run_records: int) -> None:
        self.index = index
        self.run_records_most = run_records
        self.plan = plan
        tiers = tuple(tier.topic for tier in (*plan.tiers, *plan.drained))
        self.counters = ListenerCounters(tiers, tuple(Reason))
        self.brake = Brake()
        #: Types of the failures that made dead letters in the last minute or two, for who asks why the brake is on.
        self.causes: dict[str, int] = {}
        self.causes_since_ms = 0.0
        self.breaker = Breaker(has_health=plan.has_health)
        #: The run that tells whether an outage is over.
        self.probe: Run | None = None
        #: By whom and why it was paused.
        self.paused: Pausing | None = None
        self.stopped: Stopped | None = None
        #: Runs out, per slot.
        self.slots = [0] * plan.concurrency
        self.runs_out = 0
        #: Whether its partitions are divided into lanes by key.
        self.is_divided = lane_key(plan.order, plan.policy.blocking) is not None
        #: Slots that can take a run, the one used last at the end; a single one has the next run queued behind the first.
        self.free_slots = [0, 0] if plan.concurrency == 1 else list(range(plan.concurrency))[::-1]
        self.mean_ms = RUN_TARGET_MS / FIRST_RUN_RECORDS
        #: Of key, value and headers together; 0 until the first records were seen.
        self.mean_bytes = 0.0
        #: Fetched records of source lanes that wait for a slot.
        self.queued = 0
        #: Source lanes with queued records, and tier lanes with due ones, in the order of their turn.
        self.ready: deque[Lane] = deque()
        self.lanes: set[Lane] = set()
        #: Dead letters that the runs now out may cause before the brake is asked again.
        self.budget_out = 0

    @property
    def run_records(self) -> int:
        """How many records make a run, by the time they take and the memory that all slots together may have."""
        by_time = int(self._run_ms() / self.mean_ms)
        # What lanes hold is bounded as a whole; stretches of partitions are queued to each slot.
        runs = 1 if self.is_divided else RUNS_PER_SLOT_MOST * len(self.slots)
        by_memory = int(BACKLOG_BYTES / (self.mean_bytes + 1) / runs)
        return max(1, min(self.run_records_most, by_time, by_memory))

    def _run_ms(self) -> float:
        if not self.is_divided:
            return RUN_TARGET_MS
        # All handlers share in what is there, but for work that is done sooner than it is handed over.
        shared_ms = self.mean_ms * (self.queued // len(self.slots) + 1)
        return min(BUNDLE_TARGET_MS, max(INDIVISIBLE_MS, shared_ms))

    @property
    def runs_per_slot(self) -> int:
        """How many runs may be queued to a slot: `RUN_TARGET_MS` of work, within bounds."""
        fitting = int(RUN_TARGET_MS / self.mean_ms / self.run_records)
        return max(RUNS_PER_SLOT_LEAST, min(RUNS_PER_SLOT_MOST, fitting))

    @property
    def backlog(self) -> int:
        """How many records may wait in memory: some seconds of work for all slots, within bounds."""
        most, ahead_ms = FETCHED_RUNS * self.run_records_most, BACKLOG_MS
        if self.is_divided:
            most, ahead_ms = LANES_BACKLOG_RECORDS, LANES_BACKLOG_MS
        by_pace = int(ahead_ms / self.mean_ms) * len(self.slots)
        by_memory = int(BACKLOG_BYTES / (self.mean_bytes + 1))
        return max(2 * len(self.slots), min(most, by_pace, by_memory))

    @property
    def has_room(self) -> bool:
        """Whether a run can be handed out."""
        if self.is_halted:
            return False
        return bool(self.free_slots) if self.is_divided else min(self.slots) < self.runs_per_slot

    @property
    def is_halted(self) -> bool:
        """Whether nothing is started or fetched: a person has paused it, or it has stopped at a record."""
        return self.paused is not None or self.stopped is not None

    def measured(self, seconds: float, count: int) -> None:
        """Learn how long a record takes: at once when they got slower, slowly when they got quicker."""
        latest_ms = max(1e-3, seconds * 1000 / count)
        self.mean_ms = latest_ms if latest_ms > self.mean_ms else 0.7 * self.mean_ms + 0.3 * latest_ms

    def weighed(self, records: list[RawRecord]) -> None:
        """Learn from a sample how large records are: at once when they got larger, slowly when they got smaller."""
        sample = records[:: 1 + len(records) // SAMPLE_RECORDS]
        looked_into = sample[::LOOKED_INTO_EACH]
        latest = sum(map(len, sample)) / len(sample) + sum(map(_beside_value, looked_into)) / len(looked_into)
        latest = max(1.0, latest)
        self.mean_bytes = latest if latest > self.mean_bytes else 0.7 * self.mean_bytes + 0.3 * latest

    def is_hungry(self) -> bool:
        """Whether the consumer should be asked for more of this listener's records."""
        if self.is_halted:
            return False
        if self.brake.is_on or not self.breaker.is_closed:
            return self.queued == 0
        if self.is_divided:
            return self.queued < self.backlog or (self._has_idle_slots() and not self.is_over())
        return self.queued < self.backlog and self.has_room

    def _has_idle_slots(self) -> bool:
        """Whether there are fewer lanes that can run than handlers without work."""
        return sum(lane.keys.ready_count for lane in self.lanes if lane.keys) < len(self.free_slots)

    def is_over(self) -> bool:
        """Whether lanes hold all the memory that they may."""
        return self.queued * (self.mean_bytes + FETCHED_OVERHEAD_BYTES) > LANES_BYTES

    def overflows(self, lane: "Lane") -> bool:
        """
        Whether this source lane must not be fetched for now: records came in far beyond what there is room for, since the
        poll was for another listener; or a key that fails or is slow has piled up more than the lane's share of memory.
        """
        if lane.keys:
            return self.is_over() and lane.keys.waiting * len(self.lanes) >= self.queued
        too_many = self.queued > 2 * self.backlog + FETCHED_RUNS * self.run_records_most
        return too_many or self.queued * self.mean_bytes > 4 * BACKLOG_BYTES

    def can_fetch_again(self, lane: "Lane") -> bool:
        """Whether a source lane that was paused has room again."""
        if lane.keys:
            return (
                self.queued * (self.mean_bytes + FETCHED_OVERHEAD_BYTES) < LANES_BYTES / 2
                and self.is_hungry()
            )
        return self.queued <= self.backlog // 2 and self.is_hungry()

    def died_of(self, cause: str, mono_ms: float) -> None:
        """Count why a record became a dead letter. Bounded: beyond a hundred types new ones are not listed."""
        if not self.brake.is_on and mono_ms - self.causes_since_ms > WINDOW_MS:
            self.causes.clear()
            self.causes_since_ms = mono_ms
        if cause in self.causes or len(self.causes) < CAUSES_MOST:
            self.causes[cause] = self.causes.get(cause, 0) + 1

    def slot_for(self, lane: "Lane") -> int | None:
        """The slot in which the lane's next run can be queued now; None when it has to wait."""
        if self.is_divided:
            return self.free_slots[-1] if self.free_slots else None
        if lane.runs:
            return lane.slot if self.slots[lane.slot] < self.runs_per_slot else None
        slot = min(range(len(self.slots)), key=self.slots.__getitem__)
        return slot if self.slots[slot] < self.runs_per_slot else None

    def occupy(self, slot: int) -> None:
        """A run was handed to the slot."""
        self.slots[slot] += 1
        self.runs_out += 1
        if self.is_divided:
            self.free_slots.remove(slot) if self.free_slots[-1] != slot else self.free_slots.pop()

    def vacate(self, slot: int) -> None:
        """A run came back from the slot."""
        self.slots[slot] -= 1
        self.runs_out -= 1
        if self.is_divided:
            self.free_slots.append(slot)


class Lane:
    """
    One partition during one assignment to this process. What comes back for a lane that is no longer `alive` is
    dropped: that is the epoch fence.
    """

    __slots__ = (
        "acked",
        "acked_mono_ms",
        "alive",
        "frees",
        "gate",
        "heads",
        "held",
        "is_paused",
        "is_ready",
        "is_rewound",
        "is_stopping",
        "key",
        "keys",
        "last_run",
        "limit",
        "listener",
        "next_offset",
        "offsets",
        "parked",
        "pending",
        "pending_bytes",
        "queue",
        "recalled",
        "reposts",
        "rests_until_ms",
        "returned",
        "runs",
        "skips_window",
        "slot",
        "tier",
        "twin",
        "waiting",
        "wakes_ms",
        "watch",
        "window",
    )

    def __init__(
        self,
        key: TopicPartition,
        listener: ListenerState,
        tier: Tier | None,
        offsets: OffsetMap,
        heads: Mapping[int, Head] | None = None,
    ) -> None:
        self.key = key
        self.listener = listener
        self.tier = tier
        self.offsets = offsets
        self.alive = True
        self.is_stopping = self.is_paused = self.is_ready = False
        #: `next_offset` was set back: what is fetched before the consumer was told is to be fetched once more.
        self.is_rewound = False
        #: The pair of source and parked partition that this is one of, while the parked one is here.
        self.parked: Parked | None = None
        #: Where the consumer goes on after a pause; -1 for the beginning, wherever that is.
        self.next_offset = offsets.settled if offsets.started else -1
        self.queue: deque[Batch] = deque()
        #: Records that failed and wait in the partition itself.
        self.heads = Heads(heads or {})
        #: The lanes by key, where there are such.
        self.keys = _key_lanes(listener.plan, self.heads)
        #: Whether its records free what waits for dead letters; then nothing runs without `twin`, the source's partition.
        self.frees = listener.plan.policy.after_dead_letter != "release" and bool(tier and not tier.delay_ms)
        #: Of these two partitions each is the other's. They are committed together: were only one told that a replay was
        #: handled, a crash would leave a hole that nothing frees, or run the replay after what waited for it.
        self.twin: Lane | None = None
        #: Keys of which replayed records have come.
        self.recalled: set[Hashable] = set()
        #: The wake times of a tier's records that are in these lanes, by offset.
        self.wakes_ms: dict[int, int] = {}
        #: The first record failed and is to be tried again in place, not before this.
        self.rests_until_ms = 0.0
        #: Only records below this offset may start.
        self.limit = inf
        #: Of records that failed in an outage and didn't end since: their offsets. They run again after it.
        self.held: set[int] = set()
        #: The crash guard's; None until it is known where the partition begins.
        self.watch: Watch | None = None
        #: Of a source: records that are to run again, ahead of those in the queue. Of a tier: all that wait for their due.
        self.window = Window()
        #: While there is an outage: the next probe is to be a record of the queue.
        self.skips_window = False
        #: Records that wait longer than their tier: posted on at their wake time.
        self.reposts = Window()
        self.slot = self.runs = 0
        self.last_run: Run | None = None
        #: What runs that ended early gave back, until all that were out are home.
        self.returned: list[Batch] = []
        self.gate = Gate()
        #: Successors not yet acknowledged.
        self.pending = 0
        self.pending_bytes = 0
        #: Those of them that were refused and wait to be sent again.
        self.waiting = 0
        #: The last (offset, metadata) that the broker confirmed.
        self.acked: tuple[int, str] | None = None
        #: When it did, where that was in this process.
        self.acked_mono_ms: float | None = None

    def finish(self, offset: int) -> None:
        """An open record of this lane is finished."""
        self.offsets.close(offset)
        self.held.discard(offset)
        if self.heads:
            self.heads.drop(offset)
        if self.parked is not None and self.parked.lane is self:
            self.parked.finished(offset)

    def letter_written(self, record: RawRecord, now_ms: int) -> None:
        """All in-sync replicas have the record's dead letter: it is finished, or a hole in front of its lane."""
        offset = record.offset()
        if offset not in self.heads.dying:
            self.finish(offset)
            return
        self.heads.died(offset, now_ms)
        if offset in self.heads.freed:
            self.free(offset, record.key())
            return
        if (
            self.keys is not None
            and self.keys.looks_behind
            and (lane := self.keys.lane_at(offset, record.key()))
        ):
            self.keys.wake(lane)
            self.make_ready()

    def free(self, offset: int, key: bytes | None) -> None:
        """What waits for this dead letter goes on. Nothing, when none does."""
        if offset in self.heads.dying:
            # It was replayed before we heard that it is written.
            self.heads.freed.add(offset)
            return
        if not self.heads.is_dead(offset) or self.keys is None:
            return
        lane = self.keys.lane_at(offset, key)
        if offset >= self.offsets.settled:
            self.offsets.restore(offset)
        elif lane is not None and self.keys.drop(lane, offset):
            self.listener.queued -= 1
        self.finish(offset)
        if not self.is_blocked(key):
            self.recalled.discard(key)
        self.make_ready()

    @property
    def misses_source(self) -> bool:
        """
        Whether what waits for this replay topic's records is elsewhere: what they free can't be told then, so they stay
        unfinished, and whoever gets both partitions runs them again.
        """
        return self.frees and self.twin is None

    def is_blocked(self, key: bytes | None) -> bool:
        """Whether records of this key wait for a dead letter, as far as is known: that of a record not fetched yet may be it."""
        lane = None if self.keys is None else self.keys.get(key)
        if lane is not None and lane.queue and self.heads.is_dead(lane.queue[0].offset()):
            return True
        settled = self.offsets.settled
        return any(head.is_dead for offset, head in self.heads.copy().items() if offset >= settled)

    def drop_front(self, lane: KeyLane) -> None:
        """The first record of a lane is finished without a run."""
        if self.keys is not None:
            offset = lane.queue[0].offset()
            self.finish(offset)
            self.keys.drop(lane, offset)
            self.listener.queued -= 1

    @property
    def knows_parked(self) -> bool:
        """Whether it is known which keys of this source partition are parked: else none of its records may start."""
        return self.parked is not None and self.parked.parking.is_complete

    def may_write(self) -> bool:
        """Whether few enough successors are on their way that more may be caused."""
        return self.pending < PENDING_RECORDS and self.pending_bytes < PENDING_BYTES

    def make_ready(self) -> None:
        """It may have work: it gets its turn."""
        if not self.is_ready:
            self.is_ready = True
            self.listener.ready.append(self)

    @property
    def is_apart(self) -> bool:
        """Whether its records start by another order than that of their offsets."""
        return self.keys is not None or self.tier is not None

    def has_stretches_out(self) -> bool:
        """Whether a worker has some of it that isn't finished offset by offset."""
        return bool(self.runs) and not self.is_apart

    def queued(self) -> int:
        """Fetched records of this source lane that no worker has yet."""
        if self.tier is not None:
            return 0
        if self.keys is not None:
            return self.keys.waiting
        return sum(len(batch.records) for batches in (self.queue, self.returned) for batch in batches)

    def has_work(self, now: Now) -> bool:
        """Whether a run could be made of this lane now."""
        if self.is_stopping or self.gate.is_shut or now.wall_ms < self.rests_until_ms:
            return False
        if self.misses_source:
            return False
        if self.tier is None and self.listener.plan.parked and not self.knows_parked:
            return False
        if self.queue or (self.keys is not None and self.keys.ready_count):
            return True
        return self.window.next_wake_ms() <= now.wall_ms


def _key_lanes(plan: ListenerPlan, heads: Heads) -> KeyLanes | None:
    key_of = lane_key(plan.order, plan.policy.blocking)
    if key_of is None:
        return None
    return KeyLanes(key_of, heads, looks_behind=plan.policy.after_dead_letter == "divert")


def _beside_value(record: RawRecord) -> int:
    """The bytes of key and headers."""
    headers = headers_of(record) or ()
    return len(record.key() or b"") + sum(len(name) + len(value or b"") for name, value in headers)
