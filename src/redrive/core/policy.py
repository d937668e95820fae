"""When and how often a listener's failing records are tried again. Values only; the router applies them."""

from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Literal

from redrive.core.units import parse_duration_ms

Duration = str | timedelta
Blocking = Literal["key", "partition"]
GiveUp = Literal["dead-letter", "skip"]
#: How much a dead letter of a listener matters: from how many on somebody is told, and how urgently.
Criticality = Literal["money", "normal", "analytics"]

#: More runs than this for one record is a loop, not a policy.
MAX_ATTEMPTS = 10_000


@dataclass(frozen=True, slots=True, init=False)
class Backoff:
    """
    Tries in place, at once, before the ladder: for the error that is gone a moment later.

    `retries`: further runs after the first. `wait`: pause before each of them; the lane of the record waits, so keep
    it short (more than a second is refused: that is what tiers are for).

    Raises ValueError for a bare number as `wait`, or values out of range.
    """

    retries: int
    wait_ms: int

    def __init__(self, retries: int, wait: Duration = "100ms") -> None:
        wait_ms = parse_duration_ms(wait, allow_zero=True)
        if not 1 <= retries <= 20:
            raise ValueError(f"Backoff(retries={retries}): between 1 and 20, more belongs on the ladder")
        if wait_ms > 1000:
            raise ValueError(
                f"Backoff(wait={wait!r}): at most 1s, since the whole lane waits; use a tier instead"
            )
        object.__setattr__(self, "retries", retries)
        object.__setattr__(self, "wait_ms", wait_ms)


@dataclass(frozen=True, slots=True, init=False)
class RetryPolicy:
    """
    The ladder of one listener: `RetryPolicy("5s", "30s", "10m")`.

    `delays`: one tier (retry topic) each, shortest first; none at all sends a failing record straight to the
    dead-letter topic. `immediate`: tries in place before the ladder; each counts as an attempt. `max_attempts`: runs
    in all; by default 1 + immediate retries + tiers; more repeats the last tier. `max_age`: counted from the first
    failure; a retry that would come later makes a dead letter with reason `expired`. `jitter` (0 to 1): a delay is
    stretched by up to this share at random, so that records which failed together don't come back together.
    `blocking` and `after_dead_letter` belong to ordered retries.

    Raises ValueError for delays that are bare numbers, not positive, not in rising order, or repeated, and for
    attempts that would leave a tier unused.
    """

    delays_ms: tuple[int, ...]
    immediate: Backoff | None
    blocking: Blocking | None
    max_attempts: int
    max_age_ms: int | None
    jitter: float
    after_dead_letter: Literal["release", "block", "divert"]

    def __init__(
        self,
        *delays: Duration,
        immediate: Backoff | None = None,
        blocking: Blocking | None = None,
        max_attempts: int | None = None,
        max_age: Duration | None = None,
        jitter: float = 0.0,
        after_dead_letter: Literal["release", "block", "divert"] = "release",
    ) -> None:
        delays_ms = tuple(parse_duration_ms(delay) for delay in delays)
        needed = 1 + (immediate.retries if immediate else 0) + len(delays_ms)
        _check_ladder(delays, delays_ms)
        _check_attempts(max_attempts, needed, has_tiers=bool(delays_ms))
        if not 0.0 <= jitter <= 1.0:
            raise ValueError(f"RetryPolicy(jitter={jitter}): a share between 0 and 1")
        for name, value in (
            ("delays_ms", delays_ms),
            ("immediate", immediate),
            ("blocking", blocking),
            ("max_attempts", max_attempts or needed),
            ("max_age_ms", None if max_age is None else parse_duration_ms(max_age)),
            ("jitter", float(jitter)),
            ("after_dead_letter", after_dead_letter),
        ):
            object.__setattr__(self, name, value)

    @property
    def immediate_retries(self) -> int:
        """Runs in place after the first one, on the first delivery."""
        return self.immediate.retries if self.immediate else 0

    def is_last(self, attempt: int) -> bool:
        """Whether run number `attempt` is the last one: when it fails, the record becomes a dead letter at once."""
        return attempt >= self.max_attempts or not self.delays_ms


def _check_ladder(delays: tuple[Duration, ...], delays_ms: tuple[int, ...]) -> None:
    for earlier, later in pairwise(delays_ms):
        if later <= earlier:
            raise ValueError(
                f"RetryPolicy{tuple(map(str, delays))}: each delay must be longer than the one before it; "
                "to repeat the last tier give max_attempts"
            )


def _check_attempts(max_attempts: int | None, needed: int, *, has_tiers: bool) -> None:
    if max_attempts is None:
        return
    if max_attempts < needed:
        raise ValueError(
            f"RetryPolicy(max_attempts={max_attempts}): the policy needs {needed} "
            "(the first run, immediate retries, one a tier), else a tier would never run"
        )
    if max_attempts > MAX_ATTEMPTS:
        raise ValueError(f"RetryPolicy(max_attempts={max_attempts}): at most {MAX_ATTEMPTS}")
    if max_attempts > needed and not has_tiers:
        raise ValueError(
            f"RetryPolicy(max_attempts={max_attempts}): without a tier there is nothing to repeat; give a delay"
        )
