"""What notices say, and which one counts for a record."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import notices
from redrive.core.notices import (
    Board,
    Ended,
    Notice,
    Posted,
    is_of_retries,
    overlap,
    ranges_of,
    read_end,
    read_notice,
    write_end,
    write_notice,
)
from redrive.core.record import TopicPartition
from redrive.deadletters.letters import Position

TIER = TopicPartition("orders.retry.10m", 3)
offset_sets = st.sets(st.integers(0, 60))


def notice(*ranges, action="discard", job="job-1", when_ms=1_000, why="wrong prices"):
    return Notice(action, "shop", "a1b2", ranges, "ann@host", when_ms, job, why)


def board_with(*posted):
    board = Board()
    for number, one in enumerate(posted):
        assert board.post(Posted(f"notice:{number}", TIER, one))
    return board


@given(
    ranges=offset_sets.filter(bool), action=st.sampled_from(["hurry", "discard"]), why=st.text(max_size=1_000)
)
def test_a_notice_is_read_as_it_was_written(ranges, action, why):
    written = notice(*ranges_of(sorted(ranges)), action=action, why=why)
    key, value = write_notice(TIER, written, 7)
    assert read_notice(key, value) == Posted("notice:orders.retry.10m/3/job-1/7", TIER, written)


def test_an_end_is_read_as_it_was_written():
    key, value = write_end(TIER, 17, notice((10, 20)), 5_000)
    assert read_end(key, value) == (
        TIER,
        17,
        Ended("discarded", "ann@host", 5_000, "job-1", "wrong prices"),
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"orders.dlq/0/17", b'{"state":"discarded"}'),
        (b"notice:orders.retry.10m/3/job-1/7", None),
        (b"notice:orders.retry.10m/3/job-1/7", b"\xff"),
        (b"notice:orders.retry.10m/x/job-1/7", write_notice(TIER, notice((1, 2)), 0)[1]),
        (b"notice:orders.retry.10m", write_notice(TIER, notice((1, 2)), 0)[1]),
        (b"notice:/3/job-1/7", write_notice(TIER, notice((1, 2)), 0)[1]),
        (b"notice:orders.retry.10m/-1/job-1/7", write_notice(TIER, notice((1, 2)), 0)[1]),
        (b"notice:orders.retry.10m/2147483648/job-1/7", write_notice(TIER, notice((1, 2)), 0)[1]),
        (b"notice:\xff/3/job-1/7", write_notice(TIER, notice((1, 2)), 0)[1]),
        (b"notice:orders.retry.10m/3/job-1/7", write_notice(TIER, notice(), 0)[1]),
        (b"notice:orders.retry.10m/3/job-1/7", write_notice(TIER, notice((5, 5)), 0)[1]),
        (b"notice:orders.retry.10m/3/job-1/7", write_notice(TIER, notice((5, 9), (8, 12)), 0)[1]),
        (b"notice:orders.retry.10m/3/job-1/7", write_notice(TIER, notice((-3, 9)), 0)[1]),
        (b"notice:orders.retry.10m/3/job-1/7", b"[" * 100_000),
        (b"notice:orders.retry.10m/3/job-1/7", write_notice(TIER, notice((1, 2), why="?" * 10_000), 0)[1]),
        (b"notice:orders.retry.10m/3/%s/7" % (b"j" * 10_000), write_notice(TIER, notice((1, 2)), 0)[1]),
    ],
)
def test_what_is_no_notice_counts_as_none(key, value):
    assert read_notice(key, value) is None


@given(key=st.none() | st.binary(max_size=40), value=st.none() | st.binary(max_size=200))
def test_whatever_a_state_topic_holds_nothing_is_raised(key, value):
    for prefix in (b"", b"notice:", b"retry:"):
        read_notice(None if key is None else prefix + key, value)
        read_end(None if key is None else prefix + key, value)


def test_keys_about_retries_are_no_positions_of_letters():
    keys = [write_notice(TIER, notice((1, 2)), 0)[0], write_end(TIER, 1, notice((1, 2)), 0)[0]]
    assert [is_of_retries(key) for key in keys] == [True, True]
    assert not is_of_retries(str(Position("orders.dlq", 0, 17)).encode())


@given(offset_sets)
def test_ranges_hold_the_offsets_that_they_were_made_of(offsets):
    ranges = list(ranges_of(sorted(offsets)))
    assert [offset for first, end in ranges for offset in range(first, end)] == sorted(offsets)
    assert all(end < first for (_, end), (first, _) in pairwise(ranges))


@given(offset_sets, offset_sets)
def test_the_overlap_is_what_both_have(ones, others):
    assert overlap([*ranges_of(sorted(ones))], [*ranges_of(sorted(others))]) == len(ones & others)


@given(st.lists(st.tuples(st.booleans(), offset_sets.filter(bool)), max_size=5), offset_sets)
def test_of_several_notices_a_discard_counts_else_the_earliest(posted, held):
    ones = [
        notice(
            *ranges_of(sorted(offsets)), action="discard" if is_discard else "hurry", when_ms=at, job=f"{at}"
        )
        for at, (is_discard, offsets) in enumerate(posted)
    ]
    about = board_with(*ones).about(TIER, sorted(held))

    for offset in held:
        meant = [one for one in ones if any(first <= offset < end for first, end in one.ranges)]
        expected = [one for one in meant if one.action == "discard"] or meant
        assert about.get(offset) == (expected[0] if expected else None)


def test_a_notice_covers_what_lies_between_its_first_and_last_offset():
    board = board_with(notice((10, 12), (20, 22)))
    assert [board.covers(TIER, *span) for span in ((0, 10), (0, 11), (12, 20), (21, 30), (22, 30))] == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_notices_about_finished_records_only_are_taken_down():
    board = board_with(notice((10, 12)), notice((11, 14)))

    board.prune({TIER: 12})
    assert dict(board.about(TIER, [11, 13])) == {11: notice((11, 14)), 13: notice((11, 14))}
    board.prune({TIER: 14})
    assert TIER not in board


def test_more_ranges_than_memory_is_meant_for_are_refused_and_fit_when_others_are_done():
    half = notice(*((at, at + 1) for at in range(0, notices.RANGES_MOST, 2)))
    board = board_with(
        half, known := notice(*((at, at + 1) for at in range(0, notices.RANGES_MOST, 2)), job="2")
    )
    assert not board.post(Posted("notice:more", TIER, notice((1, 2))))
    assert board.post(Posted("notice:1", TIER, known))  # known already

    board.prune({TIER: 1 << 40})
    assert board.post(Posted("notice:more", TIER, notice((1, 2))))
