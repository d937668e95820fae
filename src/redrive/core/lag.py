"""
How far behind a group is, partition by partition, from what anybody may ask of a cluster.

Kafka's lag (end offset less committed offset) counts everything behind one slow record as undone. The *true* lag leaves out
what is finished above the frontier, as the commit's metadata tells it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from redrive.core.metadata import Head, decode_metadata
from redrive.core.offset_codec import Range
from redrive.core.plan import MAX_WAIT_MS, Tier
from redrive.core.record import RawRecord, TopicPartition
from redrive.core.successors import envelope_of
from redrive.core.translator import PLAIN, Translator


@dataclass(frozen=True, slots=True)
class Oldest:
    """
    The record at which a partition's frontier stands. Times are epoch ms, UTC.

    `since_ms`: when it was written; of a tier's record and of a head: when its first attempt failed. `attempt`: of its next
    run. `due_ms`: of these two. `failure`: kind and type of the last one, empty where none is told. `is_ours`: else another group's,
    which is passed by. `is_dead`: it became a dead letter, `since_ms`, and those behind it wait for that.
    """

    offset: int
    since_ms: int
    attempt: int = 1
    due_ms: int | None = None
    failure: str = ""
    is_ours: bool = True
    is_dead: bool = False


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """
    One partition. `committed`: None where the group has committed nothing. `frontier`: the first offset that isn't
    finished. `finished`: ranges above it that are. `heads`: unfinished records that wait in their lane for another run, by
    offset. `lost`: offsets that were deleted before they were read. `ignored`: why the commit's metadata can't be used.
    """

    key: TopicPartition
    end: int
    committed: int | None
    frontier: int
    finished: tuple[Range, ...] = ()
    lost: int = 0
    ignored: str = ""
    heads: Mapping[int, Head] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        """As Kafka counts it."""
        return max(0, self.end - self.frontier)

    @property
    def is_beyond_end(self) -> bool:
        """Whether the group has committed more than there is: the topic was made anew, or its log cut."""
        return self.committed is not None and self.committed > self.end

    @property
    def finished_above(self) -> int:
        """How many offsets above the frontier are finished."""
        return sum(min(end, self.end) - first for first, end in self.finished if first < self.end)

    @property
    def true_lag(self) -> int:
        """What is left to do; transaction markers and compacted offsets count, as they do for Kafka."""
        return self.lag - self.finished_above

    def was_finished(self, offset: int) -> bool:
        """Whether the map says so of this offset."""
        at = bisect_right(self.finished, (offset, 1 << 63)) - 1
        return at >= 0 and offset < self.finished[at][1]


@dataclass(frozen=True, slots=True)
class TierDue:
    """
    What waits in a tier for this group. `due`: those whose time has come; `late_ms`: for how long the first of them is;
    `next_ms`: when the next one is due. `others`: records of other groups. `is_whole`: False where there are more
    than were looked at, so that each number is a least one.
    """

    tier: str
    delay_ms: int
    waiting: int = 0
    due: int = 0
    late_ms: int = 0
    next_ms: int | None = None
    others: int = 0
    is_whole: bool = True


def measure(
    key: TopicPartition, first: int, end: int, committed: int | None, metadata: str, identity: str
) -> PartitionLag:
    """
    Gives the lag of one partition with the offsets [first, end).

    A group that has committed nothing is taken to begin at the beginning. `identity`: of the topic, see
    `core/metadata.py`.
    """
    if committed is None:
        return PartitionLag(key, end, None, first)
    told = decode_metadata(metadata, committed, identity)
    frontier = max(first, committed)
    ranges = tuple((max(a, frontier), b) for a, b in told.ranges if b > frontier)
    heads = {offset: head for offset, head in told.heads.items() if frontier <= offset < end}
    return PartitionLag(key, end, committed, frontier, ranges, max(0, first - committed), told.ignored, heads)


def look_at_record(
    record: RawRecord,
    tier: Tier | None,
    groups: frozenset[str],
    translator: Translator = PLAIN,
    head: Head | None = None,
) -> Oldest:
    """
    Gives what is told of an unfinished record. `tier`: the topic it was read from, None for a source. `head`: what the
    commit says of it, when it waits in its lane.
    """
    timestamp_ms = record.timestamp()[1]
    if head is not None and head.is_dead:
        return Oldest(record.offset(), head.first_failed_ms, is_dead=True)
    if head is not None:
        return Oldest(record.offset(), head.first_failed_ms, head.attempt + 1, head.due_ms)
    if tier is None:
        return Oldest(record.offset(), timestamp_ms)
    said, _ = envelope_of(record, translator)
    failure = " ".join(filter(None, [said.failure_kind, said.failure_type]))
    return Oldest(
        record.offset(),
        timestamp_ms if said.first_failed_ms is None else said.first_failed_ms,
        said.attempt + 1,
        due_of(said.due_ms, timestamp_ms, tier.delay_ms),
        failure,
        not said.group or said.group in groups,
    )


def due_of(due_ms: int | None, timestamp_ms: int, delay_ms: int, longest_ms: int = MAX_WAIT_MS) -> int:
    """When a record of a tier is due, as the engine takes it: an absurd or missing due is its timestamp and the delay."""
    if due_ms is None or due_ms > timestamp_ms + longest_ms + 2 * delay_ms:
        return timestamp_ms + delay_ms
    return due_ms


def count_due(
    tier: Tier, waiting: Iterable[tuple[bool, int]], now_ms: float, *, is_whole: bool = True
) -> TierDue:
    """Counts what waits in a tier. `waiting`: for each unfinished record whether it is ours, and its due."""
    due = later = others = 0
    earliest_ms = next_ms = None
    for is_ours, due_ms in waiting:
        if not is_ours:
            others += 1
        elif due_ms <= now_ms:
            due += 1
            earliest_ms = due_ms if earliest_ms is None else min(earliest_ms, due_ms)
        else:
            later += 1
            next_ms = due_ms if next_ms is None else min(next_ms, due_ms)
    late_ms = 0 if earliest_ms is None else int(now_ms - earliest_ms)
    return TierDue(tier.topic, tier.delay_ms, due + later, due, late_ms, next_ms, others, is_whole)
