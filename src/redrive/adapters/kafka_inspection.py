"""Questions that only `redrive doctor` asks an Apache Kafka cluster (`runtime/ports.py`, Inspection)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import (
    TopicPartition as ClientPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from redrive.adapters.fork import guard
from redrive.adapters.kafka_cluster import MOCK, KafkaCluster, operations_of
from redrive.adapters.kafka_offsets import NO_COORDINATOR_YET
from redrive.adapters.kafka_settings import client_conf, producer_conf
from redrive.core.doctor.findings import Untold
from redrive.core.doctor.observed import ObservedGroup, Skew
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.runtime.ports import NewTopic

#: The topic by which clocks are compared: made for the moment, and deleted again.
CLOCK_TOPIC = "redrive.doctor"
_CLOCK_CONFIG = {"message.timestamp.type": "LogAppendTime", "retention.ms": "3600000"}
#: The narrowest of so many answers counts: each is as exact as its round trip.
_CLOCK_WRITES = 5
_ANSWER_S = 10.0
_AGAIN_AFTER_S = 0.2


class KafkaInspection:
    """`user`: what the user says to the client, with its `bootstrap.servers`. `timeout_s` bounds each question."""

    def __init__(self, user: Mapping[str, Any], *, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        self._producer_conf = {**producer_conf(user), "linger.ms": 0}
        self._cluster = KafkaCluster(client_conf(user), timeout_s=timeout_s)
        self.client: Any = AdminClient(client_conf(user))
        guard(self)

    def client_version(self) -> str:
        return str(confluent_kafka.__version__)

    def brokers(self) -> Mapping[str, Mapping[str, str]]:
        self._require_controller()
        return {broker: self._cluster.broker_configs(broker) for broker in self._cluster.brokers()}

    def groups(self, names: Sequence[str]) -> Mapping[str, ObservedGroup]:
        if not names:
            return {}
        self._require_controller()
        waited_s = 0.0
        while True:
            answers = self.client.describe_consumer_groups(
                list(names), include_authorized_operations=True, request_timeout=self._timeout_s
            )
            try:
                return {name: _group(_result(future)) for name, future in answers.items()}
            except PortError as error:
                # In a fresh cluster the first group has to wait for its coordinator.
                if not error.retriable or waited_s >= self._timeout_s:
                    raise
            self.client.poll(_AGAIN_AFTER_S)
            waited_s += _AGAIN_AFTER_S

    def newest_ms(self, keys: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        if not keys:
            return {}
        self._require_controller()
        asked = {ClientPartition(*key): OffsetSpec.max_timestamp() for key in keys}
        found: dict[TopicPartition, int] = {}
        for at, future in self.client.list_offsets(asked, request_timeout=self._timeout_s).items():
            try:
                newest_ms = future.result().timestamp
            except KafkaException:
                continue  # no right to ask, or no leader just now: the others tell what they know
            if newest_ms >= 0:
                found[TopicPartition(at.topic, at.partition)] = newest_ms
        return found

    def measure_clock(self, wall_ms: Callable[[], float]) -> Skew:
        self._require_controller()
        if self._cluster.describe([CLOCK_TOPIC]):
            raise PortError(
                f"there is a topic {CLOCK_TOPIC} already: another doctor is measuring, or one was killed while it did; "
                "delete it if nobody does"
            )
        failed = self._cluster.create([NewTopic(CLOCK_TOPIC, 1, -1, _CLOCK_CONFIG)])
        if failed:
            raise PortError(f"the topic {CLOCK_TOPIC} can't be created: {failed[CLOCK_TOPIC]}")
        try:
            return self._compare_clocks(wall_ms)
        finally:
            deleted = self.client.delete_topics([CLOCK_TOPIC], operation_timeout=self._timeout_s)
            _result(deleted[CLOCK_TOPIC])

    def _compare_clocks(self, wall_ms: Callable[[], float]) -> Skew:
        """The broker's time of a write lies between our times before and after it."""
        producer = Producer(self._producer_conf)
        lows: list[float] = []
        highs: list[float] = []
        for _ in range(_CLOCK_WRITES):
            answers: list[tuple[Any, int, int]] = []
            before_ms = wall_ms()
            producer.produce(CLOCK_TOPIC, b"", on_delivery=partial(_note, answers))
            producer.flush(_ANSWER_S)
            after_ms = wall_ms()
            if not answers or answers[0][0] is not None or answers[0][1] != TIMESTAMP_LOG_APPEND_TIME:
                raise PortError(f"a record written to {CLOCK_TOPIC} got no time from the broker")
            broker_ms = answers[0][2]
            lows.append(before_ms - broker_ms - 1)  # whole milliseconds, cut off
            highs.append(after_ms - broker_ms)
        return Skew(max(lows), min(highs))

    def _require_controller(self) -> None:
        if self._cluster.cluster_id().startswith(MOCK):
            raise PortError("a mock cluster doesn't tell")


def _note(answers: list[tuple[Any, int, int]], error: Any, message: Message) -> None:
    answers.append((error, *message.timestamp()))


def _group(described: Any) -> ObservedGroup:
    has = operations_of(described)
    return ObservedGroup(
        protocol=described.type.name.lower(),
        assignor=described.partition_assignor if described.members else "",
        members=len(described.members),
        rights=Untold("the broker doesn't tell what this user may do with the group") if has is None else has,
    )


def _result(future: Any) -> Any:
    try:
        return future.result()
    except KafkaException as error:
        cause = error.args[0]
        is_early = cause.code() in NO_COORDINATOR_YET
        raise PortError(f"{cause.name()}: {cause.str()}", retriable=cause.retriable() or is_early) from error
