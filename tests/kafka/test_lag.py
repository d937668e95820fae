"""`redrive lag` beside a service on a real broker."""

import json
import sys

import pytest
from typer.testing import CliRunner

from redrive.cli.main import app as command
from redrive.core.commands import Refusal
from tests.faults import RefusingSink, running_with
from tests.plain_kafka import Given, create_topics_of, send
from tests.waiting import until

SERVICE = """
from redrive import App, RetryPolicy

app = App({group!r}, settings={{"bootstrap_servers": {bootstrap!r}, "commit_interval": "100ms"}})


@app.listener({topic!r}, retry=RetryPolicy("1h"))
def charge(value: bytes) -> None:
    if value == b"fails":
        raise ConnectionError
"""


@pytest.fixture
def service(tmp_path, monkeypatch, kafka, topic, group):
    """The app, its source, and `redrive lag` for it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("service", None)
    source = topic("orders", partitions=2)
    code = SERVICE.format(group=group, bootstrap=kafka.bootstrap, topic=source)
    (tmp_path / "service.py").write_text(code)
    import service

    create_topics_of(kafka.bootstrap, service.app, 2)
    yield service.app, source
    sys.modules.pop("service", None)


def _lag(*options):
    result = CliRunner().invoke(command, ["lag", "service:app", *options])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def _at(told, topic, partition):
    return next(
        each for each in told["partitions"] if (each["topic"], each["partition"]) == (topic, partition)
    )


def _until(is_so, what):
    """Look until it is so; gives what was seen then."""
    return until(lambda: (told := json.loads(_lag("--json"))) and is_so(told) and told, what)


def test_one_record_that_is_held_is_told_apart_from_what_is_finished_behind_it(kafka, service):
    app, source = service
    away = [Refusal("unavailable", "no replica answers")]
    orders = [Given(b"fails", partition=0), *[Given(b"fine", partition=0)] * 20, Given(b"fine", partition=1)]
    with running_with(app, sink=lambda sink: RefusingSink(sink, lambda _: next(iter(away), None))):
        send(kafka.bootstrap, source, orders)
        told = _until(
            lambda told: [_at(told, source, each)["true_lag"] for each in (0, 1)] == [1, 0],
            "all but one are finished",
        )
        held = _at(told, source, 0)
        assert (held["end"], held["committed"], held["lag"]) == (21, 0, 21)
        assert (held["oldest"]["offset"], held["oldest"]["due_ms"]) == (0, None)
        assert held["oldest"]["why"] == (
            "at work, or what becomes of it isn't written yet; 20 behind it are finished"
        )
        assert (_at(told, source, 1)["oldest"], told["members"]) == (None, 1)
        away.clear()
        _until(
            lambda told: told["tiers"][0]["waiting"] == 1 and _at(told, source, 0)["lag"] == 0,
            "it waits in the tier",
        )


def test_what_waits_in_a_tier_tells_its_attempt_its_due_and_why(kafka, service):
    app, source = service
    tier = f"{source}.retry.1h"
    with running_with(app):
        send(kafka.bootstrap, source, [Given(b"fails", partition=1)])
        told = _until(lambda told: _at(told, tier, 1)["true_lag"] == 1, "it waits in the tier")
    waits = _at(told, tier, 1)["oldest"]
    assert (waits["attempt"], waits["failure"]) == (2, "transient ConnectionError")
    [its] = told["tiers"]
    assert (its["tier"], its["waiting"], its["due"], its["next_ms"]) == (tier, 1, 0, waits["due_ms"])
    text = _lag()
    assert f"{app.group} has no members: no process is at work" in text
    assert "attempt 2 due in 59m" in text
    assert text.splitlines()[-1] == f"{app.group}: lag 1, of which 0 finished already; 1 left to do"
    assert source not in text.replace(tier, "")
    assert source in _lag("--all").replace(tier, "")


def test_a_group_that_never_committed_is_behind_by_all_there_is(kafka, service):
    _, source = service
    send(kafka.bootstrap, source, [Given(b"fine", partition=1)] * 3)
    told = json.loads(_lag("--json"))
    assert (told["lag"], told["true_lag"], told["members"]) == (3, 3, 0)
    assert _at(told, source, 1)["oldest"]["why"] == "nothing committed yet"


def test_a_json_object_is_not_watched(service):
    result = CliRunner().invoke(command, ["lag", "service:app", "--json", "--watch", "1s"])
    assert result.exit_code == 2
