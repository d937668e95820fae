"""`redrive lag` without its printing, on a simulated cluster."""

import pytest

from redrive import App, RetryPolicy
from redrive.core.dialects import with_envelope
from redrive.core.envelope import Envelope
from redrive.core.metadata import Head, encode_metadata, identity_of
from redrive.core.record import TopicPartition
from redrive.core.settings import Settings
from redrive.errors import PortError
from redrive.runtime.lagging import look_behind
from redrive.runtime.planning import plan_group
from redrive.runtime.ports import Committed
from redrive.sim.cluster import SimCluster

TIER = "orders.retry.5s"


class Shop:
    """The group `payments` on `orders`, with a tier of 5 s; two partitions each."""

    def __init__(self):
        self.cluster = SimCluster()
        self.now_ms = self.cluster.clock.wall_ms()
        for topic in ("orders", TIER, "orders.dlq", "orders.dlq.state"):
            self.cluster.create_topic(topic, 2)
        app = App("payments")

        @app.listener("orders", retry=RetryPolicy("5s"))
        def charge(value: bytes) -> None: ...

        self.app = app.resolve()

    def commit(self, topic, partition, offset, *ranges, **more):
        identity = identity_of("sim", self.cluster.topics[topic].topic_id)
        metadata = encode_metadata(offset, ranges, identity, **more)
        key = TopicPartition(topic, partition)
        self.cluster.group("payments").offsets[key] = Committed(offset, metadata)

    def fill(self, topic, partition, count, **said):
        for _ in range(count):
            headers = with_envelope(None, Envelope(**said)) if said else []
            self.cluster.append(topic, b"", partition=partition, headers=headers)

    def look(self, **options):
        plan = plan_group(self.app, Settings(bootstrap_servers="sim:9092"), self.cluster.topics)
        return look_behind(plan, self.cluster.admin(), self.cluster.log(), self.now_ms, **options)

    def partition(self, topic, partition):
        [found] = [pair for pair in self.look().partitions if pair[0].key == (topic, partition)]
        return found


@pytest.fixture
def shop():
    return Shop()


def test_one_slow_record_holds_the_frontier_but_not_the_true_lag(shop):
    shop.fill("orders", 0, 100)
    shop.commit("orders", 0, 10, (11, 95))

    lag, oldest = shop.partition("orders", 0)

    assert (lag.end, lag.committed, lag.lag, lag.true_lag) == (100, 10, 90, 6)
    assert (oldest.offset, oldest.since_ms) == (10, shop.now_ms)


def test_a_record_that_waits_in_its_lane_tells_its_next_attempt_and_when_it_is_due(shop):
    shop.fill("orders", 0, 100)
    head = Head(2, int(shop.now_ms) + 20_000, int(shop.now_ms) - 7_000)
    shop.commit("orders", 0, 10, (11, 95), heads={10: head})

    _, oldest = shop.partition("orders", 0)

    assert (oldest.offset, oldest.attempt, oldest.due_ms) == (10, 3, head.due_ms)
    assert oldest.since_ms == head.first_failed_ms


def test_where_the_frontier_holds_no_record_the_oldest_is_behind_what_is_finished(shop):
    shop.fill("orders", 1, 5)
    log = shop.cluster.partition(TopicPartition("orders", 1))
    log.append_marker()
    shop.fill("orders", 1, 10)
    shop.commit("orders", 1, 5, (6, 9), (10, 12))

    lag, oldest = shop.partition("orders", 1)

    assert oldest.offset == 9
    assert lag.true_lag == 6


def test_where_all_is_done_there_is_no_oldest(shop):
    shop.fill("orders", 0, 3)
    shop.commit("orders", 0, 3)
    lag, oldest = shop.partition("orders", 0)
    assert (lag.lag, oldest) == (0, None)


def test_a_tier_tells_what_is_due_and_how_late(shop):
    now_ms = int(shop.now_ms)
    for due_ms in (now_ms - 2_000, now_ms - 500, now_ms + 3_000):
        shop.fill(TIER, 0, 1, group="payments", attempt=1, due_ms=due_ms, failure_type="Timeout")
    shop.fill(TIER, 0, 1, group="audit", attempt=1, due_ms=now_ms - 90_000)
    shop.fill(TIER, 1, 1, group="payments", attempt=1, due_ms=now_ms - 60_000)
    shop.commit(TIER, 0, 0, (1, 2))

    behind = shop.look()
    [tier] = behind.tiers

    assert (tier.waiting, tier.due, tier.late_ms) == (3, 2, 60_000)
    assert (tier.next_ms, tier.others, tier.is_whole) == (now_ms + 3_000, 1, True)
    lag, oldest = shop.partition(TIER, 0)
    assert (lag.true_lag, oldest.attempt, oldest.due_ms, oldest.failure) == (3, 2, now_ms - 2_000, "Timeout")


def test_of_a_long_tier_only_so_many_records_are_read(shop):
    now_ms = int(shop.now_ms)
    shop.fill(TIER, 0, 50, group="payments", due_ms=now_ms - 1)
    shop.fill(TIER, 1, 50, group="payments", due_ms=now_ms - 1)
    [tier] = shop.look(records_of_tier=20).tiers
    assert (tier.waiting, tier.is_whole) == (20, False)


def test_a_missing_topic_is_told_and_the_others_are_measured(shop):
    shop.cluster.delete_topic(TIER)
    shop.fill("orders", 0, 3)
    behind = shop.look()
    assert behind.missing == (TIER,)
    assert [(lag.key.partition, lag.lag, lag.committed) for lag, _ in behind.partitions] == [
        (0, 3, None),
        (1, 0, None),
    ]


def test_a_cluster_that_is_away_is_an_error(shop):
    shop.cluster.is_down = True
    with pytest.raises(PortError):
        shop.look()
