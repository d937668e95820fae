"""What a real coordinator and the client answer to commits, and what becomes of partitions that are refused for good."""

import asyncio
from contextlib import closing

import pytest

from redrive import App, RetryPolicy
from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_settings import consumer_conf
from redrive.adapters.kafka_source import KafkaSource
from redrive.core.commands import Commit
from redrive.core.metadata import decode_metadata
from redrive.core.record import TopicPartition
from tests.faults import running, running_with
from tests.plain_kafka import Given, committed, create_topics_of, send, unique
from tests.waiting import until

TOO_LONG = "x" * 5_000


class Events:
    """Starts whatever is assigned at its beginning."""

    def __init__(self, source):
        self._source = source
        self.owned = set()

    def on_assigned(self, keys):
        self.owned.update(keys)
        self._source.start_at(dict.fromkeys(keys))

    def on_revoked(self, keys):
        self.owned.difference_update(keys)

    on_lost = on_revoked


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_refused_partition_spoils_the_answer_of_all_but_the_others_are_stored(
    kafka, topic, group, protocol
):
    orders = topic("orders", partitions=2)
    here, too_long, gone = (TopicPartition(orders, number) for number in (0, 1, 7))
    conf = consumer_conf({"bootstrap.servers": kafka.bootstrap}, group=group, protocol=protocol)
    with closing(KafkaSource(conf)) as source:
        events = Events(source)
        source.join([orders], events)
        until(lambda: source.poll(0.05, 1) or len(events.owned) == 2, "partitions")

        source.commit(Commit(1, {here: (5, "map"), too_long: (5, TOO_LONG), gone: (5, "map")}))
        [(number, refused)] = until(lambda: source.poll(0.02, 1) or source.commit_answers(), "the answer")
        source.commit(Commit(2, {too_long: (6, "map")}))
        [second] = until(lambda: source.poll(0.02, 1) or source.commit_answers(), "the answer")

    assert (number, refused.keys()) == (1, {here, too_long, gone})
    assert second == (2, {})
    assert committed(kafka.bootstrap, group, orders) == {0: 5, 1: 6}


class Spoiling:
    """A consumer whose commits of some partitions are refused by the coordinator."""

    def __init__(self, source, numbers):
        self._source = source
        self._numbers = numbers

    def __getattr__(self, name):
        return getattr(self._source, name)

    def commit(self, commit):
        offsets = {
            key: (offset, TOO_LONG if key.partition in self._numbers else text)
            for key, (offset, text) in commit.offsets.items()
        }
        self._source.commit(Commit(commit.snapshot, offsets))


def test_partitions_that_are_refused_for_good_do_not_keep_others_from_being_committed(kafka):
    orders, group = unique("orders"), unique("group")
    app = App(group, settings={"bootstrap_servers": kafka.bootstrap, "commit_interval": "200ms"})

    @app.listener(orders, name="handle", retry=RetryPolicy())
    def handle(value: bytes) -> None:
        pass

    create_topics_of(kafka.bootstrap, app, 12)
    bad, good = (0, 5, 11), (1, 2, 3, 4, 6, 7, 8, 9, 10)
    with running_with(app, source=lambda source: Spoiling(source, bad)) as service:
        for end in range(1, 6):
            send(kafka.bootstrap, orders, [Given(b"x", partition=number) for number in range(12)])
            until(
                lambda: set(committed(kafka.bootstrap, group, orders).items()) >= {(n, end) for n in good},  # noqa: B023
                f"record {end} of each partition",
                within_s=6,
            )
        assert not committed(kafka.bootstrap, group, orders).keys() & set(bad)
        assert service.told("commit-refused")


class Gate:
    """Closed until it is opened, for handlers on a loop; from any thread."""

    def __init__(self):
        self._loop = self._event = None

    async def passed(self):
        if self._event is None:
            self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()
        await self._event.wait()

    def open(self):
        self._loop.call_soon_threadsafe(self._event.set)


def test_where_the_broker_takes_512_bytes_a_commit_is_refused_once_and_then_says_less(guarded, caplog):
    orders, group = unique("orders"), unique("group")
    # With the brake no more than some hundred records are at work before the first of them end.
    app = App(
        group, settings={"bootstrap_servers": guarded.plain, "commit_interval": "200ms", "brake": False}
    )
    gate = Gate()

    @app.listener(orders, name="handle", retry=RetryPolicy(), order="none", concurrency=3_000)
    async def handle(value: bytes) -> None:
        if value == b"waits":
            await gate.passed()

    create_topics_of(guarded.plain, app, 1)
    send(guarded.plain, orders, [Given(b"waits" if number % 2 else b"ends") for number in range(5_000)])
    with running(app):
        text = until(lambda: _long_metadata(guarded.plain, group, orders), "a map", within_s=30)
        told = [line for line in caplog.messages if "commit" in line or "offset.metadata.max.bytes" in line]
        assert ["take less with an offset" in line for line in told] == [True]
        assert len(text) <= 511
        read = decode_metadata(text, 1, text.split(":")[2])
        assert read.ignored == ""
        assert {end - first for first, end in read.ranges} == {1}
        assert len(read.ranges) > 500

        gate.open()
        until(lambda: committed(guarded.plain, group, orders) == {0: 5_000}, "all of them")


def _long_metadata(bootstrap, group, topic):
    cluster = KafkaCluster({"bootstrap.servers": bootstrap})
    at = cluster.committed(group, [TopicPartition(topic, 0)]).get(TopicPartition(topic, 0))
    return at and len(at.metadata) > 300 and at.metadata
