"""What becomes of a failed record, decided from values alone."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.commands import Failed
from redrive.core.envelope import Envelope
from redrive.core.failure import Failure, Kind
from redrive.core.plan import MAX_WAIT_MS
from redrive.core.policy import Backoff, RetryPolicy
from redrive.core.router import DeadLetter, Drop, Reason, Retry, Stop, decide, tier_for
from tests.sim.engine_world import plan_of

DAY_MS = 24 * 3_600_000
FAILED_MS = 1_800_000_000_000.0


def failed(kind=Kind.TRANSIENT, *, attempt=1, after_ms=None, signal="", first_ms=None):
    envelope = Envelope(first_failed_ms=first_ms)
    return Failed(
        object(), Failure(kind, "SomeError", "", "", after_ms), attempt, FAILED_MS, envelope, signal
    )


def asked(after_ms, **options):
    return failed(after_ms=after_ms, signal="retry-later", **options)


# -- long waits ------------------------------------------------------------------------------------------------------


def test_a_ladder_of_eight_days_retries_after_eight_days():
    assert decide(failed(), plan_of("8d"), 0.0) == Retry(0, int(FAILED_MS) + 8 * DAY_MS)


def test_a_ladder_whose_jitter_leads_beyond_a_week_retries():
    due_ms = decide(failed(), plan_of("5d", jitter=1.0), 0.999).due_ms
    assert 9.9 * DAY_MS < due_ms - FAILED_MS <= 10 * DAY_MS


@pytest.mark.parametrize("tiers", [("5s",), ("8d",), ("5s", "10d")])
def test_retry_later_beyond_what_any_tier_keeps_is_expired(tiers):
    assert decide(asked(8 * DAY_MS), plan_of(*tiers), 0.0) == DeadLetter(Reason.EXPIRED)
    assert decide(asked(MAX_WAIT_MS), plan_of(*tiers), 0.0).due_ms == FAILED_MS + MAX_WAIT_MS


@pytest.mark.parametrize("days", [1, 30])
def test_where_it_is_known_how_long_the_tiers_keep_records_that_is_the_bound(days):
    plan = msgspec.structs.replace(plan_of("5s"), longest_wait_ms=days * DAY_MS)
    assert decide(asked(days * DAY_MS), plan, 0.0).due_ms == FAILED_MS + days * DAY_MS
    assert decide(asked(days * DAY_MS + 1), plan, 0.0) == DeadLetter(Reason.EXPIRED)


def test_a_wait_that_the_other_side_asks_for_goes_by_the_same_bound():
    assert decide(failed(after_ms=8 * DAY_MS), plan_of("5s"), 0.0) == DeadLetter(Reason.EXPIRED)


@given(
    delays_s=st.lists(st.integers(1, 40 * 86_400), min_size=1, max_size=5, unique=True).map(sorted),
    attempt=st.integers(1, 6),
    jitter=st.floats(0, 1),
    roll=st.floats(0, 1, exclude_max=True),
)
def test_whatever_the_ladder_each_attempt_but_the_last_is_retried_after_its_delay(
    delays_s, attempt, jitter, roll
):
    plan = plan_of(*(f"{delay_s}s" for delay_s in delays_s), jitter=jitter)
    action = decide(failed(attempt=attempt), plan, roll)
    if attempt > len(delays_s):
        assert action == DeadLetter(Reason.EXHAUSTED)
    else:
        delay_ms = delays_s[attempt - 1] * 1_000
        assert action.tier == attempt - 1
        assert delay_ms <= action.due_ms - FAILED_MS <= delay_ms * (1 + jitter) + 1


@pytest.mark.parametrize(("first_ms", "action"), [(None, Retry), (FAILED_MS - DAY_MS, DeadLetter)])
def test_max_age_is_counted_from_the_first_failure(first_ms, action):
    plan = plan_of("1h", max_age="1d")
    assert isinstance(decide(failed(first_ms=first_ms), plan, 0.0), action)


# -- the end of the road ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (failed(Kind.POISON), Reason.POISON),
        (failed(Kind.PERMANENT), Reason.PERMANENT),
        (failed(Kind.PERMANENT, signal="dead-letter"), Reason.ASKED),
        (failed(attempt=2), Reason.EXHAUSTED),
        (asked(1_000, attempt=2), Reason.EXHAUSTED),
    ],
)
def test_what_is_not_tried_again_is_a_dead_letter_with_its_reason(failure, reason):
    assert decide(failure, plan_of("5s"), 0.0) == DeadLetter(reason)
    assert decide(failure, plan_of("5s", give_up="skip"), 0.0) == Drop(reason)
    assert decide(failure, plan_of("5s", give_up="stop"), 0.0) == Stop(reason)


@pytest.mark.parametrize("policy", [{}, {"immediate": Backoff(3)}])
@pytest.mark.parametrize("attempt", [1, 2, 4, 9])
def test_without_tiers_nothing_waits_whichever_attempt_it_was(policy, attempt):
    plan = plan_of(**policy)
    assert decide(failed(attempt=attempt), plan, 0.0) == DeadLetter(Reason.EXHAUSTED)
    assert decide(asked(1_000, attempt=attempt), plan, 0.0) == DeadLetter(Reason.EXHAUSTED)
    assert RetryPolicy(**policy).is_last(attempt)


def test_what_is_tried_again_is_no_reason_to_stop():
    assert isinstance(decide(failed(), plan_of("5s", give_up="stop"), 0.0), Retry)
    assert decide(failed(Kind.PERMANENT, signal="skip"), plan_of("5s", give_up="stop"), 0.0) == Drop("skip")


def test_skip_is_no_dead_letter():
    assert decide(failed(Kind.PERMANENT, signal="skip"), plan_of("5s"), 0.0) == Drop("skip")


# -- which tier ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait_ms", "tier"), [(0, 0), (999, 0), (5_000, 0), (29_999, 0), (30_000, 1), (10**9, 2)]
)
def test_a_wait_that_was_asked_for_goes_to_the_longest_tier_that_fits_into_it(wait_ms, tier):
    assert tier_for(wait_ms, (5_000, 30_000, 600_000)) == tier


def test_more_attempts_than_tiers_repeat_the_last_tier():
    plan = plan_of("5s", "30s", max_attempts=6)
    assert [decide(failed(attempt=attempt), plan, 0.0).tier for attempt in range(1, 6)] == [0, 1, 1, 1, 1]


def test_attempts_in_place_do_not_move_a_record_up_the_ladder():
    plan = plan_of("5s", "30s", immediate=Backoff(2))
    assert [decide(failed(attempt=attempt), plan, 0.0).tier for attempt in (1, 2, 3, 4)] == [0, 0, 0, 1]


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 10**9))
def test_a_due_is_never_a_fraction_early(roll, delay_ms):
    plan = plan_of(f"{delay_ms}ms", jitter=1.0)
    failure = msgspec.structs.replace(failed(), failed_ms=FAILED_MS + 0.4)
    due_ms = decide(failure, plan, roll).due_ms
    assert due_ms >= failure.failed_ms + delay_ms
    assert due_ms == int(due_ms)
