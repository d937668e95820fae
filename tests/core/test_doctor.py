"""What `redrive doctor` makes of a cluster as it was seen."""

from dataclasses import replace

import pytest

from redrive.core.acls import Operation, Resource, Right, on_topic, transacting_right
from redrive.core.doctor.findings import Severity, Untold
from redrive.core.doctor.observed import Case, Observed, ObservedGroup, Skew, Stamped, Versions, versions_of
from redrive.core.doctor.table import CHECKS, examine
from redrive.core.plan import Tier
from redrive.core.topic_plan import ObservedTopic, wanted_topics
from redrive.core.topology import Naming, name_topics

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000

LADDER = name_topics("charge", "orders", [5_000, 600_000], group="payments", naming=Naming())
CASE = Case(
    target="service:app",
    group="payments",
    own_groups=("payments", "billing-old"),
    wanted=wanted_topics([LADDER]),
    tier_outage_ms=7 * DAY_MS,
    shutdown_timeout_ms=10_000,
    max_poll_interval_ms=300_000,
    service_rights=(
        on_topic(Operation.READ, "orders.retry.5s"),
        on_topic(Operation.WRITE, "orders.retry.5s"),
        on_topic(Operation.WRITE, "orders.dlq"),
        Right(Operation.READ, Resource.GROUP, "payments"),
        Right(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER),
    ),
    replay_rights=(on_topic(Operation.READ, "orders.dlq"), on_topic(Operation.WRITE, "orders.retry.5s")),
)
_ALL = frozenset(Operation)
_KEEP = {
    "cleanup.policy": "delete",
    "retention.bytes": "-1",
    "min.insync.replicas": "2",
    "max.message.bytes": "1114124",
}
TOPICS = {
    "orders": ObservedTopic(
        "orders", 4, 3, {"retention.ms": str(7 * DAY_MS), "max.message.bytes": "1048588"}
    ),
    "orders.retry.5s": ObservedTopic(
        "orders.retry.5s", 4, 3, {**_KEEP, "retention.ms": str(7 * DAY_MS + 10_000)}
    ),
    "orders.retry.10m": ObservedTopic("orders.retry.10m", 4, 3, {**_KEEP, "retention.ms": str(8 * DAY_MS)}),
    "orders.dlq": ObservedTopic("orders.dlq", 4, 3, {**_KEEP, "retention.ms": "-1"}),
    "orders.dlq.state": ObservedTopic(
        "orders.dlq.state", 1, 3, {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    ),
}
BROKER = {
    "group.coordinator.rebalance.protocols": "classic,consumer",
    "group.consumer.assignors": "uniform,range",
    "offsets.retention.minutes": "10080",
    "offset.metadata.max.bytes": "4096",
}
FINE = Observed(
    now_ms=NOW_MS,
    topics=TOPICS,
    readers={"orders.retry.5s": ("payments", "billing-old"), "orders.retry.10m": ()},
    unread={},
    stamped=(),
    group=ObservedGroup(protocol="consumer", assignor="range", members=2, rights=_ALL),
    brokers={"1": BROKER},
    versions=Versions(client=(2, 14), broker=(4, 0), at_least=True),
    newest_ms={"orders.dlq": NOW_MS + 900},
    skew=Skew(-3.0, 4.0),
    rights=dict.fromkeys(TOPICS, _ALL),
)
GONE = Stamped(group="gone", records=3, topics=("orders.retry.5s",), is_at_work=False, has_committed=False)
WARNING, ERROR, INFO = Severity.WARNING, Severity.ERROR, Severity.INFO


def _with(topic: str, **changed: str | int | None) -> Observed:
    """FINE with one topic changed: partitions, replication, or configs with _ for dots."""
    its = TOPICS[topic]
    configs = {name.replace("_", "."): value for name, value in changed.items() if isinstance(value, str)}
    numbers = {name: value for name, value in changed.items() if not isinstance(value, str)}
    its = replace(its, configs={**(its.configs or {}), **configs}, **numbers)
    return replace(FINE, topics={**TOPICS, topic: its})


def _found(case: Case, observed: Observed) -> list[tuple[str, Severity, str, str]]:
    return [(each.code, each.severity, each.subject, each.seen) for each in examine(case, observed).findings]


def test_codes_are_stable_and_each_check_says_what_it_means():
    assert [check.code for check in CHECKS] == [f"RD{number:02}" for number in range(1, 18)]
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(check.means and check.asks.endswith(("?", ".")) and check.needs for check in CHECKS)


def test_where_all_is_well_nothing_is_found_and_nothing_left_open():
    report = examine(CASE, FINE)
    assert (report.checks, report.findings, report.unknown) == (17, (), ())


_FAULTS = {
    "a tier is missing": (
        CASE,
        replace(FINE, topics={name: its for name, its in TOPICS.items() if name != "orders.retry.5s"}),
        ("RD01", ERROR, "orders.retry.5s", "the tier topic doesn't exist, or this user may not see it"),
    ),
    "the source is missing": (
        CASE,
        replace(FINE, topics={name: its for name, its in TOPICS.items() if name != "orders"}),
        ("RD01", ERROR, "orders", "the source topic doesn't exist, or this user may not see it"),
    ),
    "a tier is shared": (
        CASE,
        replace(FINE, readers={"orders.retry.10m": ("audit", "payments", "stats")}),
        ("RD02", WARNING, "orders.retry.10m", "read by audit, stats too"),
    ),
    "an orphaned tier still holds records": (
        replace(CASE, orphans=(Tier("orders.retry.1m", 60_000),)),
        replace(FINE, unread={"orders.retry.1m": 7}),
        (
            "RD03",
            WARNING,
            "orders.retry.1m",
            "no policy of this app has this tier; 7 records still to be read",
        ),
    ),
    "an orphaned tier is empty": (
        replace(CASE, orphans=(Tier("orders.retry.1m", 60_000),)),
        FINE,
        (
            "RD03",
            INFO,
            "orders.retry.1m",
            "no policy of this app has this tier, and all its records are done",
        ),
    ),
    "a tier forgets after an outage": (
        CASE,
        _with("orders.retry.10m", retention_ms=str(DAY_MS)),
        (
            "RD04",
            WARNING,
            "orders.retry.10m",
            "retention.ms is 86400000 (1d), wanted 606000000 (7d20m)",
        ),
    ),
    "a tier forgets before records are due": (
        CASE,
        _with("orders.retry.10m", retention_ms="60000"),
        ("RD04", ERROR, "orders.retry.10m", "retention.ms is 60000 (1m), wanted 606000000 (7d20m)"),
    ),
    "a tier is bounded by size": (
        CASE,
        _with("orders.retry.5s", retention_bytes="1000000"),
        ("RD04", WARNING, "orders.retry.5s", "retention.bytes is 1000000, wanted -1 (without end)"),
    ),
    "headers don't fit": (
        CASE,
        _with("orders.dlq", max_message_bytes="1048588"),
        ("RD05", WARNING, "orders.dlq", "max.message.bytes is 1048588, wanted 1114124"),
    ),
    "a tier has fewer partitions": (
        CASE,
        _with("orders.retry.5s", partitions=3),
        ("RD06", WARNING, "orders.retry.5s", "has 3 partitions instead of 4"),
    ),
    "a tier has more partitions": (
        CASE,
        _with("orders.retry.5s", partitions=6),
        ("RD06", WARNING, "orders.retry.5s", "has 6 partitions instead of 4"),
    ),
    "all writes wait for all replicas": (
        CASE,
        _with("orders.dlq", min_insync_replicas="3"),
        ("RD07", WARNING, "orders.dlq", "min.insync.replicas is 3, wanted 2"),
    ),
    "more replicas are waited for than there are": (
        CASE,
        _with("orders.dlq", min_insync_replicas="4"),
        ("RD07", WARNING, "orders.dlq", "min.insync.replicas is 4, wanted 2"),
    ),
    "one replica": (
        CASE,
        _with("orders.dlq", replication=1, min_insync_replicas="1"),
        ("RD07", WARNING, "orders.dlq", "replication is 1, wanted 3"),
    ),
    "a tier is compacted": (
        CASE,
        _with("orders.retry.5s", cleanup_policy="compact,delete"),
        ("RD08", ERROR, "orders.retry.5s", "cleanup.policy is compact,delete, wanted delete"),
    ),
    "states are deleted by age": (
        CASE,
        _with("orders.dlq.state", cleanup_policy="delete"),
        ("RD08", ERROR, "orders.dlq.state", "cleanup.policy is delete, wanted compact"),
    ),
    "dead letters go with their source": (
        CASE,
        _with("orders.dlq", retention_ms=str(7 * DAY_MS)),
        ("RD09", WARNING, "orders.dlq", "retention.ms is 604800000 (7d), wanted -1 (without end)"),
    ),
    "a stranger is in the group": (
        CASE,
        replace(
            FINE,
            group=ObservedGroup(protocol="classic", assignor="cooperative-sticky", members=3, rights=_ALL),
        ),
        (
            "RD10",
            ERROR,
            "payments",
            "it has 3 members and shares partitions by cooperative-sticky, not by range",
        ),
    ),
    "the protocol isn't offered": (
        replace(CASE, group_protocol="consumer"),
        replace(
            FINE, brokers={"1": BROKER, "2": {**BROKER, "group.coordinator.rebalance.protocols": "classic"}}
        ),
        ("RD10", ERROR, "broker 2", 'group_protocol is "consumer", and it offers: classic'),
    ),
    "only the old protocol is offered": (
        CASE,
        replace(FINE, brokers={"1": {**BROKER, "group.coordinator.rebalance.protocols": "classic"}}),
        ("RD10", INFO, "broker 1", "offers groups of the protocol classic only"),
    ),
    "the assignor isn't offered": (
        CASE,
        replace(FINE, brokers={"1": {**BROKER, "group.consumer.assignors": "uniform"}}),
        ("RD10", ERROR, "broker 1", "its group.consumer.assignors are uniform, without range"),
    ),
    "this machine is ahead": (
        CASE,
        replace(FINE, skew=Skew(1_500.4, 1_503.0)),
        ("RD11", WARNING, "this machine", "its clock is 1s500ms before the broker's, or more"),
    ),
    "this machine is behind": (
        CASE,
        replace(FINE, skew=Skew(-61_000.0, -60_000.0)),
        ("RD11", WARNING, "this machine", "its clock is 1m behind the broker's, or more"),
    ),
    "a record from the future": (
        CASE,
        replace(FINE, newest_ms={"orders.retry.5s": NOW_MS + 1_000}),
        ("RD11", WARNING, "orders.retry.5s", "its newest record is dated 1s after this machine's time"),
    ),
    "offsets are forgotten before the longest tier is over": (
        CASE,
        replace(FINE, brokers={"1": {**BROKER, "offsets.retention.minutes": "1440"}}),
        (
            "RD12",
            WARNING,
            "broker 1",
            "offsets.retention.minutes is 1440 (1d), shorter than the longest outage (tier_outage), 7d",
        ),
    ),
    "commits have little room": (
        CASE,
        replace(FINE, brokers={"1": {**BROKER, "offset.metadata.max.bytes": "512"}}),
        (
            "RD17",
            WARNING,
            "broker 1",
            "offset.metadata.max.bytes is 512, and 4096 by default: room for 14 records of a partition that wait",
        ),
    ),
    "commits have no room": (
        CASE,
        replace(FINE, brokers={"1": {**BROKER, "offset.metadata.max.bytes": "100"}}),
        (
            "RD17",
            ERROR,
            "broker 1",
            "offset.metadata.max.bytes is 100, and 4096 by default: room for 0 records of a partition that wait",
        ),
    ),
    "the group is impatient": (
        replace(CASE, max_poll_interval_ms=30_000),
        FINE,
        (
            "RD13",
            WARNING,
            "kafka.max.poll.interval.ms",
            "is 30s, and a process may be busy for 37s while a coordinator goes away",
        ),
    ),
    "handlers outlast a stop": (
        replace(CASE, time_limits_ms={"charge": 30_000}),
        FINE,
        (
            "RD13",
            INFO,
            "listener charge",
            "its time_limit is 30s, and a process that stops waits 10s for its handlers",
        ),
    ),
    "the client is old": (
        CASE,
        replace(FINE, versions=Versions(client=(2, 6), broker=(4, 0), at_least=True)),
        ("RD14", ERROR, "confluent-kafka", "2.6 is installed, redrive needs 2.13.2 or newer"),
    ),
    "the brokers are old": (
        CASE,
        replace(FINE, versions=Versions(client=(2, 14), broker=(3, 9))),
        ("RD14", INFO, "brokers", "Kafka 3.9"),
    ),
    "the brokers are very old": (
        CASE,
        replace(FINE, versions=Versions(client=(2, 14), broker=(2, 7))),
        ("RD14", WARNING, "brokers", "Kafka 2.7"),
    ),
    "a group went away": (
        CASE,
        replace(FINE, stamped=(GONE,)),
        (
            "RD15",
            WARNING,
            "gone",
            "3 unread records in orders.retry.5s for the group 'gone', which has neither members nor committed offsets there",
        ),
    ),
    "a group is stopped": (
        CASE,
        replace(FINE, stamped=(replace(GONE, has_committed=True, is_at_least=True),)),
        (
            "RD15",
            INFO,
            "gone",
            "at least 3 unread records in orders.retry.5s for the group 'gone', which has no members now",
        ),
    ),
    "nobody runs this app": (
        CASE,
        replace(FINE, stamped=(replace(GONE, group="payments", has_committed=True),)),
        (
            "RD15",
            WARNING,
            "payments",
            "3 unread records in orders.retry.5s for the group 'payments', which has no members",
        ),
    ),
    "a right on a tier is lacking": (
        CASE,
        replace(
            FINE, rights={**dict.fromkeys(TOPICS, _ALL), "orders.retry.5s": frozenset({Operation.WRITE})}
        ),
        ("RD16", ERROR, "orders.retry.5s", "this user lacks Read"),
    ),
    "the group may not be joined": (
        CASE,
        replace(
            FINE,
            group=ObservedGroup(
                protocol="consumer", assignor="range", members=2, rights=frozenset({Operation.DESCRIBE})
            ),
        ),
        ("RD16", ERROR, "payments", "this user lacks Read"),
    ),
    "dead letters can't be read": (
        CASE,
        replace(
            FINE,
            rights={
                **dict.fromkeys(TOPICS, _ALL),
                "orders.dlq": frozenset({Operation.DESCRIBE, Operation.WRITE}),
            },
        ),
        ("RD16", INFO, "orders.dlq", "this user lacks Read for dead letters"),
    ),
}


def test_the_right_on_transactional_ids_is_not_checked_and_named():
    rights = (*CASE.service_rights, transacting_right("payments"))
    [unknown] = examine(replace(CASE, service_rights=rights), FINE).unknown
    assert unknown.subject == "payments-"
    assert "Write on all transactional-ids that begin with payments-" in unknown.why


@pytest.mark.parametrize(("case", "observed", "expected"), _FAULTS.values(), ids=_FAULTS)
def test_a_fault_is_found_and_nothing_else(case, observed, expected):
    assert _found(case, observed) == [expected]
    [finding] = examine(case, observed).findings
    assert finding.means
    assert finding.mend or finding.command


def test_each_check_has_a_fault_here():
    assert {expected[0] for _, _, expected in _FAULTS.values()} == {check.code for check in CHECKS}


def test_a_group_that_works_or_was_taken_over_is_no_finding():
    at_work = Stamped(group="other", records=9, topics=("t",), is_at_work=True, has_committed=False)
    taken_over = Stamped(group="billing-old", records=9, topics=("t",), is_at_work=False, has_committed=False)
    assert _found(CASE, replace(FINE, stamped=(at_work, taken_over))) == []


def test_what_mends_it_is_ready_to_be_pasted():
    few = examine(CASE, _with("orders.retry.5s", partitions=6)).findings[0]
    assert few.command == "redrive topics apply service:app --partitions orders=6"
    short = examine(CASE, _with("orders.dlq", retention_ms="1000")).findings[0]
    assert short.command == (
        "kafka-configs.sh --alter --entity-type topics --entity-name orders.dlq --add-config retention.ms=-1"
    )


def test_an_empty_orphan_that_others_read_is_not_to_be_deleted():
    case = replace(CASE, orphans=(Tier("orders.retry.1m", 60_000),))
    [alone] = examine(case, FINE).findings
    assert alone.command == "kafka-topics.sh --delete --topic orders.retry.1m"
    [shared] = [
        each
        for each in examine(case, replace(FINE, readers={"orders.retry.1m": ("audit",)})).findings
        if each.code == "RD03"
    ]
    assert shared.command == ""


def test_the_worst_comes_first():
    observed = replace(
        _with("orders.retry.5s", cleanup_policy="compact", partitions=3),
        versions=Versions(client=(2, 14), broker=(3, 9)),
    )
    assert [each.severity for each in examine(CASE, observed).findings] == [ERROR, WARNING, INFO]


def test_single_checks_can_be_asked_for():
    observed = _with("orders.retry.5s", cleanup_policy="compact", partitions=3)
    report = examine(CASE, observed, {"RD06"})
    assert (report.checks, [each.code for each in report.findings]) == (1, ["RD06"])


def test_what_is_not_told_is_no_finding_and_says_why():
    away = Untold("no right")
    observed = Observed(
        now_ms=NOW_MS,
        topics={name: replace(its, configs=None, replication=None) for name, its in TOPICS.items()},
        readers=away,
        unread=away,
        stamped=away,
        group=away,
        brokers=away,
        versions=Versions(client=(2, 14), broker=away),
        newest_ms=away,
        skew=away,
        rights=away,
    )
    report = examine(replace(CASE, orphans=(Tier("orders.retry.1m", 60_000),)), observed)
    assert report.findings == ()
    assert sorted({each.code for each in report.unknown}) == [
        check.code for check in CHECKS if check.code not in {"RD01", "RD06", "RD13"}
    ]
    assert all("no right" in each.why or "doesn't tell" in each.why for each in report.unknown)


def test_one_reason_for_many_topics_is_told_once():
    observed = replace(FINE, topics={name: replace(its, configs=None) for name, its in TOPICS.items()})
    unknown = [each for each in examine(CASE, observed).unknown if each.code == "RD04"]
    assert [(each.subject, each.why) for each in unknown] == [
        ("orders.retry.5s, orders.retry.10m", "the cluster doesn't tell it")
    ]


@pytest.mark.parametrize(
    ("brokers", "broker", "at_least"),
    [
        ({"1": {"inter.broker.protocol.version": "3.9-IV0"}}, (3, 9), False),
        (
            {
                "1": {"inter.broker.protocol.version": "3.9"},
                "2": {"inter.broker.protocol.version": "2.7-IV2"},
            },
            (2, 7),
            False,
        ),
        ({"1": {"group.coordinator.rebalance.protocols": "classic"}}, (4, 0), True),
        ({"1": {}}, Untold("the brokers' settings don't show their version"), False),
        ({}, Untold("the brokers' settings don't show their version"), False),
        (Untold("no right"), Untold("no right"), False),
    ],
)
def test_versions_are_told_by_settings(brokers, broker, at_least):
    assert versions_of("2.14.0rc1", brokers) == Versions(client=(2, 14, 0), broker=broker, at_least=at_least)
