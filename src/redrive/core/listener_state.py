"""A listener at work: the slots in which its handlers run, how long its records take, and how many are fetched ahead."""

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from redrive.core.brake import WINDOW_MS, Brake
from redrive.core.breaker import Breaker
from redrive.core.commands import Run
from redrive.core.counters import ListenerCounters
from redrive.core.key_lanes import lane_key
from redrive.core.pausing import Pausing
from redrive.core.plan import ListenerPlan
from redrive.core.record import RawRecord, headers_of
from redrive.core.router import Reason

if TYPE_CHECKING:
    from redrive.core.lane import Lane

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


def _beside_value(record: RawRecord) -> int:
    """The bytes of key and headers."""
    headers = headers_of(record) or ()
    return len(record.key() or b"") + sum(len(name) + len(value or b"") for name, value in headers)
