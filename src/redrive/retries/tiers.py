"""The retry topics of a cluster as they are at one moment, and what of them is still to be done, by group."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from redrive.core.dialects import read_due
from redrive.core.lag import due_of
from redrive.core.metadata import identity_of
from redrive.core.offsets import OffsetMap
from redrive.core.plan import MAX_WAIT_MS
from redrive.core.record import RawRecord, TopicPartition, headers_of
from redrive.core.starts import start_at_committed
from redrive.core.topology import Role
from redrive.core.translator import PLAIN, Translator
from redrive.deadletters.topics import Names
from redrive.errors import TopologyError
from redrive.runtime.planning import retentions_of
from redrive.runtime.ports import Cluster, Log, TopicInfo

#: How often whoever waits for a scan is told how far it is.
_TELL_EACH = 5_000

Tell = Callable[[int], None]
"""Told now and then: how many offsets were passed since the last call."""


class Scope(msgspec.Struct, frozen=True):
    """
    Whose retries are meant. `sources`: empty for any. `groups`: those that read, empty for any. `stamps` maps other
    groups whose stamped records count as theirs to the one that takes them over (`accepts_groups`). `translator`: reads what
    other frameworks wrote.
    """

    sources: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    stamps: Mapping[str, str] = {}
    translator: Translator = PLAIN


class OpenTier(msgspec.Struct, frozen=True):
    """
    A retry or replay topic as it was when a command began.

    `delay_ms` None: its name doesn't tell. `bounds` maps its partitions to their first and end offset. `done` maps each
    group that reads it to what that group has finished, by partition. `dlq`, `state`: the topics that go with it.
    """

    topic: str
    source: str
    delay_ms: int | None
    dlq: str
    state: str
    identity: str
    replication: int
    #: A due further away than that (and the delay) is no due: how long the topic keeps its records, a week at least.
    longest_wait_ms: int
    bounds: Mapping[int, tuple[int, int]]
    done: Mapping[str, Mapping[int, OffsetMap]] = {}
    #: Groups that have committed for this topic or for its source: before its first record ended a tier has no commits.
    readers: frozenset[str] = frozenset()

    @property
    def keys(self) -> list[TopicPartition]:
        """Its partitions."""
        return [TopicPartition(self.topic, partition) for partition in self.bounds]

    def start(self, partition: int) -> int:
        """Where the first offset may lie that some group has not finished."""
        first, _ = self.bounds[partition]
        frontiers = [done[partition].settled if partition in done else first for done in self.done.values()]
        return max(first, min(frontiers, default=first))

    @property
    def size(self) -> int:
        """How many offsets are to be looked at."""
        return sum(max(0, end - self.start(partition)) for partition, (_, end) in self.bounds.items())


class Waiting(NamedTuple):
    """A record that waits for a run by `group`."""

    tier: OpenTier
    group: str
    record: RawRecord
    due_ms: int


def find_tiers(
    cluster: Cluster, names: Names, topics: Collection[str] | None = None, scope: Scope | None = None
) -> list[OpenTier]:
    """
    Gives the retry and replay topics of the cluster, or these of them. Raises PortError, and TopologyError for what
    is missing or isn't a retry topic by its name.
    """
    scope = scope or Scope()
    existing = cluster.describe()
    if topics and (
        problems := [what for topic in sorted(set(topics)) for what in _problems(topic, existing, names)]
    ):
        raise TopologyError("; ".join(problems))
    cluster_id = cluster.cluster_id()
    meant = [topic for topic in sorted(topics or existing) if _is_meant(topic, names, scope)]
    described = cluster.describe(meant, configs=True)
    sources = {topic: named.name.topic for topic in meant if (named := names.parse(topic)) is not None}
    readers = cluster.readers(sorted({*meant, *sources.values()})) if meant else {}
    found: list[OpenTier] = []
    for topic in meant:
        if topic not in described:
            continue
        tier = _opened(cluster, described[topic], names, cluster_id)
        groups = scope.groups or readers.get(topic, ())
        done = {group: done_by(cluster, group, tier.keys, tier.identity) for group in groups}
        at_work = frozenset({*readers.get(topic, ()), *readers.get(tier.source, ())})
        found.append(msgspec.structs.replace(tier, done=done, readers=at_work))
    return found


def _problems(topic: str, existing: Mapping[str, TopicInfo], names: Names) -> Iterator[str]:
    if topic not in existing:
        yield f"topic {topic!r} doesn't exist in this cluster"
    elif names.role(topic) not in {Role.TIER, Role.REPLAY}:
        what = f"it is a {names.role(topic)} topic" if names.role(topic) else "it is not named like one"
        yield f"topic {topic!r} is no retry topic: {what}; where names have their own templates, name the app by --app"


def _is_meant(topic: str, names: Names, scope: Scope) -> bool:
    named = names.parse(topic)
    is_tier = named is not None and named.name.role in {Role.TIER, Role.REPLAY}
    return named is not None and is_tier and (not scope.sources or named.name.topic in scope.sources)


def _opened(cluster: Cluster, info: TopicInfo, names: Names, cluster_id: str) -> OpenTier:
    topic = info.name
    named = names.parse(topic)
    assert named is not None, "asked before"
    naming, name = named
    keys = [TopicPartition(topic, partition) for partition in range(info.partitions)]
    firsts, ends = cluster.offsets(keys, "earliest"), cluster.offsets(keys, "latest")
    dlq = naming.dlq(name.topic, group=names.group)
    return OpenTier(
        topic=topic,
        source=name.topic,
        delay_ms=0 if name.role is Role.REPLAY else name.delay_ms,
        dlq=dlq,
        state=naming.state(dlq),
        identity=identity_of(cluster_id, info.topic_id or topic),
        replication=info.replication,
        longest_wait_ms=max(MAX_WAIT_MS, retentions_of({topic: info}).get(topic, MAX_WAIT_MS)),
        bounds={key.partition: (firsts[key], ends[key]) for key in keys if key in firsts and key in ends},
    )


def done_by(
    cluster: Cluster, group: str, keys: Sequence[TopicPartition], identity: str
) -> Mapping[int, OffsetMap]:
    """
    Gives what a group has finished of these partitions of one topic, by its last commits: the maps in their metadata
    included. Partitions of which it has committed nothing are left out. Raises PortError.
    """
    done: dict[int, OffsetMap] = {}
    for key, at in cluster.committed(group, keys).items():
        if at.offset is not None:
            start = start_at_committed(at.offset, at.metadata, identity)
            done[key.partition] = OffsetMap(at.offset, start.restored)
    return done


def waiting_records(
    tiers: Sequence[OpenTier], log: Log, scope: Scope | None = None, tell: Tell = lambda _: None
) -> Iterator[Waiting]:
    """
    Gives the records that wait, tier by tier and by partition and offset: stamped with a group, or with none and so
    everybody's, and by that group's commits not finished. Nothing is kept. Raises PortError.
    """
    scope = scope or Scope()
    for tier in tiers:
        for partition, (_, end) in tier.bounds.items():
            at = start = tier.start(partition)
            for record in log.scan(TopicPartition(tier.topic, partition), start, end):
                if record.offset() - at >= _TELL_EACH:
                    tell(record.offset() - at)
                    at = record.offset()
                yield from _of_groups(tier, partition, record, scope)
            tell(max(0, end - at))


def _of_groups(tier: OpenTier, partition: int, record: RawRecord, scope: Scope) -> Iterator[Waiting]:
    stamp, said_ms = read_due(headers_of(record))
    if said_ms is None and not stamp:
        said = scope.translator.read(headers_of(record)).envelope
        stamp, said_ms = said.group, said.due_ms
    stamp = scope.stamps.get(stamp, stamp)
    due_ms = due_of(said_ms, record.timestamp()[1], tier.delay_ms or 0, tier.longest_wait_ms)
    if stamp:
        if scope.groups and stamp not in scope.groups:
            return
        done = tier.done.get(stamp)
        if done is None or not _is_finished(done.get(partition), record.offset()):
            yield Waiting(tier, stamp, record, due_ms)
        return
    for group, done in tier.done.items():
        if not _is_finished(done.get(partition), record.offset()):
            yield Waiting(tier, group, record, due_ms)


def _is_finished(done: OffsetMap | None, offset: int) -> bool:
    return done is not None and (offset < done.settled or done.was_finished(offset))
