"""Which waiting records a hurry or a discard is about: from what a person says to a frozen plan."""

import heapq
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from redrive.core.dialects import read_envelope
from redrive.core.notices import RANGES_MOST, Action, ranges_of
from redrive.core.offset_codec import Range
from redrive.core.record import TopicPartition, headers_of
from redrive.deadletters.letters import Position, glance
from redrive.errors import ReplayRefused
from redrive.retries.tiers import Waiting

#: Of what a worker keeps, half at most may come from one command.
PLAN_RANGES_MOST = RANGES_MOST // 2


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a person selects by. Several values of one field mean any of them, several fields all of them.

    `keys`: keys of records. `older_than_ms`: first failed longer ago than that (put on the tier, where the record
    doesn't say). `limit`: that many, those that are due first. `everything`: all that wait.
    """

    at: frozenset[Position] = frozenset()
    event_ids: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    keys: frozenset[bytes] = frozenset()
    groups: frozenset[str] = frozenset()
    older_than_ms: int | None = None
    limit: int | None = None
    everything: bool = False

    @property
    def names(self) -> bool:
        """Whether it names single records."""
        return bool(self.at or self.event_ids)

    def require(self) -> None:
        """Raises ReplayRefused when nothing was selected by, or when it contradicts itself."""
        narrows = self.names or self.types or self.keys or self.older_than_ms is not None
        if not (narrows or self.groups or self.limit is not None or self.everything):
            raise ReplayRefused(
                "say which records: --at TIER/PARTITION/OFFSET, --event-id, --type, --key, --older-than, --group, --limit N "
                "(those due first), or --all"
            )
        if self.everything and (self.limit is not None or self.names):
            raise ReplayRefused("--all contradicts --limit, --at and --event-id; leave one out")

    def matches(self, one: Waiting, now_ms: float) -> bool:
        """Whether a waiting record is meant."""
        record = one.record
        if self.at and Position(record.topic(), record.partition(), record.offset()) not in self.at:
            return False
        if self.groups and one.group not in self.groups:
            return False
        if self.keys and record.key() not in self.keys:
            return False
        if self.types or self.event_ids:
            seen = glance(headers_of(record))
            if (self.types and seen.failure_type not in self.types) or (
                self.event_ids and seen.event_id not in self.event_ids
            ):
                return False
        if self.older_than_ms is None:
            return True
        first_failed_ms = read_envelope(headers_of(record))[0].first_failed_ms
        since_ms = record.timestamp()[1] if first_failed_ms is None else first_failed_ms
        return now_ms - since_ms > self.older_than_ms


class Target(msgspec.Struct, frozen=True):
    """Records of one group on one tier partition; `ranges` of their offsets, ascending."""

    group: str
    partition: TopicPartition
    identity: str
    state: str
    ranges: tuple[Range, ...]

    @property
    def count(self) -> int:
        """How many records."""
        return sum(end - first for first, end in self.ranges)


class Plan(msgspec.Struct, frozen=True):
    """
    What is to be done. `targets` by group and partition; `missing`: what was named and doesn't wait. `types`: how many
    of the selected by failure type. `beyond_limit`: how many more match. `seen`: all that wait there.
    """

    action: Action
    targets: tuple[Target, ...]
    missing: tuple[str, ...] = ()
    types: Mapping[str, int] = {}
    beyond_limit: int = 0
    seen: int = 0

    @property
    def count(self) -> int:
        """How many records are selected."""
        return sum(target.count for target in self.targets)

    @property
    def groups(self) -> tuple[str, ...]:
        """Whose records they are."""
        return tuple(sorted({target.group for target in self.targets}))


def make_plan(
    selection: Selection,
    waiting: Iterable[Waiting],
    action: Action,
    now_ms: float,
    *,
    ranges_most: int = PLAN_RANGES_MOST,
) -> Plan:
    """
    Select of what waits. What is kept of a selected record are eight bytes.

    Raises ReplayRefused for a selection that is empty or contradicts itself, for one of more than `ranges_most` ranges of
    offsets, which is what workers keep in mind, and PortError.
    """
    selection.require()
    planner = _Planner(selection, now_ms)
    found = planner.candidates(waiting)
    if selection.limit is not None:
        chosen = heapq.nsmallest(selection.limit, found, key=lambda one: one[0])
        found = iter(sorted(chosen, key=lambda one: one[1:4]))
    types: Counter[str] = Counter()
    offsets: dict[tuple[str, TopicPartition], array[int]] = {}
    for _, group, partition, offset, failure_type in found:
        offsets.setdefault((group, partition), array("q")).append(offset)
        types[failure_type if failure_type in types or len(types) < 100 else "(others)"] += 1
    targets = [
        Target(group, partition, *planner.places[partition.topic], tuple(ranges_of(of_partition)))
        for (group, partition), of_partition in sorted(offsets.items())
    ]
    if (ranges := sum(len(target.ranges) for target in targets)) > ranges_most:
        raise ReplayRefused(
            f"the records selected are scattered over {ranges:,} places, more than the {ranges_most:,} that workers "
            f"keep in mind; take fewer at a time: --limit {ranges_most}"
        )
    count = sum(map(len, offsets.values()))
    return Plan(action, tuple(targets), planner.missing(), types, planner.matched - count, planner.seen)


_Candidate = tuple[int, str, TopicPartition, int, str]
"""Due, group, partition, offset, failure type."""


class _Planner:
    def __init__(self, selection: Selection, now_ms: float) -> None:
        self.matched = 0
        self.seen = 0
        #: Identity and state topic of each tier.
        self.places: dict[str, tuple[str, str]] = {}
        self._selection = selection
        self._now_ms = now_ms
        self._found: set[Position | str] = set()

    def candidates(self, waiting: Iterable[Waiting]) -> Iterator[_Candidate]:
        selection = self._selection
        for one in waiting:
            self.seen += 1
            if not selection.matches(one, self._now_ms):
                continue
            self.matched += 1
            record, tier = one.record, one.tier
            self.places[tier.topic] = tier.identity, tier.state
            seen = glance(headers_of(record))
            if selection.names:
                self._found |= {Position(record.topic(), record.partition(), record.offset()), seen.event_id}
            partition = TopicPartition(tier.topic, record.partition())
            yield one.due_ms, one.group, partition, record.offset(), seen.failure_type

    def missing(self) -> tuple[str, ...]:
        """What was named and doesn't wait, or doesn't match the rest."""
        wanted = {*self._selection.at, *self._selection.event_ids}
        return tuple(sorted(str(each) for each in wanted - self._found))
