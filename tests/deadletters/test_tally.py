"""A tally says of each letter what whoever reads all of the state topic says, in little memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.deadletters.letters import Glance, Position
from redrive.deadletters.states import UNREADABLE, Mark, Release, State, follow
from redrive.deadletters.tally import Tally

OURS = Glance("payments", "permanent", "KeyError", "orders/0/1", "orders.retry.5s", dialect="redrive")


def tally(*, groups=("payments",), most=1_000):
    return Tally(groups, most=most)


def unresolved(tally):
    return {reason: count for reason, count in tally.unresolved.items() if count}


def filled(count):
    full = tally()
    for offset in range(count):
        full.add(0, offset, 1_000 + offset, OURS)
    return full


def at(offset, partition=0):
    return Position("orders.dlq", partition, offset)


REPLAYED = Mark(State.REPLAYED, job="a")


@pytest.mark.parametrize(
    ("seen", "counted"),
    [
        (OURS, {"permanent": 1}),
        (OURS._replace(reason="too-large"), {"too-large": 1}),
        (OURS._replace(reason="a reason with the customer's name"), {"other": 1}),
        (Glance("", "", "", "", ""), {"foreign": 1}),
        (OURS._replace(group=""), {"permanent": 1}),
        (OURS._replace(group="another"), {}),
    ],
)
def test_a_letter_counts_by_its_reason_when_it_is_ours_or_nobodys(seen, counted):
    one = tally()
    one.add(0, 0, 1_000, seen)
    assert unresolved(one) == counted


def test_all_reasons_are_told_from_the_start():
    assert set(tally().unresolved.values()) == {0}
    assert {"permanent", "exhausted", "foreign", "other"} <= tally().unresolved.keys()


def test_a_letter_that_was_taken_already_is_not_counted_twice():
    one = filled(3)
    one.add(0, 1, 1_001, OURS)
    assert unresolved(one) == {"permanent": 3}


def test_the_oldest_is_the_oldest_of_those_that_are_open():
    one = filled(3)
    assert one.oldest_ms() == 1_000
    one.change(at(0), REPLAYED)
    assert one.oldest_ms() == 1_001
    one.change(at(1), REPLAYED)
    one.change(at(2), REPLAYED)
    assert one.oldest_ms() is None


def test_a_change_of_a_letter_that_is_not_here_changes_nothing():
    one = filled(2)
    one.change(at(2), REPLAYED)
    one.change(at(0, partition=7), REPLAYED)
    assert unresolved(one) == {"permanent": 2}


def test_a_change_of_an_older_letter_at_its_place_changes_nothing():
    one = filled(1)
    one.change(at(0), Mark(State.REPLAYED, job="a", letter_ms=999))
    assert unresolved(one) == {"permanent": 1}
    one.change(at(0), Mark(State.REPLAYED, job="a", letter_ms=1_000))
    assert unresolved(one) == {}


def test_what_retention_deleted_is_forgotten_with_its_counts():
    one = filled(5)
    one.change(at(1), REPLAYED)
    one.forget_before(0, 3)
    assert (unresolved(one), one.oldest_ms()) == ({"permanent": 2}, 1_003)
    one.change(at(3), REPLAYED)
    assert (unresolved(one), one.oldest_ms()) == ({"permanent": 1}, 1_004)


def test_all_are_open_again_where_the_states_are_lost():
    one = filled(3)
    one.change(at(0), REPLAYED)
    one.change(at(1), REPLAYED)
    one.reopen()
    assert unresolved(one) == {"permanent": 3}
    one.change(at(1), REPLAYED)
    assert unresolved(one) == {"permanent": 2}


def test_a_full_tally_takes_no_more_also_when_older_ones_are_gone():
    small = tally(most=2)
    assert [small.add(0, offset, 1_000, OURS) for offset in range(3)] == [True, True, False]
    assert (unresolved(small), small.is_full) == ({"permanent": 2}, True)
    small.forget_before(0, 1)
    assert (small.add(0, 2, 1_000, OURS), small.kept, small.is_full) == (False, 1, True)


def test_a_million_letters_take_less_than_thirty_megabytes():
    one = filled(100_000)
    [columns] = one._partitions.values()
    held = sum(column.__sizeof__() for column in (columns.offsets, columns.times_ms, columns.jobs))
    held += columns.reasons.__sizeof__() + columns.states.__sizeof__()
    assert held < 100_000 * 30


JOBS = st.sampled_from(["", "a", "b", "c"])
CHANGES = st.one_of(
    st.builds(
        Mark, state=st.sampled_from(State), job=JOBS, over=st.none() | JOBS, letter_ms=st.none()
    ),
    st.builds(Release, job=JOBS),
    st.just(UNREADABLE),
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 1), CHANGES), max_size=40))
def test_after_each_change_the_same_letters_are_unresolved_as_by_the_protocol(changes):
    one = filled(2)
    marks = [None, None]
    for offset, change in changes:
        one.change(at(offset), change)
        marks[offset] = follow(marks[offset], change)
        left = sum(mark is None or not mark.state.is_final for mark in marks)
        assert sum(one.unresolved.values()) == left
