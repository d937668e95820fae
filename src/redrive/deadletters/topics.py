"""Which topics hold dead letters, and in which topic their states are."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

import msgspec

from redrive.core.acls import Operation, on_topic
from redrive.core.record import TopicPartition
from redrive.core.topology import STYLES, Naming, ParsedName, Role
from redrive.errors import TopologyError
from redrive.runtime.checks import require_rights
from redrive.runtime.ports import Cluster, TopicInfo

#: Of the topics that there are, for whoever mistyped one: those that are called most like it.
_MOST_NAMED = 5
#: How topics may be called where no app and no settings say it.
ALL_STYLES = tuple(Naming.of(style) for style in STYLES)


class Named(NamedTuple):
    """What a topic's name tells, and the naming that says so."""

    naming: Naming
    name: ParsedName


class Names(msgspec.Struct, frozen=True):
    """
    How the topics of an app are called. `namings`: one, or `ALL_STYLES` where nobody says it. `group`: "" for any,
    which finds nothing in templates that hold `{group}`.
    """

    namings: tuple[Naming, ...] = ALL_STYLES
    group: str = ""

    def role(self, topic: str) -> Role | None:
        """What a topic is for, as far as its name tells."""
        named = self.parse(topic)
        return None if named is None else named.name.role

    def source(self, dlq: str) -> str:
        """Whose dead letters are in `dlq`, as far as its name tells; else empty."""
        named = self.parse(dlq)
        return named.name.topic if named and named.name.role is Role.DLQ else ""

    def parse(self, topic: str) -> Named | None:
        """What a topic's name tells, by the first naming that knows it."""
        parsed = ((naming, naming.parse(topic, group=self.group)) for naming in self.namings)
        return next((Named(naming, name) for naming, name in parsed if name is not None), None)

    def state(self, dlq: str) -> str:
        """The state topic of `dlq`, after the naming that calls it a dead-letter topic, else after the first one."""
        for naming in self.namings:
            parsed = naming.parse(dlq, group=self.group)
            if parsed is not None and parsed.role is Role.DLQ:
                return naming.state(dlq)
        return self.namings[0].state(dlq)


class Dlq(msgspec.Struct, frozen=True):
    """
    A dead-letter topic as it was when a command began: `bounds` maps its partitions to their first and end offset.

    What arrives later lies beyond the bounds, so that whatever reads them comes to an end. `has_state`: whether the
    topic `state` exists. `replication`: 0 where the cluster doesn't tell. `source`: whose letters these are, as far as
    the name tells.
    """

    topic: str
    state: str
    has_state: bool
    bounds: Mapping[int, tuple[int, int]]
    replication: int = 0
    source: str = ""


def find_dlqs(cluster: Cluster, names: Names) -> list[Dlq]:
    """Gives all topics that are called like dead-letter topics. Raises PortError."""
    existing = cluster.describe()
    return _frozen(
        cluster, sorted(topic for topic in existing if names.role(topic) is Role.DLQ), existing, names
    )


def open_dlqs(cluster: Cluster, topics: Iterable[str], names: Names) -> list[Dlq]:
    """
    Gives these topics, whatever they are called. Raises PortError, and TopologyError for what is missing or is
    something else by its name: a retry topic's records still have a future, they must not be sent by hand.
    """
    existing = cluster.describe()
    wanted = sorted(set(topics))
    _require_seen(cluster, [topic for topic in wanted if topic not in existing])
    problems = [problem for topic in wanted for problem in _problems(topic, existing, names)]
    if problems:
        raise TopologyError("; ".join(problems))
    return _frozen(cluster, wanted, existing, names)


def _problems(topic: str, existing: Collection[str], names: Names) -> Iterator[str]:
    if topic not in existing:
        found = sorted(name for name in existing if names.role(name) is Role.DLQ)
        alike = get_close_matches(topic, found, n=_MOST_NAMED, cutoff=0.0)
        more = f" and {len(found) - len(alike)} more" if len(found) > len(alike) else ""
        told = (
            f"dead-letter topics here: {', '.join(alike)}{more}"
            if found
            else "there is no dead-letter topic at all"
        )
        yield f"topic {topic!r} doesn't exist in this cluster; {told}"
    elif (role := names.role(topic)) not in {None, Role.DLQ}:
        yield f"topic {topic!r} is no dead-letter topic: by its name it is a {role} topic"


def _frozen(
    cluster: Cluster, topics: Sequence[str], existing: Mapping[str, TopicInfo], names: Names
) -> list[Dlq]:
    keys = [
        TopicPartition(topic, partition)
        for topic in topics
        for partition in range(existing[topic].partitions)
    ]
    firsts, ends = cluster.offsets(keys, "earliest"), cluster.offsets(keys, "latest")
    bounds: dict[str, dict[int, tuple[int, int]]] = {topic: {} for topic in topics}
    for key in keys:
        if key in firsts and key in ends:
            bounds[key.topic][key.partition] = (firsts[key], ends[key])
    states = {topic: state_of(topic, existing, names) for topic in topics}
    _require_seen(cluster, [state for state in states.values() if state not in existing])
    return [
        Dlq(
            topic,
            states[topic],
            states[topic] in existing,
            bounds[topic],
            existing[topic].replication,
            names.source(topic),
        )
        for topic in topics
    ]


def _require_seen(cluster: Cluster, topics: Sequence[str]) -> None:
    """Topics that this user may not see look as if they were missing: of its letters nobody would know what was sent."""
    require_rights([on_topic(Operation.READ, topic) for topic in topics], cluster)


def possible_states(dlq: str, names: Names) -> frozenset[str]:
    """What the state topic of `dlq` may be called, by any naming."""
    marked = (name for mark in "._-" for name in (f"{dlq}{mark}state", f"state{mark}{dlq}"))
    return frozenset([names.state(dlq), *marked])


def state_of(dlq: str, existing: Collection[str], names: Names) -> str:
    """
    The state topic that is there, else the one that the naming gives. Raises TopologyError when there are two.

    Two people with different settings must not keep their books in two places: each would send what the other sent.
    """
    wanted = names.state(dlq)
    found = sorted(possible_states(dlq, names) & set(existing))
    if len(found) > 1:
        raise TopologyError(
            f"{dlq!r} has {len(found)} state topics, {' and '.join(found)}: what one says was replayed, the other doesn't "
            f"know. Delete the one that isn't used (by these settings it would be {wanted!r})"
        )
    return found[0] if found else wanted
