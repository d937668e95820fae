"""What reading without a group and writing with confirmation must do, in memory and on a real broker."""

from collections.abc import Callable, Iterator
from typing import NamedTuple
from uuid import uuid4

import pytest

from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_log import KafkaLog
from redrive.adapters.kafka_settings import client_conf
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.runtime.ports import Cluster, Log, NotWritten, Write, Written
from redrive.sim.cluster import SimCluster
from tests.plain_kafka import create_topics


class World(NamedTuple):
    """A log, its cluster, and how to make a topic in it; `topic(partitions=1, **configs)` gives its name."""

    log: Log
    cluster: Cluster
    topic: Callable[..., str]


@pytest.fixture(params=["sim", "kafka"])
def world(request) -> Iterator[World]:
    if request.param == "sim":
        sim = SimCluster()

        def topic(partitions: int = 1, **configs: str) -> str:
            name = f"log-{uuid4().hex[:8]}"
            sim.create_topic(name, partitions, configs=configs)
            return name

        yield World(sim.log(), sim.admin(), topic)
        return
    bootstrap = request.getfixturevalue("kafka").bootstrap

    def real_topic(partitions: int = 1, **configs: str) -> str:
        name = f"log-{uuid4().hex[:8]}"
        create_topics(bootstrap, [name], partitions, **configs)
        return name

    user = {"bootstrap.servers": bootstrap, "topic.metadata.propagation.max.ms": 500}
    log = KafkaLog(user)
    yield World(log, KafkaCluster(client_conf(user)), real_topic)
    log.close()


def _writes(topic: str, count: int, partition: int = 0) -> list[Write]:
    return [Write(topic, b"k%d" % number, b"v%d" % number, [], partition) for number in range(count)]


def _values(world: World, topic: str, start: int, end: int, partition: int = 0) -> list[bytes | None]:
    return [record.value() for record in world.log.scan(TopicPartition(topic, partition), start, end)]


def test_what_is_written_is_read_as_it_was(world):
    topic = world.topic()
    headers = [("a", b"1"), ("a", b"\xff\x00"), ("b", None), ("", b""), ("a", b"")]
    writes = [
        Write(topic, b"\x00k", b"\xfe", headers, 0),
        Write(topic, None, None, [], 0),
        Write(topic, b"", b"", [], 0),
    ]

    answers = world.log.write_many(writes)

    assert answers == [Written(0, 0), Written(0, 1), Written(0, 2)]
    read = [
        (record.key(), record.value(), record.headers() or [])
        for record in world.log.scan(TopicPartition(topic, 0), 0, 3)
    ]
    assert read == [(write.key, write.value, write.headers) for write in writes]


@pytest.mark.parametrize(("start", "end"), [(0, 10), (3, 7), (9, 10), (4, 4), (7, 3), (0, 1)])
def test_a_scan_gives_what_lies_between(world, start, end):
    topic = world.topic()
    world.log.write_many(_writes(topic, 10))
    assert _values(world, topic, start, end) == [b"v%d" % number for number in range(start, end)]


def test_scans_may_run_inside_each_other(world):
    topic = world.topic(2)
    world.log.write_many([*_writes(topic, 3, 0), *_writes(topic, 2, 1)])
    pairs = [
        (outer.value(), inner.value())
        for outer in world.log.scan(TopicPartition(topic, 0), 0, 3)
        for inner in world.log.scan(TopicPartition(topic, 1), 0, 2)
    ]
    assert pairs == [(b"v%d" % one, b"v%d" % other) for one in range(3) for other in range(2)]


def test_a_scan_that_is_left_early_disturbs_no_later_one(world):
    topic = world.topic()
    world.log.write_many(_writes(topic, 10))
    for _ in range(3):
        assert next(world.log.scan(TopicPartition(topic, 0), 2, 10)).value() == b"v2"
    assert _values(world, topic, 5, 7) == [b"v5", b"v6"]


def test_the_first_records_of_many_partitions_are_read_at_once(world):
    topic, other = world.topic(3), world.topic(1)
    world.log.write_many([*_writes(topic, 5, 0), *_writes(topic, 2, 1), Write(other, None, None, [], 0)])
    spans = {
        TopicPartition(topic, 0): (3, 5),
        TopicPartition(topic, 1): (2, 9),
        TopicPartition(topic, 2): (0, 4),
        TopicPartition(other, 0): (0, 1),
    }

    firsts = world.log.first_of(spans)

    assert {key: (record.offset(), record.value()) for key, record in firsts.items()} == {
        TopicPartition(topic, 0): (3, b"v3"),
        TopicPartition(other, 0): (0, None),
    }
    assert world.log.first_of({TopicPartition(topic, 0): (0, 0)}) == {}
    assert world.log.first_of({}) == {}


def test_a_missing_topic_is_refused_for_certain_and_holds_up_no_other(world):
    topic = world.topic()
    there, gone = Write(topic, b"k", b"v", [], 0), Write(f"{topic}-gone", b"k", b"v", [])

    first, missing, last = world.log.write_many([there, gone, there])

    assert (first, last) == (Written(0, 0), Written(0, 1))
    assert isinstance(missing, NotWritten)
    assert missing.is_certain


def test_a_missing_partition_is_refused_for_certain(world):
    topic = world.topic()
    [answer] = world.log.write_many([Write(topic, b"k", b"v", [], 7)])
    assert isinstance(answer, NotWritten)
    assert answer.is_certain


def test_a_compacted_topic_refuses_a_keyless_record_for_certain(world):
    topic = world.topic(**{"cleanup.policy": "compact"})
    [answer] = world.log.write_many([Write(topic, None, b"v", [], 0)])
    assert isinstance(answer, NotWritten)
    assert answer.is_certain


def test_an_oversize_record_fails_alone(world):
    topic = world.topic(**{"max.message.bytes": "20000"})
    writes = _writes(topic, 5)
    writes[2] = Write(topic, b"k", b"x" * 30_000, [], 0)

    answers = world.log.write_many(writes)

    assert [isinstance(answer, Written) for answer in answers] == [True, True, False, True, True]
    assert answers[2].is_certain
    end = world.cluster.offsets([TopicPartition(topic, 0)], "latest")[TopicPartition(topic, 0)]
    assert sorted(_values(world, topic, 0, end)) == [b"v0", b"v1", b"v3", b"v4"]


def test_one_record_is_written_by_its_key_and_its_place_told(world):
    topic = world.topic(4)
    partition, offset = world.log.write(topic, b"key", b"v", [])
    assert (partition, offset) == (world.log.write(topic, b"key", b"v", [])[0], 0)


def test_one_record_that_is_refused_raises(world):
    with pytest.raises(PortError) as caught:
        world.log.write("log-nowhere", b"key", b"v", [])
    assert caught.value.retriable is False


def test_nothing_to_write_is_nothing(world):
    assert list(world.log.write_many([])) == []


def test_many_are_written_in_their_order(world):
    topic = world.topic()
    answers = world.log.write_many(_writes(topic, 5000))
    assert [answer.offset for answer in answers] == list(range(5000))
    assert _values(world, topic, 0, 5000)[-1] == b"v4999"


def test_a_missing_topic_cannot_be_scanned(world):
    with pytest.raises(PortError, match="nowhere"):
        list(world.log.scan(TopicPartition("log-nowhere", 0), 0, 1))


def test_groups_that_have_committed_are_told_as_readers(world):
    topic = world.topic()
    assert world.cluster.readers([topic]) == {topic: []}
