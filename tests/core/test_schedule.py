"""Held records are given out by their due, and those that wait longer than their tier are written again now and then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.schedule import NEVER_MS, RECORD_OVERHEAD_BYTES, REPOST_AFTER_MS, Window, wake_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@pytest.mark.parametrize("delay_ms", [0, 1, 1_000, 5_000, 60_000, HOUR_MS, 8 * DAY_MS])
def test_what_the_ladder_itself_asks_for_is_simply_waited_for_also_with_the_largest_jitter(delay_ms):
    for due_ms in (delay_ms, 2 * delay_ms):
        assert wake_of(1_000 + due_ms, 1_000, delay_ms) == 1_000 + due_ms


@given(
    delay_ms=st.one_of(st.just(0), st.integers(1, 120_000), st.integers(1, 30 * DAY_MS)),
    wait_ms=st.integers(-HOUR_MS, 7 * DAY_MS),
)
def test_a_record_that_waits_longer_is_written_again_no_more_than_once_a_minute_and_never_late(
    delay_ms, wait_ms
):
    timestamp_ms, due_ms, copies = 0, wait_ms, 0
    while (wake_ms := wake_of(due_ms, timestamp_ms, delay_ms)) != due_ms:
        assert wake_ms < due_ms
        assert wake_ms - timestamp_ms >= max(REPOST_AFTER_MS, delay_ms)
        timestamp_ms, copies = wake_ms, copies + 1
    assert copies <= wait_ms / max(REPOST_AFTER_MS, delay_ms) if wait_ms > 0 else copies == 0


@pytest.mark.parametrize("delay_ms", [0, 5_000, HOUR_MS])
def test_a_copy_is_written_before_the_tiers_retention_reaches_the_one_before(delay_ms):
    """Tiers are to keep records for twice their delay, and an outage of a few minutes at the very least."""
    assert wake_of(365 * DAY_MS, 0, delay_ms) <= max(2 * delay_ms, REPOST_AFTER_MS)


@given(
    held=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=40),
    meant=st.sets(st.integers(0, 9)),
)
def test_what_is_pulled_is_gone_and_the_rest_comes_in_its_order(held, meant):
    window, other = Window(), Window()
    for wake_ms, size in held:
        window.hold(wake_ms, Held(size, size))
        if size not in meant:
            other.hold(wake_ms, Held(size, size))

    pulled = window.pull(lambda _, record: record.name in meant)

    assert sorted((wake_ms, record.name) for wake_ms, record in pulled) == sorted(
        (wake_ms, size) for wake_ms, size in held if size in meant
    )
    assert (len(window), window.held_bytes) == (len(other), other.held_bytes)
    rest, expected = window.take(100, 100), other.take(100, 100)
    assert [(wake_ms, one.name) for wake_ms, one in rest] == [
        (wake_ms, one.name) for wake_ms, one in expected
    ]


class Held:
    """What a window needs of a record."""

    def __init__(self, name, size=10):
        self.name = name
        self._size = size

    def __len__(self):
        return self._size


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 99)), max_size=60), st.integers(1, 10))
def test_whatever_is_held_comes_out_once_not_before_its_time_and_the_earliest_first(held, most):
    window = Window()
    for name, (wake_ms, size) in enumerate(held):
        window.hold(wake_ms, Held(name, size))
    taken = []
    for now_ms in range(51):
        while part := window.take(now_ms, most):
            assert len(part) <= most
            assert all(wake_ms <= now_ms for wake_ms, _ in part)
            taken += part
        assert window.next_wake_ms() > now_ms
    assert [wake_ms for wake_ms, _ in taken] == sorted(wake_ms for wake_ms, _ in held)
    assert sorted(record.name for _, record in taken) == list(range(len(held)))
    assert (len(window), window.held_bytes, window.next_wake_ms()) == (0, 0, NEVER_MS)


def test_what_a_window_holds_is_known_in_bytes():
    window = Window()
    window.hold(2, Held("a", 100))
    window.hold(1, Held("b", 50))
    assert window.held_bytes == 150 + 2 * RECORD_OVERHEAD_BYTES
    window.take(1, 10)
    assert window.held_bytes == 100 + RECORD_OVERHEAD_BYTES
