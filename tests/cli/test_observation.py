"""`redrive alerts` and `redrive dashboard` print what was made from the catalogue."""

import json

import pytest
from typer.testing import CliRunner

from redrive.cli.main import app
from redrive.core.alerts import rules, rules_text
from redrive.core.dashboard import dashboard


def run(*arguments):
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.stdout


def test_alerts_are_printed_as_yaml():
    assert run("alerts") == (0, rules_text(rules()))


def test_all_options_of_alerts_go_into_the_rules():
    options = ["--group", "payments", "--group", "billing", "--for", "0s", "--runbooks", "https://wiki/r"]
    expected = rules(groups=("payments", "billing"), for_ms=0, runbooks="https://wiki/r")
    assert run("alerts", *options) == (0, rules_text(expected))


def test_alerts_are_one_object_for_programs():
    code, out = run("alerts", "--json")
    assert (code, json.loads(out)) == (0, rules())


@pytest.mark.parametrize("duration", ["5", "-1s", "soon"])
def test_a_waiting_time_that_is_none_is_refused(duration):
    assert run("alerts", "--for", duration) == (2, "")


def test_the_dashboard_is_one_object():
    code, out = run("dashboard")
    assert (code, json.loads(out)) == (0, dashboard())
    assert json.loads(run("dashboard", "--title", "Payments")[1])["title"] == "Payments"
