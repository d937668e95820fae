"""Which record is to be skipped, and what stands in the way of that. The notice and its account are those of `retries`."""

from typing import NamedTuple

from redrive.core.acls import Operation, on_topic
from redrive.core.metadata import identity_of
from redrive.core.plan import GroupPlan, ListenerPlan
from redrive.core.record import RawRecord, TopicPartition
from redrive.deadletters.letters import Position
from redrive.deadletters.replay import Desk
from redrive.errors import TopologyError
from redrive.retries.selection import Plan, Target
from redrive.retries.tiers import done_by
from redrive.runtime.checks import require_rights


class Skippable(NamedTuple):
    """A record that its group hasn't finished, and the plan to skip it."""

    listener: ListenerPlan
    record: RawRecord
    plan: Plan


def find(desk: Desk, group: GroupPlan, at: Position) -> Skippable | str:
    """
    Gives the record at a position of a topic that the group reads; in words why there is nothing to skip.

    Raises TopologyError for a topic that the group doesn't read, PortError, also where this user lacks a right.
    """
    listener = _listener_of(group, at.topic)
    # Else a topic that this user may not see would look empty.
    require_rights([on_topic(Operation.READ, at.topic)], desk.cluster)
    info = desk.cluster.describe([at.topic]).get(at.topic)
    if info is None or at.partition >= info.partitions:
        return (
            f"there is no partition {at.partition} of {at.topic}, which has {info.partitions if info else 0}"
        )
    key = TopicPartition(at.topic, at.partition)
    first, end = (desk.cluster.offsets([key], when).get(key, 0) for when in ("earliest", "latest"))
    if at.offset >= end:
        return f"there is no record yet: {at.topic}/{at.partition} ends at {end}"
    if at.offset < first:
        return f"it was deleted by retention: {at.topic}/{at.partition} begins at {first}"
    identity = identity_of(desk.cluster.cluster_id(), info.topic_id or at.topic)
    done = done_by(desk.cluster, group.group, [key], identity).get(at.partition)
    if done is not None and (at.offset < done.settled or done.was_finished(at.offset)):
        return "it is finished already: the group's commit tells so"
    record = next(iter(desk.log.scan(key, at.offset, at.offset + 1)), None)
    if record is None:
        return "there is no record at this offset: compaction took it, or it is a transaction's mark"
    target = Target(group.group, key, identity, listener.state, ((at.offset, at.offset + 1),))
    return Skippable(listener, record, Plan("skip", (target,)))


def _listener_of(group: GroupPlan, topic: str) -> ListenerPlan:
    for listener in group.listeners:
        own = {listener.source, listener.parked} - {""}
        if topic in own or topic in {tier.topic for tier in (*listener.tiers, *listener.drained)}:
            return listener
    raise TopologyError(
        f"{topic!r} is none of the topics that {group.group} reads: {', '.join(group.topics)}"
    )
