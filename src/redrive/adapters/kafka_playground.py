"""What only `redrive demo` does to a cluster: run one inside this process, or take everything away again."""

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from redrive.adapters.fork import guard
from redrive.adapters.kafka_settings import CLIENT_LOG
from redrive.errors import PortError

_TIMEOUT_S = 10.0


class MockKafka:
    """
    librdkafka's mock cluster: one broker in this process that speaks Kafka's protocol at `bootstrap_servers`.

    It lives as long as this object. Topics have 4 partitions, whatever is asked for.
    """

    def __init__(self) -> None:
        # Without level 0 it writes to stderr that it isn't meant for production.
        self.client: Any = Producer({"test.mock.num.brokers": 1, "logger": CLIENT_LOG, "log_level": 0})
        guard(self)
        brokers = self.client.list_topics(timeout=_TIMEOUT_S).brokers.values()
        self.bootstrap_servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def create(self, topics: Iterable[str]) -> None:
        """Asking for a topic's name makes it."""
        for topic in topics:
            self.client.list_topics(topic, timeout=_TIMEOUT_S)


def count_brokers(conf: Mapping[str, Any]) -> int:
    """How many brokers a cluster has now. Raises PortError."""
    try:
        return len(AdminClient(dict(conf)).list_topics(timeout=_TIMEOUT_S).brokers)
    except KafkaException as error:
        raise PortError(f"the cluster doesn't answer: {error.args[0].str()}") from error


def remove(conf: Mapping[str, Any], topics: Iterable[str], group: str) -> Mapping[str, str]:
    """Delete topics and a consumer group; what isn't there is as good as deleted. Gives what is left, and why."""
    client: Any = AdminClient(dict(conf))
    times = {"request_timeout": _TIMEOUT_S}
    futures = {
        **client.delete_consumer_groups([group], **times),
        **client.delete_topics(list(topics), operation_timeout=_TIMEOUT_S, **times),
    }
    left: dict[str, str] = {}
    for name, future in futures.items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() not in _GONE:
                left[name] = error.args[0].str()
    return left


_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)
