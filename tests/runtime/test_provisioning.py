"""Creating an app's topics, on the simulated cluster."""

import pytest

from redrive.core.record import TopicPartition
from redrive.core.topic_plan import Action, wanted_topics
from redrive.core.topology import Naming, name_topics
from redrive.errors import PortError
from redrive.runtime.provisioning import (
    await_carried_out,
    carry_out,
    compare,
    find_sharers,
    with_source_partitions,
)
from redrive.sim.admin import SimAdmin
from redrive.sim.cluster import SimCluster

TOPICS = name_topics("charge", "orders", [5000, 30_000], group="payments", naming=Naming())
WANTED = wanted_topics([TOPICS], replication=3)
OWN = ["orders.retry.5s", "orders.retry.30s", "orders.dlq", "orders.dlq.state"]


class _Noting(SimAdmin):
    """An admin client that notes what was changed, in that order; `blind` describes hide what was created."""

    def __init__(self, cluster, *, blind=0):
        super().__init__(cluster)
        self.changed = []
        self.blind = blind

    def create(self, topics):
        self.changed += [topic.name for topic in topics]
        return super().create(topics)

    def grow(self, topic, partitions):
        self.changed.append(f"{topic} to {partitions}")
        super().grow(topic, partitions)

    def describe(self, topics=None, *, configs=False):
        found = super().describe(topics, configs=configs)
        self.blind -= 1
        return found if self.blind < 0 else {name: its for name, its in found.items() if name == "orders"}


@pytest.fixture
def cluster():
    made = SimCluster()
    made.create_topic("orders", 4, replication=3)
    return made


def _apply(admin, wanted=WANTED):
    return carry_out(admin, compare(admin, wanted), replication=3)


def test_missing_topics_are_created_as_planned_and_only_those(cluster):
    admin = _Noting(cluster)

    assert _apply(admin) == {}
    assert admin.changed == OWN
    assert cluster.counts == {**dict.fromkeys(["orders", *OWN], 4), "orders.dlq.state": 1}


def test_applying_again_changes_nothing(cluster):
    _apply(_Noting(cluster))
    again = _Noting(cluster)

    assert _apply(again) == {}
    assert again.changed == []
    assert {item.action for item in compare(again, WANTED).items} == {Action.OK}


def test_copies_are_grown_before_their_source(cluster):
    _apply(_Noting(cluster))
    admin = _Noting(cluster)

    wanted = with_source_partitions(WANTED, cluster.topics, by_source={"orders": 6})

    assert _apply(admin, wanted) == {}
    assert admin.changed == [
        "orders.retry.5s to 6",
        "orders.retry.30s to 6",
        "orders.dlq to 6",
        "orders to 6",
    ]


def test_nothing_is_ever_taken_away(cluster):
    _apply(_Noting(cluster))
    admin = _Noting(cluster)

    wanted = with_source_partitions(WANTED, cluster.topics, by_source={"orders": 2})

    assert _apply(admin, wanted) == {}
    assert admin.changed == []
    assert next((item.action, item.topic) for item in compare(admin, wanted).findings) == (
        Action.DIFFERS,
        "orders",
    )


def test_a_missing_source_is_created_only_when_asked_for_with_its_partitions():
    cluster = SimCluster()
    admin = _Noting(cluster)

    assert _apply(admin) == {}
    assert list(cluster.topics) == ["orders.dlq.state"]

    wanted = with_source_partitions(WANTED, cluster.topics, missing=8, by_source={})
    assert _apply(admin, wanted) == {}
    assert cluster.counts["orders"] == cluster.counts["orders.retry.5s"] == 8
    assert admin.changed[-1] == "orders"


def test_partitions_for_missing_sources_leave_existing_ones_alone(cluster):
    wanted = with_source_partitions(WANTED, cluster.topics, missing=8, by_source={})

    _apply(_Noting(cluster), wanted)

    assert cluster.counts["orders"] == cluster.counts["orders.retry.5s"] == 4


def test_one_topic_that_fails_does_not_hold_up_the_others(cluster):
    cluster.create_topic("orders_dlq")  # collides with orders.dlq in metrics

    failed = _apply(_Noting(cluster))

    assert list(failed) == ["orders.dlq"]
    assert set(cluster.topics) == {"orders", "orders_dlq", *OWN} - {"orders.dlq"}


def test_too_few_brokers_fail_each_topic_with_the_reason():
    cluster = SimCluster(brokers=1)
    cluster.create_topic("orders", 4)

    assert _apply(_Noting(cluster)) == dict.fromkeys(OWN, "replication 3, but there are 1 brokers")


def test_a_grow_that_is_refused_is_told_and_the_rest_goes_on(cluster):
    _apply(_Noting(cluster))

    class Refusing(_Noting):
        def grow(self, topic, partitions):
            if topic == "orders.retry.5s":
                raise PortError("TOPIC_AUTHORIZATION_FAILED: no")
            super().grow(topic, partitions)

    admin = Refusing(cluster)
    failed = _apply(admin, with_source_partitions(WANTED, cluster.topics, by_source={"orders": 6}))

    assert failed == {"orders.retry.5s": "TOPIC_AUTHORIZATION_FAILED: no"}
    assert "orders.dlq to 6" in admin.changed


def test_what_was_created_is_waited_for_until_brokers_show_it(cluster):
    _apply(_Noting(cluster))

    plan = await_carried_out(_Noting(cluster, blind=3), WANTED, cluster.clock)

    assert plan.changes == ()
    assert cluster.clock.mono_ms() == 600


def test_the_wait_for_brokers_ends(cluster):
    plan = await_carried_out(_Noting(cluster, blind=10**6), WANTED, cluster.clock)

    assert [item.topic for item in plan.changes] == OWN
    assert cluster.clock.mono_ms() == pytest.approx(10_000)


def test_other_readers_of_a_tier_are_found(cluster):
    admin = _Noting(cluster)
    _apply(admin)
    for group in ("payments", "billing"):
        cluster.group(group).offsets[TopicPartition("orders.retry.5s", 0)] = None

    assert find_sharers(admin, compare(admin, WANTED), ["payments"]) == {"orders.retry.5s": ["billing"]}


def test_a_tier_that_is_not_there_yet_has_no_readers(cluster):
    admin = _Noting(cluster)

    assert find_sharers(admin, compare(admin, WANTED), ["payments"]) == {}


def test_what_failed_is_not_waited_for(cluster):
    plan = await_carried_out(_Noting(cluster), WANTED, cluster.clock, failed=OWN)

    assert [item.topic for item in plan.changes] == OWN
    assert cluster.clock.mono_ms() == 0
