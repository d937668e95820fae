"""What `redrive topics plan` finds, and what `apply` would do about it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.schedule import wake_of
from redrive.core.topic_plan import (
    Action,
    ObservedTopic,
    PlanItem,
    TopicPlan,
    WantedTopic,
    plan_topics,
    wanted_topics,
)
from redrive.core.topology import Naming, Role, name_topics

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS

LADDER = name_topics("charge", "orders", [5_000, 10 * DAY_MS], group="payments", naming=Naming())
BLOCKING = name_topics("pay", "payouts", [], group="payments", naming=Naming(), parks=True)

SOURCE_CONFIGS = {"retention.ms": str(WEEK_MS), "max.message.bytes": "1048588"}
KEEP = {"cleanup.policy": "delete", "retention.bytes": "-1", "min.insync.replicas": "2"}
FINE = {
    "orders": ObservedTopic("orders", 4, 3, SOURCE_CONFIGS),
    "orders.retry.5s": ObservedTopic(
        "orders.retry.5s",
        4,
        3,
        {**KEEP, "retention.ms": str(WEEK_MS + 10_000), "max.message.bytes": "1114124"},
    ),
    "orders.retry.10d": ObservedTopic(
        "orders.retry.10d", 4, 3, {**KEEP, "retention.ms": str(27 * DAY_MS), "max.message.bytes": "1114124"}
    ),
    "orders.dlq": ObservedTopic(
        "orders.dlq", 4, 3, {**KEEP, "retention.ms": "-1", "max.message.bytes": "1114124"}
    ),
    "orders.dlq.state": ObservedTopic(
        "orders.dlq.state", 1, 3, {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    ),
}


def _plan(**changed: ObservedTopic | None) -> TopicPlan:
    """The plan for LADDER where all is fine but what is given: topic names with _ for dots."""
    observed = {name.replace(".", "_"): topic for name, topic in FINE.items()} | changed
    return plan_topics(wanted_topics([LADDER]), [topic for topic in observed.values() if topic is not None])


def _with(name: str, **configs: str) -> dict[str, ObservedTopic]:
    """`FINE`'s topic with configs changed, their names with _ for dots."""
    topic = FINE[name]
    changed = {setting.replace("_", "."): value for setting, value in configs.items()}
    changed = ObservedTopic(name, topic.partitions, topic.replication, {**(topic.configs or {}), **changed})
    return {name.replace(".", "_"): changed}


def _settings(items: tuple[PlanItem, ...]) -> list[tuple[str, str, str, str]]:
    return [(item.topic, item.setting, item.wanted, item.have) for item in items]


class TestWanted:
    def test_a_ladder_s_topics_and_their_configuration(self):
        wanted = {topic.name: topic for topic in wanted_topics([LADDER])}
        assert {
            name: (topic.role, topic.partitions, topic.replication) for name, topic in wanted.items()
        } == {
            "orders": (Role.SOURCE, None, None),
            "orders.retry.5s": (Role.TIER, None, 3),
            "orders.retry.10d": (Role.TIER, None, 3),
            "orders.dlq": (Role.DLQ, None, 3),
            "orders.dlq.state": (Role.STATE, 1, 3),
        }
        assert wanted["orders"].configs == {}
        assert wanted["orders.retry.5s"].configs == {**KEEP, "retention.ms": str(WEEK_MS + 10_000)}
        assert wanted["orders.retry.10d"].configs == {**KEEP, "retention.ms": str(27 * DAY_MS)}
        assert wanted["orders.dlq"].configs == {**KEEP, "retention.ms": "-1"}
        assert wanted["orders.dlq.state"].configs == {"cleanup.policy": "compact", "min.insync.replicas": "2"}

    def test_without_a_ladder(self):
        wanted = {topic.name: topic.configs["retention.ms"] for topic in wanted_topics([BLOCKING])[3:]}
        assert wanted == {"payouts.replay": str(WEEK_MS), "payouts.parked": "-1"}

    def test_on_one_broker_with_one_partition_of_dead_letters_and_a_short_outage_allowed(self):
        wanted = wanted_topics([LADDER], replication=1, dlq_partitions=1, tier_outage_ms=DAY_MS)
        assert [topic.partitions for topic in wanted] == [None, None, None, 1, 1]
        assert [topic.replication for topic in wanted] == [None, 1, 1, 1, 1]
        assert wanted[1].configs == {
            "cleanup.policy": "delete",
            "retention.bytes": "-1",
            "retention.ms": str(DAY_MS + 10_000),
            "min.insync.replicas": "1",
        }


class TestPartitions:
    def test_where_all_is_fine_nothing_is_done(self):
        assert [(item.topic, item.action) for item in _plan().items] == [(name, Action.OK) for name in FINE]

    def test_what_is_missing_is_created_as_the_source_is(self):
        plan = _plan(
            orders_retry_5s=None,
            orders_dlq_state=None,
            **_with("orders", max_message_bytes="2000000"),
            **_with("orders.retry.10d", max_message_bytes="2065536"),
            **_with("orders.dlq", max_message_bytes="2065536"),
        )
        tier, state = plan.changes
        assert tier == PlanItem(
            Action.CREATE,
            "orders.retry.5s",
            Role.TIER,
            partitions=4,
            replication=3,
            configs={**KEEP, "retention.ms": str(WEEK_MS + 10_000), "max.message.bytes": "2065536"},
        )
        assert (state.topic, state.partitions) == ("orders.dlq.state", 1)
        assert "max.message.bytes" not in state.configs
        assert plan.findings == ()

    def test_where_the_source_s_size_is_not_told_kafka_s_own_is_taken(self):
        plan = _plan(orders=ObservedTopic("orders", 4), orders_retry_5s=None)
        assert plan.changes[0].configs["max.message.bytes"] == str(1_048_588 + 65_536)

    def test_a_missing_source_is_told_apart_and_holds_up_what_follows_its_partitions(self):
        plan = plan_topics(wanted_topics([LADDER]), [])
        assert [(item.topic, item.action) for item in plan.items] == [
            ("orders", Action.MISSING),
            ("orders.retry.5s", Action.MISSING),
            ("orders.retry.10d", Action.MISSING),
            ("orders.dlq", Action.MISSING),
            ("orders.dlq.state", Action.CREATE),
        ]
        assert plan.items[0].mend == "create it with the partitions its producers need"
        assert plan.items[1].mend == "create 'orders' first"

    def test_a_source_whose_partitions_are_given_is_created_last(self):
        _, *others = wanted_topics([LADDER])
        plan = plan_topics([WantedTopic("orders", Role.SOURCE, "orders", 6), *others], [])
        assert [(item.topic, item.partitions) for item in plan.changes] == [
            ("orders.retry.5s", 6),
            ("orders.retry.10d", 6),
            ("orders.dlq", 6),
            ("orders.dlq.state", 1),
            ("orders", 6),
        ]

    def test_topics_that_a_source_has_outgrown_grow_after_it(self):
        plan = _plan(orders=ObservedTopic("orders", 8, 3, SOURCE_CONFIGS))
        assert [(item.action, item.topic, item.partitions, item.have) for item in plan.changes] == [
            (Action.GROW, "orders.retry.5s", 8, "4"),
            (Action.GROW, "orders.retry.10d", 8, "4"),
            (Action.GROW, "orders.dlq", 8, "4"),
        ]

    def test_a_source_that_is_to_grow_grows_after_its_aligned_topics(self):
        _, *others = wanted_topics([LADDER])
        plan = plan_topics([WantedTopic("orders", Role.SOURCE, "orders", 8), *others], FINE.values())
        assert [item.topic for item in plan.changes] == [
            "orders.retry.5s",
            "orders.retry.10d",
            "orders.dlq",
            "orders",
        ]
        assert {item.partitions for item in plan.changes} == {8}

    def test_nothing_ever_shrinks(self):
        plan = _plan(orders=ObservedTopic("orders", 2, 3, SOURCE_CONFIGS))
        assert plan.changes == ()
        assert _settings(plan.findings) == [
            ("orders.retry.5s", "partitions", "2", "4"),
            ("orders.retry.10d", "partitions", "2", "4"),
            ("orders.dlq", "partitions", "2", "4"),
        ]
        assert plan.findings[0].mend == "grow 'orders' to 4"

    def test_nor_does_a_source_and_its_topics_follow_what_it_has(self):
        _, *others = wanted_topics([LADDER])
        plan = plan_topics([WantedTopic("orders", Role.SOURCE, "orders", 2), *others], FINE.values())
        assert plan.changes == ()
        assert _settings(plan.findings) == [("orders", "partitions", "2", "4")]

    def test_dead_letters_in_fewer_partitions_than_there_are(self):
        plan = plan_topics(wanted_topics([LADDER], dlq_partitions=1), FINE.values())
        assert [(item.topic, item.mend) for item in plan.findings] == [
            ("orders.dlq", "set it to what is there")
        ]

    def test_a_state_topic_may_have_any_number(self):
        state = FINE["orders.dlq.state"]
        assert _plan(orders_dlq_state=ObservedTopic(state.name, 4, 3, state.configs)).findings == ()

    @given(st.integers(1, 9), st.none() | st.integers(1, 9), st.none() | st.integers(1, 9), st.data())
    def test_once_applied_nothing_is_left_to_do_and_nothing_has_shrunk(
        self, have, wanted_count, dlq_count, data
    ):
        _, *others = wanted_topics([LADDER], dlq_partitions=dlq_count)
        wanted = [WantedTopic("orders", Role.SOURCE, "orders", wanted_count), *others]
        before = {"orders": ObservedTopic("orders", have)}
        for topic in others:
            if data.draw(st.booleans()):
                before[topic.name] = ObservedTopic(topic.name, data.draw(st.integers(1, 9)))
        after = dict(before)
        for item in plan_topics(wanted, before.values()).changes:
            assert item.partitions is not None
            assert (item.topic in after) == (item.action is Action.GROW)
            after[item.topic] = ObservedTopic(item.topic, item.partitions)
        assert plan_topics(wanted, after.values()).changes == ()
        assert all(after[name].partitions >= topic.partitions for name, topic in before.items())
        assert all(after[tier].partitions >= after["orders"].partitions for tier, _ in LADDER.tiers)


class TestRetentionOfTiers:
    @given(
        delay_ms=st.integers(60_000, 40 * DAY_MS),
        outage_ms=st.integers(0, 30 * DAY_MS),
        due=st.floats(0, 30),
    )
    def test_a_record_is_kept_as_long_as_it_may_be_held_and_an_outage_more(self, delay_ms, outage_ms, due):
        """With all of its jitter a record waits for twice the delay; asked to wait longer, it is written again before."""
        ladder = name_topics("charge", "orders", [delay_ms], group="payments", naming=Naming())
        tier = next(one for one in wanted_topics([ladder], tier_outage_ms=outage_ms) if one.role is Role.TIER)
        kept_ms = int(tier.configs["retention.ms"])
        held_ms = wake_of(int(due * delay_ms), 0, delay_ms)
        assert kept_ms == 2 * delay_ms + outage_ms
        assert held_ms + outage_ms <= kept_ms

    def test_a_tier_that_keeps_records_for_its_delay_and_the_outage_only_is_told(self):
        [item] = _plan(**_with("orders.retry.10d", retention_ms=str(17 * DAY_MS))).findings
        assert (item.topic, item.setting, item.wanted) == (
            "orders.retry.10d",
            "retention.ms",
            str(27 * DAY_MS),
        )
        assert "before they are due" in item.why

    def test_the_outage_that_a_tier_outlasts_is_told_beyond_the_longest_wait(self):
        [item] = _plan(**_with("orders.retry.10d", retention_ms=str(22 * DAY_MS))).findings
        assert "after an outage of 2d" in item.why


class TestConfiguration:
    @pytest.mark.parametrize(
        ("changed", "setting", "why"),
        [
            (
                _with("orders.retry.5s", retention_ms=str(DAY_MS)),
                "retention.ms",
                "waiting records would be deleted after an outage of 23h59m50s",
            ),
            (
                _with("orders.retry.10d", retention_ms=str(WEEK_MS)),
                "retention.ms",
                "waiting records would be deleted before they are due",
            ),
            (
                _with("orders.retry.5s", retention_bytes="1000000"),
                "retention.bytes",
                "a bound by size deletes",
            ),
            (
                _with("orders.retry.5s", cleanup_policy="compact"),
                "cleanup.policy",
                "compaction removes records",
            ),
            (
                _with("orders.dlq", cleanup_policy="compact,delete"),
                "cleanup.policy",
                "compaction removes records",
            ),
            (
                _with("orders.dlq.state", cleanup_policy="compact,delete"),
                "cleanup.policy",
                "could be sent twice",
            ),
            (_with("orders.dlq.state", cleanup_policy="delete"), "cleanup.policy", "could be sent twice"),
            (
                _with("orders.dlq", retention_ms=str(WEEK_MS)),
                "retention.ms",
                "dead letters would be gone no later than the records of their source",
            ),
            (
                _with("orders.dlq", max_message_bytes="1048588"),
                "max.message.bytes",
                "fits into 'orders' may not fit",
            ),
            (_with("orders.retry.5s", min_insync_replicas="1"), "min.insync.replicas", "one broker alone"),
            (
                _with("orders.retry.5s", min_insync_replicas="3"),
                "min.insync.replicas",
                "one broker away is enough",
            ),
            (
                _with("orders.retry.5s", min_insync_replicas="4"),
                "min.insync.replicas",
                "brokers before Kafka 3.7 refuse every write, newer ones take it as 3; then one broker away",
            ),
        ],
    )
    def test_a_difference_that_matters_is_a_finding_with_its_reason(self, changed, setting, why):
        (finding,) = _plan(**changed).findings
        assert (finding.action, finding.setting) == (Action.DIFFERS, setting)
        assert why in finding.why
        assert finding.mend == (
            f"kafka-configs.sh --alter --entity-type topics --entity-name {finding.topic} "
            f"--add-config {setting}={finding.wanted}"
        )

    @pytest.mark.parametrize(
        "changed",
        [
            _with("orders.retry.5s", retention_ms="-1"),
            _with("orders.retry.5s", retention_ms=str(WEEK_MS * 9)),
            _with("orders.dlq", retention_ms=str(WEEK_MS + 1)),
            _with("orders.dlq", max_message_bytes="9999999"),
        ],
    )
    def test_what_is_more_than_wanted_is_fine(self, changed):
        assert _plan(**changed).findings == ()

    def test_dead_letters_must_be_kept_for_ever_where_the_source_is(self):
        changed = _with("orders", retention_ms="-1") | _with("orders.dlq", retention_ms=str(999 * DAY_MS))
        assert _settings(_plan(**changed).findings) == [
            ("orders.dlq", "retention.ms", "-1", str(999 * DAY_MS))
        ]

    def test_too_few_replicas_are_one_finding(self):
        tier = FINE["orders.retry.5s"]
        configs = {**(tier.configs or {}), "min.insync.replicas": "1"}
        (finding,) = _plan(orders_retry_5s=ObservedTopic(tier.name, 4, 1, configs)).findings
        assert (finding.setting, finding.wanted, finding.have) == ("replication", "3", "1")
        assert finding.mend == "add replicas (kafka-reassign-partitions.sh), or set replication = 1"

    def test_a_configuration_of_one_s_own_is_compared_too(self):
        wanted = WantedTopic("orders", Role.SOURCE, "orders", configs={"compression.type": "lz4"})
        plan = plan_topics([wanted], [ObservedTopic("orders", 4, 3, {"compression.type": "producer"})])
        assert _settings(plan.findings) == [("orders", "compression.type", "lz4", "producer")]


class TestNotChecked:
    def test_what_the_cluster_does_not_tell_is_said_not_guessed(self):
        plan = _plan(orders_retry_5s=ObservedTopic("orders.retry.5s", 4))
        assert plan.findings == plan.changes == ()
        assert [
            (item.topic, item.action, item.setting) for item in plan.items if item.action is not Action.OK
        ] == [
            ("orders.retry.5s", Action.NOT_CHECKED, "replication"),
            ("orders.retry.5s", Action.NOT_CHECKED, "configuration"),
        ]

    def test_what_depends_on_an_unknown_source_is_not_checked(self):
        changed = {"orders": ObservedTopic("orders", 4)} | _with("orders.dlq", retention_ms=str(WEEK_MS))
        assert [
            (item.topic, item.setting, item.why)
            for item in _plan(**changed).items
            if item.action is Action.NOT_CHECKED
        ] == [
            ("orders.retry.5s", "max.message.bytes", "the cluster doesn't tell that of 'orders'"),
            ("orders.retry.10d", "max.message.bytes", "the cluster doesn't tell that of 'orders'"),
            ("orders.dlq", "retention.ms", "the cluster doesn't tell that of 'orders'"),
            ("orders.dlq", "max.message.bytes", "the cluster doesn't tell that of 'orders'"),
        ]

    def test_a_dead_letter_topic_kept_for_ever_needs_no_comparison(self):
        plan = _plan(orders=ObservedTopic("orders", 4))
        assert ("orders.dlq", "retention.ms") not in [(item.topic, item.setting) for item in plan.items]

    def test_a_single_setting_that_is_not_told(self):
        tier = FINE["orders.retry.5s"]
        configs = {name: value for name, value in (tier.configs or {}).items() if name != "retention.bytes"}
        plan = _plan(orders_retry_5s=ObservedTopic(tier.name, 4, 3, configs))
        assert [item.setting for item in plan.items if item.action is Action.NOT_CHECKED] == [
            "retention.bytes"
        ]
