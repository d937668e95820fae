"""
Which topics an app needs, and what has to be done where the cluster differs: `redrive topics plan` as a function.

What is planned only ever adds: topics are created and partitions added, never deleted, taken away or reconfigured.
The rest is told as a finding with its reason and the command that mends it, for a person to decide.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from redrive.core.topology import ListenerTopics, Role
from redrive.core.units import format_duration

#: The longest outage after which no waiting record may have been deleted.
DEFAULT_TIER_OUTAGE_MS = 7 * 86_400_000
#: What our headers may add to a record of the source: the texts' limits (9 KiB) and names, with plenty to spare.
HEADER_ROOM_BYTES = 64 * 1024
#: What a topic takes when nothing was set.
_KAFKA_MAX_MESSAGE_BYTES = 1_048_588

#: Roles whose topics hold copies of the source's records.
_COPIES = {Role.TIER, Role.REPLAY, Role.PARKED, Role.DLQ}


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """
    A topic that an app needs.

    `partitions`: None for as many as `source` has (a source itself: as many as it has). `replication`: None for the
    broker's default. `configs`: what it is created with, and compared with where it exists. `delay_ms`: of tiers.
    """

    name: str
    role: Role
    source: str
    partitions: int | None = None
    replication: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict[str, str])
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ObservedTopic:
    """A topic as the cluster has it. `replication`, `configs`: None where the cluster doesn't tell (rights, a mock)."""

    name: str
    partitions: int
    replication: int | None = None
    configs: Mapping[str, str] | None = None


class Action(StrEnum):
    """What a line of the plan says of a topic."""

    OK = "ok"
    #: What `redrive topics apply` does.
    CREATE = "create"
    GROW = "grow"
    #: What a person has to decide.
    MISSING = "missing"
    DIFFERS = "differs"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class PlanItem:
    """
    One line of a plan.

    `partitions`, `replication`, `configs`: what to create with, or the number to grow to. `setting`, `wanted`, `have`:
    what differs, or can't be checked. `why` it matters, and how to `mend` it.
    """

    action: Action
    topic: str
    role: Role
    partitions: int | None = None
    replication: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict[str, str])
    setting: str = ""
    wanted: str = ""
    have: str = ""
    why: str = ""
    mend: str = ""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What has to be done and what was found, in the order of the wanted topics."""

    items: tuple[PlanItem, ...]

    @property
    def changes(self) -> tuple[PlanItem, ...]:
        """
        What `apply` does, in that order: a source's growth last, so that its new partitions find their twins there.
        """
        found = [item for item in self.items if item.action in {Action.CREATE, Action.GROW}]
        return tuple(sorted(found, key=lambda item: item.role is Role.SOURCE))

    @property
    def findings(self) -> tuple[PlanItem, ...]:
        """What `apply` doesn't mend."""
        return tuple(item for item in self.items if item.action in {Action.MISSING, Action.DIFFERS})


def wanted_topics(
    listeners: Iterable[ListenerTopics],
    *,
    replication: int = 3,
    dlq_partitions: int | None = None,
    tier_outage_ms: int = DEFAULT_TIER_OUTAGE_MS,
) -> tuple[WantedTopic, ...]:
    """
    Gives the topics that `listeners` need, with the configuration they are created with.

    Tiers, replay and parked topics have the source's partitions, the dead-letter topic too unless `dlq_partitions`
    says otherwise. Tiers keep records for their delay and `tier_outage_ms` more; parked and dead-letter topics keep
    them for ever, since only a person or a record in front ends their wait. A state topic has one partition: it is
    read from its start by whoever shows or replays letters, its records are tiny, and one partition is one read.
    """
    durable = {"min.insync.replicas": "2" if replication >= 3 else "1"}
    keep = {"cleanup.policy": "delete", "retention.bytes": "-1", **durable}
    by_role: dict[Role, dict[str, str]] = {
        Role.SOURCE: {},
        Role.DLQ: {**keep, "retention.ms": "-1"},
        Role.STATE: {"cleanup.policy": "compact", **durable},
        Role.REPLAY: {**keep, "retention.ms": str(tier_outage_ms)},
        Role.PARKED: {**keep, "retention.ms": "-1"},
    }
    partitions: dict[Role, int | None] = {Role.DLQ: dlq_partitions, Role.STATE: 1}
    wanted: list[WantedTopic] = []
    for topics in listeners:
        delays = dict(topics.tiers)
        for role, name in topics.by_role():
            delay_ms = delays.get(name) if role is Role.TIER else None
            configs = (
                # With jitter, or asked to wait longer, a record is held for up to twice the delay.
                {**keep, "retention.ms": str(2 * delay_ms + tier_outage_ms)}
                if delay_ms is not None
                else by_role[role]
            )
            copies = None if role is Role.SOURCE else replication
            wanted.append(
                WantedTopic(name, role, topics.source, partitions.get(role), copies, configs, delay_ms)
            )
    return tuple(wanted)


def plan_topics(wanted: Iterable[WantedTopic], observed: Iterable[ObservedTopic]) -> TopicPlan:
    """
    Compares what an app needs with what is there.

    A source that is missing is never created unless its partitions are given: how many it needs is its producers'
    affair. Each topic gets at least one line; a topic that is as wanted gets one that says ok.
    """
    wanted = list(wanted)
    have = {topic.name: topic for topic in observed}
    source_partitions = {topic.name: topic.partitions for topic in wanted if topic.role is Role.SOURCE}
    items: list[PlanItem] = []
    for topic in wanted:
        source = have.get(topic.source)
        counts = [source_partitions.get(topic.source), source.partitions if source else None]
        aligned = max((count for count in counts if count is not None), default=None)
        is_aligned = topic.partitions is None or topic.role is Role.SOURCE
        found = have.get(topic.name)
        count = aligned if is_aligned else topic.partitions
        source_configs = source.configs if source else None
        if found is None:
            items.append(_creation(topic, count, source_configs))
            continue
        differences = [
            *_partition_items(topic, count, found),
            *_replication_items(topic, found),
            *_config_items(topic, found, source_configs),
        ]
        items += differences or [PlanItem(Action.OK, topic.name, topic.role)]
    return TopicPlan(tuple(items))


def _creation(topic: WantedTopic, count: int | None, source_configs: Mapping[str, str] | None) -> PlanItem:
    if count is None:
        is_source = topic.role is Role.SOURCE
        return PlanItem(
            Action.MISSING,
            topic.name,
            topic.role,
            why="nothing is there to read"
            if is_source
            else f"it gets as many partitions as {topic.source!r}, missing too",
            mend="create it with the partitions its producers need"
            if is_source
            else f"create {topic.source!r} first",
        )
    configs = dict(topic.configs)
    if topic.role in _COPIES:
        configs.setdefault("max.message.bytes", str(_max_message_bytes(source_configs)))
    return PlanItem(Action.CREATE, topic.name, topic.role, count, topic.replication, configs)


def _max_message_bytes(source_configs: Mapping[str, str] | None) -> int:
    known = (source_configs or {}).get("max.message.bytes", _KAFKA_MAX_MESSAGE_BYTES)
    return int(known) + HEADER_ROOM_BYTES


def _partition_items(topic: WantedTopic, count: int | None, have: ObservedTopic) -> Iterator[PlanItem]:
    wanted = topic.partitions if topic.role is Role.SOURCE else count
    if wanted is None or wanted == have.partitions or topic.role is Role.STATE:  # any number does for states
        return
    if wanted > have.partitions:
        why = (
            "its records are to keep the partition of their source" if topic.partitions is None else "as set"
        )
        yield PlanItem(Action.GROW, topic.name, topic.role, wanted, have=str(have.partitions), why=why)
        return
    yield PlanItem(
        Action.DIFFERS,
        topic.name,
        topic.role,
        setting="partitions",
        wanted=str(wanted),
        have=str(have.partitions),
        why="partitions are never taken away: their records would be lost"
        + ("; until the counts agree, records go by their key" if topic.partitions is None else ""),
        mend=f"grow {topic.source!r} to {have.partitions}"
        if topic.partitions is None
        else "set it to what is there",
    )


def _replication_items(topic: WantedTopic, have: ObservedTopic) -> Iterator[PlanItem]:
    if topic.replication is None:
        return
    if have.replication is None:
        yield PlanItem(
            Action.NOT_CHECKED, topic.name, topic.role, setting="replication", wanted=str(topic.replication)
        )
    elif have.replication < topic.replication:
        yield PlanItem(
            Action.DIFFERS,
            topic.name,
            topic.role,
            setting="replication",
            wanted=str(topic.replication),
            have=str(have.replication),
            why="with the last broker that has a copy its records are lost, though their offsets were committed",
            mend=f"add replicas (kafka-reassign-partitions.sh), or set replication = {have.replication}",
        )


@dataclass(frozen=True, slots=True)
class _Compared:
    """One setting of one topic beside what is wanted. The broker took the numbers, so they are numbers."""

    topic: WantedTopic
    wanted: str
    have: str
    replication: int | None
    source: Mapping[str, str]


def _config_items(
    topic: WantedTopic, have: ObservedTopic, source_configs: Mapping[str, str] | None
) -> Iterator[PlanItem]:
    wanted = dict(topic.configs)
    if topic.role in _COPIES:
        wanted.setdefault("max.message.bytes", str(_max_message_bytes(source_configs)))
    if have.configs is None:
        if wanted:
            yield PlanItem(
                Action.NOT_CHECKED,
                topic.name,
                topic.role,
                setting="configuration",
                wanted=", ".join(f"{setting}={value}" for setting, value in wanted.items()),
                why="the cluster doesn't tell it",
            )
        return
    if have.replication is not None and "min.insync.replicas" in wanted:
        # more than there are replicas to spare would only refuse writes; too few replicas are a finding of their own
        wanted["min.insync.replicas"] = str(
            min(int(wanted["min.insync.replicas"]), max(1, have.replication - 1))
        )
    for setting, value in wanted.items():
        found = have.configs.get(setting)
        yield from _config_item(
            setting, found, _Compared(topic, value, found or "", have.replication, source_configs or {})
        )


def _config_item(setting: str, found: str | None, it: _Compared) -> Iterator[PlanItem]:
    beside_source = setting == "max.message.bytes" or (
        it.topic.role is Role.DLQ and setting == "retention.ms"
    )
    why, action = "", Action.DIFFERS
    if found is None:
        why, action = "the cluster doesn't tell it", Action.NOT_CHECKED
    elif beside_source and found != "-1" and setting not in it.source:
        why, action = f"the cluster doesn't tell that of {it.topic.source!r}", Action.NOT_CHECKED
    else:
        why = _RULES.get(setting, _must_be)(it)
    if why:
        alter = f"kafka-configs.sh --alter --entity-type topics --entity-name {it.topic.name}"
        yield PlanItem(
            action,
            it.topic.name,
            it.topic.role,
            setting=setting,
            wanted=it.wanted,
            have=it.have,
            why=why,
            mend=f"{alter} --add-config {setting}={it.wanted}" if action is Action.DIFFERS else "",
        )


def _must_be(it: _Compared) -> str:
    return "" if it.have == it.wanted else "as set"


def _cleanup(it: _Compared) -> str:
    if it.have == it.wanted:
        return ""
    if it.topic.role is Role.STATE:
        return (
            "without compaction alone, what became of old letters is forgotten, and they could be sent twice"
        )
    return "compaction removes records that share a key with a later one, and refuses those without a key"


def _retention(it: _Compared) -> str:
    have = int(it.have)
    if have == -1:
        return ""
    if it.topic.role is Role.DLQ and it.wanted == "-1":
        source = int(it.source["retention.ms"])
        if source != -1 and have > source:
            return ""
        return (
            "dead letters would be gone no later than the records of their source, without anybody's decision"
        )
    if it.wanted != "-1" and have >= int(it.wanted):
        return ""
    if it.topic.delay_ms is None:
        return "records that still wait would be deleted"
    spare = have - 2 * it.topic.delay_ms
    left = f"after an outage of {format_duration(spare)}" if spare > 0 else "before they are due"
    return f"waiting records would be deleted {left}"


def _no_size_bound(it: _Compared) -> str:
    return "" if it.have == it.wanted else "a bound by size deletes records that wait, however young they are"


def _message_size(it: _Compared) -> str:
    if int(it.have) >= int(it.wanted):
        return ""
    return (
        f"a record that fits into {it.topic.source!r} may not fit with its headers, and lose texts on the way"
    )


def _min_isr(it: _Compared) -> str:
    have, replication = int(it.have), it.replication
    if replication is not None and have > replication:
        away = "; then one broker away is enough to refuse every write" if replication > 1 else ""
        return f"brokers before Kafka 3.7 refuse every write, newer ones take it as {replication}{away}"
    if replication is not None and have == replication > 1:
        return "one broker away is enough to refuse every write, and offsets are held meanwhile"
    if have < int(it.wanted):
        return "a write may be acknowledged by one broker alone; when that is lost, so is the record"
    return ""


_RULES: dict[str, Callable[[_Compared], str]] = {
    "cleanup.policy": _cleanup,
    "retention.ms": _retention,
    "retention.bytes": _no_size_bound,
    "max.message.bytes": _message_size,
    "min.insync.replicas": _min_isr,
}
