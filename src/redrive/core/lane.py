"""
An assigned partition.

It is one lane, whose records run one after another; it stays with its slot while it has a run out, so that a
second run can be queued behind the first without overtaking it. Or it is divided into lanes by key (`key_lanes.py`).
"""

from collections import deque
from collections.abc import Hashable, Mapping
from math import inf
from typing import TYPE_CHECKING

import msgspec

from redrive.core.commands import Gate, Run
from redrive.core.crash_guard import Watch
from redrive.core.heads import Heads
from redrive.core.key_lanes import KeyLane, KeyLanes, lane_key
from redrive.core.listener_state import ListenerState
from redrive.core.metadata import Head
from redrive.core.offsets import OffsetMap
from redrive.core.plan import ListenerPlan, Now, Tier
from redrive.core.record import RawRecord, TopicPartition
from redrive.core.schedule import Window
from redrive.core.writes import Writes

if TYPE_CHECKING:
    from redrive.core.parked import Parked


class Batch(msgspec.Struct):
    """Fetched records of a source lane, and the offset behind them: gaps at their end belong to them."""

    records: list[RawRecord]
    end: int


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
        "wakes_ms",
        "watch",
        "window",
        "writes",
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
        self.frees = listener.plan.policy.after_dead_letter != "release" and key.topic == listener.plan.replay
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
        self.writes = Writes(by_key=bool(listener.plan.parked))
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
        if lane is not None:
            self.drop(lane, offset)
        else:
            self.finish(offset)
        if not self.is_blocked(key):
            self.recalled.discard(key)
        self.make_ready()

    @property
    def keeps_holes(self) -> bool:
        """Whether what dies stays in front of its lane, as a hole, and those behind it wait or follow it."""
        after = self.listener.plan.policy.after_dead_letter
        return after == "divert" if self.frees else self.tier is None and after != "release"

    def holes_in_line(self, key: bytes | None) -> list[RawRecord]:
        """The holes in the lane of this key, where that is known."""
        lane = None if self.keys is None or not self.heads else self.keys.get(key)
        return [] if lane is None else list(filter(self._is_hole, lane.queue))

    def _is_hole(self, record: RawRecord) -> bool:
        return record.offset() in self.heads.dying or self.heads.is_dead(record.offset())

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
        self.drop(lane, lane.queue[0].offset())

    def drop(self, lane: KeyLane, offset: int) -> None:
        """A record of a lane is finished without a run."""
        self.finish(offset)
        if self.keys is not None and self.keys.drop(lane, offset):
            self.wakes_ms.pop(offset, None)
            self.listener.queued -= self.tier is None

    @property
    def knows_parked(self) -> bool:
        """Whether it is known which keys of this source partition are parked: else none of its records may start."""
        return self.parked is not None and self.parked.parking.is_complete

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
