"""Records that several processes, several groups or several deployments have to do with."""

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from redrive import App, Record, RetryPolicy
from redrive.cli.main import app as command
from tests.faults import running, running_with
from tests.ledger import Ledger
from tests.plain_kafka import (
    Given,
    count_all,
    create_topics,
    create_topics_of,
    is_all_committed,
    read_all,
    send,
    unique,
)
from tests.services.launch import ObedientService
from tests.services.obedient import Order
from tests.waiting import until


def _app(
    bootstrap: str, group: str, source: str, ledger: Ledger, *tiers: str, fails: int = 0, note: str = ""
) -> App:
    """A listener whose first `fails` attempts fail: all at once, which isn't to be taken for an outage."""
    settings = {"bootstrap_servers": bootstrap, "commit_interval": "100ms", "breaker": False}
    app = App(group, settings=settings)

    @app.listener(source, retry=RetryPolicy(*tiers))
    def handle(record: Record) -> None:
        ledger.note(record, note)
        if record.attempt <= fails:
            raise ConnectionError

    return app


def test_a_retry_and_a_replay_for_one_group_never_run_in_another(kafka, tmp_path):
    orders, ours, theirs = unique("orders"), unique("ours"), unique("theirs")
    our_ledger, their_ledger = Ledger(tmp_path / "ours"), Ledger(tmp_path / "theirs")
    our_app = _app(kafka.bootstrap, ours, orders, our_ledger, "200ms", fails=2)
    their_app = _app(kafka.bootstrap, theirs, orders, their_ledger, "200ms", fails=0)
    create_topics_of(kafka.bootstrap, our_app)
    send(kafka.bootstrap, orders, [Given()])
    tier, dlq = f"{orders}.retry.200ms", f"{orders}.dlq"
    with running(our_app), running(their_app):
        until(lambda: count_all(kafka.bootstrap, dlq) == 1, "our attempts failed")
        result = CliRunner().invoke(
            command, ["dlq", "replay", dlq, "--all", "--yes", "--bootstrap-servers", kafka.bootstrap]
        )
        assert result.exit_code == 0, result.output
        until(lambda: our_ledger.count() == 4, "our replay ran, and failed again")
        until(lambda: count_all(kafka.bootstrap, dlq) == 2, "it is a dead letter again")
        # Both have read the tier to its end: what they have not run by now, they never will.
        until(lambda: is_all_committed(kafka.bootstrap, ours, [orders, tier]), "we are through")
        until(lambda: is_all_committed(kafka.bootstrap, theirs, [orders, tier]), "so are they")

    assert [run.attempt for run in our_ledger.runs()] == [1, 2, 1, 2]
    assert [run.attempt for run in their_ledger.runs()] == [1]
    assert {letter.own["group"] for letter in read_all(kafka.bootstrap, dlq)} == {ours}


@pytest.mark.realtime
def test_records_in_a_tier_that_the_next_deployment_does_not_have_run_at_their_due(kafka, tmp_path):
    orders, group, ledger = unique("orders"), unique("group"), Ledger(tmp_path / "ledger")
    before = _app(kafka.bootstrap, group, orders, ledger, "200ms", "3s", fails=2, note="before")
    after = _app(kafka.bootstrap, group, orders, ledger, "100ms", note="after")
    former = f"{orders}.retry.3s"
    create_topics_of(kafka.bootstrap, before, 2)
    create_topics(kafka.bootstrap, [f"{orders}.retry.100ms"], 2)
    send(kafka.bootstrap, orders, [Given(key=b"%d" % number) for number in range(100)])
    with running(before):
        until(lambda: count_all(kafka.bootstrap, former) == 100, "all wait in the longer tier")
    with running(after):
        until(
            lambda: is_all_committed(kafka.bootstrap, group, [orders, former]), "the former tier is drained"
        )

    assert {run.attempt for run in ledger.runs() if run.note == "after"} == {3}
    assert [len(runs) for runs in ledger.by_record().values()] == [3] * 100
    assert ledger.early() == []
    assert ledger.lateness_ms()[-1] < 1000


@pytest.mark.realtime
def test_records_whose_partition_goes_and_comes_back_while_they_wait_run_at_their_due(kafka, tmp_path):
    orders, group, ledger = unique("orders"), unique("group"), Ledger(tmp_path / "ledger")
    ours = _app(kafka.bootstrap, group, orders, ledger, "4s", fails=1)
    others = _app(kafka.bootstrap, group, orders, ledger, "4s", fails=1)
    tier = f"{orders}.retry.4s"
    create_topics_of(kafka.bootstrap, ours, 4)
    send(kafka.bootstrap, orders, [Given(key=b"%d" % number) for number in range(1000)])
    with running_with(ours) as we:
        until(lambda: count_all(kafka.bootstrap, tier) == 1000, "all wait in the tier")
        until(lambda: is_all_committed(kafka.bootstrap, group, [orders]), "the source is committed")
        with running_with(others) as they:
            until(lambda: tier in _assigned(they), "partitions of the tier went to the other one")
        until(lambda: we.told("revoked") and len(we.told("assigned")) > 1, "they came back")
        came_back_ms = time.time() * 1000
        until(lambda: is_all_committed(kafka.bootstrap, group, [tier]), "all ran")

    retries = [run for run in ledger.runs() if run.attempt == 2]
    late_ms = sorted(run.start_ms - max(run.due_ms, came_back_ms) for run in retries)
    assert len({run.event_id for run in retries}) == len(retries) == 1000
    assert ledger.early() == []
    assert late_ms[989] <= 1000


def _assigned(service) -> str:
    return " ".join(fields["partitions"] for fields in service.told("assigned"))


@pytest.mark.chaos
def test_of_two_processes_one_is_killed_in_mid_batch_and_a_third_joins(kafka, tmp_path: Path):
    shop = ObedientService(kafka.bootstrap, tmp_path, tiers=("300ms",))
    shop.create_topics(partitions=4)
    orders = [
        Order(takes_s=0.004, fails=int(number % 10 == 0), bug=number % 50 == 1) for number in range(500)
    ]
    for partition in range(4):
        shop.send(*orders, partition=partition)
    with shop.process() as first, shop.process():
        pid = first.pid
        until(
            lambda: sum(run.pid == pid for run in shop.ledger.runs()) > 300,
            "the first is in the middle of it",
        )
        first.kill()
        killed_ms = time.time() * 1000
        with shop.process():
            tiers = [f"{shop.source}.retry.300ms"]
            until(
                lambda: is_all_committed(kafka.bootstrap, shop.shape.group, [shop.source]),
                "all committed",
                within_s=60,
            )
            until(lambda: is_all_committed(kafka.bootstrap, shop.shape.group, tiers), "the tier too")
            until(lambda: count_all(kafka.bootstrap, f"{shop.source}.dlq") >= 40, "all letters")

    ends = {(partition, offset) for partition in range(4) for offset in range(500)}
    runs = [run for run in shop.ledger.runs() if run.note != "ended"]
    letters = read_all(kafka.bootstrap, f"{shop.source}.dlq")
    assert {tuple(map(int, run.event_id.rsplit("/", 2)[1:])) for run in runs} == ends
    assert len({letter.own["id"] for letter in letters}) == 40
    assert shop.ledger.early() == []
    # What ran twice had begun since the last commit of the one that was killed: one interval, and one on its way.
    again = {run.event_id for run in runs if run.pid == pid} & {
        run.event_id for run in runs if run.pid != pid
    }
    begun = [run for run in runs if run.pid == pid and run.event_id in again and run.attempt == 1]
    assert [run for run in begun if run.start_ms < killed_ms - 1500 and not _fails(run)] == []
    assert len(letters) - 40 <= len(again)


def _fails(run) -> bool:
    """Its retry ran elsewhere, as it should."""
    return int(run.event_id.rsplit("/", 1)[1]) % 10 == 0
