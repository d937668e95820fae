"""What is asked of the leaders of partitions when these change, or say nothing."""

import pytest

from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from tests.broker import free_ports
from tests.broker.cluster import BROKERS, Cluster
from tests.chaos.proxy import Proxies
from tests.plain_kafka import Given, create_topics, send
from tests.waiting import until

KEYS = [TopicPartition("orders", number) for number in range(BROKERS)]
HELD = 7


@pytest.fixture(scope="module")
def network():
    with Proxies(free_ports(BROKERS)) as proxies:
        yield proxies


@pytest.fixture(scope="module")
def cluster(broker_jars, network, tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), [way.target for way in network.ways], network.ports)
    try:
        cluster.start()
        create_topics(cluster.direct, ["orders"], BROKERS, replicas=BROKERS)
        send(cluster.direct, "orders", [Given(partition=key.partition) for key in KEYS] * HELD)
        yield cluster
    finally:
        cluster.kill()


def ends_of(asking):
    """The ends that are told; none while brokers that were just started don't answer in time."""
    try:
        return asking.offsets(KEYS, "latest")
    except PortError:
        return {}


@pytest.fixture
def asking(cluster):
    """A client that has asked before, and goes by what it learned then; for who can't wait."""
    conf = {"bootstrap.servers": cluster.bootstrap}
    asking = KafkaCluster(conf, timeout_s=3, client=KafkaCluster(conf).client)
    until(lambda: ends_of(asking) == dict.fromkeys(KEYS, HELD), "the ends of all partitions")
    return asking


@pytest.mark.chaos
@pytest.mark.parametrize("which", ["earliest", "latest"])
def test_a_leader_that_does_not_answer_is_an_error_and_no_offset(asking, network, which):
    """The client tells -1001 for it, and no error."""
    network.hold(range(BROKERS))
    try:
        with pytest.raises(PortError, match="leader doesn't answer") as raised:
            asking.offsets(KEYS, which)
    finally:
        network.restore(range(BROKERS))
    assert raised.value.retriable


@pytest.mark.chaos
def test_offsets_are_told_as_soon_as_a_partition_has_another_leader(cluster, asking):
    """The client goes by the leader's old epoch for minutes, which the new one refuses."""
    cluster.brokers[0].kill()
    try:
        until(lambda: _told(asking) == dict.fromkeys(KEYS, HELD), "the ends by the new leader", within_s=20)
    finally:
        cluster.brokers[0].launch()
        until(cluster.is_whole, "all brokers are there again", within_s=60)
    until(lambda: _told(asking) == dict.fromkeys(KEYS, HELD), "the ends by all", within_s=20)


def _told(asking):
    try:
        return asking.offsets(KEYS, "latest")
    except PortError:
        return None
