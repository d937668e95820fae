"""What a real coordinator and the client answer to commits, and what becomes of partitions that are refused for good."""

from contextlib import closing

import pytest

from redrive import App, RetryPolicy
from redrive.adapters.kafka_settings import consumer_conf
from redrive.adapters.kafka_source import KafkaSource
from redrive.core.commands import Commit
from redrive.core.record import TopicPartition
from tests.faults import running_with
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
