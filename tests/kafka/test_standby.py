"""A process for which no partition is left is a member of its group all the same: it is ready, and stays."""

import time

import pytest

from redrive.adapters.kafka_settings import consumer_conf
from redrive.adapters.kafka_source import KafkaSource


class Assigned:
    """Notes what a source is given."""

    def __init__(self, source):
        self.source = source
        self.assignments = []

    def on_assigned(self, keys):
        self.assignments.append(list(keys))
        self.source.start_at(dict.fromkeys(keys))

    def on_revoked(self, keys):
        pass

    def on_lost(self, keys):
        pass


def poll_until(sources, is_so):
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        for source in sources:
            source.poll(0.05, 100)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_member_without_partitions_is_told_that_it_joined(kafka, topic, group, protocol):
    orders = topic("orders", partitions=1)
    user = {"bootstrap.servers": kafka.bootstrap}
    sources = [KafkaSource(consumer_conf(user, group=group, protocol=protocol)) for _ in range(2)]
    first, second = (Assigned(source) for source in sources)
    sources[0].join([orders], first)
    poll_until(sources[:1], lambda: first.assignments)
    sources[1].join([orders], second)

    def owned():
        return [(at.topic, at.partition) for source in sources for at in source.client.assignment()]

    poll_until(sources, lambda: second.assignments and owned() == [(orders, 0)])
    for source in sources:
        source.close()
