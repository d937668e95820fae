"""Records of a key wait for a failing one, whatever processes come, go and die: the history shows it."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.sim.ordered_fleet import MOST_ATTEMPTS, OrderedFleet

KEYS = st.integers(0, 4)


class Machine(RuleBasedStateMachine):
    """What a kill makes happen again is right; nothing else may happen again."""

    ordered = None
    parks = False

    @initialize(
        partitions=st.integers(1, 3),
        seed=st.one_of(st.none(), st.integers(0, 1000)),
        is_async=st.booleans(),
        concurrency=st.integers(1, 4),
    )
    def begin(self, partitions, seed, is_async, concurrency):
        self.ordered = OrderedFleet(
            partitions=partitions, seed=seed, is_async=is_async, concurrency=concurrency, parks=self.parks
        )
        self.ordered.start()
        self.ordered.fleet.advance(0)

    @rule(
        keys=st.lists(KEYS, min_size=1, max_size=20),
        fails=st.sampled_from([0, 0, 1, 2, MOST_ATTEMPTS]),
        takes_s=st.sampled_from([0, 0.01, 3]),
    )
    def records_are_sent_of_which_the_first_fails(self, keys, fails, takes_s):
        for at, key in enumerate(keys):
            self.ordered.send(key, 0 if at else fails, takes_s)

    @rule(key=KEYS)
    def garbage_is_sent(self, key):
        self.ordered.send_garbage(key)

    @rule(ms=st.sampled_from([0, 1, 100, 1_000, 5_000, 31_000]))
    def time_passes(self, ms):
        self.ordered.fleet.advance(ms)

    @precondition(lambda self: self.ordered.numbers)
    @rule()
    def time_passes_until_just_before_something_happens(self):
        wait_ms = min(process.next_ms() for process in self.ordered.fleet.processes)
        if 1 < wait_ms < 3_600_000:
            self.ordered.fleet.advance(wait_ms - 1)

    @precondition(lambda self: len(self.ordered.numbers) < 3)
    @rule()
    def a_process_starts(self):
        self.ordered.start()

    @precondition(lambda self: self.ordered.numbers)
    @rule(data=st.data())
    def a_process_stops(self, data):
        self.ordered.stop(data.draw(st.integers(0, len(self.ordered.numbers) - 1)))

    @precondition(lambda self: self.ordered.numbers)
    @rule(data=st.data())
    def a_process_is_killed(self, data):
        self.ordered.kill(data.draw(st.integers(0, len(self.ordered.numbers) - 1)))

    @rule(count=st.integers(1, 5))
    def dead_letters_are_refused(self, count):
        self.ordered.fleet.cluster.faults.refuse_writes("orders.dlq", count)

    @rule(count=st.integers(1, 3), is_stored=st.booleans())
    def copies_are_refused(self, count, is_stored):
        faults = self.ordered.fleet.cluster.faults
        if is_stored:
            faults.lose_acks("orders.parked", count)
        else:
            faults.refuse_writes("orders.parked", count)

    @rule(held=st.booleans())
    def acknowledgements_are_held(self, held):
        self.ordered.fleet.cluster.faults.acks_are_held = held

    def teardown(self):
        if self.ordered is None:
            return
        fleet = self.ordered.fleet
        try:
            if not self.ordered.numbers:
                self.ordered.start()
            fleet.calm_down()
            assert fleet.not_committed() == []
            assert self.ordered.early == []
            assert self.ordered.verdict().found == {}
        finally:
            fleet.close()


TestOrderByKey = Machine.TestCase
TestOrderByKey.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


class ParkingMachine(Machine):
    """The same where keys are parked."""

    parks = True


TestOrderOfParkedKeys = ParkingMachine.TestCase
TestOrderOfParkedKeys.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
