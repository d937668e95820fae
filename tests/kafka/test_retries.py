"""`redrive retries` on a real broker: as it is typed, beside a service that works on the same records."""

import json
from collections import Counter

from typer.testing import CliRunner

from redrive import App, Record, RetryPolicy
from redrive.cli.main import app
from redrive.core.dialects import with_envelope
from redrive.core.envelope import Envelope
from redrive.core.notices import read_end, read_notice
from tests.faults import running
from tests.plain_kafka import Given, create_topics_of, read_all, send, unique
from tests.waiting import until


class Desk:
    """A service whose first attempts fail into a tier of an hour, and `redrive retries` for its group."""

    def __init__(self, bootstrap):
        self.bootstrap, self.group = bootstrap, unique("shop")
        self.source = unique("orders")
        self.tier, self.state = f"{self.source}.retry.1h", f"{self.source}.dlq.state"
        self.app = App(self.group, settings={"bootstrap_servers": bootstrap})
        self.ran = []

        @self.app.listener(self.source, retry=RetryPolicy("1h"), name="charge")
        def charge(order: int, record: Record) -> None:
            self.ran.append((order, record.attempt))
            if record.attempt == 1:
                raise TimeoutError if order % 2 else ConnectionError

        create_topics_of(bootstrap, self.app, 2)

    def orders(self, *numbers):
        send(self.bootstrap, self.source, [Given(b"%d" % number, b"%d" % number) for number in numbers])

    def overdue(self, *numbers):
        """Records on the tier that are due long since."""
        envelope = Envelope(group=self.group, attempt=1, due_ms=1_000, source_topic=self.source)
        headers = with_envelope((), envelope)
        send(
            self.bootstrap, self.tier, [Given(b"%d" % number, b"%d" % number, headers) for number in numbers]
        )

    def __call__(self, verb, *arguments, of_group=True):
        """Exit code, the one JSON object, what else was said."""
        group = ["--group", self.group] if of_group else []
        command = ["retries", verb, self.tier, *group, *arguments, "--json"]
        result = CliRunner().invoke(app, [*command, "--bootstrap-servers", self.bootstrap])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, json.loads(result.stdout) if result.stdout else {}, result.stderr

    def second_runs(self):
        return sorted(order for order, attempt in self.ran if attempt == 2)


def _told(answer):
    return {name: answer.get(name) for name in ("done", "discarded", "too_late", "waiting", "failed")}


def test_some_that_wait_are_hurried_some_discarded_and_each_one_is_accounted_for(kafka):
    desk = Desk(kafka.bootstrap)
    with running(desk.app):
        desk.orders(*range(1, 11))
        until(lambda: desk("ls")[1]["waiting"] == 10, "ten records wait")
        until(lambda: desk("ls")[1]["tiers"][0]["read"], "the first commit")
        [row] = desk("ls")[1]["tiers"]
        assert (row["overdue"], row["read"]) == (0, True)
        assert {one["type"]: one["records"] for one in row["types"]} == {
            "TimeoutError": 5,
            "ConnectionError": 5,
        }

        code, hurried, _ = desk("hurry", "--type", "ConnectionError", "--yes", "--why", "bank is back")
        assert (code, _told(hurried)) == (
            0,
            {"done": 5, "discarded": 0, "too_late": None, "waiting": 0, "failed": 0},
        )
        assert desk.second_runs() == [2, 4, 6, 8, 10]

        code, discarded, _ = desk("discard", "--all", "--yes", "--who", "ann", "--why", "wrong prices")
        assert (code, _told(discarded)) == (
            0,
            {"done": None, "discarded": 5, "too_late": 0, "waiting": 0, "failed": 0},
        )
        until(lambda: desk("ls")[1]["waiting"] == 0, "the next commit")
        assert desk("discard", "--all", "--yes")[0] == 5
    assert Counter(desk.ran) == Counter(
        [(order, 1) for order in range(1, 11)] + [(order, 2) for order in (2, 4, 6, 8, 10)]
    )

    changes = read_all(desk.bootstrap, desk.state)
    ends = [end for seen in changes if (end := read_end(seen.key, seen.value))]
    notices = [posted for seen in changes if (posted := read_notice(seen.key, seen.value))]
    assert [(end.who, end.job, end.why) for *_, end in ends] == [
        ("ann", discarded["job"], "wrong prices")
    ] * 5
    assert {(one.notice.action, one.notice.job) for one in notices} == {
        ("hurry", hurried["job"]),
        ("discard", discarded["job"]),
    }


def test_what_was_discarded_while_no_worker_ran_never_runs_though_it_is_due(kafka):
    desk = Desk(kafka.bootstrap)
    desk.overdue(1, 2, 3)
    code, asked, told = desk("discard", "--key", "1", "--key", "3", "--yes", "--wait", "0s")
    assert (code, asked["waiting"]) == (0, 2)
    assert "has committed nothing" in desk("ls")[2]

    with running(desk.app):
        until(lambda: desk("ls")[1]["waiting"] == 0, "nothing waits any more")
        desk.overdue(4)
        until(lambda: (4, 2) in desk.ran, "the last one runs")
    assert desk.second_runs() == [2, 4]
    assert told == ""


def test_without_a_worker_a_discard_that_is_watched_says_that_it_waits(kafka):
    desk = Desk(kafka.bootstrap)
    desk.overdue(1)
    code, asked, _ = desk("discard", "--all", "--yes", "--wait", "600ms")
    assert (code, asked["waiting"], asked["discarded"]) == (3, 1, 0)


def test_a_selection_is_needed_and_nothing_is_done_unasked(kafka):
    desk = Desk(kafka.bootstrap)
    desk.overdue(1)
    assert desk("hurry", "--yes", of_group=False)[0] == 2
    assert desk("hurry", "--all")[0] == 2
    assert desk("hurry", "--all", "--dry-run")[:2] == (
        0,
        {
            "action": "hurry",
            "selected": 1,
            "tiers": [{"topic": desk.tier, "group": desk.group, "records": 1}],
            "types": {"": 1},
            "beyond_limit": 0,
            "missing": [],
        },
    )
    assert read_all(desk.bootstrap, desk.state) == []
