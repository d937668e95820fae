"""Listeners and settings become topics: tiers, dead letters, the way back, and what older policies left."""

from typing import Any

import pytest

from redrive import App, ListenerError, RetryPolicy, Settings, TopologyError
from redrive.core.plan import FOREVER_MS, MAX_WAIT_MS, GroupPlan, ListenerPlan, Tier
from redrive.core.topic_plan import WantedTopic
from redrive.core.topology import Role
from redrive.runtime.declaration import ResolvedApp
from redrive.runtime.planning import plan_group, plan_letters, retentions_of, waiting_topics, wanted_topics
from redrive.runtime.ports import TopicInfo

LADDER = RetryPolicy("5s", "10m")


def resolved(
    *listeners: tuple[str, RetryPolicy], group: str = "payments", accepts_groups: tuple[str, ...] = ()
) -> ResolvedApp:
    app = App(group, accepts_groups=accepts_groups)
    for topic, policy in listeners:
        app.listener(topic, retry=policy, name=f"on-{topic}")(print_value)
    return app.resolve()


def print_value(value: Any) -> None: ...


def plan(*listeners: tuple[str, RetryPolicy], existing: tuple[str, ...] = (), **settings: Any) -> GroupPlan:
    return plan_group(resolved(*listeners), Settings(**settings), existing)


def test_a_ladder_has_its_tiers_and_replays_by_the_first() -> None:
    (listener,) = plan(("orders", LADDER)).listeners

    assert listener == ListenerPlan(
        name="on-orders",
        source="orders",
        dlq="orders.dlq",
        replay="orders.retry.5s",
        policy=LADDER,
        state="orders.dlq.state",
        tiers=(Tier("orders.retry.5s", 5000, 0), Tier("orders.retry.10m", 600_000, 1)),
    )


def test_without_a_ladder_there_is_a_topic_for_replays() -> None:
    (listener,) = plan(("orders", RetryPolicy())).listeners

    assert (listener.replay, listener.tiers) == ("orders.replay", ())
    assert listener.drained == (Tier("orders.replay", 0),)


def test_the_group_reads_sources_tiers_and_replays() -> None:
    topics = plan(("orders", LADDER), ("payouts", RetryPolicy())).topics

    assert topics == ("orders", "payouts", "orders.retry.5s", "orders.retry.10m", "payouts.replay")


def test_tiers_of_an_older_policy_are_drained() -> None:
    existing = (
        "orders",
        "orders.retry.5s",
        "orders.retry.1h",
        "orders.retry.30s",
        "other.retry.1h",
        "orders.dlq",
    )

    (listener,) = plan(("orders", LADDER), existing=existing).listeners

    assert listener.drained == (Tier("orders.retry.30s", 30_000), Tier("orders.retry.1h", 3_600_000))


def test_the_replay_topic_of_a_time_without_a_ladder_is_drained() -> None:
    (listener,) = plan(("orders", LADDER), existing=("orders", "orders.replay")).listeners

    assert listener.replay == "orders.retry.5s"
    assert listener.drained == (Tier("orders.replay", 0),)


def test_tiers_of_a_ladder_that_is_gone_are_drained_beside_the_replay_topic() -> None:
    (listener,) = plan(("orders", RetryPolicy()), existing=("orders", "orders.retry.5s")).listeners

    assert listener.drained == (Tier("orders.replay", 0), Tier("orders.retry.5s", 5000))


def test_names_follow_the_settings() -> None:
    (listener,) = plan(
        ("orders", LADDER), retry_topic="{topic}.{group}.retry.{delay}", dlq_topic="{topic}.{group}.dlq"
    ).listeners

    assert [tier.topic for tier in listener.tiers] == [
        "orders.payments.retry.5s",
        "orders.payments.retry.10m",
    ]
    assert listener.dlq == "orders.payments.dlq"


def test_bounds_and_groups_come_from_settings_and_app() -> None:
    app = resolved(("orders", LADDER), accepts_groups=("billing", "old"))
    settings = Settings(
        window_bytes=5_000_000, commit_interval_ms=50, brake=False, accepts_groups=("old", "older")
    )

    group = plan_group(app, settings, ())

    assert (group.group, group.accepts_groups) == ("payments", ("billing", "old", "older"))
    assert (group.window_bytes, group.commit_interval_ms) == (5_000_000, 50)
    assert [listener.brake for listener in group.listeners] == [False]


def test_dead_letters_are_handled_in_a_group_of_their_own_that_writes_nothing() -> None:
    app = App("payments", accepts_groups=["billing"])
    app.listener("orders", retry=LADDER)(print_value)
    app.listener("payouts", retry=LADDER, name="pay")(print_value)
    app.on_dead_letter("payouts", name="triage", concurrency=3)(print_value)

    group = plan_letters(app.resolve(), Settings(dlq_topic="{topic}.{group}.dead", accepts_groups=("old",)))

    assert group.group == "payments.on-dead-letter"
    assert group.topics == ("payouts.payments.dead",)
    (listener,) = group.listeners
    assert (listener.name, listener.concurrency, listener.letters_of) == (
        "triage",
        3,
        ("payments", "billing", "old"),
    )
    assert (listener.tiers, listener.drained, listener.give_up, listener.brake) == ((), (), "skip", False)


def test_a_wait_is_bounded_by_the_tier_that_keeps_records_for_the_shortest_time() -> None:
    topics = {
        "orders.retry.5s": TopicInfo("orders.retry.5s", 1, configs={"retention.ms": "-1"}),
        "orders.retry.10m": TopicInfo("orders.retry.10m", 1, configs={"retention.ms": "90000"}),
        "orders.dlq": TopicInfo("orders.dlq", 1, configs={"retention.ms": "1"}),
    }
    app = resolved(("orders", LADDER))

    (listener,) = plan_group(app, Settings(), topics, retentions_of(topics)).listeners

    assert listener.longest_wait_ms == 90_000
    assert plan(("orders", LADDER)).listeners[0].longest_wait_ms == MAX_WAIT_MS


def test_a_blocking_policy_has_no_tiers_and_waits_as_long_as_its_source_keeps_records() -> None:
    policy = RetryPolicy("5s", "10m", blocking="partition")
    app = resolved(("orders", LADDER), ("payouts", policy))
    topics = {"payouts": TopicInfo("payouts", 1, configs={"retention.ms": "7000000"})}

    group = plan_group(app, Settings(), topics, retentions_of(topics))

    assert waiting_topics(group) == ("orders.retry.5s", "orders.retry.10m", "payouts")
    listener = group.listeners[1]
    assert (listener.policy, listener.order) == (policy, "partition")
    assert (listener.tiers, listener.replay) == ((), "payouts.replay")
    assert [tier.topic for tier in listener.drained] == ["payouts.replay"]
    assert (group.listeners[0].longest_wait_ms, listener.longest_wait_ms) == (MAX_WAIT_MS, 7_000_000)
    wanted = wanted_topics(app, Settings())
    assert [topic.name for topic in wanted if topic.source == "payouts"] == [
        "payouts",
        "payouts.dlq",
        "payouts.dlq.state",
        "payouts.replay",
    ]


def test_retention_for_ever_is_a_bound_too_and_what_the_cluster_does_not_tell_is_left_out() -> None:
    topics = {
        "a": TopicInfo("a", 1, configs={"retention.ms": "-1"}),
        "b": TopicInfo("b", 1),
        "c": TopicInfo("c", 1, configs={}),
    }
    assert retentions_of(topics) == {"a": FOREVER_MS, "c": 7 * 86_400_000}


def test_wanted_topics_are_those_of_the_plan_and_of_dead_letters() -> None:
    app = resolved(("orders", RetryPolicy("5s")))

    wanted = wanted_topics(app, Settings(replication=1, dlq_partitions=2, tier_outage_ms=60_000))

    assert [(topic.name, topic.role) for topic in wanted] == [
        ("orders", Role.SOURCE),
        ("orders.retry.5s", Role.TIER),
        ("orders.dlq", Role.DLQ),
        ("orders.dlq.state", Role.STATE),
    ]
    by_role: dict[Role, WantedTopic] = {topic.role: topic for topic in wanted}
    assert by_role[Role.TIER].configs["retention.ms"] == "70000"
    assert by_role[Role.TIER].replication == 1
    assert by_role[Role.DLQ].partitions == 2


def test_colliding_names_are_told_all_at_once_with_the_listeners_places() -> None:
    app = resolved(
        ("orders", LADDER), ("orders.dlq", RetryPolicy()), ("a.b", RetryPolicy()), ("a_b", RetryPolicy())
    )
    place = app.listeners[0].where

    with pytest.raises(TopologyError) as refused:
        plan_group(app, Settings(), ())

    lines = str(refused.value).splitlines()
    assert lines[0] == f"{len(lines) - 1} problems:"
    assert lines[1] == (
        f"  {place}, {place}: topic 'orders.dlq' would be dlq of listener 'on-orders' and source of listener "
        "'on-orders.dlq': rename a source, or give templates that keep them apart"
    )
    assert any("'a.b', 'a_b'" in line and place in line for line in lines)


def test_a_name_that_is_too_long_is_told_with_its_place() -> None:
    topic = "o" * 249
    app = resolved((topic, RetryPolicy("5s")))

    with pytest.raises(TopologyError) as refused:
        wanted_topics(app, Settings())

    assert str(refused.value).splitlines()[1] == (
        f"  {app.listeners[0].where}: topic '{topic}.retry.5s' (tier of listener 'on-{topic}'): 258 characters, "
        "Kafka takes 249; give shorter templates"
    )


def test_names_alike_in_the_cluster_are_told() -> None:
    with pytest.raises(TopologyError) as refused:
        plan(("or.ders", RetryPolicy()), existing=("or_ders",))

    assert "topics 'or.ders', 'or_ders' differ only in . and _" in str(refused.value)


def test_what_a_transaction_cannot_do_yet_is_refused_with_the_way_out() -> None:
    app = App("payments", delivery="exactly-once")
    app.listener("orders", retry=RetryPolicy("5s", blocking="key", park=True), order="key", name="book")(
        print_value
    )

    with pytest.raises(ListenerError, match=r"listener 'book' isn't possible .* leave it out"):
        plan_group(app.resolve(), Settings(), ())


def test_a_parked_topic_is_read_while_keys_are_parked_and_while_it_is_there() -> None:
    app = App("payments")
    app.listener("orders", retry=RetryPolicy("5s", blocking="key", park=True), order="key", name="book")(
        print_value
    )
    assert plan_group(app.resolve(), Settings(), ()).topics == ("orders", "orders.replay", "orders.parked")
    assert Role.PARKED in {topic.role for topic in wanted_topics(app.resolve(), Settings())}

    later = App("payments")
    later.listener("orders", retry=RetryPolicy("5s", blocking="key"), order="key", name="book")(print_value)
    assert plan_group(later.resolve(), Settings(), ()).listeners[0].parked == ""
    assert plan_group(later.resolve(), Settings(), ("orders.parked",)).listeners[0].parked == "orders.parked"
