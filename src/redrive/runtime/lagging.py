"""How far behind a group is, asked of the cluster: `redrive lag` without its printing."""

from collections.abc import Iterator, Mapping

import msgspec

from redrive.core.lag import Oldest, PartitionLag, TierDue, count_due, due_of, look_at_record, measure
from redrive.core.plan import GroupPlan, Tier
from redrive.core.record import RawRecord, TopicPartition, headers_of
from redrive.core.translator import Translator
from redrive.errors import PortError
from redrive.runtime.identities import identities
from redrive.runtime.ports import Cluster, Committed, Inspection, Reading, TopicInfo

#: Unfinished records of each tier that are looked at for their dues: half a second's reading.
RECORDS_OF_TIER = 100_000
#: An offset at the frontier may hold no record, and what comes next be finished: so often it is looked further.
_LOOKS = 5


class Behind(msgspec.Struct, frozen=True):
    """
    A group at `now_ms`: its partitions with the oldest unfinished record of each (None where all is done, or the broker
    didn't say), its tiers. `missing`: topics that it should read and that aren't there. `members`: None where it
    isn't told.
    """

    group: str
    now_ms: float
    partitions: tuple[tuple[PartitionLag, Oldest | None], ...]
    tiers: tuple[TierDue, ...]
    missing: tuple[str, ...] = ()
    members: int | None = None


def look_behind(
    plan: GroupPlan,
    cluster: Cluster,
    log: Reading,
    now_ms: float,
    *,
    inspection: Inspection | None = None,
    records_of_tier: int = RECORDS_OF_TIER,
) -> Behind:
    """
    Ask for all partitions at once, then read the record at each frontier, then what waits in the tiers.

    `inspection`: is asked for the group's members. Reads only. Raises PortError.
    """
    topics = cluster.describe(plan.topics)
    lags = _lags(plan, cluster, topics)
    oldest = _oldest(log, lags)
    tiers = {tier.topic: tier for each in plan.listeners for tier in (*each.tiers, *each.drained)}
    groups = frozenset((plan.group, *plan.accepts_groups))
    return Behind(
        plan.group,
        now_ms,
        tuple(
            (
                lag,
                look_at_record(
                    record, tiers.get(key.topic), groups, plan.translator, lag.heads.get(record.offset())
                )
                if (record := oldest.get(key)) is not None
                else None,
            )
            for key, lag in lags.items()
        ),
        tuple(
            count_due(tier, waiting, now_ms, is_whole=is_whole)
            for topic, tier in tiers.items()
            if topic in topics
            for waiting, is_whole in [_waiting(tier, lags, log, groups, records_of_tier, plan.translator)]
        ),
        tuple(topic for topic in plan.topics if topic not in topics),
        _members(plan.group, inspection),
    )


def _members(group: str, inspection: Inspection | None) -> int | None:
    if inspection is None:
        return None
    try:
        return inspection.groups([group])[group].members
    except PortError:
        return None


def _lags(
    plan: GroupPlan, cluster: Cluster, topics: Mapping[str, TopicInfo]
) -> Mapping[TopicPartition, PartitionLag]:
    keys = [
        TopicPartition(topic, number)
        for topic in plan.topics
        if topic in topics
        for number in range(topics[topic].partitions)
    ]
    identity = identities(cluster, topics)
    nothing = Committed(None)
    # Asked for before the end, so that no lag is negative.
    committed = cluster.committed(plan.group, keys)
    firsts, ends = cluster.offsets(keys, "earliest"), cluster.offsets(keys, "latest")
    return {
        key: measure(key, firsts.get(key, 0), ends[key], at.offset, at.metadata, identity(key.topic))
        for key in keys
        if key in ends
        for at in [committed.get(key, nothing)]
    }


def _oldest(log: Reading, lags: Mapping[TopicPartition, PartitionLag]) -> Mapping[TopicPartition, RawRecord]:
    """The first unfinished record of each partition that has one."""
    found: dict[TopicPartition, RawRecord] = {}
    spans = {key: (lag.frontier, lag.end) for key, lag in lags.items() if lag.true_lag > 0}
    for _ in range(_LOOKS):
        further: dict[TopicPartition, tuple[int, int]] = {}
        for key, record in log.first_of(spans).items():
            offset = record.offset()
            if lags[key].was_finished(offset):
                further[key] = (next(end for _, end in lags[key].finished if offset < end), lags[key].end)
            else:
                found[key] = record
        if not further:
            break
        spans = further
    return found


def _waiting(
    tier: Tier,
    lags: Mapping[TopicPartition, PartitionLag],
    log: Reading,
    groups: frozenset[str],
    most: int,
    translator: Translator,
) -> tuple[Iterator[tuple[bool, int]], bool]:
    """Of each unfinished record of a tier whether it is ours, and its due; and whether these are all."""
    unfinished = [lag for key, lag in lags.items() if key.topic == tier.topic and lag.true_lag > 0]
    share = max(1, most // max(1, len(unfinished)))

    def read() -> Iterator[tuple[bool, int]]:
        for lag in unfinished:
            for record in log.scan(lag.key, lag.frontier, min(lag.end, lag.frontier + share)):
                if not lag.was_finished(record.offset()):
                    group, due_ms = translator.find_due(headers_of(record))
                    yield (
                        not group or group in groups,
                        due_of(due_ms, record.timestamp()[1], tier.delay_ms),
                    )

    return read(), all(lag.lag <= share for lag in unfinished)
