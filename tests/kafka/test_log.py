"""What only a real log has: gaps, transactions, retention, a broker that goes away."""

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientPartition

from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_log import KafkaLog
from redrive.adapters.kafka_settings import client_conf
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.runtime.ports import NotWritten, Write, Written
from tests.broker import admin
from tests.conftest import new_topics


@pytest.fixture
def log(kafka):
    log = KafkaLog({"bootstrap.servers": kafka.bootstrap})
    yield log
    log.close()


def _values(log, topic, start, end):
    return [record.value() for record in log.scan(TopicPartition(topic, 0), start, end)]


def _transaction(kafka, topic, values, *, commit):
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"{topic}-{commit}"})
    producer.init_transactions(20)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(20)
    (producer.commit_transaction if commit else producer.abort_transaction)(20)


def test_a_scan_ends_where_the_last_offsets_hold_no_record(kafka, topic, log):
    """Two records and a marker, two aborted ones and a marker."""
    name = topic("orders.dlq")
    _transaction(kafka, name, [b"a", b"b"], commit=True)
    _transaction(kafka, name, [b"lost", b"lost"], commit=False)
    key = TopicPartition(name, 0)
    end = KafkaCluster(client_conf({"bootstrap.servers": kafka.bootstrap})).offsets([key], "latest")[key]

    assert (end, _values(log, name, 0, end)) == (6, [b"a", b"b"])
    assert _values(log, name, 2, end) == []
    assert _values(log, name, 3, 5) == []


def test_a_scan_begins_at_what_retention_has_left(kafka, topic, log):
    name = topic("orders.dlq")
    log.write_many([Write(name, b"k", b"%d" % number, [], 0) for number in range(10)])
    client, until = admin(kafka.bootstrap), ClientPartition(name, 0, 6)
    client.delete_records([until])[until].result(20)

    assert _values(log, name, 0, 10) == [b"6", b"7", b"8", b"9"]
    assert _values(log, name, 0, 6) == []
    assert _values(log, name, 3, 7) == [b"6"]


def test_what_is_written_by_a_key_lies_where_java_producers_put_it(kafka, topic, log):
    name = topic("orders", partitions=6)
    java = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2"})
    places = {}
    keys = [b"", b"a", b"key-1", b"key-2", b"\xff\x00\x01", "ключ".encode()]
    for key in keys:
        java.produce(
            name, b"", key, on_delivery=lambda _, message, key=key: places.update({key: message.partition()})
        )
    java.flush(20)

    answers = log.write_many([Write(name, key, b"", []) for key in keys])

    assert [answer.partition for answer in answers] == [places[key] for key in keys]


def test_a_record_of_a_megabyte_is_read_back(topic, log):
    name = topic(config={"max.message.bytes": "3000000"})
    value = bytes(range(256)) * 4096 * 2
    assert log.write_many([Write(name, b"k", value, [("h", b"x" * 8000)], 0)]) == [Written(0, 0)]
    assert _values(log, name, 0, 1) == [value]


def test_a_broker_that_went_away_is_told_and_what_it_took_is_left_open(own_kafka):
    name = new_topics(own_kafka.bootstrap)("orders")
    log = KafkaLog({"bootstrap.servers": own_kafka.bootstrap, "message.timeout.ms": 3000}, patience_s=2)
    log.write_many([Write(name, b"k", b"v", [], 0)])
    own_kafka.kill()

    [answer] = log.write_many([Write(name, b"k", b"v", [], 0)])
    assert isinstance(answer, NotWritten)
    assert not answer.is_certain
    with pytest.raises(PortError, match="sent nothing") as caught:
        _values(log, name, 0, 1)
    assert caught.value.retriable

    own_kafka.start()
    assert isinstance(log.write_many([Write(name, b"k", b"v", [], 0)])[0], Written)
    log.close()
