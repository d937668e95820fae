"""
The engine's state: an assigned partition (lane), a listener, and the slots in which its handlers run.

Records of a lane run one after another. A lane that has a run out stays with its slot, so that a second run can be
queued behind the first without overtaking it.
"""

from collections import deque

import msgspec

from redrive.core.brake import WINDOW_MS, Brake
from redrive.core.commands import Gate, Run
from redrive.core.counters import ListenerCounters
from redrive.core.offsets import OffsetMap
from redrive.core.plan import ListenerPlan, Now, Tier
from redrive.core.record import RawRecord, TopicPartition, headers_of
from redrive.core.router import Reason
from redrive.core.schedule import Window

#: A run is planned to last this long: short enough for a rebalance, long enough to cost little per record.
RUN_TARGET_MS = 20.0
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
OUTAGE_FIRST_MS = 1_000.0
OUTAGE_MOST_MS = 60_000.0


class Batch(msgspec.Struct):
    """Fetched records of a source lane, and the offset behind them: gaps at their end belong to them."""

    records: list[RawRecord]
    end: int


class Outage:
    """A listener's downstream is away: nothing moves, one record is tried again with growing back-off."""

    __slots__ = ("backoff_ms", "lane", "probe", "until_mono_ms")

    def __init__(self, lane: "Lane", mono_ms: float) -> None:
        self.lane = lane
        self.backoff_ms = OUTAGE_FIRST_MS
        self.until_mono_ms = mono_ms + self.backoff_ms
        self.probe: Run | None = None

    def grow(self, mono_ms: float) -> None:
        """The probe failed too: wait longer before the next one."""
        self.backoff_ms = min(OUTAGE_MOST_MS, 2 * self.backoff_ms)
        self.until_mono_ms = mono_ms + self.backoff_ms
        self.probe = None


class ListenerState:
    """One listener at work in this process, over all its partitions."""

    __slots__ = (
        "brake",
        "budget_out",
        "causes",
        "causes_since_ms",
        "counters",
        "index",
        "lanes",
        "mean_bytes",
        "mean_ms",
        "outage",
        "plan",
        "queued",
        "ready",
        "run_records_most",
        "slots",
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
        self.outage: Outage | None = None
        #: Runs out, per slot.
        self.slots = [0] * plan.concurrency
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
        """How many records make a run of about `RUN_TARGET_MS`, within what all slots together may have in memory."""
        by_memory = int(BACKLOG_BYTES / (self.mean_bytes + 1) / (RUNS_PER_SLOT_MOST * len(self.slots)))
        return max(1, min(self.run_records_most, int(RUN_TARGET_MS / self.mean_ms), by_memory))

    @property
    def runs_per_slot(self) -> int:
        """How many runs may be queued to a slot: `RUN_TARGET_MS` of work, within bounds."""
        fitting = int(RUN_TARGET_MS / self.mean_ms / self.run_records)
        return max(RUNS_PER_SLOT_LEAST, min(RUNS_PER_SLOT_MOST, fitting))

    @property
    def backlog(self) -> int:
        """How many records may wait in memory: some seconds of work for all slots, within bounds."""
        by_pace = int(BACKLOG_MS / self.mean_ms) * len(self.slots)
        by_memory = int(BACKLOG_BYTES / (self.mean_bytes + 1))
        return max(2 * len(self.slots), min(FETCHED_RUNS * self.run_records_most, by_pace, by_memory))

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
        if self.outage is not None or self.brake.is_on:
            return self.queued == 0
        return self.queued < self.backlog and min(self.slots) < self.runs_per_slot

    def overflows(self) -> bool:
        """Whether records came in far beyond what there is room for, since the poll was for another listener."""
        too_many = self.queued > 2 * self.backlog + FETCHED_RUNS * self.run_records_most
        return too_many or self.queued * self.mean_bytes > 4 * BACKLOG_BYTES

    def died_of(self, cause: str, mono_ms: float) -> None:
        """Count why a record became a dead letter. Bounded: beyond a hundred types new ones are not listed."""
        if not self.brake.is_on and mono_ms - self.causes_since_ms > WINDOW_MS:
            self.causes.clear()
            self.causes_since_ms = mono_ms
        if cause in self.causes or len(self.causes) < CAUSES_MOST:
            self.causes[cause] = self.causes.get(cause, 0) + 1

    def slot_for(self, lane: "Lane") -> int | None:
        """The slot in which the lane's next run can be queued now; None when it has to wait."""
        if lane.runs:
            return lane.slot if self.slots[lane.slot] < self.runs_per_slot else None
        slot = min(range(len(self.slots)), key=self.slots.__getitem__)
        return slot if self.slots[slot] < self.runs_per_slot else None


class Lane:
    """
    One partition during one assignment to this process. What comes back for a lane that is no longer `alive` is
    dropped: that is the epoch fence.
    """

    __slots__ = (
        "acked",
        "alive",
        "gate",
        "is_paused",
        "is_ready",
        "is_stopping",
        "key",
        "last_run",
        "listener",
        "next_offset",
        "offsets",
        "pending",
        "pending_bytes",
        "queue",
        "reposts",
        "returned",
        "runs",
        "slot",
        "tier",
        "waiting",
        "window",
    )

    def __init__(
        self, key: TopicPartition, listener: ListenerState, tier: Tier | None, offsets: OffsetMap
    ) -> None:
        self.key = key
        self.listener = listener
        self.tier = tier
        self.offsets = offsets
        self.alive = True
        self.is_stopping = False
        self.is_paused = False
        self.is_ready = False
        #: Where the consumer goes on after a pause; -1 for the beginning, wherever that is.
        self.next_offset = offsets.settled if offsets.started else -1
        self.queue: deque[Batch] = deque()
        self.window = Window()
        #: Records that wait longer than their tier: posted on at their wake time.
        self.reposts = Window()
        self.slot = 0
        self.runs = 0
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

    def queued(self) -> int:
        """Fetched records of this source lane that no worker has yet."""
        return sum(len(batch.records) for batches in (self.queue, self.returned) for batch in batches)

    def has_work(self, now: Now) -> bool:
        """Whether a run could be made of this lane now."""
        if self.is_stopping or self.gate.is_shut:
            return False
        if self.tier is None:
            return bool(self.queue)
        return self.window.next_wake_ms() <= now.wall_ms


def _beside_value(record: RawRecord) -> int:
    """The bytes of key and headers."""
    headers = headers_of(record) or ()
    return len(record.key() or b"") + sum(len(name) + len(value or b"") for name, value in headers)
