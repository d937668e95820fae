"""
Every setting of the Kafka client that redrive changes, with its reason.

A user's own `[kafka]` settings come between the defaults and what a promise depends on: see `consumer_conf`.
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

#: The client's own log lines: about twenty a second while no broker answers, so nobody sees them unless asked for.
CLIENT_LOG = logging.getLogger("redrive.kafka.client")
if CLIENT_LOG.level == logging.NOTSET:  # a logging configuration goes before
    CLIENT_LOG.setLevel(logging.CRITICAL)


class Changed(NamedTuple):
    """One setting, its value here, and why. `fixed`: a promise depends on it, so nobody may change it."""

    name: str
    value: Any
    reason: str
    fixed: bool = False


CONSUMER = (
    Changed(
        "enable.auto.commit", False, "an offset passes only after its record was handled or moved on", True
    ),
    Changed(
        "enable.auto.offset.store", False, "the default stores an offset before the record was handled", True
    ),
    Changed(
        "auto.offset.reset",
        "error",
        "every partition starts at an explicit offset; the client never skips",
        True,
    ),
    Changed("isolation.level", "read_committed", "records of aborted transactions never happened", True),
    Changed(
        "allow.auto.create.topics", False, "a missing topic is an error to tell, not a topic to create", True
    ),
    Changed(
        "fetch.queue.backoff.ms",
        10,
        "at 1000, the default, a full local queue makes the fetcher sleep a second: 144,000 records/s against 797,000",
    ),
    Changed(
        "fetch.wait.max.ms",
        10,
        "a fetch for idle retry topics holds the connection this long; 500, the default, halves the retry path. "
        "Costs an idle broker 3 to 7 % of a core a consumer",
    ),
    Changed("queued.min.messages", 20_000, "half the memory of the default 100,000 at the same rate"),
    Changed("max.poll.interval.ms", 300_000, "the pump polls at least each second whatever handlers do"),
)

PRODUCER = (
    Changed("acks", "all", "a successor counts when all in-sync replicas have it", True),
    Changed("enable.idempotence", True, "a repeated send doesn't become a second retry or dead letter", True),
    Changed(
        "partitioner",
        "murmur2_random",
        "Java's formula: the same key goes where Java producers send it",
        True,
    ),
    Changed("linger.ms", 5, "retries of one moment share a batch; far below any tier's delay"),
    Changed(
        "queue.buffering.max.messages", 500_000, "a burst of failures is bounded by the engine, not here"
    ),
    Changed(
        "message.max.bytes",
        100_000_000,
        "the client's own limit of 1 MB would refuse copies with headers that the topic accepts; the broker judges",
        True,
    ),
    Changed(
        "message.timeout.ms",
        60_000,
        "a write that got no answer is told and repeated after a minute, not five",
    ),
    Changed("topic.metadata.propagation.max.ms", 5_000, "a missing topic is told after 5 s, not 30 s"),
)

TRANSACTIONS = (
    Changed(
        "transactional.id",
        "",
        "the group and the worker's name: who comes after a dead worker ends its transaction",
        True,
    ),
    Changed(
        "transaction.timeout.ms",
        10_000,
        "a dead worker's transaction hides what was written behind it, and its partitions, for that long at least",
    ),
    Changed(
        "retry.backoff.ms",
        2,
        "a transaction waits for the markers of the one before: 5 ms each instead of 105 at the default of 100",
    ),
    Changed("retry.backoff.max.ms", 50, "the same while it waits again"),
    Changed("linger.ms", 0, "all writes of a transaction are there when it begins"),
    Changed("message.timeout.ms", 8_000, "within the transaction: the client refuses more than its timeout"),
    Changed(
        "topic.metadata.propagation.max.ms",
        1_500,
        "a missing topic holds up a transaction, with all else that is in it",
    ),
)

_RANGE = (
    "keeps same-numbered partitions of source and tiers together; `uniform` and `cooperative-sticky` don't"
)
GROUP_PROTOCOLS = (
    Changed(
        "group.protocol",
        "consumer",
        "KIP-848, where the brokers have it: a rebalance moves only what has to move",
        True,
    ),
    Changed("group.remote.assignor", "range", f"with `consumer`: {_RANGE}", True),
    Changed("partition.assignment.strategy", "range", f"with `classic`, on older brokers: {_RANGE}", True),
    Changed(
        "group.instance.id",
        "",
        "only with membership `static`: instance_id and the worker's number, so that a worker that comes back gets its "
        "partitions back; never with `consumer`",
        True,
    ),
)
_GROUP = {
    "consumer": {"group.protocol": "consumer", "group.remote.assignor": "range"},
    "classic": {"group.protocol": "classic", "partition.assignment.strategy": "range"},
}


def consumer_conf(
    user: Mapping[str, Any], *, group: str, protocol: str, instance_id: str = ""
) -> dict[str, Any]:
    """
    Settings of a group member: redrive's defaults, the user's own, then what a promise depends on. `instance_id`: of a
    static member.
    """
    static = {"group.instance.id": instance_id} if instance_id else {}
    return {**_layered(CONSUMER, user), **_GROUP[protocol], **static, "group.id": group, "logger": CLIENT_LOG}


def producer_conf(user: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the producer of successors."""
    return {
        **_layered(PRODUCER, {name: value for name, value in user.items() if name not in _CONSUMER_ONLY}),
        "logger": CLIENT_LOG,
    }


def transactor_conf(user: Mapping[str, Any], transactional_id: str) -> dict[str, Any]:
    """Settings of the producer whose writes and offsets are one transaction."""
    own = {change.name: change.value for change in TRANSACTIONS}
    given = {name: value for name, value in user.items() if name in own}
    return {**producer_conf(user), **own, **given, "transactional.id": transactional_id}


def client_conf(user: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an admin client: the connection only."""
    only = _CONSUMER_ONLY | _PRODUCER_ONLY
    return {**{name: value for name, value in user.items() if name not in only}, "logger": CLIENT_LOG}


def _layered(changes: tuple[Changed, ...], user: Mapping[str, Any]) -> dict[str, Any]:
    other = _PRODUCER_ONLY if changes is CONSUMER else _CONSUMER_ONLY
    conf = {change.name: change.value for change in changes}
    conf.update((name, value) for name, value in user.items() if name not in other)
    conf.update((change.name, change.value) for change in changes if change.fixed)
    return conf


_CONSUMER_ONLY = frozenset(
    [change.name for change in CONSUMER]
    + [
        "group.instance.id",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "fetch.min.bytes",
        "fetch.max.bytes",
    ]
    + ["fetch.message.max.bytes", "max.partition.fetch.bytes", "queued.max.messages.kbytes", "check.crcs"]
)
_PRODUCER_ONLY = frozenset(
    [
        change.name
        for change in PRODUCER
        if change.name not in ("message.max.bytes", "topic.metadata.propagation.max.ms")
    ]
    + [
        "compression.type",
        "compression.codec",
        "compression.level",
        "batch.size",
        "batch.num.messages",
        "retries",
    ]
    + [
        "queue.buffering.max.kbytes",
        "queue.buffering.max.ms",
        "delivery.timeout.ms",
        "max.in.flight",
        "request.required.acks",
    ]
    + [
        "message.send.max.retries",
        "max.in.flight.requests.per.connection",
        "request.timeout.ms",
        "sticky.partitioning.linger.ms",
    ]
)
