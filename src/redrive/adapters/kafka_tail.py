"""Follows partitions of Apache Kafka as they grow, without a group: for whoever shows what happens while it happens."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from redrive.adapters.fork import guard
from redrive.adapters.kafka_settings import consumer_conf
from redrive.core.record import RawRecord, TopicPartition
from redrive.errors import PortError

_BATCH = 1_000


class KafkaTail:
    """
    All records of `keys`, from the beginning on, by one consumer. `user`: what the user says to the client, with its
    `bootstrap.servers`. Used by one thread.
    """

    def __init__(self, user: Mapping[str, Any], keys: Iterable[TopicPartition]) -> None:
        conf = consumer_conf(user, group="redrive-tail", protocol="classic")
        self.client: Any = Consumer({**conf, "auto.offset.reset": "earliest"})
        self.client.assign([ClientPartition(*key, 0) for key in keys])
        guard(self)

    def read(self, timeout_s: float) -> list[RawRecord]:
        """What came since the last call; waits at most so long for the first. Raises PortError."""
        try:
            first = self.client.poll(timeout_s)
            messages = [] if first is None else [first, *self.client.consume(_BATCH, 0)]
        except KafkaException as error:
            raise PortError(f"can't be read: {error.args[0].str()}") from error
        # An error that comes as a message is about a broker that is away or a topic just made: the client goes on.
        return cast("list[RawRecord]", [message for message in messages if message.error() is None])

    def close(self) -> None:
        """End the connection."""
        self.client.close()
