"""What waits in the retry topics, counted: by topic and group, with dues and the types of what failed."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from redrive.core.record import headers_of
from redrive.deadletters.letters import glance
from redrive.retries.tiers import OpenTier, Waiting

#: Types that one row tells apart: what comes from headers must not fill the memory.
TYPES_MOST = 100
OTHERS = "(others)"


class Row(msgspec.Struct):
    """
    What waits in one topic for one group.

    `next_due_ms`, `last_due_ms`, `oldest_ms` (when the one that has been there longest was written): None where nothing
    waits. `overdue`: due before `now_ms`. `types`: failure types with their counts, "" where the record doesn't say;
    beyond a hundred the rest counts as `(others)`. `is_read`: False where that group has never committed for the topic or its source.
    """

    topic: str
    group: str
    delay_ms: int | None
    waiting: int = 0
    overdue: int = 0
    next_due_ms: int | None = None
    last_due_ms: int | None = None
    oldest_ms: int | None = None
    types: Counter[str] = msgspec.field(default_factory=Counter[str])
    is_read: bool = True


def survey(tiers: Iterable[OpenTier], waiting: Iterable[Waiting], now_ms: float) -> list[Row]:
    """Gives a row for each topic and group that reads it, or whose records are there; the shortest delay first."""
    rows: dict[tuple[str, str], Row] = {}
    for tier in tiers:
        for group in tier.done:
            rows[tier.topic, group] = Row(tier.topic, group, tier.delay_ms, is_read=group in tier.readers)
    for one in waiting:
        place = one.tier.topic, one.group
        row = rows.get(place)
        if row is None:
            row = rows[place] = Row(*place, one.tier.delay_ms, is_read=one.group in one.tier.readers)
        _count(row, one, now_ms)
    sources = {tier.topic: tier.source for tier in tiers}
    return sorted(
        rows.values(), key=lambda row: (sources[row.topic], row.group, row.delay_ms or 0, row.topic)
    )


def _count(row: Row, one: Waiting, now_ms: float) -> None:
    written_ms = one.record.timestamp()[1]
    row.waiting += 1
    row.overdue += one.due_ms < now_ms
    row.next_due_ms = one.due_ms if row.next_due_ms is None else min(row.next_due_ms, one.due_ms)
    row.last_due_ms = one.due_ms if row.last_due_ms is None else max(row.last_due_ms, one.due_ms)
    row.oldest_ms = written_ms if row.oldest_ms is None else min(row.oldest_ms, written_ms)
    failure_type = glance(headers_of(one.record)).failure_type
    is_known = failure_type in row.types or len(row.types) < TYPES_MOST
    row.types[failure_type if is_known else OTHERS] += 1
