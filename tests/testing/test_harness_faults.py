"""What a test does to the processes and the brokers of its app."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from redrive import App, RetryPolicy
from redrive.errors import RedriveError, TopologyError
from redrive.testing import Begun, FailedRun, Handled, Harness


def _app(seen=None, **options) -> App:
    """Fails what is less than 0."""
    app = App("shop", delivery=options.pop("delivery", None))

    @app.listener("orders", name="pay", retry=RetryPolicy("5s"), **options)
    def pay(number: int) -> None:
        if seen is not None:
            seen.append(number)
        if number < 0:
            raise ConnectionError

    return app


# -- processes -------------------------------------------------------------------------------------------------------


def test_processes_share_the_partitions(redrive_harness):
    harness = redrive_harness(_app(), partitions=4)
    harness.rebalance(to=2)
    owned = [len(worker.groups[0].engine.lanes) for worker in harness.workers.running]
    assert owned == [4, 4]  # of the source and of the tier


def test_a_rebalance_is_of_two_processes_by_default(redrive_harness):
    harness = redrive_harness(_app())
    harness.rebalance()
    assert len(harness.workers.running) == 2


def test_the_oldest_process_leaves_first(redrive_harness):
    harness = redrive_harness(_app())
    harness.rebalance(to=3)
    harness.rebalance(to=1)
    assert [worker.number for worker in harness.workers.running] == [2]


def test_a_rebalance_in_order_repeats_nothing(redrive_harness):
    harness = redrive_harness(_app(), partitions=2)
    for number in range(6):
        harness.send("orders", number, partition=number % 2)
    harness.rebalance(to=3)
    harness.rebalance(to=1)
    harness.advance("1m")
    assert sorted(run.value for run in harness.handled) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("to", [0, 1.5])
def test_a_rebalance_to_no_whole_process_is_refused(redrive_harness, to):
    with pytest.raises(ValueError, match=rf"to={to}.*at least one process"):
        redrive_harness(_app()).rebalance(to=to)


@pytest.mark.parametrize("place", [-1, 2, 0.5])
@pytest.mark.parametrize("change", ["stop", "kill", "lose", "cut_off"])
def test_a_place_without_a_process_is_refused(redrive_harness, change, place):
    harness = redrive_harness(_app())
    harness.rebalance(to=2)
    with pytest.raises(ValueError, match=f"no process is at place {place}: 2 run"):
        getattr(harness.workers, change)(place)
    assert [worker.number for worker in harness.workers.running] == [0, 1]


def test_a_crash_of_several_processes_is_that_of_the_oldest(redrive_harness):
    harness = redrive_harness(_app())
    harness.rebalance(to=2)
    harness.crash()
    assert [worker.number for worker in harness.workers.running] == [1, 0]


def test_a_restart_replaces_every_process(redrive_harness):
    harness = redrive_harness(_app())
    harness.rebalance(to=2)
    before = [worker.groups for worker in harness.workers.running]
    harness.restart()
    after = [worker.groups for worker in harness.workers.running]
    assert (len(after), [groups for groups in after if groups in before]) == (2, [])


def test_what_waits_is_seen_whichever_process_has_it(redrive_harness):
    harness = redrive_harness(_app(), partitions=2)
    harness.rebalance(to=2)
    harness.send("orders", -1, partition=0)
    harness.send("orders", -2, partition=1)
    assert [waiting.value for waiting in harness.waiting] == [b"-1", b"-2"]
    harness.advance("5s")
    assert harness.waiting == []


def test_a_process_that_is_cut_off_loses_its_partitions_after_its_session(redrive_harness):
    harness = redrive_harness(_app())
    harness.rebalance(to=2)
    harness.workers.cut_off(0)
    harness.send("orders", 1)
    harness.advance("44s")
    assert harness.handled == []
    harness.advance("2s")
    assert [run.value for run in harness.handled] == [1]


def test_a_process_that_is_heard_of_again_goes_on(redrive_harness):
    harness = redrive_harness(_app())
    harness.workers.cut_off(0)
    harness.send("orders", 1)
    harness.advance("10s")
    harness.workers.reconnect()
    harness.advance("1s")
    assert [run.value for run in harness.handled] == [1]


def test_a_process_that_its_group_gives_up_runs_again_what_was_not_committed(redrive_harness):
    harness = redrive_harness(_app())
    harness.send("orders", 1)
    harness.workers.lose(0)
    harness.advance("1s")
    assert [run.value for run in harness.handled] == [1, 1]


def test_each_process_has_its_own_lifespan(redrive_harness):
    happened: list[str] = []

    @asynccontextmanager
    async def lifespan():
        happened.append("begin")
        yield
        happened.append("end")

    app = App("shop", lifespan=lifespan)
    app.listener("orders", name="pay")(lambda order: None)
    harness = redrive_harness(app)
    harness.rebalance(to=2)
    harness.rebalance(to=1)
    assert happened == ["begin", "begin", "end"]


def test_a_lifespan_of_a_killed_process_is_not_left(redrive_harness):
    happened: list[str] = []

    @asynccontextmanager
    async def lifespan():
        happened.append("begin")
        yield
        happened.append("end")

    app = App("shop", lifespan=lifespan)
    app.listener("orders", name="pay")(lambda order: None)
    harness = redrive_harness(app)
    harness.crash()
    assert happened == ["begin", "begin"]


def test_what_a_process_keeps_in_memory_dies_with_it(redrive_harness):
    memories: list[list[int]] = []

    def make_app() -> App:
        memories.append([])
        return _app(memories[-1])

    harness = redrive_harness(make_app)
    harness.send("orders", 1)
    harness.advance("2s")
    harness.crash()
    harness.send("orders", 2)
    assert memories == [[1], [2]]


def test_a_killed_coroutine_is_no_failed_run(redrive_harness):
    app = App("shop")

    @app.listener("orders")
    async def pay(number: int) -> None:
        await asyncio.sleep(60)

    harness = redrive_harness(app)
    harness.send("orders", 1)
    harness.crash()
    assert harness.failed == []


def test_the_history_tells_beginnings_and_ends_in_their_order(redrive_harness):
    app = App("shop")

    @app.listener("orders", order="none", concurrency=2)
    async def pay(seconds: int) -> None:
        await asyncio.sleep(seconds)
        if seconds == 5:
            raise ConnectionError

    harness = redrive_harness(app)
    harness.send("orders", 5)
    harness.send("orders", 1)
    harness.advance("5s")
    told = [(type(run), run.value) for run in harness.history]
    assert told == [(Begun, 5), (Begun, 1), (Handled, 1), (FailedRun, 5)]


def test_what_a_process_tells_at_its_end_is_among_the_reports(redrive_harness):
    app = App("shop")

    @app.listener("orders", retry=RetryPolicy())
    async def pay(number: int) -> None:
        await asyncio.sleep(1)
        raise ConnectionError

    harness = redrive_harness(app)
    harness.send("orders", 1)
    harness.rebalance(to=2)
    harness.workers.stop(0)
    assert [report.event for report in harness.reports].count("dead-letter") == 1


# -- brokers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_broken_topic_takes_nothing_until_it_is_mended(redrive_harness, delivery):
    harness = redrive_harness(_app(delivery=delivery))
    harness.break_topic("orders.dlq", "not authorised")
    harness.send("orders", b"no number")
    harness.advance("1h")
    assert harness.dead_letters == []
    harness.mend_topic("orders.dlq")
    harness.advance("30s")
    assert [letter.reason for letter in harness.dead_letters] == ["poison"]


def test_a_broken_topic_is_told_with_what_the_broker_says(redrive_harness):
    harness = redrive_harness(_app())
    harness.break_topic("orders.dlq", "not authorised")
    harness.send("orders", b"no number")
    harness.advance("1s")
    errors = {report.fields["error"] for report in harness.reports if report.event == "write-refused"}
    assert errors == {"not authorised"}


def test_a_broken_topic_takes_what_a_test_sends(redrive_harness):
    harness = redrive_harness(_app())
    harness.break_topic("orders")
    harness.send("orders", 1)
    assert [run.value for run in harness.handled] == [1]


def test_a_replay_into_a_broken_topic_leaves_the_letter_open(redrive_harness):
    harness = redrive_harness(_app())
    harness.send("orders", -1)
    harness.advance("5s")
    harness.break_topic("orders.retry.5s")
    harness.replay()
    assert len(harness.dead_letters) == 1


@pytest.mark.parametrize("change", [Harness.break_topic, Harness.mend_topic])
def test_a_topic_that_is_not_there_is_told(redrive_harness, change):
    with pytest.raises(TopologyError, match="no topic orderz"):
        change(redrive_harness(_app()), "orderz")


def test_a_closed_harness_takes_no_fault():
    harness = Harness(_app())
    harness.close()
    for change in (harness.crash, harness.restart, harness.rebalance, lambda: harness.advance("1s")):
        with pytest.raises(RedriveError, match="closed"):
            change()


# -- exactly-once ----------------------------------------------------------------------------------------------------


def test_with_exactly_once_what_is_sent_is_retried_or_dead_when_send_returns(redrive_harness):
    harness = redrive_harness(_app(delivery="exactly-once"))
    harness.send("orders", -1)
    harness.send("orders", b"no number")
    assert [waiting.in_ms for waiting in harness.waiting] == [5_000]
    assert [letter.reason for letter in harness.dead_letters] == ["poison"]


def test_with_exactly_once_what_becomes_due_is_a_dead_letter_when_advance_returns(redrive_harness):
    harness = redrive_harness(_app(delivery="exactly-once"))
    harness.send("orders", -1)
    harness.advance("5s")
    assert [letter.reason for letter in harness.dead_letters] == ["exhausted"]
