"""What becomes of a record whose handler failed, as a table."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.commands import Failed
from redrive.core.envelope import Envelope
from redrive.core.failure import Failure, Kind
from redrive.core.plan import ListenerPlan, Tier
from redrive.core.policy import Backoff, RetryPolicy
from redrive.core.router import MAX_WAIT_MS, DeadLetter, Drop, Reason, Retry, decide, tier_for
from redrive.sim.records import SimRecord

NOW_MS = 1_800_000_000_000.0
RECORD = SimRecord("orders", 0, 7, None, b"{}", (), int(NOW_MS))
TRANSIENT, PERMANENT, POISON = Kind.TRANSIENT, Kind.PERMANENT, Kind.POISON
DAY_MS = 86_400_000


def _plan(*delays: str, give_up: str = "dead-letter", **policy) -> ListenerPlan:
    ladder = RetryPolicy(*delays, **policy)
    tiers = tuple(Tier(f"orders.retry.{ms}", ms, index) for index, ms in enumerate(ladder.delays_ms))
    return ListenerPlan(
        name="orders",
        source="orders",
        dlq="orders.dlq",
        replay="r",
        policy=ladder,
        tiers=tiers,
        give_up=give_up,
    )


def _failed(
    kind: Kind = TRANSIENT,
    attempt: int = 1,
    *,
    signal: str = "",
    after_ms: int | None = None,
    since_ms: float | None = None,
) -> Failed:
    envelope = None if since_ms is None else Envelope(attempt=attempt - 1, first_failed_ms=int(since_ms))
    return Failed(RECORD, Failure(kind, "E", "", "", after_ms), attempt, NOW_MS, envelope, signal)


def _action(plan: ListenerPlan, roll: float = 0.0, **failed):
    return decide(_failed(**failed), plan, roll)


def _retry(tier: int, wait_ms: int) -> Retry:
    return Retry(tier, int(NOW_MS) + wait_ms)


@pytest.mark.parametrize(
    ("failed", "action"),
    [
        ({"attempt": 1}, _retry(0, 5_000)),
        ({"attempt": 2}, _retry(1, 30_000)),
        ({"attempt": 3}, _retry(2, 600_000)),
        ({"attempt": 4}, DeadLetter(Reason.EXHAUSTED)),
        ({"attempt": 5}, DeadLetter(Reason.EXHAUSTED)),
        ({"kind": PERMANENT}, DeadLetter(Reason.PERMANENT)),
        ({"kind": POISON}, DeadLetter(Reason.POISON)),
        ({"kind": PERMANENT, "signal": "dead-letter"}, DeadLetter(Reason.ASKED)),
        ({"kind": PERMANENT, "signal": "skip"}, Drop("skip")),
        ({"signal": "retry-later", "after_ms": 1_000}, _retry(0, 1_000)),
        ({"signal": "retry-later", "after_ms": 420_000}, _retry(1, 420_000)),
        ({"signal": "retry-later", "after_ms": DAY_MS}, _retry(2, DAY_MS)),
        ({"signal": "retry-later", "after_ms": 0}, _retry(0, 0)),
        ({"signal": "retry-later", "after_ms": MAX_WAIT_MS}, _retry(2, MAX_WAIT_MS)),
        ({"signal": "retry-later", "after_ms": MAX_WAIT_MS + 1}, DeadLetter(Reason.EXPIRED)),
        ({"signal": "retry-later", "after_ms": 1_000, "attempt": 4}, DeadLetter(Reason.EXHAUSTED)),
        ({"after_ms": 60_000}, _retry(1, 60_000)),  # Retry-After of the other side
    ],
)
def test_a_ladder_of_three_tiers(failed, action):
    assert _action(_plan("5s", "30s", "10m"), **failed) == action


@pytest.mark.parametrize(
    ("failed", "action"),
    [
        ({}, DeadLetter(Reason.EXHAUSTED)),
        ({"signal": "retry-later", "after_ms": 1_000}, DeadLetter(Reason.EXHAUSTED)),
        ({"kind": PERMANENT}, DeadLetter(Reason.PERMANENT)),
    ],
)
def test_without_tiers_there_is_nowhere_to_wait(failed, action):
    assert _action(_plan(), **failed) == action


def test_more_attempts_than_tiers_repeat_the_last_one():
    plan = _plan("5s", "30s", max_attempts=5)
    assert [_action(plan, attempt=attempt) for attempt in range(1, 6)] == [
        _retry(0, 5_000),
        _retry(1, 30_000),
        _retry(1, 30_000),
        _retry(1, 30_000),
        DeadLetter(Reason.EXHAUSTED),
    ]


def test_tries_in_place_count_but_take_no_tier():
    plan = _plan("5s", immediate=Backoff(2))
    assert [_action(plan, attempt=attempt) for attempt in (3, 4)] == [
        _retry(0, 5_000),
        DeadLetter(Reason.EXHAUSTED),
    ]


def test_jitter_stretches_a_delay_and_never_shortens_it():
    plan = _plan("10s", jitter=0.5)
    assert [_action(plan, roll) for roll in (0.0, 0.5, 0.999)] == [
        _retry(0, 10_000),
        _retry(0, 12_500),
        _retry(0, 14_995),
    ]


def test_what_would_come_after_the_maximum_age_expires():
    plan = _plan("5s", "30s", max_age="1m")
    assert _action(plan, attempt=2, since_ms=NOW_MS - 30_000) == _retry(1, 30_000)
    assert _action(plan, attempt=2, since_ms=NOW_MS - 30_001) == DeadLetter(Reason.EXPIRED)
    assert _action(plan, signal="retry-later", after_ms=60_001) == DeadLetter(Reason.EXPIRED)


def test_giving_up_by_skipping_drops_with_the_reason_and_changes_nothing_before_the_end():
    plan = _plan("5s", give_up="skip")
    assert _action(plan, attempt=1) == _retry(0, 5_000)
    assert _action(plan, attempt=2) == Drop("exhausted")
    assert _action(plan, kind=POISON) == Drop("poison")
    assert _action(plan, kind=PERMANENT, signal="dead-letter") == Drop("asked")


@given(st.floats(0, 2e12), st.integers(1, 3), st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_a_due_is_never_a_fraction_too_early(failed_ms, attempt, roll, jitter):
    plan = _plan("1s", "5s", "1h", jitter=jitter)
    failed = Failed(RECORD, Failure(TRANSIENT, "E", "", ""), attempt, failed_ms)
    action = decide(failed, plan, roll)
    delay_ms = plan.policy.delays_ms[attempt - 1]
    assert isinstance(action, Retry)
    assert failed_ms + delay_ms <= action.due_ms <= failed_ms + delay_ms * (1 + jitter) + 1


@given(
    st.lists(st.integers(1, 10**9), min_size=1, max_size=8, unique=True).map(sorted), st.integers(0, 10**10)
)
def test_a_wait_goes_to_the_longest_tier_that_fits(delays_ms, wait_ms):
    chosen = tier_for(wait_ms, tuple(delays_ms))
    fitting = [delay for delay in delays_ms if delay <= wait_ms]
    assert delays_ms[chosen] == (max(fitting) if fitting else delays_ms[0])
