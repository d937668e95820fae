"""What a retry policy takes and what it refuses."""

from datetime import timedelta

import pytest

from redrive.core.policy import Backoff, RetryPolicy


def test_delays_are_durations_with_their_unit():
    policy = RetryPolicy("500ms", "5s", timedelta(minutes=10), "1h30m")
    assert policy.delays_ms == (500, 5_000, 600_000, 5_400_000)


@pytest.mark.parametrize(
    ("policy", "attempts"),
    [
        (RetryPolicy(), 1),
        (RetryPolicy("5s"), 2),
        (RetryPolicy("5s", "30s", "10m"), 4),
        (RetryPolicy(immediate=Backoff(3)), 4),
        (RetryPolicy("5s", immediate=Backoff(2)), 4),
        (RetryPolicy("5s", max_attempts=9), 9),
    ],
)
def test_a_record_runs_once_and_then_once_a_try_and_tier(policy, attempts):
    assert policy.max_attempts == attempts


def test_the_last_attempt_is_the_one_after_which_nothing_is_left():
    assert [RetryPolicy("5s", "30s").is_last(attempt) for attempt in (1, 2, 3, 4)] == [
        False,
        False,
        True,
        True,
    ]
    # Without tiers a record that left its place has nowhere to wait, however few runs it has had.
    assert [RetryPolicy(immediate=Backoff(3)).is_last(attempt) for attempt in (1, 4)] == [True, True]


def test_age_and_jitter_are_kept():
    policy = RetryPolicy("5s", max_age="1d", jitter=0.2)
    assert (policy.max_age_ms, policy.jitter) == (86_400_000, 0.2)
    assert (RetryPolicy().max_age_ms, RetryPolicy().jitter, RetryPolicy().immediate) == (None, 0.0, None)


def test_policies_are_values():
    assert RetryPolicy("5s") == RetryPolicy(timedelta(seconds=5))
    assert hash(RetryPolicy("5s")) == hash(RetryPolicy("5s"))
    with pytest.raises(AttributeError):
        RetryPolicy("5s").jitter = 1.0


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (lambda: RetryPolicy(5), "duration"),
        (lambda: RetryPolicy("5"), "bare number"),
        (lambda: RetryPolicy("0s"), "0"),
        (lambda: RetryPolicy("-5s"), "-5s"),
        (lambda: RetryPolicy("30s", "5s"), "longer than the one before"),
        (lambda: RetryPolicy("5s", "5s"), "longer than the one before"),
        (lambda: RetryPolicy("5s", "30s", max_attempts=2), "needs 3"),
        (lambda: RetryPolicy("5s", max_attempts=0), "needs 2"),
        (lambda: RetryPolicy("5s", max_attempts=10**9), "at most"),
        (lambda: RetryPolicy("5s", jitter=1.5), "between 0 and 1"),
        (lambda: RetryPolicy("5s", jitter=-0.1), "between 0 and 1"),
        (lambda: RetryPolicy("5s", max_age=60), "duration"),
        (lambda: Backoff(0), "between 1 and 20"),
        (lambda: Backoff(21), "between 1 and 20"),
        (lambda: Backoff(2, wait="2s"), "at most 1s"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_reason(refused, why):
    with pytest.raises((ValueError, TypeError), match=why):
        refused()
