"""Which topics are taken for dead-letter topics, and where their states are kept."""

import pytest

from redrive.core.topology import Naming
from redrive.deadletters.topics import Names, find_dlqs, open_dlqs
from redrive.errors import TopologyError
from redrive.sim.cluster import SimCluster


def _cluster(*topics):
    cluster = SimCluster()
    for topic in topics:
        cluster.create_topic(topic, 2)
    return cluster


def _found(cluster, names=Names()):  # noqa: B008  a value
    return [(dlq.topic, dlq.state, dlq.has_state) for dlq in find_dlqs(cluster.admin(), names)]


def test_without_settings_topics_of_all_styles_are_found():
    cluster = _cluster(
        "orders", "orders.retry.5s", "orders.dlq", "orders.dlq.state", "pay-dlt", "pay-retry-5s"
    )
    assert _found(cluster) == [("orders.dlq", "orders.dlq.state", True), ("pay-dlt", "pay-dlt-state", False)]


def test_with_settings_only_their_names_count():
    naming = Naming.of(dlq="dead.{topic}.{group}")
    cluster = _cluster("orders.dlq", "dead.orders.payments", "dead.orders.mails")
    assert _found(cluster, Names((naming,), "payments")) == [
        ("dead.orders.payments", "state.dead.orders.payments", False)
    ]


def test_a_state_topic_that_is_there_is_used_whoever_made_it():
    """Two people with different settings must not keep their books in two places."""
    cluster = _cluster("my-errors", "my-errors-state")
    [dlq] = open_dlqs(cluster.admin(), ["my-errors"], Names())
    assert (dlq.state, dlq.has_state) == ("my-errors-state", True)


def test_two_state_topics_are_an_error_that_names_both():
    cluster = _cluster("orders.dlq", "orders.dlq.state", "orders.dlq-state")
    with pytest.raises(TopologyError, match=r"orders\.dlq-state and orders\.dlq\.state"):
        find_dlqs(cluster.admin(), Names())


def test_any_topic_can_be_named():
    [dlq] = open_dlqs(_cluster("errors").admin(), ["errors", "errors"], Names())
    assert (dlq.topic, dlq.bounds) == ("errors", {0: (0, 0), 1: (0, 0)})


def test_a_missing_topic_is_an_error_that_says_what_there_is():
    with pytest.raises(TopologyError, match=r"'nope\.dlq' doesn't exist.*orders\.dlq"):
        open_dlqs(_cluster("orders.dlq").admin(), ["nope.dlq"], Names())


def test_of_many_topics_those_are_said_that_are_called_most_like_the_missing_one():
    cluster = _cluster(*(f"shop-{number}.dlq" for number in range(40)), "orders.dlq")
    with pytest.raises(TopologyError, match=r"here: orders\.dlq, .* and 36 more$"):
        open_dlqs(cluster.admin(), ["ordes.dlq"], Names())


@pytest.mark.parametrize(
    "topic", ["orders.retry.5s", "orders.replay", "orders.parked", "orders.dlq.state", "pay-retry-5s"]
)
def test_a_topic_that_is_something_else_is_refused(topic):
    with pytest.raises(TopologyError, match="no dead-letter topic"):
        open_dlqs(_cluster(topic).admin(), [topic], Names())


def test_no_topic_is_no_error():
    assert _found(_cluster("orders")) == []


def test_bounds_are_those_of_the_start():
    cluster = _cluster("orders.dlq")
    for _ in range(3):
        cluster.append("orders.dlq", b"", partition=1)
    cluster.topics["orders.dlq"].partitions[1].delete_before(1)
    [dlq] = find_dlqs(cluster.admin(), Names())
    cluster.append("orders.dlq", b"", partition=1)
    assert dlq.bounds == {0: (0, 0), 1: (1, 3)}
