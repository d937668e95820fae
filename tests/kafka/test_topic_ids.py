"""The ids of topics, by which a commit's map is known to belong to a topic, when brokers don't tell them at once."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.errors import PortError
from tests.plain_kafka import create_topics, unique


class Unaware:
    """An admin client of a broker that doesn't know a topic for the first questions, as one that was just started."""

    def __init__(self, client, name, times):
        self._client, self._name, self._left = client, name, times

    def describe_topics(self, asked, **options):
        answers = self._client.describe_topics(asked, **options)
        if self._left:
            self._left -= 1
            answers[self._name] = Failed()
        return answers

    def __getattr__(self, name):
        return getattr(self._client, name)


class Failed:
    def result(self):
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))


@pytest.fixture
def topic(kafka):
    name = unique("orders")
    create_topics(kafka.bootstrap, [name], 1)
    return name


def cluster_of(kafka, topic, times):
    cluster = KafkaCluster({"bootstrap.servers": kafka.bootstrap})
    told = cluster.describe([topic])[topic].topic_id
    cluster.client = Unaware(cluster.client, topic, times)
    return cluster, told


def test_a_broker_that_does_not_know_a_topic_yet_is_asked_again(kafka, topic):
    cluster, told = cluster_of(kafka, topic, 3)
    assert cluster.describe([topic])[topic].topic_id == told != ""


def test_without_its_id_a_topic_is_not_described_at_all(kafka, topic):
    """Its name in place of the id would make a map of all that is finished look like another topic's."""
    cluster, _ = cluster_of(kafka, topic, 1_000)
    with pytest.raises(PortError, match="UNKNOWN_TOPIC_OR_PART"):
        cluster.describe([topic])
