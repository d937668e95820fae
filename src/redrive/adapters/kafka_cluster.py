"""Questions to an Apache Kafka cluster and changes of its topics (`runtime/ports.py`, Cluster)."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import (
    TopicPartition as ClientPartition,
)
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)
from confluent_kafka.admin import (
    NewTopic as ClientTopic,
)

from redrive.adapters.fork import guard
from redrive.adapters.kafka_errors import lacks, made, told
from redrive.adapters.kafka_offsets import commit_of, committed_of, committed_of_each
from redrive.core.acls import ADVICE, Operation, Resource, Right, explain_lacking, on_topic
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.runtime.ports import Committed, NewTopic, TopicInfo

_OFFSET_TRIES = 20
#: A broker that was just started knows all topics within a second.
_ID_TRIES = 20
_ID_PAUSE_S = 0.1
#: Who leads which partition is told in milliseconds, or not now.
_LEARN_S = 1.0
#: How the ids of librdkafka's mock clusters begin. They have no controller, so all that is asked of one times out.
MOCK = "mockCluster"
_MISSING = frozenset([KafkaError._NOENT, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION])
_OPERATIONS = {
    AclOperation.READ: Operation.READ,
    AclOperation.WRITE: Operation.WRITE,
    AclOperation.CREATE: Operation.CREATE,
    AclOperation.ALTER: Operation.ALTER,
    AclOperation.DESCRIBE: Operation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS: Operation.DESCRIBE_CONFIGS,
}
#: The client asked who isn't the leader, or there is none: a topic made a moment ago, a broker that has gone.
_OTHER_LEADER = frozenset(
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    ]
)
_NO_ANSWER = KafkaException(KafkaError(KafkaError._TIMED_OUT, "its leader doesn't answer", False, True))


class KafkaCluster:
    """An admin client. `timeout_s` bounds each question; `client`: that of another one, whose user can wait less, or longer."""

    def __init__(self, conf: Mapping[str, Any], *, timeout_s: float = 10.0, client: Any = None) -> None:
        self._timeout_s = timeout_s
        self._bounded = {"operation_timeout": timeout_s, "request_timeout": timeout_s}
        self._conf = dict(conf)
        self.client: Any = client or made(AdminClient, self._conf)
        guard(self)

    def cluster_id(self) -> str:
        return self._metadata().cluster_id or ""

    def describe(
        self, topics: Sequence[str] | None = None, *, configs: bool = False
    ) -> Mapping[str, TopicInfo]:
        # The whole list: asking for a name makes a mock cluster, or a broker with auto-creation, create it.
        metadata = self._metadata()
        known = {
            name: topic
            for name, topic in metadata.topics.items()
            if topic.error is None and (topics is None or name in topics)
        }
        tells = not (metadata.cluster_id or "").startswith(MOCK)  # it would never answer
        ids = self._topic_ids(list(known)) if tells else {}
        settings = self._configs(list(known)) if tells and configs else {}
        return {
            name: TopicInfo(
                name,
                len(topic.partitions),
                len(topic.partitions[0].replicas) if 0 in topic.partitions else 0,
                ids.get(name, ""),
                settings.get(name),
            )
            for name, topic in known.items()
        }

    def create(self, topics: Sequence[NewTopic]) -> Mapping[str, str]:
        wanted = [
            ClientTopic(
                one.name,
                num_partitions=one.partitions,
                replication_factor=one.replication,
                config=dict(one.configs),
            )
            for one in topics
        ]
        failed: dict[str, str] = {}
        for name, future in self.client.create_topics(wanted, **self._bounded).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    failed[name] = told(error.args[0], on_topic(Operation.CREATE, name))
        return failed

    def grow(self, topic: str, partitions: int) -> None:
        futures = self.client.create_partitions([NewPartitions(topic, partitions)], **self._bounded)
        self._result(futures[topic], on_topic(Operation.ALTER, topic))

    def offsets(
        self, keys: Sequence[TopicPartition], which: Literal["earliest", "latest"]
    ) -> Mapping[TopicPartition, int]:
        if not keys:
            return {}
        unanswered = [ClientPartition(*key) for key in keys]
        found: dict[TopicPartition, int] = {}
        for _ in range(_OFFSET_TRIES):
            asked, unanswered = unanswered, []
            for at, answer in self._offsets_of(asked, which).items():
                if isinstance(answer, int):
                    found[TopicPartition(at.topic, at.partition)] = answer
                elif answer.args[0].code() in _OTHER_LEADER:
                    unanswered.append(at)
                elif answer.args[0].code() not in _MISSING:
                    if answer is _NO_ANSWER:
                        self._learn_leaders()  # the next one who asks may find another
                    raise _port_error(answer, on_topic(Operation.DESCRIBE, at.topic)) from answer
            if not unanswered:
                return found
            self._learn_leaders()
        names = ", ".join(f"{at.topic}/{at.partition}" for at in unanswered)
        raise PortError(f"no leader told the offsets of {names}", retriable=True)

    def _offsets_of(
        self, asked: Sequence[ClientPartition], which: Literal["earliest", "latest"]
    ) -> Mapping[ClientPartition, int | KafkaException]:
        spec = OffsetSpec.earliest() if which == "earliest" else OffsetSpec.latest()
        futures = self.client.list_offsets(
            dict.fromkeys(asked, spec),
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=self._timeout_s,
        )
        answers: dict[ClientPartition, int | KafkaException] = {}
        for at, future in futures.items():
            try:
                answers[at] = int(future.result().offset)
            except KafkaException as error:
                answers[at] = error
            else:
                # Where a leader doesn't answer in time, the client tells no error but this (librdkafka 2.16).
                if answers[at] == OFFSET_INVALID:
                    answers[at] = _NO_ANSWER
        return answers

    def _learn_leaders(self) -> None:
        """The client goes by the leaders that it knows, for minutes, whatever it is answered (librdkafka 2.16)."""
        with contextlib.suppress(KafkaException):
            self.client.list_topics(timeout=_LEARN_S)

    def committed(self, group: str, keys: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        return committed_of(self._conf, group, keys, self._timeout_s)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        commit_of(self._conf, group, offsets, self._timeout_s)

    def readers(self, topics: Sequence[str]) -> Mapping[str, Sequence[str]]:
        if not topics:
            return {}
        self._require_view_of_groups()
        listed = self._result(self.client.list_consumer_groups(request_timeout=self._timeout_s))
        groups = sorted(
            group.group_id for group in listed.valid if group.group_id
        )  # "" is nobody's to ask for
        known = self._metadata().topics
        keys = [
            TopicPartition(topic, number)
            for topic in topics
            if topic in known
            for number in known[topic].partitions
        ]
        found = committed_of_each(self._conf, groups, keys, self._timeout_s) if keys else {}
        return {
            topic: [
                group
                for group, answers in found.items()
                if any(key.topic == topic and at.offset is not None for key, at in answers.items())
            ]
            for topic in topics
        }

    def allowed(self, topics: Sequence[str]) -> Mapping[str, frozenset[Operation]]:
        if not topics or self.cluster_id().startswith(MOCK):
            return {}
        # Unlike a consumer's or producer's question for a topic this one creates none.
        futures = self.client.describe_topics(
            TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=self._timeout_s
        )
        allowed: dict[str, frozenset[Operation]] = {}
        for name, future in futures.items():
            try:
                operations = operations_of(future.result())
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    allowed[name] = frozenset()
                continue
            if operations is not None:
                allowed[name] = operations
        return allowed

    def protocols(self) -> str:
        """The group protocols that the brokers offer, as their setting says: `classic,consumer`. Raises PortError."""
        configs = self.broker_configs(str(next(iter(self._metadata().brokers))))
        return configs.get("group.coordinator.rebalance.protocols", "")

    def brokers(self) -> Sequence[str]:
        """The brokers that are there, by their numbers. Raises PortError."""
        return sorted(map(str, self._metadata().brokers), key=int)

    def broker_configs(self, broker: str) -> Mapping[str, str]:
        """The configuration of one broker. Raises PortError, also where this user may not ask."""
        resource = ConfigResource(ResourceType.BROKER, broker)
        answers = self.client.describe_configs([resource], request_timeout=self._timeout_s)
        return _values(self._result(answers[resource], Right(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER)))

    def _metadata(self) -> Any:
        try:
            return self.client.list_topics(timeout=self._timeout_s)
        except KafkaException as error:
            raise _port_error(error) from error

    def _topic_ids(self, topics: list[str]) -> Mapping[str, str]:
        """
        The ids of topics that a broker named. Another one, just started, may not know them yet: then it is asked again. Raises
        PortError: with a stand-in for an id, what a commit says would be taken for another topic's.
        """
        found: dict[str, str] = {}
        for left in reversed(range(_ID_TRIES)):
            asked = TopicCollection([name for name in topics if name not in found])
            futures = self.client.describe_topics(asked, request_timeout=self._timeout_s) if topics else {}
            for name, future in futures.items():
                try:
                    found[name] = str(future.result().topic_id)
                except KafkaException as error:
                    if not left:
                        raise _port_error(error) from error
            if len(found) == len(topics):
                break
            self.client.poll(_ID_PAUSE_S)
        return found

    def _configs(self, topics: list[str]) -> Mapping[str, Mapping[str, str]]:
        """Of those topics that this user may ask about."""
        if not topics:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        answers = self.client.describe_configs(resources, request_timeout=self._timeout_s)
        found = {}
        for resource, future in answers.items():
            try:
                found[resource.name] = _values(future.result())
            except KafkaException:
                continue
        return found

    def _require_view_of_groups(self) -> None:
        """
        Of groups that a user may not see a broker says nothing at all. Nor does the client tell a user without any right on the
        cluster from a broker that doesn't tell rights; brokers do since 2.3.
        """
        if self.cluster_id().startswith(MOCK):  # it would never answer, and knows no rights
            return
        described = self._result(
            self.client.describe_cluster(include_authorized_operations=True, request_timeout=self._timeout_s)
        )
        if Operation.DESCRIBE not in (operations_of(described) or ()):
            lacking = explain_lacking([Right(Operation.DESCRIBE, Resource.CLUSTER)])
            raise PortError(f"not all groups may be shown: {lacking}. {ADVICE}")

    def _result(self, future: Any, *needed: Right) -> Any:
        """What is answered. Raises PortError, which names the rights that were `needed` where they are missing."""
        try:
            return future.result()
        except KafkaException as error:
            raise _port_error(error, *needed) from error


def _values(entries: Mapping[str, Any]) -> Mapping[str, str]:
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}


def operations_of(description: Any) -> frozenset[Operation] | None:
    """What the asking user may do; None where the brokers don't tell: whoever sees a thing may at least see it."""
    told = frozenset(
        _OPERATIONS[each] for each in description.authorized_operations or () if each in _OPERATIONS
    )
    return told or None


def _port_error(error: KafkaException, *needed: Right) -> PortError:
    cause = error.args[0]
    lacking = lacks(cause, *needed)
    return PortError(
        f"{cause.name()}: {cause.str()}{lacking}{f'. {ADVICE}' if lacking else ''}",
        retriable=cause.retriable() or cause.code() == KafkaError._TRANSPORT,
    )
