"""Delivery exactly-once: processes come, go, die and are given up, transactions fail in every way, nothing is written twice."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from redrive import App, Record, RetryPolicy
from redrive.core.dialects import read_envelope
from redrive.core.record import TopicPartition
from redrive.testing import Harness
from tests.sim.fleet import Fleet

TARGETS = ["orders.retry.5s", "orders.retry.30s", "orders.dlq"]


def successors(fleet: Fleet) -> Counter[tuple[Any, ...]]:
    """What was written for each failure: by the source record and the attempt that failed."""
    records = [record for topic in TARGETS for record in fleet.cluster.records(topic)]
    said = [read_envelope(record.headers())[0] for record in records]
    return Counter((one.source_partition, one.source_offset, one.attempt) for one in said)


def wanted(fleet: Fleet) -> int:
    """How many there must be: one for each failure."""
    return sum(min(task.fails, 3) for task in fleet.sent) + fleet.garbage


def check(fleet: Fleet) -> None:
    found = successors(fleet)
    assert [failure for failure, count in found.items() if count != 1] == []
    assert len(found) == wanted(fleet)
    mails = [int(record.value() or b"") for record in fleet.cluster.records("mails")]
    assert sorted(mails) == [task.id for task in fleet.sent if task.fails < 3]
    assert fleet.not_committed() == []


class Machine(RuleBasedStateMachine):
    fleet = None

    @initialize(partitions=st.integers(1, 3), seed=st.one_of(st.none(), st.integers(0, 1000)))
    def begin(self, partitions, seed):
        self.fleet = Fleet(partitions=partitions, seed=seed, delivery="exactly-once")
        self.fleet.start()
        self.fleet.advance(0)

    @rule(count=st.integers(1, 20), fails=st.integers(0, 4))
    def records_are_sent(self, count, fails):
        for _ in range(count):
            self.fleet.send(fails)

    @rule()
    def garbage_is_sent(self):
        self.fleet.send_garbage()

    @rule(ms=st.sampled_from([0, 1, 12, 100, 1_000, 5_000, 31_000]))
    def time_passes(self, ms):
        self.fleet.advance(ms)

    @precondition(lambda self: len(self.fleet.processes) < 3)
    @rule()
    def a_process_starts(self):
        self.fleet.start()

    @precondition(lambda self: self.fleet.processes)
    @rule(data=st.data(), how=st.sampled_from(["stop", "kill", "expel"]))
    def a_process_goes(self, data, how):
        index = data.draw(st.integers(0, len(self.fleet.processes) - 1))
        if how == "expel":
            self.fleet.lose(index)
        else:
            getattr(self.fleet, how)(index)

    @rule(ms=st.sampled_from([0, 1_000, 40_000]))
    def the_broker_is_away(self, ms):
        self.fleet.cluster.is_down = True
        self.fleet.advance(ms)
        self.fleet.cluster.is_down = False

    @rule(topic=st.sampled_from(TARGETS), count=st.integers(1, 5), too_large=st.booleans())
    def writes_are_refused(self, topic, count, too_large):
        self.fleet.cluster.faults.refuse_writes(topic, count, too_large=too_large and topic == "orders.dlq")

    @rule(held=st.booleans())
    def transactions_are_held(self, held):
        self.fleet.cluster.faults.transactions_are_held = held

    @rule(
        fault=st.sampled_from(["abort_transactions", "lose_outcomes", "refuse_commits"]),
        count=st.integers(1, 3),
    )
    def transactions_fail(self, fault, count):
        getattr(self.fleet.cluster.faults, fault)(count)

    # Further back than a tier's delay, and what waits there is posted on: a copy more that is none.
    @rule(ms=st.sampled_from([-700, 700, 3_600_000]))
    def the_wall_clock_steps(self, ms):
        self.fleet.clock.step_wall(ms)

    def teardown(self):
        if self.fleet is None:
            return
        try:
            self.fleet.clock.step_wall(7_200_000)  # further than it was ever set back
            self.fleet.calm_down()
            check(self.fleet)
            assert self.fleet.cluster.group("shop").plain_commits == 0
        finally:
            self.fleet.close()


TestExactlyOnce = Machine.TestCase
TestExactlyOnce.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


@pytest.fixture
def fleet():
    made = Fleet(partitions=1, delivery="exactly-once")
    made.start()
    made.advance(0)
    yield made
    made.close()


def begin(fleet):
    """A first record is handled: the guard has the commit that it waits for."""
    fleet.send()
    fleet.advance(1_500)


def test_a_failure_and_its_offset_are_committed_together(fleet):
    fleet.send(fails=1)
    fleet.advance(20)
    assert len(successors(fleet)) == 1
    assert fleet.cluster.group("shop").offsets[TopicPartition("orders", 0)].offset == 1


def test_a_process_that_dies_in_an_open_transaction_leaves_no_copy_and_its_partitions_begin_when_that_has_ended(
    fleet,
):
    begin(fleet)
    fleet.cluster.faults.transactions_are_held = True
    for _ in range(5):
        fleet.send(fails=1)
    fleet.advance(50)
    assert successors(fleet) == {}  # there, but not committed
    fleet.kill(0)
    fleet.cluster.faults.transactions_are_held = False
    fleet.start()
    fleet.advance(5_000)
    assert len(fleet.runs[1]) == 1  # what the group has committed isn't told yet
    fleet.advance(60_000)
    check(fleet)
    assert len(fleet.runs[1]) == 3  # once more, and then from the tier


def test_t_tx_3_a_revoke_does_not_wait_for_a_transaction_longer_than_its_bound(fleet):
    fleet.cluster.faults.transactions_are_held = True
    fleet.send(fails=1)
    fleet.advance(50)
    before_ms = fleet.clock.mono_ms()
    fleet.stop(0)
    assert fleet.clock.mono_ms() - before_ms <= 15_500  # the drain's ten seconds and five for the last commit
    fleet.cluster.faults.transactions_are_held = False
    fleet.calm_down()
    check(fleet)


def test_a_process_that_was_given_up_writes_nothing_more_and_comes_back(fleet):
    fleet.cluster.faults.transactions_are_held = True
    fleet.send(fails=1)
    fleet.advance(50)
    fleet.lose(0)
    fleet.start()
    fleet.advance(1_000)
    fleet.cluster.faults.transactions_are_held = False
    fleet.calm_down()
    check(fleet)


def test_what_a_process_finished_before_it_stood_still_is_not_committed_when_others_have_its_partitions(
    fleet,
):
    fleet.send(fails=1)
    fleet.advance(1)  # it has run; its transaction waits some milliseconds for others
    zombie = fleet.processes.pop(0)
    fleet.cluster.expel(zombie.source)
    fleet.start()
    fleet.advance(1_000)
    assert (len(fleet.runs[0]), len(successors(fleet))) == (2, 1)
    fleet.processes.append(zombie)
    fleet.advance(1_000)
    assert len(successors(fleet)) == 1
    fleet.calm_down()
    check(fleet)


def test_what_was_aborted_is_sent_again_and_no_handler_runs_for_it(fleet):
    begin(fleet)
    fleet.cluster.faults.abort_transactions(2)
    fleet.send(fails=1)
    fleet.advance(1_000)
    assert [len(runs) for runs in fleet.runs.values()] == [1, 1]
    fleet.calm_down()
    check(fleet)


def test_where_nobody_can_tell_whether_it_was_committed_all_begins_again_at_what_the_group_has(fleet):
    begin(fleet)
    fleet.cluster.faults.lose_outcomes(1)
    fleet.send(fails=1)
    fleet.advance(1_000)
    fleet.calm_down()
    check(fleet)
    assert len(fleet.runs[1]) == 2  # what was committed after all isn't run again


def test_what_a_replay_emits_and_the_freeing_of_its_key_are_committed_together():
    app, ran = App("shop", delivery="exactly-once"), []

    @app.listener("orders", order="key", retry=RetryPolicy(blocking="key", after_dead_letter="block"))
    def handle(number: int, record: Record) -> None:
        ran.append(number)
        if ran == [1]:
            raise TimeoutError
        record.emit("receipts", b"paid")
        # From the second record on nothing is committed any more.
        harness.cluster.faults.transactions_are_held = number == 2

    with Harness(app) as harness:
        harness.cluster.create_topic("receipts")
        harness.send("orders", 1, key="a")
        harness.send("orders", 2, key="a")
        harness.advance("2s")
        harness.replay()
        harness.advance("20ms")
        assert ran == [1, 1, 2]
        harness.cluster.faults.transactions_are_held = False
        harness.crash()
        harness.advance("1m")
        assert ran == [1, 1, 2, 2]
