"""Questions to a cluster that has never had a group."""

from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.core.record import TopicPartition
from redrive.runtime.ports import Committed
from tests.plain_kafka import create_topics


def test_committed_offsets_are_told_before_there_is_a_coordinator(own_kafka):
    """An admin client asked for them ends the process here."""
    create_topics(own_kafka.bootstrap, ["orders"])
    key = TopicPartition("orders", 0)
    cluster = KafkaCluster({"bootstrap.servers": own_kafka.bootstrap})
    assert cluster.committed("payments", [key]) == {key: Committed(None)}
    assert cluster.readers(["orders"]) == {"orders": []}
