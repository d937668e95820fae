"""Log lines say what happened, stay few however much happens, and hold nothing of a record."""

import logging
import shlex

import pytest

from redrive.core.commands import Refusal, Report, RunResult
from redrive.core.engine import Engine
from redrive.core.plan import GroupPlan
from redrive.core.record import TopicPartition
from redrive.runtime.ports import Committed
from redrive.runtime.pump import Pump, PumpSettings
from redrive.runtime.reporting import Reporter
from redrive.sim.clock import VirtualClock
from redrive.sim.cluster import SimCluster
from tests.sim.engine_world import World, identity, plan_of, post

P0, T0 = TopicPartition("orders", 0), TopicPartition("orders.retry.5s", 0)


class Told:
    """What a reporter wrote, on a clock that is moved by hand."""

    def __init__(self, caplog):
        caplog.set_level(logging.DEBUG, "redrive")
        self._caplog = caplog
        self.clock = VirtualClock()
        self.reporter = Reporter(self.clock)

    def __call__(self, event, **fields):
        """Report, and give the lines that were written at once."""
        self.reporter(Report(event, fields))
        return self.lines()

    def later(self, ms):
        """Time passes; the reporter is flushed as it is in service."""
        lines = []
        for _ in range(int(ms // 1000)):
            self.clock.advance(1000)
            self.reporter.flush()
            lines += self.lines()
        return lines

    def lines(self):
        messages = [record.getMessage() for record in self.records()]
        self._caplog.clear()
        return messages

    def records(self):
        return [record for record in self._caplog.records if record.name == "redrive"]


@pytest.fixture
def told(caplog):
    return Told(caplog)


def dead_letter(offset=0, **changes):
    fields = {
        "listener": "charge",
        "reason": "poison",
        "attempt": 1,
        "type": "ValueError",
        "dlq": "orders.dlq",
    }
    return {
        **fields,
        "source": "orders",
        "partition": 3,
        "offset": offset,
        "event_id": f"orders/3/{offset}",
        **changes,
    }


def test_a_dead_letter_is_told_with_its_place_its_cause_and_the_command_that_shows_it(told):
    assert told("dead-letter", **dead_letter(77)) == [
        (
            "Listener charge failed for good at orders/3/77 (poison, attempt 1, ValueError). The record goes to orders.dlq; "
            "see it and its failure with: redrive dlq show orders.dlq --event-id orders/3/77"
        )
    ]


def test_an_event_id_of_a_producer_is_one_word_in_the_command_that_people_copy(told):
    [line] = told("dead-letter", **dead_letter(77, event_id="x; rm -rf $HOME 'y'"))
    typed = shlex.split(line.split("with: ")[1])
    assert typed == ["redrive", "dlq", "show", "orders.dlq", "--event-id", "x; rm -rf $HOME 'y'"]


def test_fields_are_attributes_of_the_log_record_too(told):
    told.reporter(
        Report("write-refused", {"listener": "charge", "topic": "orders.dlq", "error": "no", "wait_ms": 500})
    )
    record = told.records()[0]
    assert (record.levelname, record.redrive_event, record.redrive_count) == ("ERROR", "write-refused", 1)
    assert (record.redrive_listener, record.redrive_topic, record.redrive_wait_ms) == (
        "charge",
        "orders.dlq",
        500,
    )


def test_lines_of_one_event_share_one_text_so_that_collectors_group_them(told):
    told.reporter(Report("dead-letter", dead_letter(1)))
    told.reporter(Report("dead-letter", dead_letter(2)))
    assert len({record.msg for record in told.records()}) == 1


def test_the_first_ones_are_told_at_once_and_the_rest_in_one_line_each_ten_seconds(told):
    at_once = [line for offset in range(1240) for line in told("dead-letter", **dead_letter(offset))]
    assert len(at_once) == 5
    assert told.later(9_000) == []
    (line,) = told.later(1_000)
    assert line.startswith("Listener charge failed for good at orders/3/1239 ")
    assert line.endswith(" (and 1,234 more like it in the last 10 s)")


def test_a_stream_that_goes_on_costs_one_line_in_ten_seconds(told):
    for offset in range(5):
        told("dead-letter", **dead_letter(offset))
    lines = []
    for second in range(60):
        lines += told("dead-letter", **dead_letter(second))
        lines += told("dead-letter", **dead_letter(second))
        lines += told.later(1_000)
    assert len(lines) == 6
    assert all(line.endswith("(and 19 more like it in the last 10 s)") for line in lines)


def test_a_single_one_that_was_kept_back_is_told_without_a_count(told):
    assert told("outage", listener="charge", type="HTTPError", wait_s=1.0)
    assert told("outage", listener="charge", type="HTTPError", wait_s=2.0) == []
    (line,) = told.later(10_000)
    assert "more like it" not in line


def test_after_ten_quiet_seconds_the_next_one_is_told_at_once_again(told):
    assert told("brake-on", listener="charge", cause="TypeError")
    assert told.later(10_000) == []
    assert len(told("brake-on", listener="charge", cause="TypeError")) == 1


@pytest.mark.parametrize("other", [{"listener": "refund"}, {"reason": "exhausted"}])
def test_another_listener_or_reason_is_another_stream(told, other):
    for offset in range(100):
        told("dead-letter", **dead_letter(offset))
    assert len(told("dead-letter", **dead_letter(1, **other))) == 1


def test_what_was_kept_back_is_told_at_the_end(told):
    for offset in range(8):
        told("dead-letter", **dead_letter(offset))
    told.clock.advance(2_000)
    told.reporter.flush(at_end=True)
    (line,) = told.lines()
    assert line.endswith("(and 2 more like it in the last 2 s)")


def test_a_broker_that_is_away_is_told_once_in_ten_seconds_whatever_the_client_says(told):
    complaints = [
        "broker-1:9092/1: Connect to ipv4#10.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)",
        "broker-2:9092/2: Connect to ipv4#10.0.0.2:9092 failed: Connection refused (after 3ms in state CONNECT)",
        "3/3 brokers are down",
    ]
    lines = [
        line for error in complaints * 50 for line in told("source-problem", kind="unreachable", error=error)
    ]
    assert lines == [
        (
            f"No broker answers: {complaints[0]}. Nothing is lost; it goes on by itself when one does. If it stays so, look at the "
            "brokers and at bootstrap_servers."
        )
    ]
    assert len(told.later(10_000)) == 1


def test_a_cause_is_the_same_whatever_its_figures(told):
    told(
        "source-problem",
        kind="other",
        error="FindCoordinator: 3 request(s) timed out (after 61045ms in state UP)",
    )
    assert (
        told(
            "source-problem",
            kind="other",
            error="FindCoordinator: 5 request(s) timed out (after 9ms in state UP)",
        )
        == []
    )


def test_topics_that_differ_by_a_figure_are_different_causes(told):
    for delay in ("5s", "30s"):
        assert (
            len(
                told(
                    "source-problem",
                    kind="unknown-topic",
                    error=f"not available: orders.retry.{delay}: Unknown",
                )
            )
            == 1
        )


def test_more_streams_than_there_can_be_reasons_for_end_in_one(told):
    lines = [line for n in range(2_000) for line in told("source-problem", kind="other", error=f"cause-{n}")]
    assert len(lines) <= 501
    assert len(told.later(10_000)) == 1


def test_an_event_that_nobody_listed_is_told_all_the_same(told):
    assert told("news", topic="orders", wait_ms=5) == ["news: topic orders, wait_ms 5"]


def test_a_field_that_is_missing_leaves_a_hole_and_the_line_is_written(told):
    assert told("brake-off") == ["Listener ?: the brake is released, all goes on."]


def test_what_comes_from_outside_cannot_look_like_another_line(told):
    (line,) = told(
        "start-unknown", error="no\n2026-01-01 ERROR redrive: all is lost\x1b[31m\u2028" + "x" * 5_000
    )
    assert line.splitlines() == [line]
    assert "\x1b" not in line
    assert len(line) < 1_000


def test_a_log_handler_that_breaks_does_not_reach_the_pump(told):
    class Broken(logging.Filter):
        def filter(self, record):
            raise OSError("the disk is full")

    broken = Broken()
    logging.getLogger("redrive").addFilter(broken)
    try:
        told.reporter(Report("brake-off", {"listener": "charge"}))
        told.reporter.flush(at_end=True)
    finally:
        logging.getLogger("redrive").removeFilter(broken)


def test_nobody_who_set_up_no_logging_is_told_so_by_the_library():
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger("redrive").handlers)


# -- what the engine and the pump really report ----------------------------------------------------------------------


def all_of_the_engine():
    """A world in which each of the engine's events has happened."""
    world = World(plan_of("5s"), plan_of(name="payouts", give_up="skip"))
    payouts = TopicPartition("payouts", 0)
    world.assign(P0, T0, payouts)
    world.append("payouts")
    world.fetch(payouts)
    world.work(listener=1, outcomes=["permanent", "ok"])
    world.append("orders", count=200)
    world.fetch(P0, most=200)
    world.work(outcomes=["outage", "ok"])  # the second run is handed back
    world.pass_time(1_000)
    world.work(outcomes=["outage"])
    world.pass_time(2_000)
    world.work(outcomes=["permanent", "permanent"])
    while not any(report.event == "dead-letter-cut" for report in world.reports):
        world.answer(0, Refusal("too-large", "too large"), written=False)
    world.answer(0, Refusal("unavailable", "not authorised"), written=False)
    for _ in range(300):
        world.work(outcomes=["permanent"])
    world.pass_time(61_000)
    due_ms = int(world.clock.wall_ms()) + 60_000
    world.append(T0.topic, count=2, headers=[("redrive-group", b"shop"), ("redrive-due-ms", b"%d" % due_ms)])
    world.fetch(T0)
    post(world, "hurry", T0, (0, 1))
    post(world, "discard", T0, (1, 2))
    return world.reports


class Obedient:
    """Runs whatever it is given, and all goes well; its handlers never end when it is closed."""

    def __init__(self):
        self._runs = []

    def submit(self, run):
        self._runs.append(run)

    def results(self, timeout_s):
        done, self._runs = self._runs, []
        return [RunResult(run, len(run.records), 0.001) for run in done]

    def close(self, timeout_s):
        return False


def all_of_the_pump():
    """A pump to which each of its events has happened."""
    cluster = SimCluster()
    cluster.create_topic("orders", 2)
    append(cluster, 9)
    cluster.group("shop").offsets[P0] = Committed(2, "something of another tool")
    reports = []
    pump, source = pump_on(cluster, reports.append)
    steps(pump, cluster, 50)
    cluster.faults.refuse_commits(1)
    append(cluster, 1)
    steps(pump, cluster, 50)
    append(cluster, 5)
    cluster.partition(P0).delete_before(14)
    steps(pump, cluster, 50)
    cluster.expel(source)
    steps(pump, cluster, 50)
    cluster.is_down = True
    steps(pump, cluster, 3)
    cluster.is_down = False
    steps(pump, cluster, 50)
    append(cluster, 1)
    steps(pump, cluster, 3)
    cluster.faults.refuse_commits(10)
    pump.shut_down()
    return reports


def append(cluster, count):
    for _ in range(count):
        cluster.append("orders", b"{}", partition=0)


def pump_on(cluster, report):
    plan = GroupPlan(group="shop", listeners=(plan_of("5s"),))
    source = cluster.source("shop")
    pump = Pump(
        engine=Engine(plan, cluster.counts, identity, "n1"),
        source=source,
        sink=cluster.sink(),
        executor=Obedient(),
        cluster=cluster.admin(),
        clock=cluster.clock,
        settings=PumpSettings(starts={}),
        identity=identity,
        report=report,
    )
    pump.join()
    return pump, source


def steps(pump, cluster, count):
    for _ in range(count):
        pump.step()
        cluster.clock.advance(100)


def test_every_report_of_the_engine_fills_its_text(told):
    reports = all_of_the_engine()
    assert {report.event for report in reports} == {
        "record-given-up", "outage", "outage-lasts", "outage-over", "dead-letter", "dead-letter-cut", "write-refused", "brake-on", "brake-off",
        "retries-hurried", "retries-discarded",
    }  # fmt: skip
    assert [line for report in reports for line in told(report.event, **report.fields) if "?" in line] == []


def test_every_report_of_the_pump_fills_its_text(told):
    reports = all_of_the_pump()
    assert {report.event for report in reports} >= {
        "assigned", "lost", "revoked", "map-ignored", "commit-refused", "last-commit-refused", "source-problem", "records-lost", "handlers-left",
    }  # fmt: skip
    assert [line for report in reports for line in told(report.event, **report.fields) if "?" in line] == []


def test_no_line_holds_what_the_record_holds_or_the_exception_says(told):
    world = World(plan_of("5s"))
    world.assign(P0)
    world.cluster.append(
        "orders", b"4111-1111", key=b"jane@example.org", partition=0, headers=[("token", b"s3cr3t")]
    )
    world.fetch(P0)
    world.work(outcomes=["permanent", "ok"])
    world.answer(0, Refusal("unavailable", "not authorised"), written=False)
    for report in world.reports:
        told.reporter(report)
    written = " ".join(str(vars(record)) + record.getMessage() for record in told.records())
    assert len(told.records()) == 2
    assert [
        secret for secret in ("4111-1111", "jane@example.org", "s3cr3t", "it failed") if secret in written
    ] == []
