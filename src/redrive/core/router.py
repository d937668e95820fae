"""What becomes of a record whose handler failed. One pure function: time and chance come in as arguments."""

from enum import StrEnum
from math import ceil

import msgspec

from redrive.core.commands import Failed
from redrive.core.failure import Kind
from redrive.core.plan import ListenerPlan
from redrive.core.policy import RetryPolicy


class Reason(StrEnum):
    """Why a record became a dead letter."""

    PERMANENT = "permanent"
    EXHAUSTED = "exhausted"
    EXPIRED = "expired"
    POISON = "poison"
    CRASHED = "crashed"
    ASKED = "asked"
    TOO_LARGE = "too-large"
    DIVERTED = "diverted"


class Retry(msgspec.Struct, frozen=True):
    """Produce to tier number `tier`; not to be run before `due_ms`."""

    tier: int
    due_ms: int


class Hold(msgspec.Struct, frozen=True):
    """It waits in front of its lane, and is not to be run before `due_ms`."""

    due_ms: int


class DeadLetter(msgspec.Struct, frozen=True):
    """Produce to the dead-letter topic."""

    reason: Reason


class Drop(msgspec.Struct, frozen=True):
    """Finished without a successor: the handler asked for it, or the listener gives up by skipping (`reason`)."""

    reason: str


class Stop(msgspec.Struct, frozen=True):
    """It stays unfinished, and its listener handles nothing more (`give_up="stop"`)."""

    reason: Reason


Action = Retry | Hold | DeadLetter | Drop | Stop


def decide(failed: Failed, plan: ListenerPlan, roll: float) -> Action:
    """
    Choose the next step after run number `failed.attempt`.

    `roll` in [0, 1) is the chance that jitter uses. An outage is not decided here: such a record doesn't move.
    """
    if failed.signal == "skip":
        return Drop("skip")
    action = _retry_or_dead_letter(failed, plan.policy, plan.longest_wait_ms, roll)
    if isinstance(action, DeadLetter) and plan.give_up != "dead-letter":
        return Drop(action.reason) if plan.give_up == "skip" else Stop(action.reason)
    return action


def _retry_or_dead_letter(
    failed: Failed, policy: RetryPolicy, longest_ms: int, roll: float
) -> Retry | Hold | DeadLetter:
    if failed.signal == "dead-letter":
        return DeadLetter(Reason.ASKED)
    if failed.signal == "crashed":
        return DeadLetter(Reason.CRASHED)
    if failed.failure.kind is Kind.POISON:
        return DeadLetter(Reason.POISON)
    if failed.failure.kind is Kind.PERMANENT:
        return DeadLetter(Reason.PERMANENT)
    # Also without tiers: for RetryLater, and for what an older policy's ladder still holds, there is nowhere to wait.
    if policy.is_last(failed.attempt):
        return DeadLetter(Reason.EXHAUSTED)
    wait_ms: float
    if (asked_ms := failed.failure.retry_after_ms) is not None:
        tier, wait_ms = tier_for(asked_ms, policy.delays_ms), asked_ms
    else:
        tier = min(max(0, failed.attempt - 1 - policy.immediate_retries), len(policy.delays_ms) - 1)
        wait_ms = policy.delays_ms[tier] * (1 + policy.jitter * roll)
    # Rounded up: a due that is a fraction too small would let the record start early.
    due_ms = ceil(failed.failed_ms + wait_ms)
    asked_too_long = asked_ms is not None and asked_ms > longest_ms
    if asked_too_long or (policy.max_age_ms is not None and _age_ms(failed, due_ms) > policy.max_age_ms):
        return DeadLetter(Reason.EXPIRED)
    return Retry(tier, due_ms) if policy.blocking is None else Hold(due_ms)


def _age_ms(failed: Failed, due_ms: int) -> float:
    """How long after the first failure the next attempt would be."""
    first_failed_ms = failed.envelope.first_failed_ms
    return due_ms - (failed.failed_ms if first_failed_ms is None else first_failed_ms)


def tier_for(wait_ms: float, delays_ms: tuple[int, ...]) -> int:
    """The longest tier whose delay fits into the wait, else the first: there the rest is waited for."""
    fitting = [index for index, delay_ms in enumerate(delays_ms) if delay_ms <= wait_ms]
    return fitting[-1] if fitting else 0
