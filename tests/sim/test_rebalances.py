"""Members come, go, hang and freeze while records run and wait; a row of the catalogue each."""

import pytest

from redrive.runtime.pump import LAST_TRANSACTION_MS
from tests.sim.fleet import Fleet
from tests.sim.ordered_fleet import OrderedFleet

DRAIN_MS = 10_000


@pytest.fixture
def fleets():
    """Makes fleets, and closes them."""
    made: list[Fleet] = []

    def make(**options) -> Fleet:
        made.append(Fleet(**options))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


def _owners(fleet: Fleet) -> list[int]:
    """How many partitions of the source each process has."""
    return [sum(key.topic == "orders" for key in process.source.owned) for process in fleet.processes]


def test_t_reb_1_twelve_thirteen_and_twelve_members_again_hold_nothing_back_and_repeat_nothing(fleets):
    fleet = fleets(partitions=24, is_async=True)
    for _ in range(12):
        fleet.start()
    for change in (lambda: None, fleet.start, lambda: fleet.stop(5)):
        for number in range(120):
            fleet.send(fails=number % 4 if number % 10 == 0 else 0, takes_s=0.3)
        fleet.advance(400)
        change()
        fleet.advance(2_000)
    assert sum(_owners(fleet)) == 24
    fleet.calm_down()

    assert fleet.is_done()
    runs = {task.id: [run.attempt for run in fleet.runs[task.id]] for task in fleet.sent}
    assert runs == {task.id: list(range(1, min(task.fails, 2) + 2)) for task in fleet.sent}


def test_t_reb_2_a_record_that_waits_in_its_lane_while_its_partition_goes_and_comes_back_runs_at_its_due():
    ordered = OrderedFleet(partitions=2, seed=None, is_async=False, concurrency=1)
    fleet = ordered.fleet
    try:
        ordered.start()
        for key in range(8):
            ordered.send(key, fails=1)
            ordered.send(key)
        fleet.advance(2_000)
        ordered.start()
        fleet.advance(1_000)
        assert _owners(fleet) == [1, 1]
        ordered.stop(1)
        fleet.advance(1_500)
        assert _owners(fleet) == [2]
        assert not any(step.attempt == 2 for step in ordered.steps)
        fleet.advance(700)
        assert sum(step.attempt == 2 for step in ordered.steps) == 16  # began and ended
        fleet.advance(2_000)
        assert (fleet.not_committed(), ordered.early, ordered.verdict().found) == ([], [], {})
    finally:
        fleet.close()


def test_t_reb_4_a_handler_of_ninety_seconds_holds_up_a_rebalance_for_the_drain_and_costs_no_membership(
    fleets,
):
    fleet = fleets(partitions=2, is_async=True)
    fleet.start()
    fleet.advance(0)
    fleet.send(takes_s=90, fails=1, partition=0)
    fleet.send(takes_s=90, fails=1, partition=1)
    fleet.advance(1_000)
    before_ms = fleet.clock.mono_ms()
    fleet.start()
    while _owners(fleet) != [1, 1]:
        fleet.advance(100)
    assert fleet.clock.mono_ms() - before_ms <= DRAIN_MS + LAST_TRANSACTION_MS
    fleet.calm_down()

    assert [report.event for report in fleet.everyone[0].reports if report.event == "lost"] == []
    assert len(fleet.cluster.group("shop").members) == 2
    # The one whose partition went began again with its new owner; how it ended with its old one counts for nothing.
    attempts = [[run.attempt for run in fleet.runs[task.id]] for task in fleet.sent]
    assert sorted(attempts) == [[1, 1, 2], [1, 2]]
    assert len(fleet.cluster.records("orders.retry.5s")) == 2


@pytest.mark.parametrize(
    ("delivery", "attempts"), [("at-least-once", [1, 1, 2, 2]), ("exactly-once", [1, 1, 2])]
)
def test_t_reb_5_a_frozen_process_that_thaws_commits_nothing_and_exactly_once_writes_nothing_either(
    fleets, delivery, attempts
):
    fleet = fleets(partitions=1, is_async=True, delivery=delivery)
    fleet.start()
    fleet.advance(0)
    fleet.send(takes_s=20, fails=1)
    fleet.advance(5_000)
    frozen = fleet.processes.pop()  # it makes no steps
    fleet.cluster.expel(frozen.source)
    fleet.start()
    fleet.advance(60_000)
    assert fleet.is_done()
    fleet.processes.append(frozen)
    fleet.advance(60_000)

    # Without transactions nobody keeps it from writing the retry of the one record that it was at.
    assert [run.attempt for run in fleet.runs[0]] == attempts
    assert (fleet.is_done(), sum(fleet.dead_letters().values())) == (True, 0)


@pytest.mark.parametrize("ways", [("stop",), ("kill",), ("stop", "kill")])
def test_t_ret_3_attempts_are_counted_by_the_record_however_many_members_run_it_in_turn(fleets, ways):
    fleet = fleets(partitions=6)
    for _ in range(6):
        fleet.start()
    fleet.advance(0)
    for partition in range(6):
        fleet.send(fails=2, partition=partition)
        fleet.send(fails=3, partition=partition)
    for number in range(6):
        fleet.advance(6_500)
        getattr(fleet, ways[number % len(ways)])(0)
        fleet.start()
    fleet.calm_down()

    # Killed or not: all was committed long before.
    assert {tuple(run.attempt for run in runs) for runs in fleet.runs.values()} == {(1, 2, 3)}
    assert fleet.attempts_on_dead_letters() == {3}
    assert sum(fleet.dead_letters().values()) == 6
