"""`redrive explain` as it is typed."""

import json

import pytest
from typer.testing import CliRunner

from redrive.cli.main import app

SERVICE = """
from redrive import App, Failures, RetryPolicy

class CardDeclined(Exception):
    class Twice(Exception):
        pass

app = App("payments")

@app.listener("orders", retry=RetryPolicy("5s"), failures=Failures(permanent=CardDeclined))
def charge(order: dict) -> None: ...

@app.listener("payouts", retry=RetryPolicy("1m", "10m"), give_up="skip")
def pay(payout: dict) -> None: ...
"""


@pytest.fixture
def explain(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDRIVE_APP", raising=False)
    (tmp_path / "shopexplained.py").write_text(SERVICE)

    def run(*arguments):
        result = CliRunner().invoke(app, ["explain", *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return run


def test_an_exception_is_explained_for_a_person(explain):
    result = explain("KeyError")
    assert result.exit_code == 0
    assert "kind:        permanent" in result.stdout
    assert "decided by:  type LookupError (it derives from LookupError)" in result.stdout
    assert "Failures(permanent=KeyError)" in result.stdout


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("KeyError", "permanent"),
        ("builtins.ValueError", "permanent"),
        ("socket.gaierror", "transient"),
        ("requests.exceptions.ConnectionError", "transient"),
        ("http:503", "transient"),
        ("HTTP:401", "outage"),
        ("sqlstate:40001", "transient"),
        ("shopexplained.CardDeclined", None),
        ("shopexplained.CardDeclined.Twice", None),
        ("redrive.RetryLater", None),
    ],
)
def test_names_and_codes_are_explained_for_programs(explain, name, kind):
    result = explain(name, "--json")
    assert (result.exit_code, json.loads(result.stdout)["kind"]) == (0, kind)


def test_each_listener_of_an_app_tells_what_it_does(explain):
    result = explain("shopexplained.CardDeclined", "--app", "shopexplained:app", "--json")
    told = {one["listener"]: (one["kind"], one["becomes"]) for one in json.loads(result.stdout)["listeners"]}
    assert told == {
        "charge": ("permanent", "at once a dead letter"),
        "pay": ("transient", "again after 1m, 10m; dropped, logged and counted when attempt 3 fails"),
    }


def test_alone_it_prints_the_table(explain):
    table = json.loads(explain("--json").stdout)["table"]
    assert {"what", "keys", "kind", "why"} == set(table[0])
    assert any("503" in row or "5xx" in row["keys"] for row in table)
    assert "5xx" in explain().stdout


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("NoSuchError", 1, "no built-in exception"),
        ("len", 1, "not an exception class"),
        ("json.loads", 1, "not an exception class"),
        ("json.JSONDecodeErro", 1, "there is json.JSONDecodeError"),
        ("nowhere.errors.Declined", 1, "no module 'nowhere'"),
        ("no way", 1, "no built-in exception"),
        ("a..b", 1, "no dotted name"),
        ("http:200", 2, "no HTTP status"),
        ("ftp:200", 2, "codes begin with"),
    ],
)
def test_what_can_not_be_explained_is_told_in_words(explain, name, code, told):
    result = explain(name)
    assert (result.exit_code, told in " ".join((result.stdout + result.stderr).replace("│", "").split())) == (
        code,
        True,
    ), result.stderr


def test_a_module_that_fails_when_it_is_imported_shows_its_own_traceback(explain, tmp_path):
    (tmp_path / "brokenexplained.py").write_text("1 / 0\n")
    result = explain("brokenexplained.Declined")
    assert (
        result.exit_code,
        "ZeroDivisionError" in result.stderr,
        "brokenexplained.py" in result.stderr,
    ) == (
        1,
        True,
        True,
    )
