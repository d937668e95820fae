"""Looks at a cluster for `redrive doctor`: all questions, one after another; what isn't told says why."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from redrive.core.acls import Operation, letter_acls, replay_acls, service_acls
from redrive.core.doctor.findings import Untold
from redrive.core.doctor.observed import Case, Observed, Skew, Stamped, versions_of
from redrive.core.plan import Tier
from redrive.core.record import TopicPartition, headers_of
from redrive.core.settings import MAX_POLL_INTERVAL_MS, Settings
from redrive.core.topic_plan import ObservedTopic
from redrive.core.topology import Role, find_orphaned_tiers
from redrive.core.translator import PLAIN
from redrive.errors import PortError
from redrive.runtime.clock import Clock
from redrive.runtime.declaration import ResolvedApp
from redrive.runtime.planning import plan_group, plan_letters, wanted_topics
from redrive.runtime.ports import Cluster, Inspection, Log

#: Records of each tier whose stamps are looked at, the newest; shared by its partitions.
STAMPS_OF_TIER = 20_000
#: Stamps come from headers, so anybody could make up any number of them.
_MOST_GROUPS = 50
_LONGEST_GROUP = 255
#: Kafka's own log of commits: its records are dated by the brokers.
_COMMITS = "__consumer_offsets"

_Told = TypeVar("_Told")


class Eyes(msgspec.Struct, frozen=True):
    """What doctor looks through. `tell` hears what is being looked at, for people who wait."""

    cluster: Cluster
    log: Log
    inspection: Inspection
    clock: Clock
    tell: Callable[[str], None]


def make_case(app: ResolvedApp, settings: Settings, existing: Mapping[str, object], *, target: str) -> Case:
    """
    Gives what `app` needs, for doctor. `existing`: the cluster's topics, among which orphaned tiers are looked for.

    Raises TopologyError with all names that collide or can't be.
    """
    wanted = wanted_topics(app, settings, existing)
    tiers = {topic.name for topic in wanted if topic.role is Role.TIER}
    sources = dict.fromkeys(topic.name for topic in wanted if topic.role is Role.SOURCE)
    orphans = [
        Tier(*orphan)
        for source in sources
        for orphan in find_orphaned_tiers(existing, source, tiers, settings.naming, app.group)
    ]
    plan = plan_group(app, settings, existing)
    service = service_acls(plan, wanted, asks_protocols=settings.wanted_protocol == "auto")
    if app.on_dead_letter:
        service += letter_acls(plan_letters(app, settings))
    return Case(
        target=target,
        group=app.group,
        own_groups=tuple(dict.fromkeys([app.group, *app.accepts_groups, *settings.accepts_groups])),
        wanted=wanted,
        orphans=tuple(orphans),
        group_protocol=settings.wanted_protocol,
        tier_outage_ms=settings.tier_outage_ms,
        shutdown_timeout_ms=settings.shutdown_timeout_ms,
        max_poll_interval_ms=int(settings.kafka.get("max.poll.interval.ms", MAX_POLL_INTERVAL_MS)),
        time_limits_ms={
            listener.name: listener.time_limit_ms
            for listener in app.listeners
            if listener.time_limit_ms is not None
        },
        service_rights=tuple(acl.right for acl in service),
        replay_rights=tuple(acl.right for acl in replay_acls(plan, wanted)),
    )


def observe(case: Case, eyes: Eyes, *, measure_clock: bool = False) -> Observed:
    """
    Look at all that the checks want to know. Nothing is written, but for `measure_clock` (see the port).

    Raises PortError when the cluster doesn't answer at all.
    """
    eyes.tell("topics")
    names = list(dict.fromkeys([*(topic.name for topic in case.wanted), *case.tiers]))
    described = eyes.cluster.describe([*names, _COMMITS], configs=True)
    topics = {
        name: ObservedTopic(name, its.partitions, its.replication or None, its.configs)
        for name, its in described.items()
        if name in names
    }
    keys = {
        name: [TopicPartition(name, number) for number in range(its.partitions)]
        for name, its in described.items()
    }
    eyes.tell("groups")
    tiers = [tier for tier in case.tiers if tier in topics]
    readers = _ask(lambda: {tier: tuple(groups) for tier, groups in eyes.cluster.readers(tiers).items()})
    unread = _ask(lambda: _unread(case, eyes.cluster, keys))
    eyes.tell("records in tiers")
    stamped = _ask(lambda: tuple(_stamped(eyes, {tier: keys[tier] for tier in tiers})))
    eyes.tell("brokers")
    brokers = _ask(eyes.inspection.brokers)
    group = _ask(lambda: eyes.inspection.groups([case.group])[case.group])
    newest_ms = _ask(lambda: _newest_ms(case, eyes.inspection, keys))
    return Observed(
        now_ms=eyes.clock.wall_ms(),
        topics=topics,
        readers=readers,
        unread=unread,
        stamped=stamped,
        group=group,
        brokers=brokers,
        versions=versions_of(eyes.inspection.client_version(), brokers),
        newest_ms=newest_ms,
        skew=_skew(eyes, measure_clock=measure_clock),
        rights=_ask(lambda: _rights(eyes.cluster, names)),
    )


def _ask(question: Callable[[], _Told]) -> _Told | Untold:
    try:
        return question()
    except PortError as error:
        return Untold(str(error))


def _rights(cluster: Cluster, topics: list[str]) -> Mapping[str, frozenset[Operation]]:
    told = cluster.allowed(topics)
    if topics and not told:
        raise PortError("the cluster doesn't tell what this user may do")
    return told


def _skew(eyes: Eyes, *, measure_clock: bool) -> Skew | Untold:
    if not measure_clock:
        return Untold(
            "no reading question tells a broker's time; --measure-clock makes the topic redrive.doctor, writes five "
            "empty records and deletes it again"
        )
    eyes.tell("clocks")
    return _ask(lambda: eyes.inspection.measure_clock(eyes.clock.wall_ms))


def _unread(case: Case, cluster: Cluster, keys: Mapping[str, list[TopicPartition]]) -> Mapping[str, int]:
    """What the group has still to read of its orphaned tiers."""
    asked = [key for tier in case.orphans for key in keys.get(tier.topic, ())]
    starts = _starts(cluster, case.group, asked)
    left: Counter[str] = Counter()
    for key, end in cluster.offsets(asked, "latest").items():
        left[key.topic] += max(0, end - starts.get(key, 0))
    return left


def _starts(cluster: Cluster, group: str, keys: list[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Where a group goes on; at the beginning where it has committed nothing."""
    firsts = cluster.offsets(keys, "earliest")
    committed = cluster.committed(group, keys)
    return {
        key: max(first, (committed[key].offset or 0) if key in committed else 0)
        for key, first in firsts.items()
    }


def _newest_ms(
    case: Case, inspection: Inspection, keys: Mapping[str, list[TopicPartition]]
) -> Mapping[str, int]:
    """Of the topics that redrive writes; a source's dates are its producers' affair."""
    sources = {topic.name for topic in case.wanted if topic.role is Role.SOURCE}
    asked = [key for topic, its in keys.items() if topic not in sources for key in its]
    newest: dict[str, int] = {}
    for key, at_ms in inspection.newest_ms(asked).items():
        newest[key.topic] = max(at_ms, newest.get(key.topic, 0))
    return newest


def _stamped(eyes: Eyes, tiers: Mapping[str, list[TopicPartition]]) -> Iterator[Stamped]:
    """Who the records in the tiers are for, and whether anybody comes for them."""
    stamps, cut = _read_stamps(eyes, tiers)
    groups = sorted(stamps, key=lambda group: -len(stamps[group]))[:_MOST_GROUPS]
    at_work = {name: its.members > 0 for name, its in eyes.inspection.groups(groups).items()}
    for group in groups:
        keys = sorted({key for key, _ in stamps[group]})
        committed = eyes.cluster.committed(group, keys)
        done = {key: at.offset for key, at in committed.items() if at.offset is not None}
        left = [key for key, offset in stamps[group] if offset >= done.get(key, 0)]
        if left:
            yield Stamped(
                group=group,
                records=len(left),
                topics=tuple(sorted({key.topic for key in left})),
                is_at_work=at_work.get(group, False),
                has_committed=bool(done),
                is_at_least=bool(cut & set(left)),
            )


def _read_stamps(
    eyes: Eyes, tiers: Mapping[str, list[TopicPartition]]
) -> tuple[Mapping[str, list[tuple[TopicPartition, int]]], set[TopicPartition]]:
    """Where each group's records are, and the partitions of which only the newest were read."""
    stamps: defaultdict[str, list[tuple[TopicPartition, int]]] = defaultdict(list)
    cut: set[TopicPartition] = set()
    for keys in tiers.values():
        firsts = eyes.cluster.offsets(keys, "earliest")
        for key, end in eyes.cluster.offsets(keys, "latest").items():
            first = firsts.get(key, 0)
            start = max(first, end - STAMPS_OF_TIER // len(keys))
            if start > first:
                cut.add(key)
            for record in eyes.log.scan(key, start, end):
                group = PLAIN.find_due(headers_of(record))[0]
                if group and len(group) <= _LONGEST_GROUP and group.isprintable():
                    stamps[group].append((key, record.offset()))
    return stamps, cut
