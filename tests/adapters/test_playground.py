"""The mock cluster that the demo runs on, and following partitions as they grow."""

import time
from contextlib import closing

import pytest

from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_log import KafkaLog
from redrive.adapters.kafka_playground import MockKafka
from redrive.adapters.kafka_settings import client_conf
from redrive.adapters.kafka_tail import KafkaTail
from redrive.core.record import TopicPartition
from redrive.core.settings import Settings
from redrive.runtime.ports import TopicInfo


@pytest.fixture(scope="module")
def mock():
    return MockKafka()


def user_of(mock: MockKafka) -> dict[str, str]:
    return Settings(bootstrap_servers=mock.bootstrap_servers).client_options("test")


@pytest.mark.realtime
def test_a_mock_cluster_is_described_without_waiting_for_what_it_never_answers(mock):
    mock.create(["described"])
    cluster = KafkaCluster(client_conf(user_of(mock)))
    began_s = time.monotonic()
    described = cluster.describe(["described"], configs=True)

    assert described == {"described": TopicInfo("described", 4, 1)}
    assert cluster.readers(["described"]) == {"described": []}
    assert time.monotonic() - began_s < 5


def test_a_tail_gives_what_was_there_and_what_comes(mock):
    mock.create(["followed"])
    user = user_of(mock)
    keys = [TopicPartition("followed", partition) for partition in range(4)]
    with closing(KafkaLog(user)) as log, closing(KafkaTail(user, keys)) as tail:
        seen = []
        for number in range(6):
            log.write("followed", None, b"%d" % number, [], number % 4)
            while len(seen) <= number:
                seen += [(record.partition(), record.value()) for record in tail.read(1.0)]

    assert seen == [(number % 4, b"%d" % number) for number in range(6)]
