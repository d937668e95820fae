"""What a retry policy takes and what it refuses."""

from datetime import timedelta

import pytest

from redrive.core.policy import Backoff, RetryPolicy, misfits


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


def test_a_blocking_policy_has_delays_but_no_tiers():
    ladder, blocking = RetryPolicy("5s", "30s"), RetryPolicy("5s", "30s", blocking="key")
    assert (ladder.tier_delays_ms, blocking.tier_delays_ms) == ((5_000, 30_000), ())
    assert blocking.delays_ms == (5_000, 30_000)
    assert [blocking.is_last(attempt) for attempt in (1, 2, 3)] == [False, False, True]


@pytest.mark.parametrize(
    ("policy", "parks"),
    [
        (RetryPolicy("5s", blocking="key"), False),
        (RetryPolicy("5s", blocking="key", park=True), True),
        (RetryPolicy("5m", blocking="key"), False),
        (RetryPolicy("5m", "10m", blocking="key"), False),
        (RetryPolicy("5m", "10m", blocking="key", hold_at_most="10m", park=True), True),
        (RetryPolicy("5m", "10m", blocking="partition"), False),
        (RetryPolicy("5m", "10m"), False),
    ],
)
def test_only_a_key_is_parked_and_only_where_that_was_asked_for(policy, parks):
    assert policy.parks is parks


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        (RetryPolicy("5s"), "partition"),
        (RetryPolicy("5s"), "key"),
        (RetryPolicy("5s"), "none"),
        (RetryPolicy("5s", blocking="key"), "key"),
        (RetryPolicy("5s", blocking="key", park=True), "key"),
        (RetryPolicy("5s", blocking="partition", after_dead_letter="block"), "partition"),
        (RetryPolicy(blocking="key", after_dead_letter="block"), "key"),
    ],
)
def test_what_fits_a_listener(policy, order):
    assert list(misfits(policy, order, "dead-letter")) == []


@pytest.mark.parametrize(
    ("policy", "order", "give_up", "starts"),
    [
        (RetryPolicy(blocking="key"), "partition", "dead-letter", "blocking='key') doesn't fit order='partition'"),
        (RetryPolicy(blocking="key"), "none", "dead-letter", "blocking='key') doesn't fit order='none'"),
        (RetryPolicy(blocking="partition"), "key", "dead-letter", "blocking='partition') doesn't fit order='key'"),
        (RetryPolicy(blocking="partition"), "none", "dead-letter", "blocking='partition') doesn't fit order='none'"),
        (RetryPolicy(after_dead_letter="block"), "key", "dead-letter", "after_dead_letter='block') says what"),
        (RetryPolicy(after_dead_letter="divert"), "key", "dead-letter", "after_dead_letter='divert') says what"),
        (
            RetryPolicy(blocking="key", after_dead_letter="block"),
            "key",
            "skip",
            "after_dead_letter='block') waits for a dead letter",
        ),
        (
            RetryPolicy(blocking="partition", after_dead_letter="divert"),
            "partition",
            "dead-letter",
            "after_dead_letter='divert') would put a whole partition aside",
        ),
        (
            RetryPolicy("5s", blocking="key", park=True, after_dead_letter="divert"),
            "key",
            "dead-letter",
            "park=True) doesn't go with after_dead_letter='divert'",
        ),
        (RetryPolicy("5s", park=True), "key", "dead-letter", "park=True) parks the records of a key"),
        (RetryPolicy("5s", blocking="partition", park=True), "partition", "dead-letter", "park=True) parks"),
    ],
)  # fmt: skip
def test_what_does_not_fit_a_listener_is_told_with_the_way_out(policy, order, give_up, starts):
    (told,) = misfits(policy, order, give_up)
    assert told.startswith(f"RetryPolicy({starts}")
    assert "use " in told or "leave it out" in told


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
        (lambda: RetryPolicy("5s", blocking="topic"), "None, 'key', 'partition'"),
        (lambda: RetryPolicy("5s", blocking="key", after_dead_letter="stop"), "'release', 'block', 'divert'"),
        (lambda: RetryPolicy("5s", blocking="key", park="yes"), "True, False"),
        (lambda: RetryPolicy("5s", "25h", blocking="key"), "1d at most"),
        (lambda: RetryPolicy("5s", blocking="key", hold_at_most="2h"), "at most 1h"),
        (lambda: RetryPolicy("5s", blocking="key", hold_at_most=300), "bare number"),
        (lambda: Backoff(0), "between 1 and 20"),
        (lambda: Backoff(21), "between 1 and 20"),
        (lambda: Backoff(2, wait="2s"), "at most 1s"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_reason(refused, why):
    with pytest.raises((ValueError, TypeError), match=why):
        refused()
