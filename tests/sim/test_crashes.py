"""A record that kills the process: it is found, it alone is blamed, and all others are handled."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from redrive import RetryPolicy
from redrive.core.dialects import read_envelope
from tests.sim.mortal_fleet import MortalFleet

WAYS = {
    "order by partition": {"order": "partition"},
    "order by key": {"order": "key", "concurrency": 4},
    "no order": {"order": "none", "concurrency": 4},
    "waiting in its key": {
        "order": "key",
        "concurrency": 4,
        "policy": RetryPolicy("5s", "30s", blocking="key"),
    },
    "waiting in its partition": {
        "order": "partition",
        "policy": RetryPolicy("5s", "30s", blocking="partition"),
    },
    "exactly once": {"delivery": "exactly-once"},
    "exactly once, waiting in its key": {
        "delivery": "exactly-once",
        "order": "key",
        "concurrency": 4,
        "policy": RetryPolicy("5s", "30s", blocking="key"),
    },
}


@pytest.fixture
def make():
    made = []

    def make(**options):
        made.append(MortalFleet(**options))
        return made[-1]

    yield make
    for one in made:
        one.fleet.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_record_that_kills_its_process_is_a_dead_letter_after_three_deaths(make, way):
    mortal = make(**WAYS[way])
    mortal.send(30)
    [killer] = _killer(mortal, kills_at=1)
    mortal.send(30)
    mortal.finish()

    assert mortal.deaths == {killer: 3}
    assert mortal.letters("crashed") == {killer: 1} == mortal.letters()
    assert set(mortal.handled) == {task.id for task in mortal.sent} - {killer}


@pytest.mark.parametrize("way", WAYS)
def test_also_one_that_kills_at_its_second_run(make, way):
    mortal = make(**WAYS[way])
    mortal.send(10)
    [killer] = _killer(mortal, fails=1, kills_at=2)
    mortal.send(10)
    mortal.finish()

    assert mortal.deaths == {killer: 3}
    assert mortal.letters() == mortal.letters("crashed") == {killer: 1}
    [letter] = mortal.fleet.cluster.records("orders.dlq")
    assert read_envelope(letter.headers())[0].attempt == 2


def test_the_death_is_told_on_the_letter_and_in_the_log(make):
    mortal = make()
    _killer(mortal, kills_at=1)
    mortal.finish()

    [letter] = mortal.fleet.cluster.records("orders.dlq")
    envelope = read_envelope(letter.headers())[0]
    assert (envelope.reason, envelope.attempt) == ("crashed", 1)
    said = b" ".join(value for _, value in letter.headers())
    assert b"ProcessCrashed" in said
    assert b"ended without a word" in said
    assert [fields["crashes"] for fields in mortal.told("crash-suspected")] == [1, 2]
    assert [fields["offset"] for fields in mortal.told("crash-named")] == [0]


def test_a_record_that_walks_through_a_fleet_is_stopped_after_three_processes(make):
    mortal = make(partitions=6, processes=3, order="key", concurrency=4)
    mortal.send(60)
    [killer] = _killer(mortal, kills_at=1)
    mortal.send(60)
    mortal.finish()

    assert mortal.deaths == {killer: 3}
    assert mortal.letters() == {killer: 1}


def test_nothing_else_runs_in_the_process_beside_a_suspect(make):
    mortal = make(partitions=3, concurrency=4)
    mortal.send(60, takes_s=0.05)
    [killer] = _killer(mortal, kills_at=1, takes_s=0.05)
    while mortal.deaths[killer] < 2:
        mortal.advance(1_000)
    mortal.advance(300)
    # Behind the suspects: they run as soon as those of their own partition are passed.
    mortal.send(120, takes_s=0.05)
    mortal.finish()

    assert mortal.deaths == {killer: 3}
    assert mortal.beside == set(), "something ran beside a suspect"


@pytest.mark.parametrize("after", ["block", "divert"])
def test_records_of_its_key_wait_for_the_named_one_or_follow_it(make, after):
    policy = RetryPolicy("5s", "30s", blocking="key", after_dead_letter=after)
    mortal = make(order="key", concurrency=4, policy=policy)
    mortal.send(10)
    mortal.send(1, key=b"its own", kills_at=1)
    killer = mortal.sent[-1].id
    mortal.send(1, key=b"its own")
    behind = mortal.sent[-1].id
    mortal.send(10)
    mortal.advance(300_000)

    assert mortal.deaths == {killer: 3}
    assert mortal.letters("crashed") == {killer: 1}
    assert set(mortal.handled) == {task.id for task in mortal.sent} - {killer, behind}
    assert set(mortal.letters()) == ({killer} if after == "block" else {killer, behind})


def test_killers_in_two_partitions_are_both_found_and_no_other_is_blamed(make):
    mortal = make(partitions=2)
    mortal.send(20)
    killers = [_killer(mortal, partition=number, kills_at=1)[0] for number in (0, 1)]
    mortal.send(20)
    mortal.finish()

    # The other one may kill the process between a letter and the commit that tells of it: then it is written again.
    assert mortal.letters().keys() == set(killers)
    assert sum(mortal.deaths.values()) <= 6


def test_processes_that_are_killed_again_and_again_blame_no_record(make):
    mortal = make(partitions=2, order="key", concurrency=4)
    for _ in range(8):
        mortal.send(40, takes_s=0.3)
        mortal.advance(1_000)
        if mortal.fleet.processes[0].process.engine.caution.guard.turn is None:
            mortal.kill(0)
        mortal.replace()
    mortal.finish()

    assert mortal.unlucky == set()
    assert mortal.letters() == {}
    assert len(mortal.handled) == 320


def test_a_clean_end_is_no_crash(make):
    mortal = make()
    for _ in range(5):
        mortal.send(10, takes_s=0.1)
        mortal.advance(250)
        mortal.stop(0)
        mortal.replace()
    mortal.finish()

    assert mortal.told("crash-suspected") == []


def test_the_named_record_does_not_run_though_its_letter_could_not_be_written_before_the_next_death(make):
    mortal = make()
    [killer] = _killer(mortal, kills_at=1)
    mortal.send(5)
    while mortal.deaths[killer] < 3:
        mortal.advance(1_000)
    mortal.fleet.cluster.faults.acks_are_held = True
    for _ in range(3):
        mortal.advance(5_000)
        mortal.kill(0)
        mortal.replace()
    mortal.fleet.cluster.faults.acks_are_held = False
    mortal.finish()

    assert mortal.deaths == {killer: 3}
    assert mortal.letters().keys() == {killer}


def _killer(mortal, **task):
    mortal.send(1, **task)
    return [mortal.sent[-1].id]


class Machine(RuleBasedStateMachine):
    """Processes die of records and are killed at any moment; the last word is about who was blamed and who was handled."""

    mortal = None

    @initialize(
        partitions=st.integers(1, 3),
        processes=st.integers(1, 3),
        seed=st.one_of(st.none(), st.integers(0, 1000)),
        way=st.sampled_from(sorted(WAYS)),
    )
    def begin(self, partitions, processes, seed, way):
        self.kills = 0
        self.mortal = MortalFleet(partitions=partitions, seed=seed, processes=processes, **WAYS[way])
        self.mortal.advance(100)

    @rule(count=st.integers(1, 20), fails=st.sampled_from([0, 0, 1]), takes_s=st.sampled_from([0, 0.01, 1]))
    def records_are_sent(self, count, fails, takes_s):
        self.mortal.send(count, fails=fails, takes_s=takes_s)

    @precondition(lambda self: sum(bool(task.kills_at) for task in self.mortal.sent) < 3)
    @rule(kills_at=st.sampled_from([1, 1, 2]))
    def a_killer_is_sent(self, kills_at):
        self.mortal.send(1, fails=kills_at - 1, kills_at=kills_at)

    @rule(ms=st.sampled_from([0, 1, 5, 100, 1_000, 6_000]))
    def time_passes(self, ms):
        self.mortal.advance(ms)

    @precondition(lambda self: self.mortal.fleet.processes)
    @rule(data=st.data())
    def a_process_is_killed(self, data):
        self.kills += 1
        self.mortal.kill(data.draw(st.integers(0, len(self.mortal.fleet.processes) - 1)))
        self.mortal.replace()

    @precondition(lambda self: self.mortal.fleet.processes)
    @rule(data=st.data())
    def a_process_stops(self, data):
        self.mortal.stop(data.draw(st.integers(0, len(self.mortal.fleet.processes) - 1)))
        self.mortal.replace()

    @rule(held=st.booleans())
    def answers_to_commits_are_held(self, held):
        self.mortal.fleet.cluster.faults.commits_are_held = held

    def teardown(self):
        mortal = self.mortal
        if mortal is None:
            return
        try:
            mortal.fleet.cluster.faults.commits_are_held = False
            mortal.finish()
            killers = {task.id for task in mortal.sent if task.kills_at}
            assert mortal.letters("crashed").keys() <= killers | mortal.unlucky, (
                "a record is blamed that killed nobody"
            )
            assert killers <= mortal.letters("crashed").keys()
            # A single one three; several disturb each other's count. A kill from outside may spoil what was known.
            most = 6 * len(killers) - 3 if killers else 0
            assert mortal.ends <= most * (1 + self.kills)
        finally:
            mortal.fleet.close()


TestKilledAtAnyMoment = Machine.TestCase
TestKilledAtAnyMoment.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
