"""Transactions of which a broker's answers were lost: what is said to be written is there."""

import logging
import time

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import OffsetSpec

from redrive.adapters.kafka_transactor import KafkaTransactor
from redrive.core.commands import Produce, Transaction
from redrive.core.record import TopicPartition
from redrive.core.transactions import Aborted, Completed
from tests.broker import free_ports
from tests.broker.cluster import BROKERS, Cluster
from tests.chaos.proxy import Proxies
from tests.plain_kafka import admin_of, create_topics, read_all
from tests.waiting import until

OFFSETS = {TopicPartition("orders", 0): (1, "")}


@pytest.fixture
def network():
    with Proxies(free_ports(BROKERS)) as proxies:
        yield proxies


@pytest.fixture
def cluster(broker_jars, network, tmp_path):
    cluster = Cluster(tmp_path, [way.target for way in network.ways], network.ports)
    try:
        cluster.start()
        create_topics(cluster.direct, ["copies"], 1, replicas=BROKERS)
        yield cluster
    finally:
        cluster.kill()


class Unlucky:
    """
    A producer of which the last write arrives, but not its answer, and whose group has moved on then. The way to the broker is
    there again before the transaction is aborted.
    """

    def __init__(self, client, cluster, network, log):
        self._client, self._cluster, self._network, self._log = client, cluster, network, log
        self._is_over = False
        self._way = [admin_of(cluster.direct).list_topics("copies").topics["copies"].partitions[0].leader - 1]

    def produce(self, topic, value, *args, **options):
        if self._is_over:
            self._client.produce(topic, value, *args, **options)
            return
        end = self._end()
        if value == b"last":
            self._network.mute(self._way)
        self._client.produce(topic, value, *args, **options)
        until(lambda: self._end() > end, f"{value} is written")
        if value == b"last":
            self._network.cut(self._way)
            until(self._knows, "the client knows")

    def send_offsets_to_transaction(self, *_):
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))

    def abort_transaction(self, timeout_s):
        try:
            self._client.abort_transaction(0.2)
        except KafkaException:  # the broker that was cut off is the one to tell
            self._network.restore(self._way)
            self._client.abort_transaction(timeout_s)
        self._network.restore(self._way)
        self._is_over = True

    def _knows(self):
        self._client.poll(0.01)
        return "Disconnected" in self._log.text

    def _end(self):
        """Where the partition ends, with what is in open transactions."""
        asked = {ClientPartition("copies", 0): OffsetSpec.latest()}
        return next(iter(admin_of(self._cluster.direct).list_offsets(asked).values())).result().offset

    def __getattr__(self, name):
        return getattr(self._client, name)


@pytest.mark.chaos
def test_what_is_written_again_is_there_though_the_answer_to_its_first_write_was_lost(
    cluster, network, caplog
):
    """
    The client gives the second write the number of the first, which is in an aborted transaction; the broker takes it for the
    same once more, and says that it is there (librdkafka 2.16, Kafka 4.3).
    """
    caplog.set_level(logging.INFO, "client")
    conf = {
        "bootstrap.servers": cluster.bootstrap,
        "transactional.id": "shop",
        "transaction.timeout.ms": 30_000,
        "logger": logging.getLogger("client"),
    }
    transactor = KafkaTransactor(conf, lambda: time.monotonic() * 1000)
    until(lambda: transactor.thread._is_ready, "it has its id")
    first, last = [Produce(None, "copies", 0, None, text, []) for text in (b"first", b"last")]
    transactor.thread.client = Unlucky(transactor.thread.client, cluster, network, caplog)
    transactor.submit(Transaction(1, (first, last), OFFSETS), None)
    [outcome] = until(transactor.outcomes, "it is aborted")
    assert isinstance(outcome, Aborted)
    transactor.submit(Transaction(2, (last,), {}), None)
    assert until(transactor.outcomes, "it is written again") == [Completed(2)]
    transactor.close(5)
    assert [seen.value for seen in read_all(cluster.direct, "copies")] == [b"last"]
