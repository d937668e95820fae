"""A partition that is lost and comes back while a transaction tells of it."""

from redrive.core.record import TopicPartition
from redrive.core.settings import Settings
from tests.runtime.at_work import Process, app_of, append, new_cluster

P0 = TopicPartition("orders", 0)


class Asked:
    """Notes of which partitions the group's committed offsets are asked for."""

    def __init__(self, source):
        self._source, self.keys = source, []

    def committed(self, keys, timeout_s):
        self.keys += keys
        return self._source.committed(keys, timeout_s)

    def __getattr__(self, name):
        return getattr(self._source, name)


def test_where_it_begins_is_not_asked_before_the_transaction_has_ended():
    """Its commit may come after the answer, and be taken: the member is the same one, at the same epoch."""
    handled, asked = [], []

    def wrapped(source):
        asked.append(Asked(source))
        return asked[0]

    cluster = new_cluster()
    settings = Settings(bootstrap_servers="sim:9092", delivery="exactly-once")
    shop = Process(app_of(handled.append), cluster, source=wrapped, settings=settings)
    shop.run(200)
    cluster.faults.transactions_are_held = True
    append(cluster, 1)
    shop.run(3_000)
    assert P0 in shop.engine.transacting.on_its_way
    asked[0].keys.clear()
    shop.pump.on_lost([P0])
    shop.pump.on_assigned([P0])
    shop.run(1_000)
    assert asked[0].keys == []
    cluster.faults.transactions_are_held = False
    shop.run(3_000)
    assert (handled, shop.committed(), P0 in shop.engine.lanes) == ([1], 1, True)
