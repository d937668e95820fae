"""Compares an app's topics with the cluster's, and creates what is missing: `redrive topics` without its printing."""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from redrive.core.topic_plan import Action, ObservedTopic, PlanItem, TopicPlan, WantedTopic, plan_topics
from redrive.core.topology import Role
from redrive.errors import PortError
from redrive.runtime.clock import Clock
from redrive.runtime.ports import Cluster, NewTopic

_ASK_EVERY_MS = 200.0


def with_source_partitions(
    wanted: Iterable[WantedTopic],
    existing: Mapping[str, object],
    *,
    missing: int | None = None,
    by_source: Mapping[str, int],
) -> tuple[WantedTopic, ...]:
    """
    Says how many partitions source topics are to have: `missing` for those that aren't there yet, `by_source` for
    those named, also where they are to grow. Without either a source is only looked at.
    """
    told: list[WantedTopic] = []
    for topic in wanted:
        count = by_source.get(topic.name, missing if topic.name not in existing else None)
        told.append(replace(topic, partitions=count) if topic.role is Role.SOURCE else topic)
    return tuple(told)


def compare(cluster: Cluster, wanted: Sequence[WantedTopic]) -> TopicPlan:
    """Gives what has to be done, from what the cluster has now. Raises PortError when it doesn't answer."""
    found = cluster.describe([topic.name for topic in wanted], configs=True)
    observed = [
        ObservedTopic(topic.name, topic.partitions, topic.replication or None, topic.configs)
        for topic in found.values()
    ]
    return plan_topics(wanted, observed)


def carry_out(cluster: Cluster, plan: TopicPlan, *, replication: int) -> Mapping[str, str]:
    """
    Creates and grows what the plan says, copies before their sources, and never more. Gives the topics that failed
    and why; the others are done all the same.

    `replication`: of topics for which the plan leaves it open, i.e. sources.
    """
    failed: dict[str, str] = {}
    is_source = [item.role is Role.SOURCE for item in plan.changes]
    for sources in sorted(set(is_source)):
        part = [item for item, its in zip(plan.changes, is_source, strict=True) if its is sources]
        new = [
            NewTopic(item.topic, item.partitions or 1, item.replication or replication, item.configs)
            for item in part
            if item.action is Action.CREATE
        ]
        failed |= cluster.create(new) if new else {}
        for item in part:
            if item.action is Action.GROW:
                failed |= _grow(cluster, item)
    return failed


def await_carried_out(
    cluster: Cluster,
    wanted: Sequence[WantedTopic],
    clock: Clock,
    *,
    failed: Collection[str] = (),
    timeout_ms: float = 10_000.0,
) -> TopicPlan:
    """
    Describes until the brokers show what was created, which takes them a moment; gives the plan that is left.

    `failed`: topics that aren't waited for.
    """
    never = threading.Event()
    until_ms = clock.mono_ms() + timeout_ms
    while True:
        plan = compare(cluster, wanted)
        if all(item.topic in failed for item in plan.changes) or clock.mono_ms() >= until_ms:
            return plan
        clock.wait(never, _ASK_EVERY_MS)


def find_sharers(cluster: Cluster, plan: TopicPlan, own_groups: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Gives the existing tiers that other groups read too, with these groups."""
    missing = {item.topic for item in plan.changes if item.action is Action.CREATE}
    tiers = dict.fromkeys(item.topic for item in plan.items if item.role is Role.TIER)
    readers = cluster.readers([tier for tier in tiers if tier not in missing])
    found = {tier: [group for group in groups if group not in own_groups] for tier, groups in readers.items()}
    return {tier: groups for tier, groups in found.items() if groups}


def _grow(cluster: Cluster, item: PlanItem) -> dict[str, str]:
    try:
        cluster.grow(item.topic, item.partitions or 0)
    except PortError as error:
        return {item.topic: str(error)}
    return {}
