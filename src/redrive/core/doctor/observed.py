"""What doctor compares: an app as it wants things to be, and a cluster as it was seen at one moment."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from redrive.core.acls import Operation, Right
from redrive.core.doctor.findings import Untold
from redrive.core.plan import Tier
from redrive.core.topic_plan import ObservedTopic, WantedTopic
from redrive.core.topology import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """
    What an app needs. `target`: the app as commands take it. `own_groups`: its group, and those that it took over.

    `orphans`: tiers of older policies that the cluster still has. `time_limits_ms`: of listeners that have one.
    `service_rights`: what the service takes; `replay_rights`: what looking at dead letters and sending them back takes.
    """

    target: str
    group: str
    own_groups: tuple[str, ...]
    wanted: tuple[WantedTopic, ...]
    orphans: tuple[Tier, ...] = ()
    group_protocol: str = "auto"
    tier_outage_ms: int
    shutdown_timeout_ms: int
    max_poll_interval_ms: int
    time_limits_ms: Mapping[str, int] = field(default_factory=dict[str, int])
    service_rights: tuple[Right, ...] = ()
    replay_rights: tuple[Right, ...] = ()

    @property
    def tiers(self) -> tuple[str, ...]:
        """The topics in which records wait for this app, its orphaned tiers last."""
        named = [topic.name for topic in self.wanted if topic.role is Role.TIER]
        return tuple(dict.fromkeys([*named, *(tier.topic for tier in self.orphans)]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedGroup:
    """
    A group as its coordinator sees it. `protocol`: `consumer` or `classic`; `assignor`: empty where it has no members.

    `members` counts them; `rights`: what this user may do with the group.
    """

    protocol: str
    assignor: str
    members: int
    rights: frozenset[Operation] | Untold


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """
    Records that wait in tiers with one group's stamp. `is_at_work`: whether that group has members;
    `has_committed`: whether it has committed offsets of these tiers. `is_at_least`: more were not looked at.
    """

    group: str
    records: int
    topics: tuple[str, ...]
    is_at_work: bool
    has_committed: bool
    is_at_least: bool = False


@dataclass(frozen=True, slots=True)
class Skew:
    """By how much this machine's clock goes before the broker's (ms; negative: behind): somewhere from `low` to `high`."""

    low_ms: float
    high_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Versions as numbers. `client`: confluent-kafka's; `broker`: the oldest broker's; `at_least`: or a newer one."""

    client: tuple[int, ...]
    broker: tuple[int, ...] | Untold
    at_least: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """
    A cluster as it was seen at `now_ms`, by one user, through one connection.

    `topics`: those of the case that exist. `readers`: groups with committed offsets of each tier. `unread`: records that
    the group has still to read, of each orphaned tier. `brokers`: each broker's configuration. `newest_ms`: the
    newest timestamp of each topic that redrive writes, and of Kafka's own log of commits. `rights`: what this user may do with each
    topic of the case.
    """

    now_ms: float
    topics: Mapping[str, ObservedTopic]
    readers: Mapping[str, tuple[str, ...]] | Untold
    unread: Mapping[str, int] | Untold
    stamped: tuple[Stamped, ...] | Untold
    group: ObservedGroup | Untold
    brokers: Mapping[str, Mapping[str, str]] | Untold
    versions: Versions
    newest_ms: Mapping[str, int] | Untold
    skew: Skew | Untold
    rights: Mapping[str, frozenset[Operation]] | Untold


def versions_of(client: str, brokers: Mapping[str, Mapping[str, str]] | Untold) -> Versions:
    """
    Gives versions from what is told. Brokers tell none; their settings do: `inter.broker.protocol.version` names it
    until Kafka 3.9, and went away with 4.0.
    """
    if isinstance(brokers, Untold):
        return Versions(client=_numbers(client), broker=brokers)
    told = [configs.get("inter.broker.protocol.version", "") for configs in brokers.values()]
    named = sorted(_numbers(version) for version in told if version)
    if named:
        return Versions(client=_numbers(client), broker=named[0])
    if all("group.coordinator.rebalance.protocols" in configs for configs in brokers.values()) and brokers:
        return Versions(client=_numbers(client), broker=(4, 0), at_least=True)
    return Versions(client=_numbers(client), broker=Untold("the brokers' settings don't show their version"))


def _numbers(version: str) -> tuple[int, ...]:
    """`3.9-IV0` is 3.9, `2.14.0rc1` is 2.14.0: what begins a part counts."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()
