"""Kafka as a stranger to redrive sees it: plain records in, plain records out, by the client library alone."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from redrive import App
from redrive.core.settings import Settings
from redrive.runtime.planning import wanted_topics
from tests.broker import admin
from tests.waiting import until

_NO_COORDINATOR_YET = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
}

Headers = list[tuple[str, bytes | None]]


class Given(NamedTuple):
    """A record to be sent; `partition` -1: as the client likes."""

    value: bytes | None = b"{}"
    key: bytes | None = b"key"
    headers: Headers = []
    partition: int = -1


class Seen(NamedTuple):
    """A record as it stands in a topic. `own`: redrive's headers by name; `foreign`: all others as they are."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    foreign: Headers
    own: dict[str, str]
    timestamp_ms: int


def unique(stem: str) -> str:
    """A name that no other test and no earlier run uses."""
    return f"{stem}-{uuid4().hex[:8]}"


def send(bootstrap: str, topic: str, records: Iterable[Given], **config: object) -> None:
    """Write records, and wait until the broker has them all."""
    refused = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 5, "message.max.bytes": 20_000_000, **config}
    )

    def told(error: object, _: Message) -> None:
        if error is not None:
            refused.append(error)

    for record in records:
        while True:
            try:
                producer.produce(
                    topic, record.value, record.key, record.partition, told, headers=record.headers or None
                )
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(60)
    assert (left, refused) == (0, [])


def read_all(bootstrap: str, topic: str) -> list[Seen]:
    """All that a topic holds now, by partition and offset."""
    return sorted(each_of(bootstrap, topic))


def each_of(bootstrap: str, topic: str, partitions: Sequence[int] | None = None) -> Iterator[Seen]:
    """All that a topic holds now, or some of its partitions, one at a time; each partition's by offset."""
    ends = _ends(bootstrap, topic)
    wanted = [number for number, end in ends.items() if end and (partitions is None or number in partitions)]
    return _from(bootstrap, [TopicPartition(topic, number, 0) for number in wanted])


def _from(bootstrap: str, starts: list[TopicPartition]) -> Iterator[Seen]:
    """What is there from these offsets on."""
    if not starts:
        return
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-without-a-group",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 8_000_000,
            "fetch.wait.max.ms": 10,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.assign(starts)
        at_end: set[tuple[str, int]] = set()
        while len(at_end) < len(starts):
            for message in consumer.consume(5000, 0.05):
                if message.error() is None:
                    yield _seen(message)
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    at_end.add((message.topic(), message.partition()))
    finally:
        consumer.close()


def count_all(bootstrap: str, topic: str) -> int:
    """How many records were ever written to a topic; right where nothing is compacted or transactional."""
    return sum(_ends(bootstrap, topic).values())


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """The group's committed offsets of a topic, asked for without joining the group."""
    # Not by the admin client: that one ends the process while a coordinator is still loading (librdkafka 2.16).
    asked = [TopicPartition(topic, number) for number in _partitions(bootstrap, topic)]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        answer = until(lambda: _answered(consumer, asked), f"the committed offsets of {group}")
    finally:
        consumer.close()
    return {at.partition: at.offset for at in answer if at.offset >= 0}


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    """Commit an offset of partition 0 for a group without members: from then on the group exists."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    until(lambda: _committed(consumer, TopicPartition(topic, 0, offset)), "the group's first commit")
    consumer.close()


def _committed(consumer: Consumer, at: TopicPartition) -> bool:
    try:
        consumer.commit(offsets=[at], asynchronous=False)
    except KafkaException as error:
        # Its coordinator is just found, or loads.
        if error.args[0].retriable() or error.args[0].code() in _NO_COORDINATOR_YET:
            return False
        raise
    return True


def _answered(consumer: Consumer, asked: list[TopicPartition]) -> list[TopicPartition]:
    """Empty while the group's coordinator is about to be: on a fresh broker the first group has to wait for it."""
    try:
        return consumer.committed(asked, timeout=20)
    except KafkaException as error:
        if error.args[0].code() not in _NO_COORDINATOR_YET:
            raise
        return []


def is_through(bootstrap: str, group: str, topics: Sequence[str]) -> bool:
    """As `is_all_committed`, also where transactions leave marks behind the last record. Later topics are looked at later."""
    for topic in topics:
        at = committed(bootstrap, group, topic)
        starts = [
            TopicPartition(topic, number, at.get(number, 0)) for number in _partitions(bootstrap, topic)
        ]
        if next(_from(bootstrap, starts), None) is not None:
            return False
    return True


def is_all_committed(bootstrap: str, group: str, topics: Sequence[str]) -> bool:
    """Whether the group is through with all that these topics hold."""
    for topic in topics:
        ends = {partition: end for partition, end in _ends(bootstrap, topic).items() if end}
        at = committed(bootstrap, group, topic)
        if any(at.get(partition, 0) < end for partition, end in ends.items()):
            return False
    return True


def create_topics(
    bootstrap: str, names: Iterable[str], partitions: int = 1, *, replicas: int = 1, **configs: str
) -> None:
    """Create topics in one go, and wait until they have leaders."""
    names = list(names)
    if not names:
        return
    client = admin_of(bootstrap)
    wanted = [NewTopic(name, partitions, replicas, config=configs) for name in names]
    for future in client.create_topics(wanted, operation_timeout=20).values():
        future.result()
    until(
        lambda: _have_leaders(client, [one.topic for one in wanted], partitions),
        f"leaders of {len(wanted)} topics",
    )


def create_topics_of(
    bootstrap: str, app: App, partitions: int = 1, *, leave_out: Sequence[str] = (), replicas: int = 1
) -> list[str]:
    """Create every topic that an app needs, its sources too, but for those that end in one of `leave_out`."""
    wanted = wanted_topics(app.resolve(), Settings(bootstrap_servers=bootstrap), ())
    known = set(admin_of(bootstrap).list_topics(timeout=10).topics)
    names = [topic.name for topic in wanted if topic.name not in known]
    names = [name for name in names if not any(name.endswith(end) for end in leave_out)]
    states = [name for name in names if name.endswith(".dlq.state")]
    create_topics(bootstrap, states, partitions, replicas=replicas, **{"cleanup.policy": "compact"})
    create_topics(bootstrap, [name for name in names if name not in states], partitions, replicas=replicas)
    return names


@cache
def admin_of(bootstrap: str) -> AdminClient:
    """An admin client that lives as long as the tests: one that is forgotten too early answers nothing."""
    return admin(bootstrap)


def _have_leaders(client: AdminClient, names: Sequence[str], partitions: int) -> bool:
    known = client.list_topics(timeout=10).topics
    return all(
        name in known
        and len(known[name].partitions) == partitions
        and all(one.leader >= 0 for one in known[name].partitions.values())
        for name in names
    )


def _ends(bootstrap: str, topic: str) -> dict[int, int]:
    client = admin_of(bootstrap)
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in _partitions(bootstrap, topic)}
    answers = client.list_offsets(asked)
    return {at.partition: future.result().offset for at, future in answers.items()}


def _partitions(bootstrap: str, topic: str) -> list[int]:
    return list(admin_of(bootstrap).list_topics(topic, timeout=10).topics[topic].partitions)


def _seen(message: Message) -> Seen:
    headers = message.headers() or []
    foreign = [(name, value) for name, value in headers if not name.startswith("redrive-")]
    own: dict[str, list[str]] = defaultdict(list)
    for name, value in headers:
        if name.startswith("redrive-"):
            own[name.removeprefix("redrive-")].append((value or b"").decode())
    repeated = {name: values for name, values in own.items() if len(values) > 1}
    assert repeated == {}, "redrive's headers are replaced, never appended"
    return Seen(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        foreign,
        {name: values[0] for name, values in own.items()},
        message.timestamp()[1],
    )
