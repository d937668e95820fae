"""Each alert, by promtool: not yet, then it fires with what it says, then it ends."""

from typing import NamedTuple

import pytest

from redrive.core.alerts import ALERTS, rules, rules_text
from tests.prometheus import promtool, written

SERIES = 'group="payments",listener="charge"'
DLQ = f'{SERIES},dlq="orders.dlq"'
GROUP = {"group": "payments"}
LISTENER = {**GROUP, "listener": "charge"}


class Case(NamedTuple):
    """What is measured each minute, and when the alert is quiet, fires, and is over."""

    alert: str
    series: dict[str, str]
    not_yet: str
    fires: str
    over: str
    labels: dict[str, str]
    description: str


def info(criticality="money"):
    return {f'redrive_listener_info{{{DLQ},topic="orders",criticality="{criticality}"}}': "1x200"}


CASES = (
    Case(
        "RedriveDeadLettersGrowing",
        {f'redrive_dead_letters_total{{{SERIES},topic="orders",reason="poison"}}': "0x9 1x150", **info()},
        "14m",
        "15m",
        "75m",
        {**LISTENER, "severity": "critical", "criticality": "money"},
        "Dead letters of listener charge (group payments) within the last hour: 1.",
    ),
    Case(
        "RedriveUnresolvedLetters",
        {
            f'redrive_unresolved_letters{{{DLQ},reason="poison"}}': "0x4 3x30 0x30",
            f'redrive_unresolved_letters{{{DLQ},reason="asked"}}': "0x4 2x30 0x30",
            **info(),
        },
        "19m",
        "20m",
        "36m",
        {**LISTENER, "dlq": "orders.dlq", "severity": "warning", "criticality": "money"},
        "Dead letters of group payments in orders.dlq that were neither replayed nor discarded: 5.",
    ),
    Case(
        "RedriveOldestUnresolvedTooOld",
        {f"redrive_oldest_unresolved_seconds{{{DLQ}}}": "14000+60x30 0x20", **info()},
        "11m",
        "13m",
        "32m",
        {**LISTENER, "dlq": "orders.dlq", "severity": "critical", "criticality": "money"},
        "The oldest unresolved dead letter of group payments in orders.dlq is 4h 6m 20s old.",
    ),
    Case(
        "RedriveRetentionAtRisk",
        {
            f"redrive_oldest_unresolved_seconds{{{DLQ}}}": "26000+60x80",
            f"redrive_retention_left_seconds{{{DLQ}}}": "10000-60x60 500000x20",
        },
        "51m",
        "53m",
        "62m",
        {**LISTENER, "dlq": "orders.dlq", "severity": "critical"},
        "In 1h 53m 40s retention deletes the oldest unresolved dead letter of group payments in orders.dlq. Nobody can "
        "bring it back then.",
    ),
    Case(
        "RedriveUnresolvedNotCounted",
        {f'redrive_unresolved_letters{{{DLQ},reason="poison"}}': "0x9 stale _x29 0x20", **info()},
        "24m",
        "25m",
        "42m",
        {**LISTENER, "severity": "warning"},
        "No process of group payments tells the unresolved dead letters of listener charge: alerts about them can't fire.",
    ),
    Case(
        "RedriveDeadLetterWriteFailing",
        {f"redrive_dead_letter_write_failures_total{{{SERIES}}}": "0x9 2x60"},
        "9m",
        "10m",
        "16m",
        {**LISTENER, "severity": "critical"},
        "Writes of listener charge of group payments to its dead-letter topic are refused. Nothing is lost, but the "
        "offsets of these records are held.",
    ),
    Case(
        "RedriveRetryWriteFailing",
        {f"redrive_retry_write_failures_total{{{SERIES}}}": "0x9 0+1x20 20x30"},
        "15m",
        "16m",
        "37m",
        {**LISTENER, "severity": "warning"},
        "Writes of listener charge of group payments to its retry topics are refused. Nothing is lost, but the offsets of "
        "these records are held.",
    ),
    Case(
        "RedriveCommitsRefused",
        {'redrive_commits_total{group="payments",outcome="refused"}': "0x9 0+1x30 30x30"},
        "20m",
        "21m",
        "47m",
        {**GROUP, "severity": "warning"},
        "Kafka refuses commits of group payments. They are repeated; a crash would run again what finished since the last "
        "confirmed one.",
    ),
    Case(
        "RedriveRecordsLost",
        {
            f'redrive_records_total{{{SERIES},topic="orders",outcome="lost"}}': "0x9 5x100",
            f'redrive_records_total{{{SERIES},topic="orders",outcome="handled"}}': "0+9x110",
        },
        "9m",
        "10m",
        "75m",
        {**LISTENER, "topic": "orders", "severity": "critical"},
        "Records of orders that were deleted before group payments read them: 5.",
    ),
    Case(
        "RedriveBrakeOn",
        {f"redrive_brake_on{{{SERIES}}}": "0x4 1x10 0x10"},
        "5m",
        "6m",
        "17m",
        {**LISTENER, "severity": "critical"},
        "More than half of the records of listener charge of group payments become dead letters. It takes one record a "
        "second until that changes.",
    ),
    Case(
        "RedriveOutage",
        {f'redrive_breaker_state{{{SERIES},state="open"}}': "0x4 1x30 0x10"},
        "14m",
        "15m",
        "37m",
        {**LISTENER, "severity": "warning"},
        "Listener charge of group payments holds its records: nearly all that it tried failed. It tries one a minute and goes "
        "on by itself.",
    ),
    Case(
        "RedriveTierLate",
        {
            f'redrive_retry_lateness_seconds_bucket{{{SERIES},tier="orders.retry.5s",le="{le}"}}': values
            for le, values in {"30": "0x60", "60": "0+10x30 300x30", "+Inf": "0+10x30 300x30"}.items()
        },
        "10m",
        "11m",
        "42m",
        {**LISTENER, "tier": "orders.retry.5s", "severity": "warning"},
        "Of the records in orders.retry.5s (group payments) one in a hundred runs 59.7s or more after its due time.",
    ),
    Case(
        "RedriveHandlerStuck",
        {f"redrive_oldest_handler_seconds{{{SERIES}}}": "0+60x20 0x10"},
        "6m",
        "8m",
        "22m",
        {**LISTENER, "severity": "warning"},
        "A handler of listener charge of group payments has been at one record for 8m 0s; the records behind it wait.",
    ),
    Case(
        "RedrivePumpStuck",
        {'redrive_pump_step_age_seconds{group="payments",instance="a:9600"}': "0x4 0+30x20 0x10"},
        "8m",
        "10m",
        "27m",
        {**GROUP, "instance": "a:9600", "severity": "critical"},
        "A process of group payments has done nothing for 2m 30s; only a restart helps.",
    ),
    Case(
        "RedriveWorkersGone",
        {'redrive_pump_step_age_seconds{group="payments",instance="a:9600"}': "0x9 stale _x11 0x30"},
        "14m",
        "15m",
        "24m",
        {**GROUP, "severity": "critical"},
        "No process of group payments is scraped any more: its records wait.",
    ),
    Case(
        "RedriveWorkerRestarting",
        {'redrive_worker_restarts_total{group="payments",worker="2"}': "0x9 0+1x4 4x60"},
        "13m",
        "14m",
        "30m",
        {**GROUP, "worker": "2", "severity": "warning"},
        "Restarts of worker 2 of group payments within 15 minutes: 4.",
    ),
)


def checked(folder, series, expected, *, groups=(), for_ms=None):
    """What promtool says against `expected`: for a time, the alerts that fire, as name, labels and description."""
    (folder / "rules.yml").write_text(rules_text(rules(groups=groups, for_ms=for_ms)), "utf-8")
    tests = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": [
                    {"eval_time": at, "alertname": name, "exp_alerts": [shown(name, *one) for one in alerts]}
                    for at, name, alerts in expected
                ],
            }
        ],
    }
    return promtool("test", "rules", written(folder / "test.yml", tests))


def shown(name, labels, description):
    summary = next(alert.summary for alert in ALERTS if alert.name == name)
    return {
        "exp_labels": labels,
        "exp_annotations": {
            "summary": summary,
            "description": description,
            "runbook_url": f"docs/runbooks/{name}.md",
        },
    }


@pytest.mark.parametrize("options", [{}, {"groups": ["payments", 'with "quotes"']}, {"for_ms": 0}])
def test_the_rules_are_what_prometheus_reads(tmp_path, options):
    path = tmp_path / "rules.yml"
    path.write_text(rules_text(rules(**options)), "utf-8")
    assert promtool("check", "rules", path) == ""


def test_each_alert_has_its_case():
    assert [case.alert for case in CASES] == [alert.name for alert in ALERTS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_it_is_quiet_fires_and_ends(case, tmp_path):
    expected = [
        (case.not_yet, case.alert, []),
        (case.fires, case.alert, [(case.labels, case.description)]),
        (case.over, case.alert, []),
    ]
    assert checked(tmp_path, case.series, expected) == ""


@pytest.mark.parametrize(
    ("criticality", "limit", "severity"),
    [("money", 1, "critical"), ("normal", 10, "warning"), ("analytics", 1_000, "warning")],
)
def test_dead_letters_call_somebody_from_the_listeners_own_threshold_on(
    tmp_path, criticality, limit, severity
):
    name = "RedriveDeadLettersGrowing"
    counter = f'redrive_dead_letters_total{{{SERIES},topic="orders",reason="poison"}}'
    labels = {**LISTENER, "severity": severity, "criticality": criticality}
    told = f"Dead letters of listener charge (group payments) within the last hour: {limit}."

    below = {counter: f"0x9 {limit - 1}x60", **info(criticality)}
    assert checked(tmp_path, below, [("30m", name, [])]) == ""
    enough = {counter: f"0x9 {limit}x60", **info(criticality)}
    assert checked(tmp_path, enough, [("30m", name, [(labels, told)])]) == ""


@pytest.mark.parametrize(
    ("criticality", "limit_s", "severity", "told"),
    [
        ("money", 4 * 3600, "critical", "4h 0m 1s"),
        ("normal", 86_400, "warning", "1d 0h 0m 1s"),
        ("analytics", 7 * 86_400, "warning", "7d 0h 0m 1s"),
    ],
)
def test_how_old_a_letter_may_get_is_the_listeners_own(tmp_path, criticality, limit_s, severity, told):
    name, gauge = "RedriveOldestUnresolvedTooOld", f"redrive_oldest_unresolved_seconds{{{DLQ}}}"
    below = {gauge: f"{limit_s}x60", **info(criticality)}
    assert checked(tmp_path, below, [("30m", name, [])]) == ""
    above = {gauge: f"{limit_s + 1}x60", **info(criticality)}
    labels = {**LISTENER, "dlq": "orders.dlq", "severity": severity, "criticality": criticality}
    text = f"The oldest unresolved dead letter of group payments in orders.dlq is {told} old."
    assert checked(tmp_path, above, [("30m", name, [(labels, text)])]) == ""


def test_a_hand_over_to_another_process_does_not_begin_an_alert_anew(tmp_path):
    name, series = "RedriveUnresolvedLetters", f'redrive_unresolved_letters{{{DLQ},reason="poison",instance="'
    handed_over = {f'{series}a"}}': "3x9 stale", f'{series}b"}}': "_x12 3x30", **info("normal")}
    labels = {**LISTENER, "dlq": "orders.dlq", "severity": "info", "criticality": "normal"}
    told = "Dead letters of group payments in orders.dlq that were neither replayed nor discarded: 3."
    assert checked(tmp_path, handed_over, [("15m", name, [(labels, told)])]) == ""


def test_two_criticalities_of_one_listener_during_a_roll_out_break_no_rule(tmp_path):
    both = {**info("normal"), **info("money"), f'redrive_unresolved_letters{{{DLQ},reason="asked"}}': "1x60"}
    told = "Dead letters of group payments in orders.dlq that were neither replayed nor discarded: 1."
    fired = [
        ({**LISTENER, "dlq": "orders.dlq", "severity": severity, "criticality": criticality}, told)
        for criticality, severity in (("money", "warning"), ("normal", "info"))
    ]
    assert checked(tmp_path, both, [("20m", "RedriveUnresolvedLetters", fired)]) == ""


def test_a_group_that_is_named_is_missed_although_it_never_ran(tmp_path):
    alert = "RedriveWorkersGone"
    one = (
        {**GROUP, "severity": "critical"},
        "No process of group payments is scraped any more: its records wait.",
    )
    other = {'redrive_pump_step_age_seconds{group="billing"}': "0x200"}
    expected = [("4m", alert, []), ("5m", alert, [one]), ("180m", alert, [one])]
    assert checked(tmp_path, other, expected, groups=["payments"]) == ""


def test_without_waiting_times_an_alert_fires_at_once(tmp_path):
    name = "RedriveBrakeOn"
    case = next(case for case in CASES if case.alert == name)
    expected = [("4m", name, []), ("5m", name, [(case.labels, case.description)])]
    assert checked(tmp_path, case.series, expected, for_ms=0) == ""
