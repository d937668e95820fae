"""The worlds in which a port must behave alike: a cluster in memory, and a real broker with either group protocol."""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition

from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_settings import client_conf, consumer_conf, producer_conf, transactor_conf
from redrive.adapters.kafka_sink import KafkaSink
from redrive.adapters.kafka_source import KafkaSource
from redrive.adapters.kafka_transactor import KafkaTransactor
from redrive.core.record import RawRecord, TopicPartition
from redrive.runtime.clock import SystemClock
from redrive.runtime.ports import Cluster, Sink, Source, Transactor
from redrive.sim.cluster import SimCluster
from redrive.sim.transactor import SimTransactor
from tests.plain_kafka import Given, Headers, admin_of, create_topics, read_all, send, unique
from tests.waiting import until

#: Without polling for so long, a member of the real group is given up.
_MAX_POLL_MS = 2_000


class Stored(NamedTuple):
    """A record as a plain reader finds it."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class World(Protocol):
    """A cluster, and what stands for the rest of the world: other clients, retention, time."""

    cluster: Cluster
    #: Under KIP-848 the client doesn't tell that a subscribed topic is missing.
    tells_missing_topics: bool

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """Create a topic; gives its name."""

    def source(self, group: str) -> Source:
        """A consumer that has not joined yet."""

    def sink(self) -> Sink:
        """A producer; writes that are made together share a batch."""

    def transactor(self, transactional_id: str) -> Transactor:
        """A transactional producer; those of the same id before it are fenced."""

    def send(self, key: TopicPartition, *records: Given) -> None:
        """Write records as any client does."""

    def send_marker(self, key: TopicPartition) -> None:
        """Use up an offset without a record."""

    def delete_before(self, key: TopicPartition, offset: int) -> None:
        """Retention."""

    def stored(self, topic: str) -> list[Stored]:
        """All records of a topic."""

    def lose(self, source: Source) -> None:
        """Let the group give this member up; it hears of it when it polls again."""

    def close(self) -> None:
        """Close what is still open."""


class SimWorld:
    tells_missing_topics = True

    def __init__(self) -> None:
        self.sim = SimCluster()
        self.cluster = self.sim.admin()

    def topic(self, partitions: int = 1, **configs: str) -> str:
        name = unique("t")
        self.sim.create_topic(name, partitions, configs=configs)
        return name

    def source(self, group: str) -> Source:
        return self.sim.source(group)

    def sink(self) -> Sink:
        return self.sim.sink()

    def transactor(self, transactional_id: str) -> Transactor:
        return SimTransactor(self.sim, transactional_id)

    def send(self, key: TopicPartition, *records: Given) -> None:
        for record in records:
            self.sim.append(
                key.topic, record.value, key=record.key, headers=record.headers, partition=key.partition
            )

    def send_marker(self, key: TopicPartition) -> None:
        self.sim.partition(key).append_marker()

    def delete_before(self, key: TopicPartition, offset: int) -> None:
        self.sim.partition(key).delete_before(offset)

    def stored(self, topic: str) -> list[Stored]:
        return [
            Stored(record.partition(), record.key(), record.value(), record.headers() or [])
            for record in self.sim.records(topic)
        ]

    def lose(self, source: Source) -> None:
        self.sim.expel(source)

    def close(self) -> None:
        pass


class KafkaWorld:
    def __init__(self, bootstrap: str, protocol: str) -> None:
        self._bootstrap = bootstrap
        self._protocol = protocol
        self.tells_missing_topics = protocol == "classic"
        self._user = {"bootstrap.servers": bootstrap, "topic.metadata.propagation.max.ms": 500}
        self.cluster = KafkaCluster(client_conf(self._user))
        self._open: list[Any] = []

    def topic(self, partitions: int = 1, **configs: str) -> str:
        name = unique("t")
        create_topics(self._bootstrap, [name], partitions, **configs)
        return name

    def source(self, group: str) -> Source:
        user = {**self._user, "max.poll.interval.ms": _MAX_POLL_MS}
        if self._protocol == "classic":
            user |= {"heartbeat.interval.ms": 300, "session.timeout.ms": _MAX_POLL_MS}
        conf = consumer_conf(user, group=group, protocol=self._protocol)
        source = KafkaSource(conf, tells_membership=True)
        self._open.append(source.close)
        return source

    def sink(self) -> Sink:
        sink = KafkaSink(producer_conf({**self._user, "linger.ms": 50}))
        self._open.append(lambda: sink.close(5))
        return sink

    def transactor(self, transactional_id: str) -> Transactor:
        transactor = KafkaTransactor(transactor_conf(self._user, transactional_id), SystemClock().mono_ms)
        self._open.append(lambda: transactor.close(5))
        return transactor

    def send(self, key: TopicPartition, *records: Given) -> None:
        send(self._bootstrap, key.topic, [record._replace(partition=key.partition) for record in records])

    def send_marker(self, key: TopicPartition) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "transactional.id": unique("tx")})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(key.topic, b"never happened", partition=key.partition)
        producer.flush(10)
        producer.abort_transaction(30)

    def delete_before(self, key: TopicPartition, offset: int) -> None:
        wanted = ClientPartition(*key, offset)
        for future in admin_of(self._bootstrap).delete_records([wanted]).values():
            future.result()

    def stored(self, topic: str) -> list[Stored]:
        return [Stored(at.partition, at.key, at.value, at.foreign) for at in read_all(self._bootstrap, topic)]

    def lose(self, source: Source) -> None:
        # The fault itself: only a member that really doesn't poll for so long is given up by its client.
        time.sleep(1.5 * _MAX_POLL_MS / 1000)

    def close(self) -> None:
        for close in self._open:
            close()


class Member:
    """
    A consumer that joined, as a pump would: it starts partitions where the group has committed, else at `starts`, else at
    their beginning, and notes what happens to it.
    """

    def __init__(self, world: World, group: str, topics: Sequence[str], **starts: Any) -> None:
        self.source = world.source(group)
        self.happened: list[tuple[str, list[TopicPartition]]] = []
        self.records: list[tuple[TopicPartition, RawRecord]] = []
        self.problems: list[Any] = []
        self.answers: list[Any] = []
        #: Where partitions start for which nothing is committed; those in `kept_waiting` don't.
        self.starts: dict[TopicPartition, int | None] = {}
        self.kept_waiting: set[TopicPartition] = set()
        #: Committed when partitions are revoked.
        self.last_words: dict[TopicPartition, tuple[int, str]] = {}
        self.source.join(topics, self)

    @property
    def owned(self) -> set[TopicPartition]:
        owned: set[TopicPartition] = set()
        for event, keys in self.happened:
            owned = owned | set(keys) if event == "assigned" else owned - set(keys)
        return owned

    def on_assigned(self, keys: Sequence[TopicPartition]) -> None:
        self.happened.append(("assigned", sorted(keys)))
        committed = self.source.committed(keys, 5.0)
        starts = {
            key: at.offset if at.offset is not None else self.starts.get(key) for key, at in committed.items()
        }
        self.source.start_at({key: at for key, at in starts.items() if key not in self.kept_waiting})
        self.source.keep_waiting([key for key in keys if key in self.kept_waiting])

    def on_revoked(self, keys: Sequence[TopicPartition]) -> None:
        told = {key: self.last_words[key] for key in keys if key in self.last_words}
        if told:
            assert self.source.commit_now(told)
        self.happened.append(("revoked", sorted(keys)))

    def on_lost(self, keys: Sequence[TopicPartition]) -> None:
        self.happened.append(("lost", sorted(keys)))

    def poll(self, most: int = 500) -> None:
        """One round."""
        for key, records in self.source.poll(0.05, most):
            self.records.extend((key, record) for record in records)
        self.problems += self.source.problems()
        self.answers += self.source.commit_answers()

    def poll_until(self, is_so: Any, what: str, *others: "Member") -> None:
        """Poll until it is so; the others of the group go on polling."""

        def polled() -> bool:
            for member in (self, *others):
                member.poll()
            return bool(is_so())

        until(polled, what)

    def read(self, count: int) -> list[bytes | None]:
        """Poll until so many records have come in all; gives their values."""
        self.poll_until(lambda: len(self.records) >= count, f"{count} records")
        return [record.value() for _, record in self.records]

    def own(self, keys: set[TopicPartition], *others: "Member") -> None:
        """Poll until exactly these partitions are ours."""
        self.poll_until(lambda: self.owned == keys, f"owning {sorted(keys)}", *others)

    def events(self, event: str) -> list[TopicPartition]:
        return [key for name, keys in self.happened for key in keys if name == event]
