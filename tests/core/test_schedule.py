"""The waiting room of a tier: out of it by due, whatever the order of arrival."""

from hypothesis import given
from hypothesis import strategies as st

from redrive.core.schedule import NEVER_MS, RECORD_OVERHEAD_BYTES, REPOST_AFTER_MS, Window, wake_of
from redrive.sim.records import SimRecord


def _record(offset: int, value: bytes = b"xx") -> SimRecord:
    return SimRecord("t", 0, offset, None, value, (), 0)


def _hold(*dues: int) -> Window:
    window = Window()
    for offset, due in enumerate(dues):
        window.hold(due, _record(offset))
    return window


def test_records_leave_by_their_due_and_not_by_their_offset():
    window = _hold(30, 10, 20, 40)
    assert window.next_wake_ms() == 10
    assert [(wake, record.offset()) for wake, record in window.take(30, 99)] == [(10, 1), (20, 2), (30, 0)]
    assert (len(window), window.next_wake_ms()) == (1, 40)


def test_nothing_leaves_before_its_due():
    window = _hold(100)
    assert window.take(99.999, 99) == []
    assert len(window.take(100.0, 99)) == 1


def test_an_empty_window_never_wakes():
    assert Window().next_wake_ms() == NEVER_MS
    assert Window().take(1e18, 99) == []


def test_no_more_leave_than_were_asked_for():
    window = _hold(1, 2, 3, 4)
    assert [record.offset() for _, record in window.take(10, 3)] == [0, 1, 2]
    assert [record.offset() for _, record in window.take(10, 3)] == [3]


def test_records_with_one_due_leave_in_the_order_in_which_they_came():
    window = _hold(7, 5, 5, 5, 7)
    assert [record.offset() for _, record in window.take(7, 99)] == [1, 2, 3, 0, 4]


@given(st.lists(st.one_of(st.integers(0, 50), st.none()), max_size=60), st.integers(1, 5))
def test_any_walk_gives_each_record_once_in_time_and_accounts_for_its_bytes(steps, most):
    """A number arrives with that due; None: time passes, and what is due is taken."""
    window, now, held, taken = Window(), 0, {}, []
    for offset, due in enumerate(steps):
        if due is not None:
            window.hold(due, _record(offset, b"x" * due))
            held[offset] = due
            continue
        now += 7
        batch = window.take(now, most)
        dues = [wake for wake, _ in batch]
        assert dues == sorted(held.values())[: len(dues)]
        assert len(dues) == min(most, sum(due <= now for due in held.values()))
        taken += [record.offset() for _, record in batch]
        for _, record in batch:
            del held[record.offset()]
        assert window.held_bytes == sum(held.values()) + RECORD_OVERHEAD_BYTES * len(held)
        assert window.next_wake_ms() == min(held.values(), default=NEVER_MS)
    assert len(taken) == len(set(taken))
    assert len(window) == len(held)


class TestWhenToLookAtARecord:
    def test_at_its_due_when_its_tier_is_about_right_for_it(self):
        assert wake_of(due_ms=600_000, timestamp_ms=0, delay_ms=600_000) == 600_000
        assert wake_of(due_ms=1_200_000, timestamp_ms=0, delay_ms=600_000) == 1_200_000  # full jitter
        assert wake_of(due_ms=-5, timestamp_ms=0, delay_ms=600_000) == -5

    def test_after_one_delay_to_be_posted_on_when_it_waits_much_longer(self):
        assert wake_of(due_ms=9_000_000, timestamp_ms=0, delay_ms=600_000) == 600_000

    def test_a_short_tier_is_not_written_to_all_day(self):
        assert wake_of(due_ms=9_000_000, timestamp_ms=0, delay_ms=5_000) == REPOST_AFTER_MS

    @given(st.integers(0, 10**12), st.integers(0, 10**12), st.integers(1, 10**9))
    def test_never_after_the_due(self, due_ms, timestamp_ms, delay_ms):
        assert wake_of(due_ms, timestamp_ms, delay_ms) <= due_ms
