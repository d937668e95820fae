"""Alert rules name only what is exported, each has its page, and each page its alert."""

import json
import re
from pathlib import Path

import pytest

from redrive.core.alerts import ALERTS, rules, rules_text
from redrive.core.catalogue import METRICS, SUPERVISOR_METRICS

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "runbooks"
NAMES = {metric.name for metric in (*METRICS, *SUPERVISOR_METRICS)}


def all_rules(**options):
    [group] = rules(**options)["groups"]
    return group["rules"]


def metrics_in(expr):
    """The metrics that an expression names, histograms without the suffix of their series."""
    named = set(re.findall(r"\bredrive_\w+", expr))
    return {name.removesuffix("_bucket") if name not in NAMES else name for name in named}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_names_metrics_of_the_catalogue_only(alert):
    assert metrics_in(alert.expr)
    assert metrics_in(alert.expr) <= NAMES


def test_every_alert_has_its_page_and_every_page_its_alert():
    assert {page.stem for page in PAGES.glob("*.md")} == {alert.name for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_page_tells_meaning_impact_diagnosis_and_mitigation(alert):
    page = (PAGES / f"{alert.name}.md").read_text("utf-8")
    assert page.startswith(f"# {alert.name}\n")
    sections = re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", page, re.MULTILINE)
    assert [title for title, _ in sections] == ["Meaning", "Impact", "Diagnosis", "Mitigation"]
    assert [title for title, text in sections if not text.strip()] == []


def test_an_alerts_page_is_linked_from_where_the_pages_are():
    linked = {rule["annotations"]["runbook_url"] for rule in all_rules()}
    assert [url for url in linked if not (ROOT / url).exists()] == []
    there = {rule["annotations"]["runbook_url"] for rule in all_rules(runbooks="https://wiki.example.org/r/")}
    assert there == {f"https://wiki.example.org/r/{alert.name}.md" for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_summary_is_a_sentence_without_values(alert):
    assert re.fullmatch(r"[A-Z][^{}]*\.", alert.summary)
    assert "{{" in alert.description


def test_an_alert_of_a_criticality_has_one_rule_for_each():
    found = [
        (rule["labels"]["criticality"], rule["labels"]["severity"], re.findall(r">= (\d+)", rule["expr"]))
        for rule in all_rules()
        if rule["alert"] == "RedriveDeadLettersGrowing"
    ]
    assert found == [
        ("money", "critical", ["1"]),
        ("normal", "warning", ["10"]),
        ("analytics", "warning", ["1000"]),
    ]


def test_waiting_times_are_the_alerts_own_or_the_one_that_is_asked_for():
    own = {rule["alert"]: rule["for"] for rule in all_rules()}
    assert (own["RedriveUnresolvedLetters"], own["RedriveDeadLetterWriteFailing"]) == ("15m", "0s")
    assert {rule["for"] for rule in all_rules(for_ms=90_000)} == {"1m30s"}


def test_each_named_group_is_missed_by_itself():
    gone = [rule["expr"] for rule in all_rules(groups=["payments", "billing"]) if "absent" in rule["expr"]]
    assert gone == [
        'absent(redrive_pump_step_age_seconds{group="payments"})',
        'absent(redrive_pump_step_age_seconds{group="billing"})',
    ]


def test_rules_are_written_as_yaml():
    file = {
        "groups": [
            {
                "name": "redrive",
                "rules": [
                    {"alert": "A", "expr": 'up{job="x"} == 0', "labels": {"severity": "info"}},
                    {"alert": "B", "expr": "up > 1", "for": "5m"},
                ],
            }
        ]
    }
    assert rules_text(file) == (
        "groups:\n"
        '  - name: "redrive"\n'
        "    rules:\n"
        '      - alert: "A"\n'
        "        expr: |-\n"
        '          up{job="x"} == 0\n'
        "        labels:\n"
        '          severity: "info"\n'
        '      - alert: "B"\n'
        '        expr: "up > 1"\n'
        '        for: "5m"\n'
    )


@pytest.mark.parametrize("text", ['"a"\nb: c', ' "a"', 'a\t"'])
def test_a_text_that_could_be_more_than_a_line_of_its_own_is_quoted(text):
    assert rules_text({"name": text}) == f"name: {json.dumps(text)}\n"


def test_rules_are_json_too():
    assert json.loads(json.dumps(rules())) == rules()
