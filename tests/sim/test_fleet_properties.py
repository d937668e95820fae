"""Processes come, go and die, the broker fails in every way it can: every record ends handled or as a dead letter."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.sim.fleet import KILLS_TO_BLAME, Fleet

ATTEMPTS = 3
TARGETS = ["orders.retry.5s", "orders.retry.30s", "orders.dlq"]


class Machine(RuleBasedStateMachine):  # size: a method is a rule
    """Whether a fault can have made something twice is noted; without one everything happens exactly once."""

    fleet = None

    @initialize(
        partitions=st.integers(1, 3), seed=st.one_of(st.none(), st.integers(0, 1000)), is_async=st.booleans()
    )
    def begin(self, partitions, seed, is_async):
        self.fleet = Fleet(partitions=partitions, seed=seed, is_async=is_async)
        self.may_repeat = False
        self.kills = 0
        self.fleet.start()
        self.fleet.advance(0)

    @rule(count=st.integers(1, 20), fails=st.integers(0, 4), takes_s=st.sampled_from([0, 0.01, 3, 20]))
    def records_are_sent(self, count, fails, takes_s):
        for _ in range(count):
            self.fleet.send(fails, takes_s)

    @rule()
    def garbage_is_sent(self):
        self.fleet.send_garbage()

    @rule(ms=st.sampled_from([0, 1, 100, 1_000, 5_000, 31_000]))
    def time_passes(self, ms):
        self.fleet.advance(ms)

    @precondition(lambda self: len(self.fleet.processes) < 3)
    @rule()
    def a_process_starts(self):
        self.fleet.start()
        self.may_repeat = True  # where a handler takes longer than a revoke waits for it

    @precondition(lambda self: self.fleet.processes)
    @rule(data=st.data())
    def a_process_stops(self, data):
        self.may_repeat = True
        self.fleet.stop(data.draw(st.integers(0, len(self.fleet.processes) - 1)))

    @precondition(lambda self: self.fleet.processes)
    @rule(data=st.data())
    def a_process_is_killed(self, data):
        self.may_repeat = True
        self.kills += 1
        self.fleet.kill(data.draw(st.integers(0, len(self.fleet.processes) - 1)))

    @rule(ms=st.sampled_from([0, 1_000, 40_000]))
    def the_broker_is_away(self, ms):
        self.may_repeat = True
        self.fleet.cluster.is_down = True
        self.fleet.advance(ms)
        self.fleet.cluster.is_down = False

    @rule(
        topic=st.sampled_from(["orders.retry.5s", "orders.retry.30s", "orders.dlq"]), count=st.integers(1, 5)
    )
    def writes_are_refused(self, topic, count):
        self.fleet.cluster.faults.refuse_writes(topic, count)

    @rule(topic=st.sampled_from(TARGETS))
    def an_acknowledgement_is_lost(self, topic):
        self.may_repeat = True
        self.fleet.cluster.faults.lose_acks(topic, 1)

    @rule(held=st.booleans())
    def acknowledgements_are_held(self, held):
        self.fleet.cluster.faults.acks_are_held = held

    @rule(held=st.booleans())
    def commits_are_held(self, held):
        self.may_repeat = True
        self.fleet.cluster.faults.commits_are_held = held

    @rule(count=st.integers(1, 3))
    def commits_are_refused(self, count):
        self.may_repeat = True
        self.fleet.cluster.faults.refuse_commits(count)

    @precondition(lambda self: self.fleet.processes)
    @rule(
        fault=st.sampled_from(["held", "refused", "slow"]),
        ms=st.sampled_from([0, 900, 2_000]),
        orderly=st.booleans(),
    )
    def a_process_ends_in_the_middle_of_trouble(self, fault, ms, orderly):
        """Some records are finished, those before them are not, and that was committed or not."""
        self.may_repeat = True
        self.fleet.advance(1_000)
        self.fleet.cluster.faults.acks_are_held = fault == "held"
        if fault == "refused":
            for topic in TARGETS:
                self.fleet.cluster.faults.refuse_writes(topic, 9)
        for fails in (0, 1, 0, 3, 0):
            self.fleet.send(fails, 20.0 if fault == "slow" else 0.0, partition=0)
        self.fleet.advance(ms)
        self.kills += not orderly
        (self.fleet.stop if orderly else self.fleet.kill)(0)
        self.fleet.cluster.faults.acks_are_held = False

    @precondition(lambda self: self.fleet.processes)
    @rule()
    def time_passes_until_just_before_something_happens(self):
        wait_ms = min(process.next_ms() for process in self.fleet.processes)
        if 1 < wait_ms < 3_600_000:
            self.fleet.advance(wait_ms - 1)

    @rule(ms=st.sampled_from([-3_600_000, -700, 700, 3_600_000]))
    def the_wall_clock_steps(self, ms):
        self.fleet.clock.step_wall(ms)

    @invariant()
    def nothing_runs_early_or_too_often(self):
        if self.fleet is None:
            return
        for runs in self.fleet.runs.values():
            assert all(run.due_ms is None or run.at_ms >= run.due_ms for run in runs)
            assert all(1 <= run.attempt <= ATTEMPTS for run in runs)
            if not self.may_repeat:
                assert [run.attempt for run in runs] == list(range(1, len(runs) + 1))

    def teardown(self):
        if self.fleet is None:
            return
        try:
            self.fleet.clock.step_wall(7_200_000)  # further than it was ever set back
            self.fleet.calm_down()
            self.check_the_ledger(self.fleet)
        finally:
            self.fleet.close()

    def check_the_ledger(self, fleet):
        dead, blamed = fleet.dead_letters(), fleet.blamed()
        assert not blamed or self.kills >= KILLS_TO_BLAME
        assert [task.id for task in fleet.sent if not fleet.handled[task.id] and not dead[task.id]] == []
        for task in fleet.sent:
            if task.id in blamed:
                continue
            if task.fails < ATTEMPTS:
                assert dead[task.id] == 0
            else:
                assert fleet.handled[task.id] == 0
            if not self.may_repeat:
                assert fleet.handled[task.id] + dead[task.id] == 1
        assert dead[-1] >= fleet.garbage
        assert fleet.attempts_on_dead_letters() <= {ATTEMPTS}
        assert fleet.not_committed() == []


TestFleet = Machine.TestCase
TestFleet.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
