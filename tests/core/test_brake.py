"""The brake comes on when more than half of a minute's records died, lets one a second start, and is released by itself."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.core.brake import ENOUGH_RECORDS, INTAKE_INTERVAL_MS, SLICE_MS, WINDOW_MS, Brake


def braking(*, at_ms=0.0):
    brake = Brake()
    assert brake.finished(ENOUGH_RECORDS, ENOUGH_RECORDS, at_ms)
    return brake


def test_asking_whether_a_record_may_start_does_not_use_up_its_place():
    brake = braking()
    assert [brake.admits(INTAKE_INTERVAL_MS) for _ in range(3)] == [True, True, True]


def test_a_record_that_was_started_does_for_a_second():
    brake = braking()
    brake.admitted(INTAKE_INTERVAL_MS)
    assert [brake.admits(INTAKE_INTERVAL_MS + ms) for ms in (0, 999, 1_000)] == [False, False, True]


def test_the_first_record_after_the_brake_came_on_waits_a_second():
    brake = braking(at_ms=5_000)
    assert [brake.admits(ms) for ms in (5_000, 5_999, 6_000)] == [False, False, True]


@pytest.mark.parametrize(
    ("finished", "dead", "is_on"), [(49, 49, False), (50, 25, False), (50, 26, True), (1_000, 500, False)]
)
def test_it_comes_on_when_more_than_half_of_at_least_fifty_died(finished, dead, is_on):
    brake = Brake()
    assert (brake.finished(finished, dead, 0), brake.is_on) == (is_on, is_on)


def test_it_is_released_when_the_share_has_fallen():
    brake = braking()
    assert not brake.finished(49, 0, 1_000)
    assert brake.finished(1, 0, 2_000)
    assert not brake.is_on


def test_once_on_it_stays_on_though_only_few_records_finish():
    brake = braking()
    for second in range(1, 300):
        assert not brake.finished(1, 1, second * 1_000.0)


def test_it_is_released_when_nothing_finishes_for_a_minute():
    brake = braking()
    assert not brake.refresh(WINDOW_MS - 1_000)
    assert brake.refresh(WINDOW_MS + 1_000)
    assert not brake.is_on


@given(st.lists(st.tuples(st.integers(0, 200), st.floats(0, 1), st.integers(0, 20_000)), max_size=60))
@example([(48, 0.0, 1), (30, 1.0, 19_999), (3, 0.0, 20_000), (21, 1.0, 20_000), (0, 0.0, 0)])
def test_as_long_as_the_headroom_is_kept_no_minute_has_more_dead_letters_than_fifty_or_half_of_its_records(
    batches,
):
    """
    `headroom` is what the engine gives to its runs: what they may kill before their first result is counted. A minute
    is sixty whole seconds, the last one begun.
    """
    brake, mono_ms, seen = Brake(), 0.0, []
    for count, share, then_ms in batches:
        dead = min(int(share * count), brake.headroom())
        brake.finished(count, dead, mono_ms)
        seen.append((mono_ms, count, dead))
        recent = [
            (count, dead) for at, count, dead in seen if at // SLICE_MS > (mono_ms - WINDOW_MS) // SLICE_MS
        ]
        died, ended = sum(dead for _, dead in recent), sum(count for count, _ in recent)
        if not brake.is_on:
            assert died <= max(ENOUGH_RECORDS, ended / 2)
        mono_ms += then_ms
