"""The real broker does what the rest of the tests rely on."""

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conftest import new_topics


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})


def _send(bootstrap: str, topic: str, value: bytes) -> None:
    errors = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(
        topic,
        value,
        b"key",
        partition=0,
        headers=[("h", b"1"), ("h", None)],
        on_delivery=lambda e, _: errors.append(e),
    )
    producer.flush(20)
    assert errors == [None]


def _read(consumer: Consumer, topic: str, count: int) -> list:
    consumer.assign([TopicPartition(topic, 0, 0)])
    return consumer.consume(count, 20)


def test_a_record_comes_back_as_it_was_sent(kafka, topic, group):
    orders = topic("orders", partitions=4)
    _send(kafka.bootstrap, orders, b"value")

    consumer = _consumer(kafka.bootstrap, group)
    [message] = _read(consumer, orders, 1)
    consumer.close()

    assert (message.topic(), message.partition(), message.offset()) == (orders, 0, 0)
    assert (message.key(), message.value()) == (b"key", b"value")
    assert message.headers() == [("h", b"1"), ("h", None)]


def test_a_topic_has_the_partitions_and_settings_asked_for(kafka, topic):
    from tests.broker import admin

    orders = topic("orders", partitions=3)
    tier = topic(f"{orders}.retry.5s", partitions=3, exact=True)

    topics = admin(kafka.bootstrap).list_topics(timeout=10).topics
    assert [len(topics[name].partitions) for name in (orders, tier)] == [3, 3]


def test_an_offset_is_committed_with_its_metadata(kafka, topic, group):
    orders = topic("orders")
    writer, reader = _consumer(kafka.bootstrap, group), _consumer(kafka.bootstrap, group)

    writer.commit(offsets=[TopicPartition(orders, 0, 7, metadata="map")], asynchronous=False)
    [committed] = reader.committed([TopicPartition(orders, 0)], timeout=10)
    writer.close()
    reader.close()

    assert (committed.offset, committed.metadata) == (7, "map")


def test_a_killed_broker_has_its_records_again_when_it_is_back(own_kafka, group):
    orders = new_topics(own_kafka.bootstrap)("orders")
    _send(own_kafka.bootstrap, orders, b"before")

    own_kafka.kill()
    own_kafka.start()
    _send(own_kafka.bootstrap, orders, b"after")

    consumer = _consumer(own_kafka.bootstrap, group)
    values = [message.value() for message in _read(consumer, orders, 2)]
    consumer.close()
    assert values == [b"before", b"after"]
