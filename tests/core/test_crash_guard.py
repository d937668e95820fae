"""The crash guard finds the record that kills processes, and blames no other, whatever happens to them."""

from collections import Counter

import pytest

from redrive.core.crash_guard import (
    CRASHES_MOST,
    REACH_OFFSETS,
    UNUSED_MS,
    CrashGuard,
    Suspicion,
    suspicion_of,
)
from redrive.core.metadata import NO_LEDGER, Ledger
from redrive.core.offsets import OffsetMap
from redrive.core.record import TopicPartition
from tests.core.guard_world import World

ORDERS = TopicPartition("orders", 0)
OURS = "ours"

JUDGED = {
    "nothing was ever committed": (NO_LEDGER, {}, Suspicion()),
    "a clean end": (Ledger(""), {}, Suspicion()),
    "our own, after the partition was lost": (Ledger(OURS), {}, Suspicion()),
    "the first unclean end": (Ledger("dead"), {}, Suspicion(1, 100 + REACH_OFFSETS)),
    "the first, with records finished far above": (
        Ledger("dead"),
        {"ranges": ((105, 107), (500, 900))},
        Suspicion(1, 900 + REACH_OFFSETS),
    ),
    "nothing beyond the end has run": (Ledger("dead"), {"end": 140}, Suspicion(1, 140)),
    "nothing was left to run": (Ledger("dead"), {"end": 100}, Suspicion()),
    "the second: what had started is known": (
        Ledger("dead", 1, 70_000, 1_500),
        {},
        Suspicion(2, 1_500, 1_500),
    ),
    "the second, near the end": (
        Ledger("dead", 1, 70_000, 1_500),
        {"end": 130},
        Suspicion(2, 130, 1_500),
    ),
    "the third, while no suspect ran": (Ledger("dead", 2, 900, 2_000), {}, Suspicion(3, 2_000, 2_000)),
    "the third, in a solo run": (Ledger("dead", 2, 900, 2_000, 120), {}, Suspicion(named=120)),
    "many, in a solo run": (Ledger("dead", 7, 900, 2_000, 100), {}, Suspicion(named=100)),
    "a solo run that had ended": (Ledger("dead", 2, 900, 2_000, 99), {}, Suspicion(3, 2_000, 2_000)),
    "a solo run that had ended above the frontier": (
        Ledger("dead", 2, 900, 2_000, 120),
        {"ranges": ((110, 130),)},
        Suspicion(3, 2_000, 2_000),
    ),
    "our own solo run": (Ledger(OURS, 2, 900, 2_000, 120), {}, Suspicion(2, 900, 2_000)),
    "a clean end between the crashes": (Ledger("", 2, 900), {}, Suspicion(2, 900)),
    "a clean end behind the suspects": (Ledger("", 2, 90), {}, Suspicion()),
    "named, and then a clean end": (Ledger("", solo=120), {}, Suspicion(named=120)),
    "named, and lost": (Ledger(OURS, solo=120), {}, Suspicion(named=120)),
    "named, and then a crash": (Ledger("dead", solo=120), {}, Suspicion(1, 100 + REACH_OFFSETS, named=120)),
    "named, and then two crashes": (
        Ledger("dead", 1, 500, 1_500, 120),
        {},
        Suspicion(1, 1_500, 1_500, 120),
    ),
    "named and finished": (Ledger("", solo=90), {}, Suspicion()),
    "more crashes than are counted": (
        Ledger("dead", 10**30, 900, 2_000),
        {},
        Suspicion(CRASHES_MOST, 2_000, 2_000),
    ),
}


@pytest.mark.parametrize("case", JUDGED)
def test_a_ledger_is_judged_by_who_wrote_it_and_what_is_finished(case):
    ledger, known, expected = JUDGED[case]
    assert suspicion_of(ledger, OURS, 100, **known) == expected


class Alone:
    """One watched partition whose commits are answered at once."""

    def __init__(self, ledger, frontier=0, **known):
        self.outbox = []
        self.guard = CrashGuard(OURS, self.outbox)
        self.guard.learn([ledger])
        self.watch = self.guard.watch(ORDERS, ledger, frontier, **known)
        self.offsets = OffsetMap(frontier)
        self.ms = 0.0

    def commit(self):
        ledger = self.watch.ledger(self.offsets)
        self.watch.acked(ledger, self.ms)
        return ledger

    def admit(self, *offsets, runs_out=0):
        """How many of these ascending offsets may start now."""
        if self.watch.is_suspect(offsets[0]):
            return int(self.watch.may_run_alone(offsets[0], runs_out, self.ms))
        if offsets[0] == self.watch.named:
            return 1
        bound = self.watch.bound(offsets[0])
        run = offsets[: self.guard.run_most]
        self.watch.reach(run[-1])
        return sum(offset < bound for offset in run)


def test_nothing_starts_before_the_opened_ledger_is_acknowledged():
    alone = Alone(NO_LEDGER)
    assert (alone.admit(0, 1), alone.guard.wanting()) == (0, [ORDERS])
    alone.watch.ledger(alone.offsets)
    assert (alone.admit(0, 1), alone.guard.wanting()) == (0, [ORDERS])
    assert alone.commit() == Ledger(OURS)
    assert (alone.watch.is_free, alone.guard.watched, alone.guard.wanting()) == (True, {}, [])


def test_without_crashes_everything_may_start_and_the_ledger_stays_as_it_is():
    alone = Alone(NO_LEDGER)
    alone.commit()
    assert alone.admit(1 << 62) == 1
    assert alone.commit() == Ledger(OURS)


def test_after_the_first_crash_the_ceiling_is_raised_before_anything_has_to_wait_for_it():
    alone = Alone(Ledger("dead"))
    assert alone.commit() == Ledger(OURS, 1, REACH_OFFSETS, 1_000)
    started = 0
    for _ in range(20):
        run = range(started, started + 1_000)
        started += alone.admit(*run)
        wants = alone.watch.wants_commit
        assert started < alone.watch.ledger(alone.offsets).ceil
        if wants:
            alone.commit()
    assert started == 20 * 500


def test_no_record_at_the_ceiling_starts_before_a_higher_one_is_acknowledged():
    alone = Alone(Ledger("dead"))
    alone.commit()
    assert alone.admit(0, 998, 999, 1_000) == 3
    assert (alone.admit(1_000), alone.watch.wants_commit) == (0, True)
    assert alone.watch.ledger(alone.offsets).ceil == 2_000
    assert alone.admit(1_000) == 0
    alone.commit()
    assert alone.admit(1_000) == 1


def test_a_gap_wider_than_the_step_does_not_stop_a_partition():
    alone = Alone(Ledger("dead"))
    alone.commit()
    assert alone.admit(5_000_000) == 0
    alone.commit()
    assert alone.admit(5_000_000) == 1


def test_suspects_run_one_by_one_each_named_by_an_acknowledged_commit():
    alone = Alone(Ledger("dead", 1, 9_000, 3), end=2)
    alone.commit()
    ran = []
    for offset in (0, 1):
        assert alone.admit(offset, 2) == 0
        assert alone.commit() == Ledger(OURS, 2, 2, 1_000, offset)
        assert alone.admit(offset, 2, runs_out=1) == 0
        ran.append(alone.admit(offset, 2))
        alone.watch.ended()
        alone.offsets.settle(offset + 1)
    assert ran == [1, 1]
    assert alone.admit(2) == 0, "the broker still believes that 1 runs alone"
    assert alone.commit() == Ledger(OURS)
    assert alone.guard.turn is None
    assert alone.admit(2) == 1


def test_a_name_that_was_sent_but_not_confirmed_is_taken_back_by_a_commit():
    alone = Alone(Ledger("dead", 1, 9_000, 3))
    alone.commit()
    alone.admit(0)
    assert alone.watch.ledger(alone.offsets).solo == 0
    alone.ms = 1_000.0
    alone.guard.tick(alone.ms)
    assert (alone.guard.turn, alone.watch.wants_commit) == (alone.watch, True)
    assert alone.commit().solo == -1
    assert (alone.guard.turn, alone.watch.wants_commit) == (None, False)


def test_a_suspect_waits_until_a_name_that_was_sent_before_its_own_is_replaced():
    """The commit that names another may still arrive."""
    alone = Alone(Ledger("dead", 1, 9_000, 3))
    alone.commit()
    alone.admit(0)
    alone.commit()
    alone.admit(1)
    assert alone.watch.ledger(alone.offsets).solo == 1
    assert alone.admit(0) == 0
    alone.commit()
    assert alone.admit(0) == 1


def test_a_named_record_is_given_out_by_itself_and_named_until_it_is_finished():
    alone = Alone(Ledger("dead", 2, 9_000, 10_000, 5))
    alone.offsets.open(range(8))
    alone.offsets.settle(8)
    assert alone.commit() == Ledger(OURS, solo=5)
    assert alone.admit(3, 4, 5, 6, 7) == 2
    assert alone.admit(5, 6, 7) == 1
    assert alone.watch.closed(alone.offsets) == Ledger("", solo=5)
    alone.offsets.close(5)
    assert alone.watch.wants_commit is False
    assert alone.commit() == Ledger(OURS)
    assert alone.watch.is_free


def test_a_clean_end_closes_the_ledger_and_names_nobody():
    alone = Alone(Ledger("dead", 1, 9_000, 30))
    alone.commit()
    alone.admit(0)
    alone.commit()
    assert alone.admit(0) == 1
    assert alone.watch.closed(alone.offsets) == Ledger("", 2, 30)


def test_who_died_in_a_solo_run_is_no_reason_to_suspect_its_other_partitions():
    guard = CrashGuard(OURS, [])
    payouts = TopicPartition("payouts", 0)
    ledgers = {ORDERS: Ledger("dead", 2, 900, 2_000), payouts: Ledger("dead", 2, 900, 2_000, 120)}
    guard.learn(ledgers.values())
    watches = {key: guard.watch(key, ledger, 100) for key, ledger in ledgers.items()}
    found = {key: (watch.crashes, watch.named) for key, watch in watches.items()}
    assert found == {ORDERS: (0, -1), payouts: (0, 120)}


class TwoOfThem:
    """Two partitions with suspects, of one process."""

    def __init__(self):
        self.guard = CrashGuard(OURS, [])
        self.offsets = OffsetMap(0)
        keys = [ORDERS, TopicPartition("orders", 1)]
        self.first, self.second = [self.guard.watch(key, Ledger("dead", 1, 9_000, 5_000), 0) for key in keys]
        self.commit(0.0)

    def commit(self, ms):
        for watch in (self.first, self.second):
            watch.acked(watch.ledger(self.offsets), ms)


def test_suspects_of_another_partition_wait_and_have_their_turn_afterwards():
    two = TwoOfThem()
    two.first.may_run_alone(0, 0, 0.0)
    assert not two.second.may_run_alone(0, 0, 0.0)
    two.commit(1.0)
    assert not two.second.may_run_alone(0, 0, 1.0)
    assert two.first.may_run_alone(0, 0, 1.0)
    two.first.ended()
    two.commit(2.0)
    assert two.guard.turn is None
    assert not two.second.may_run_alone(0, 0, 4.0), "it asks for the process"
    assert two.guard.turn is two.second


def _after_a_stretch(two):
    """Suspects of the first follow each other until the process is given back. Gives when that was."""
    ms = 0.0
    for offset in range(100):
        if not two.first.may_run_alone(offset, 0, ms) and two.guard.turn is not two.first:
            break
        ms += 30.0
        two.commit(ms)
        if two.first.may_run_alone(offset, 0, ms):
            two.first.ended()
        two.guard.tick(ms)
    assert 1_000.0 <= ms < 1_200.0
    return int(ms)


def test_after_a_stretch_of_suspects_others_have_the_process_for_as_long():
    two = TwoOfThem()
    given_back_ms = _after_a_stretch(two)
    for ms in range(given_back_ms, int(1.9 * given_back_ms), 10):
        two.first.may_run_alone(99, 1, ms)
        assert two.guard.turn is None
    two.first.may_run_alone(99, 1, 2.1 * given_back_ms)
    assert two.guard.turn is two.first


def test_what_others_leave_unused_of_their_time_suspects_have():
    two = TwoOfThem()
    given_back_ms = _after_a_stretch(two)
    two.first.may_run_alone(99, 1, given_back_ms + 100)
    two.first.may_run_alone(99, 0, given_back_ms + 100 + UNUSED_MS - 1)
    assert two.guard.turn is None
    two.first.may_run_alone(99, 0, given_back_ms + 100 + UNUSED_MS)
    assert two.guard.turn is two.first


def test_of_several_partitions_with_suspects_each_has_its_turn_whoever_asks_first():
    guard = CrashGuard(OURS, [])
    offsets = OffsetMap(0)
    watches = [
        guard.watch(TopicPartition("orders", number), Ledger("dead", 1, 9_000, 5_000), 0)
        for number in range(4)
    ]
    runs = Counter()
    for ms in range(0, 60_000, 10):
        for number, watch in enumerate(watches):
            watch.acked(watch.ledger(offsets), ms)
            if number == 3 and ms > 30_000:
                continue  # it has no suspects any more
            if guard.turn in (None, watch) and watch.may_run_alone(0, 0, ms):
                runs[number, ms > 31_000] += 1
                watch.ended()
        guard.tick(ms)
    early, late = ([runs[number, is_late] for number in range(4)] for is_late in (False, True))
    assert min(early) > 0.8 * max(early)
    assert (min(late[:3]) > 0.8 * max(late), late[3]) == (True, 0)


def test_a_handler_that_never_ends_does_not_hold_the_process_up_for_ever():
    two = TwoOfThem()
    for ms in range(0, 10_001, 10):
        two.first.may_run_alone(0, 1, ms)
        two.guard.tick(ms)
    assert two.guard.turn is None
    two.first.may_run_alone(0, 1, 20_001.0)
    assert two.guard.turn is two.first


def test_a_partition_that_is_forgotten_gives_the_process_back():
    two = TwoOfThem()
    two.first.may_run_alone(0, 0, 0.0)
    two.guard.forget(two.first)
    assert two.guard.turn is None


def test_a_partition_that_comes_back_with_a_name_of_ours_has_the_process_until_a_commit_takes_it_back():
    """Else what kills the process meanwhile would have that record blamed."""
    guard = CrashGuard(OURS, [])
    back = guard.watch(ORDERS, Ledger(OURS, 2, 900, 2_000, 120), 100)
    other = guard.watch(TopicPartition("orders", 1), NO_LEDGER, 0)
    other.acked(other.ledger(OffsetMap(0)), 5_000.0)
    guard.tick(5_100.0)
    assert (other.is_free, other.bound(0), guard.turn) == (True, 0, back)
    back.acked(back.ledger(OffsetMap(100)), 5_200.0)
    assert (other.bound(0) > 0, guard.turn) == (True, None)
    assert not back.may_run_alone(100, 0, 5_200.0 + UNUSED_MS)
    back.acked(back.ledger(OffsetMap(100)), 5_300.0)
    assert back.may_run_alone(100, 0, 5_300.0)


def test_where_the_commit_that_would_take_a_name_back_is_refused_the_others_go_on_after_ten_seconds():
    guard = CrashGuard(OURS, [])
    guard.watch(ORDERS, Ledger(OURS, 2, 900, 2_000, 120), 100)
    other = guard.watch(TopicPartition("orders", 1), NO_LEDGER, 0)
    other.acked(other.ledger(OffsetMap(0)), 0.0)
    may_start = {}
    for ms in (0.0, 9_999.0, 10_000.0):
        guard.tick(ms)
        may_start[ms] = other.bound(0) > 0
    assert may_start == {0.0: False, 9_999.0: False, 10_000.0: True}


def test_a_partition_that_comes_back_with_a_name_waits_for_a_suspect_at_work_and_has_the_process_then():
    two = TwoOfThem()
    two.first.may_run_alone(0, 0, 0.0)
    back = two.guard.watch(TopicPartition("orders", 2), Ledger(OURS, 2, 900, 2_000, 120), 100)
    assert two.guard.turn is two.first
    two.guard.forget(two.first)
    assert two.guard.turn is back


def test_the_killer_is_found_after_three_deaths_though_the_frontier_was_far_behind():
    world = World([range(3_000)], killers=[(0, 2_345)])
    world.finish()
    assert (world.deaths, world.dead_letters) == ({(0, 2_345): 3}, {(0, 2_345): 1})


def test_the_solo_phase_takes_no_more_commits_than_there_are_suspects():
    world = World([range(3_000)], killers=[(0, 2_345)], knows_end=True)
    world.finish()
    assert 0 < world.solo_commits <= 40


def test_three_kills_from_outside_blame_nobody():
    world = World([range(200)])
    for _ in range(3):
        process = world.start()
        world.assign(process, *world.logs)
        world.begin_commit(process)
        world.end_commit(process)
        for key in world.logs:
            world.fetch(process, key)
            world.dispatch(process, key)
        world.kill(process)
    world.finish()
    assert (world.dead_letters, world.named) == ({}, set())


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("count", [2, 3])
def test_each_of_several_killers_is_found(partitions, count):
    killers = [(index % partitions, 10 + 7 * index) for index in range(count)]
    world = World([range(60)] * partitions, killers=killers)
    world.finish()
    assert set(world.dead_letters) == set(killers)


def test_a_killer_beyond_the_reach_of_the_guard_is_found_all_the_same():
    """The bound after the first crash may be too small: then each death moves the partition on."""
    world = World([[0, 1, 1_000, 2_000, 3_000, 3_001, 3_002]], killers=[(0, 3_001)], reach=5)
    world.finish()
    assert world.dead_letters == {(0, 3_001): 1}
    assert world.deaths[0, 3_001] <= 5
