"""A bad release must not empty the source topic into the dead-letter topic."""

from hypothesis import given
from hypothesis import strategies as st

from redrive.core.brake import ENOUGH_RECORDS, INTAKE_INTERVAL_MS, WINDOW_MS, Brake


def test_fifty_records_of_which_more_than_half_died_put_it_on():
    brake = Brake()
    assert brake.finished(49, 49, 0) is False
    assert brake.finished(1, 0, 0) is True
    assert brake.is_on


def test_half_is_not_more_than_half():
    brake = Brake()
    brake.finished(50, 25, 0)
    assert not brake.is_on
    brake.finished(1, 1, 0)
    assert brake.is_on


def test_what_happened_more_than_a_minute_ago_is_forgotten():
    brake = Brake()
    brake.finished(100, 100, 0)
    assert brake.refresh(WINDOW_MS - 1) is False
    assert brake.refresh(WINDOW_MS) is True
    assert not brake.is_on


def test_it_stays_on_while_the_few_it_lets_through_die():
    brake = Brake()
    brake.finished(50, 50, 0)
    for second in range(1, 200):
        brake.finished(1, 1, second * 1000)
        assert brake.is_on


def test_it_goes_off_when_the_share_has_fallen():
    brake = Brake()
    brake.finished(50, 50, 0)
    changes = [brake.finished(1, 0, second * 1000) for second in range(1, 70)]
    assert changes.count(True) == 1
    assert not brake.is_on


def test_while_it_is_on_one_record_a_second_may_start():
    brake = Brake()
    brake.finished(50, 50, 0)
    assert not brake.admits(INTAKE_INTERVAL_MS - 1)
    assert brake.admits(INTAKE_INTERVAL_MS)
    brake.admitted(INTAKE_INTERVAL_MS)
    assert not brake.admits(2 * INTAKE_INTERVAL_MS - 1)
    assert brake.admits(2 * INTAKE_INTERVAL_MS)


@given(st.lists(st.tuples(st.integers(0, 100), st.floats(0, 1), st.integers(0, 20_000)), max_size=50))
def test_as_many_deaths_as_it_has_headroom_for_never_pass_it_unseen(steps):
    """Whatever happened before: once more than the headroom die, and nothing else, it is on."""
    brake, now = Brake(), 0
    for count, share, wait_ms in steps:
        now += wait_ms
        brake.finished(count, int(count * share), now)
    room = brake.headroom()
    assert room >= 1
    brake.finished(room + 1, room + 1, now)
    assert brake.is_on


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5_000)), max_size=80))
def test_it_counts_exactly_the_last_minute(steps):
    brake, now, history = Brake(), 0, []
    for number, (count, wait_ms) in enumerate(steps):
        now += wait_ms
        dead = count if number % 2 else 0
        was_on = brake.is_on
        brake.finished(count, dead, now)
        history.append((now // 1000, count, dead))
        recent = [(c, d) for at, c, d in history if at > (now - WINDOW_MS) // 1000]
        finished, died = sum(c for c, _ in recent), sum(d for _, d in recent)
        assert brake.is_on == (2 * died > finished and (was_on or finished >= ENOUGH_RECORDS))
