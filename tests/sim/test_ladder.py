"""What others' retries got wrong, tried on ours; a row of the catalogue each."""

import asyncio

import pytest

from redrive import App, Backoff, Record, RetryPolicy
from redrive.core.dialects import read_envelope
from tests.runtime.at_work import Process, app_of, append, new_cluster
from tests.sim.fleet import Fleet

MINUTE_MS = 60_000


@pytest.fixture
def fleet():
    made = Fleet(partitions=1, is_async=True)
    made.start()
    made.advance(0)
    yield made
    made.close()


@pytest.mark.parametrize("bad_in_a_hundred", [1, 10])
def test_t_ret_1_ten_minutes_of_poison_hold_up_nothing(bad_in_a_hundred):
    cluster = new_cluster()
    handled = []

    def handle(number: int) -> None:
        cluster.clock.pass_time(40)
        handled.append(number)

    process = Process(app_of(handle), cluster)
    for second in range(600):  # four fifths of what its handler can do
        for number in range(second * 20, second * 20 + 20):
            if number % 100 < bad_in_a_hundred:
                cluster.append("orders", b"\xff", partition=0)
            else:
                append(cluster, number)
        process.run(1_000)
    process.run(5_000)

    died = 600 * 20 * bad_in_a_hundred // 100
    assert len(cluster.records("orders.dlq")) == died
    assert len(handled) == 600 * 20 - died
    assert (process.told("brake-on"), process.is_all_committed()) == ([], True)


def test_t_ret_4_after_a_timeout_the_next_attempt_has_the_whole_time_again():
    app, ended = App("shop"), []

    @app.listener("orders", retry=RetryPolicy("5s"), time_limit="10s")
    async def handle(record: Record) -> None:
        await asyncio.sleep(60 if record.attempt == 1 else 9)
        ended.append(record.attempt)

    fleet = Fleet(partitions=1, app=app)
    fleet.start()
    fleet.advance(0)
    fleet.send()
    fleet.advance(30_000)
    assert (ended, fleet.not_committed()) == ([2], [])
    fleet.close()


def test_t_ret_6_tries_in_place_and_a_ladder_end_in_one_dead_letter():
    cluster = new_cluster()
    runs = []

    def handle(number: int) -> None:
        runs.append(number)
        raise ConnectionError

    policy = RetryPolicy("5s", "30s", immediate=Backoff(2, wait="100ms"))
    process = Process(app_of(handle, retry=policy), cluster)
    append(cluster, 7)
    process.run(MINUTE_MS)

    (letter,) = cluster.records("orders.dlq")
    assert (runs, read_envelope(letter.headers())[0].attempt) == ([7] * 5, 5)


def test_t_ret_7_a_record_at_its_last_attempt_does_not_wait_for_another_tier(fleet):
    fleet.send(fails=3)
    fleet.calm_down()
    (letter,) = fleet.cluster.records("orders.dlq")
    assert letter.timestamp()[1] - fleet.runs[0][-1].at_ms < 1000


def test_t_ret_8_a_handler_that_takes_longer_than_any_wait_is_not_run_beside_itself(fleet):
    fleet.send(takes_s=900)
    fleet.advance(899_000)
    assert (len(fleet.runs[0]), fleet.handled[0]) == (1, 0)
    fleet.advance(60_000)
    assert (len(fleet.runs[0]), fleet.handled[0], fleet.is_done()) == (1, 1, True)


@pytest.mark.parametrize(
    "fault", [None, lambda faults: faults.refuse_writes("orders.retry.5s", 3)], ids=["none", "refused"]
)
def test_t_ret_9_a_copy_that_was_refused_at_first_says_what_one_says_that_was_not(fleet, fault):
    now_ms = fleet.clock.wall_ms()
    if fault is not None:
        fault(fleet.cluster.faults)
    fleet.send(fails=1)
    fleet.advance(4_000)
    (copy,) = fleet.cluster.records("orders.retry.5s")
    said = read_envelope(copy.headers())[0]
    assert (said.attempt, said.due_ms, said.last_failed_ms) == (1, now_ms + 5_000, now_ms)
    fleet.advance(2_000)
    assert [run.at_ms for run in fleet.runs[0]] == [now_ms, now_ms + 5_000]
