"""Which rights a service and its operators need, and what is told to whoever lacks one."""

import pytest

from redrive.core.acls import (
    Operation,
    Resource,
    Right,
    explain_lacking,
    find_lacking,
    needs_of,
    on_topic,
    service_acls,
)
from redrive.core.membership import transactional_id
from redrive.core.plan import GroupPlan, ListenerPlan, Tier
from redrive.core.policy import RetryPolicy
from redrive.core.settings import Settings
from redrive.core.topic_plan import wanted_topics
from redrive.core.topology import Naming, name_topics

LADDER = ListenerPlan(
    name="charge",
    source="orders",
    dlq="orders.dlq",
    replay="orders.retry.5s",
    policy=RetryPolicy("5s"),
    tiers=(Tier("orders.retry.5s", 5_000, 0),),
    drained=(Tier("orders.replay", 0), Tier("orders.retry.1m", 60_000)),
)
BARE = ListenerPlan(
    name="count",
    source="clicks",
    dlq="clicks.dlq",
    replay="clicks.replay",
    policy=RetryPolicy(),
    drained=(Tier("clicks.replay", 0),),
    give_up="skip",
)


def _wanted(*listeners):
    return wanted_topics(
        name_topics(each.name, each.source, each.policy.delays_ms, group="payments", naming=Naming())
        for each in listeners
    )


def _service(*listeners, asks_protocols=False):
    plan = GroupPlan(group="payments", listeners=listeners)
    return _told(service_acls(plan, _wanted(*listeners), asks_protocols=asks_protocols))


def _told(acls):
    return [str(acl.right) for acl in acls]


def _needs(*listeners):
    plan = GroupPlan(group="payments", listeners=listeners)
    return {need.name: _told(need.acls) for need in needs_of(plan, _wanted(*listeners), asks_protocols=False)}


class TestNeeds:
    def test_of_a_service_with_a_ladder(self):
        assert _service(LADDER) == [
            "Read on topic orders",
            "Read on topic orders.retry.5s",
            "Write on topic orders.retry.5s",
            "Read on topic orders.replay",
            "Read on topic orders.retry.1m",
            "Write on topic orders.dlq",
            "Describe on topic orders.dlq.state",
            "Read on group payments",
        ]

    def test_of_a_service_that_gives_up_by_skipping_is_no_write_at_all(self):
        assert _service(BARE) == [
            "Read on topic clicks",
            "Read on topic clicks.replay",
            "Describe on topic clicks.dlq",
            "Describe on topic clicks.dlq.state",
            "Read on group payments",
        ]

    def test_of_a_service_that_asks_for_group_protocols(self):
        assert _service(BARE, asks_protocols=True)[-1] == "DescribeConfigs on the cluster"

    def test_of_a_service_that_delivers_exactly_once_is_to_write_in_transactions_of_its_processes(self):
        plan = GroupPlan(group="payments", listeners=(BARE,), delivery="exactly-once")
        [*others, last] = service_acls(plan, _wanted(BARE), asks_protocols=False)
        assert _told(others) == _service(BARE)
        assert last.right == Right(Operation.WRITE, Resource.TRANSACTIONAL_ID, "payments-", is_prefix=True)
        name = transactional_id(Settings(), group="payments", host="node-1", worker=0)
        assert name.startswith(last.right.name)

    def test_of_a_service_that_handles_its_dead_letters_is_another_group_that_reads_them(self):
        hears = ListenerPlan(
            name="tell", source="orders.dlq", dlq="orders.dlq", replay="orders.dlq", policy=RetryPolicy()
        )
        letters = GroupPlan(group="payments.on-dead-letter", listeners=(hears,))
        needs = needs_of(
            GroupPlan(group="payments", listeners=(LADDER,)),
            _wanted(LADDER),
            asks_protocols=False,
            letters=letters,
        )
        assert [need.name for need in needs[:2]] == ["service", "on-dead-letter"]
        assert _told(needs[1].acls) == ["Read on topic orders.dlq", "Read on group payments.on-dead-letter"]

    def test_of_counting_unresolved_letters_is_to_read_them_and_their_states(self):
        assert _needs(BARE)["metrics"] == [
            "Read on topic clicks.dlq",
            "DescribeConfigs on topic clicks.dlq",
            "Read on topic clicks.dlq.state",
        ]

    def test_of_looking_at_topics_and_creating_them(self):
        needs = _needs(BARE)
        assert needs["topics-plan"] == [
            "Describe on topic clicks",
            "DescribeConfigs on topic clicks",
            "Describe on topic clicks.dlq",
            "DescribeConfigs on topic clicks.dlq",
            "Describe on topic clicks.dlq.state",
            "DescribeConfigs on topic clicks.dlq.state",
            "Describe on topic clicks.replay",
            "DescribeConfigs on topic clicks.replay",
            "Describe on the cluster",
            "Describe on all groups",
        ]
        assert needs["topics-apply"][:5] == [
            "Describe on topic clicks",
            "DescribeConfigs on topic clicks",
            "Create on topic clicks.dlq",
            "Alter on topic clicks.dlq",
            "DescribeConfigs on topic clicks.dlq",
        ]
        assert needs["topics-apply"][5:8] == [
            "Create on topic clicks.dlq.state",
            "Describe on topic clicks.dlq.state",
            "DescribeConfigs on topic clicks.dlq.state",
        ]

    def test_of_looking_at_dead_letters_and_sending_them_back(self):
        needs = _needs(LADDER)
        assert needs["dlq-look"] == ["Read on topic orders.dlq", "Read on topic orders.dlq.state"]
        assert needs["dlq-replay"] == [
            "Read on topic orders.dlq",
            "Read on topic orders.dlq.state",
            "Write on topic orders.dlq.state",
            "DescribeConfigs on topic orders.dlq.state",
            "Write on topic orders.retry.5s",
            "Describe on topic orders",
        ]

    def test_of_looking_at_what_waits_and_hurrying_it(self):
        assert _needs(LADDER)["retries"] == [
            "Read on topic orders.retry.5s",
            "Read on topic orders.replay",
            "Read on topic orders.retry.1m",
            "Describe on topic orders.dlq",
            "Read on topic orders.dlq.state",
            "Write on topic orders.dlq.state",
            "DescribeConfigs on topic orders.dlq.state",
            "Describe on the cluster",
            "Describe on all groups",
        ]

    def test_of_pausing_a_listener_and_skipping_a_record(self):
        assert _needs(BARE)["worker"] == [
            "Read on topic clicks",
            "Read on topic clicks.replay",
            "Describe on topic clicks.dlq",
            "Read on topic clicks.dlq.state",
            "Write on topic clicks.dlq.state",
            "DescribeConfigs on topic clicks.dlq.state",
            "Describe on group payments",
        ]

    def test_of_lag_is_to_read_what_the_group_reads(self):
        assert _needs(BARE)["lag"] == [
            "Read on topic clicks",
            "Read on topic clicks.replay",
            "Describe on group payments",
        ]

    def test_each_right_is_listed_once_with_its_reason_and_none_that_another_one_brings_along(self):
        plan = GroupPlan(group="payments", listeners=(LADDER, BARE))
        brings_describe = {Operation.READ, Operation.WRITE, Operation.ALTER}
        for need in needs_of(plan, _wanted(LADDER, BARE), asks_protocols=True):
            rights = [acl.right for acl in need.acls]
            assert len(rights) == len(set(rights))
            assert all(acl.why for acl in need.acls)
            described = {right.name for right in rights if right.operation is Operation.DESCRIBE}
            assert described & {right.name for right in rights if right.operation in brings_describe} == set()


class TestLacking:
    READ, WRITE = on_topic(Operation.READ, "orders"), on_topic(Operation.WRITE, "orders.dlq")

    @pytest.mark.parametrize(
        ("allowed", "lacking"),
        [
            ({"orders": {Operation.READ}, "orders.dlq": {Operation.WRITE, Operation.DESCRIBE}}, ()),
            ({"orders": {Operation.READ}, "orders.dlq": {Operation.DESCRIBE}}, (WRITE,)),
            ({"orders": set(), "orders.dlq": set()}, (READ, WRITE)),
            ({}, ()),
        ],
    )
    def test_is_what_the_cluster_says_is_not_allowed(self, allowed, lacking):
        assert find_lacking([self.READ, self.WRITE], allowed) == lacking

    def test_rights_on_other_things_than_topics_are_not_judged(self):
        rights = [
            Right(Operation.READ, Resource.GROUP, "orders"),
            Right(Operation.DESCRIBE, Resource.CLUSTER),
        ]
        assert find_lacking(rights, {"orders": set()}) == ()

    @pytest.mark.parametrize(
        ("rights", "told"),
        [
            ([READ], "this user lacks the right Read on topic orders"),
            ([READ, READ], "this user lacks the right Read on topic orders"),
            (
                [READ, on_topic(Operation.WRITE, "orders"), WRITE],
                "this user lacks 3 rights: Read and Write on topic orders, Write on topic orders.dlq",
            ),
            (
                [Right(Operation.WRITE, Resource.TRANSACTIONAL_ID, "payments-", is_prefix=True)],
                "this user lacks the right Write on all transactional-ids that begin with payments-",
            ),
            (
                [Right(Operation.DESCRIBE, Resource.GROUP, "*"), Right(Operation.DESCRIBE, Resource.CLUSTER)],
                "this user lacks 2 rights: Describe on all groups, Describe on the cluster",
            ),
        ],
    )
    def test_is_told_by_operation_and_resource(self, rights, told):
        assert explain_lacking(rights) == told
