"""
Which rights an authorizer has to grant: to a service, and to the people who look after it.

Only what is used, each with its reason. What another right brings along isn't listed: Read, Write and Alter bring
Describe. Neither is IdempotentWrite: brokers since 2.8 want it only of a user who may write to no topic at all.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from redrive.core.membership import transactional_prefix
from redrive.core.plan import GroupPlan, ListenerPlan
from redrive.core.topic_plan import WantedTopic
from redrive.core.topology import Role

#: What Kafka calls the one cluster that there is.
CLUSTER = "kafka-cluster"
#: Where whoever lacks a right finds them all.
ADVICE = "What is needed for what: redrive topics acls"


class Operation(StrEnum):
    """What is done with a resource, as Kafka's own tools spell it."""

    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    DESCRIBE_CONFIGS = "DescribeConfigs"


class Resource(StrEnum):
    """What it is done with."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional-id"


@dataclass(frozen=True, slots=True)
class Right:
    """One operation on one resource. `name` `*` of a group: on all groups. `is_prefix`: on all whose name begins with `name`."""

    operation: Operation
    resource: Resource
    name: str = CLUSTER
    is_prefix: bool = False

    def __str__(self) -> str:
        return f"{self.operation} on {self._where}"

    @property
    def _where(self) -> str:
        if self.resource is Resource.CLUSTER:
            return "the cluster"
        if self.is_prefix:
            return f"all {self.resource}s that begin with {self.name}"
        return f"all {self.resource}s" if self.name == "*" else f"{self.resource} {self.name}"


@dataclass(frozen=True, slots=True)
class Acl:
    """A right that has to be granted, and what for."""

    right: Right
    why: str


@dataclass(frozen=True, slots=True)
class Need:
    """
    All that one kind of user needs. `name` tells the kinds apart, `what` is what they run. Each is complete by itself, but for
    what a service needs besides.
    """

    name: str
    what: str
    acls: tuple[Acl, ...]


def on_topic(operation: Operation, topic: str) -> Right:
    """Gives a right on a topic."""
    return Right(operation, Resource.TOPIC, topic)


def transacting_right(group: str) -> Right:
    """
    Gives what the processes of a group need for their transactions: each has an id of its own, by its host or what it is called,
    so that only their beginning is known. Brokers ask for no IdempotentWrite of who has it.
    """
    return Right(Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_prefix(group), is_prefix=True)


def asking_rights(dlq: str, state: str) -> tuple[Right, ...]:
    """Gives what it takes to ask something of workers by a state topic, and to see what became of it."""
    return (
        on_topic(Operation.DESCRIBE, dlq),
        *(on_topic(each, state) for each in (Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS)),
    )


def needs_of(
    plan: GroupPlan,
    wanted: Iterable[WantedTopic],
    *,
    asks_protocols: bool,
    letters: GroupPlan | None = None,
) -> tuple[Need, ...]:
    """
    Gives what the service of a group needs, first, and then what the commands of those who operate it need.

    `wanted`: the app's topics. `asks_protocols`: whether the start asks the brokers for their group protocols. `letters`:
    the group in which the service handles its dead letters, where it does.
    """
    wanted = tuple(wanted)
    return (
        Need("service", "redrive run", service_acls(plan, wanted, asks_protocols=asks_protocols)),
        *([Need("on-dead-letter", "redrive run, besides", letter_acls(letters))] if letters else []),
        Need("metrics", "redrive run --http, besides", metrics_acls(wanted)),
        Need("topics-plan", "redrive topics plan", plan_acls(wanted)),
        Need("topics-apply", "redrive topics plan, apply", apply_acls(wanted)),
        Need("dlq-look", "redrive dlq ls, show", look_acls(wanted)),
        Need("dlq-replay", "redrive dlq ls, show, replay, discard; console", replay_acls(plan, wanted)),
        Need("retries", "redrive retries ls, hurry, discard", retries_acls(plan, wanted)),
        Need("worker", "redrive worker pause, resume, skip", worker_acls(plan, wanted)),
        Need("lag", "redrive lag", lag_acls(plan)),
    )


def service_acls(plan: GroupPlan, wanted: Iterable[WantedTopic], *, asks_protocols: bool) -> tuple[Acl, ...]:
    """Gives what the processes of a service need."""
    found = _Found()
    for listener in plan.listeners:
        _add_listener(found, listener)
    for topic in wanted:
        if not found.has_any_on(topic.name):
            found.add(Operation.DESCRIBE, topic.name, "the start looks whether it is there")
    membership = Right(Operation.READ, Resource.GROUP, plan.group)
    found.add_right(membership, "membership and commits")
    if plan.delivery == "exactly-once":
        found.add_right(
            transacting_right(plan.group),
            "each process has one; topics to which handlers emit: Write besides",
        )
    if asks_protocols:
        asked = Right(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER)
        found.add_right(
            asked, "the start asks which group protocols the brokers have; not where group_protocol says one"
        )
    return found.acls


def _add_listener(found: "_Found", listener: ListenerPlan) -> None:
    found.add(Operation.READ, listener.source, f"listener {listener.name} handles its records")
    for tier in listener.tiers:
        found.add(Operation.READ, tier.topic, "records wait there for their next attempt")
        found.add(Operation.WRITE, tier.topic, "records that fail are written there")
    for tier in listener.drained:
        why = "a retry topic of an older policy; what still waits there is run"
        found.add(
            Operation.READ, tier.topic, why if tier.delay_ms else "dead letters that are sent back come by it"
        )
    if listener.give_up == "dead-letter":
        found.add(Operation.WRITE, listener.dlq, "records that failed for good are put aside there")
    if listener.state:
        found.add(
            Operation.READ,
            listener.state,
            "what is asked for by `redrive retries` and `redrive worker` stands there",
        )
        found.add(
            Operation.WRITE, listener.state, "what became of a discarded or skipped record is written there"
        )


def letter_acls(letters: GroupPlan) -> tuple[Acl, ...]:
    """Gives what the same processes need for `@app.on_dead_letter`."""
    found = _Found()
    for listener in letters.listeners:
        found.add(Operation.READ, listener.source, f"{listener.name} is called with its letters")
    found.add_right(Right(Operation.READ, Resource.GROUP, letters.group), "membership and commits")
    return found.acls


def metrics_acls(wanted: Iterable[WantedTopic]) -> tuple[Acl, ...]:
    """Gives what the same processes need to tell how many dead letters are unresolved. Without it they run all the same."""
    found = _Found()
    for topic in wanted:
        if topic.role is Role.DLQ:
            found.add(Operation.READ, topic.name, "unresolved letters are counted")
            found.add(Operation.DESCRIBE_CONFIGS, topic.name, "how much time retention leaves them")
        elif topic.role is Role.STATE:
            found.add(Operation.READ, topic.name, "what became of them stands there")
    return found.acls


def plan_acls(wanted: Iterable[WantedTopic]) -> tuple[Acl, ...]:
    """Gives what it takes to compare an app's topics with the cluster's."""
    found = _Found()
    for topic in wanted:
        found.add(Operation.DESCRIBE, topic.name, "is it there, with how many partitions and replicas")
        found.add(Operation.DESCRIBE_CONFIGS, topic.name, "its configuration is compared")
    _add_readers(found)
    return found.acls


def apply_acls(wanted: Iterable[WantedTopic]) -> tuple[Acl, ...]:
    """Gives what it takes to create and grow an app's topics. Sources are looked at: their producers' affair."""
    found = _Found()
    for topic in wanted:
        if topic.role is Role.SOURCE:
            why = (
                "how many partitions it has; --create-sources takes Create, --partitions takes Alter besides"
            )
            found.add(Operation.DESCRIBE, topic.name, why)
        else:
            found.add(Operation.CREATE, topic.name, "it is created where it is missing")
            if topic.role is Role.STATE:
                found.add(Operation.DESCRIBE, topic.name, "is it there; it is never grown")
            else:
                found.add(Operation.ALTER, topic.name, "it is grown where its source has more partitions")
        found.add(Operation.DESCRIBE_CONFIGS, topic.name, "its configuration is compared")
    _add_readers(found)
    return found.acls


def _add_readers(found: "_Found") -> None:
    """What `Cluster.readers` asks."""
    why = "finds other groups that read the same topics"
    found.add_right(Right(Operation.DESCRIBE, Resource.CLUSTER), why)
    found.add_right(Right(Operation.DESCRIBE, Resource.GROUP, "*"), why)


def look_acls(wanted: Iterable[WantedTopic]) -> tuple[Acl, ...]:
    """Gives what it takes to count and show dead letters."""
    found = _Found()
    _add_letters(found, wanted)
    return found.acls


def replay_acls(plan: GroupPlan, wanted: Iterable[WantedTopic]) -> tuple[Acl, ...]:
    """Gives what it takes to send dead letters back to this group, and to discard them."""
    wanted = tuple(wanted)
    found = _Found()
    _add_letters(found, wanted)
    for topic in wanted:
        if topic.role is Role.STATE:
            found.add(
                Operation.WRITE, topic.name, "letters are claimed before they are sent, and marked after"
            )
            found.add(Operation.DESCRIBE_CONFIGS, topic.name, "a state topic that forgets is refused")
    for listener in plan.listeners:
        found.add(Operation.WRITE, listener.replay, f"letters of listener {listener.name} go back by it")
        found.add(Operation.DESCRIBE, listener.source, "a copy keeps the partition that its record had there")
    return found.acls


def retries_acls(plan: GroupPlan, wanted: Iterable[WantedTopic]) -> tuple[Acl, ...]:
    """Gives what it takes to see what waits in the retry topics, and to hurry or discard some of it."""
    found = _Found()
    for listener in plan.listeners:
        for tier in (*listener.tiers, *listener.drained):
            found.add(Operation.READ, tier.topic, "what waits is there")
        found.add(Operation.DESCRIBE, listener.dlq, "its state topic is known by it")
    for topic in wanted:
        if topic.role is Role.STATE:
            found.add(Operation.READ, topic.name, "workers write there what became of it")
            found.add(Operation.WRITE, topic.name, "workers read there what is to be done")
            found.add(Operation.DESCRIBE_CONFIGS, topic.name, "a state topic that forgets is refused")
    _add_readers(found)
    return found.acls


def worker_acls(plan: GroupPlan, wanted: Iterable[WantedTopic]) -> tuple[Acl, ...]:
    """Gives what it takes to pause a listener, and to skip a record. Who asks processes over HTTP needs their token only."""
    found = _Found()
    for name in plan.topics:
        found.add(Operation.READ, name, "a record that is to be skipped is looked at before")
    for listener in plan.listeners:
        found.add(Operation.DESCRIBE, listener.dlq, "its state topic is known by it")
    for topic in wanted:
        if topic.role is Role.STATE:
            found.add(Operation.READ, topic.name, "what was said before, and what became of it, stands there")
            found.add(Operation.WRITE, topic.name, "workers read there what is to be done")
            found.add(Operation.DESCRIBE_CONFIGS, topic.name, "a state topic that forgets is refused")
    found.add_right(Right(Operation.DESCRIBE, Resource.GROUP, plan.group), "what it has committed")
    return found.acls


def lag_acls(plan: GroupPlan) -> tuple[Acl, ...]:
    """Gives what it takes to see how far behind a group is, and which record holds it up."""
    found = _Found()
    for topic in plan.topics:
        found.add(Operation.READ, topic, "its end, and the oldest record that is unfinished")
    found.add_right(Right(Operation.DESCRIBE, Resource.GROUP, plan.group), "what it has committed")
    return found.acls


def _add_letters(found: "_Found", wanted: Iterable[WantedTopic]) -> None:
    whys = {Role.DLQ: "dead letters are there", Role.STATE: "what became of them stands there"}
    for topic in wanted:
        if topic.role in whys:
            found.add(Operation.READ, topic.name, whys[topic.role])


class _Found:
    """Rights in the order in which they were found, each once, with its first reason."""

    def __init__(self) -> None:
        self._whys: dict[Right, str] = {}

    def add(self, operation: Operation, topic: str, why: str) -> None:
        self.add_right(on_topic(operation, topic), why)

    def add_right(self, right: Right, why: str) -> None:
        self._whys.setdefault(right, why)

    def has_any_on(self, topic: str) -> bool:
        return any(right.resource is Resource.TOPIC and right.name == topic for right in self._whys)

    @property
    def acls(self) -> tuple[Acl, ...]:
        return tuple(Acl(right, why) for right, why in self._whys.items())


def find_lacking(rights: Iterable[Right], allowed: Mapping[str, Collection[Operation]]) -> tuple[Right, ...]:
    """
    Gives which of these rights on topics are lacking. `allowed`: what may be done, by topic; of others nobody knows.

    A topic with which nothing may be done may exist or not: brokers don't tell.
    """
    return tuple(
        right
        for right in rights
        if right.resource is Resource.TOPIC
        and right.operation not in allowed.get(right.name, (right.operation,))
    )


def explain_lacking(rights: Iterable[Right]) -> str:
    """Gives what to tell whoever lacks these rights: `this user lacks the right Write on topic orders.dlq`."""
    rights = tuple(dict.fromkeys(rights))
    which = "the right" if len(rights) == 1 else f"{len(rights)} rights:"
    return f"this user lacks {which} {', '.join(_by_resource(rights))}"


def _by_resource(rights: Iterable[Right]) -> Iterator[str]:
    """`Read and Write on topic orders.retry.5s`."""
    operations: dict[tuple[Resource, str, bool], list[Operation]] = {}
    for right in rights:
        operations.setdefault((right.resource, right.name, right.is_prefix), []).append(right.operation)
    for (resource, name, is_prefix), (*others, last) in operations.items():
        yield " and ".join([*others, str(Right(last, resource, name, is_prefix))])
