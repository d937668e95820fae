"""When and how often a listener's failing records are tried again. Values only; the router applies them."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any, Literal, get_args

from redrive.core.units import format_duration, parse_duration_ms

Duration = str | timedelta
#: In what order a listener's records are handled: one after another of a partition, of a key, or as they come.
Order = Literal["partition", "key", "none"]
#: What waits for a failing record: the later records of its key, those of its partition; None: nothing.
Blocking = Literal["key", "partition"]
#: What becomes of records that waited for one that became a dead letter.
AfterDeadLetter = Literal["release", "block", "divert"]
#: What becomes of a record at the end of its road. `stop`: it stays where it is, and so does all behind it.
GiveUp = Literal["dead-letter", "skip", "stop"]
#: How much a dead letter of a listener matters: from how many on somebody is told, and how urgently.
Criticality = Literal["money", "normal", "analytics"]

#: More runs than this for one record is a loop, not a policy.
MAX_ATTEMPTS = 10_000
#: A record that blocks keeps its offset open, and all behind it ages towards its topic's retention.
MAX_BLOCKING_DELAY_MS = 24 * 3600 * 1000
#: The longest wait in memory that may be asked for where a record can be parked.
MAX_HOLD_MS = 3600 * 1000


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
    When a listener's failing records are tried again: `RetryPolicy("5s", "30s", "10m")`.

    `delays`: how long is waited before each further run, shortest first; one tier (retry topic) each. None at all sends a
    failing record straight to the dead-letter topic. `immediate`: tries in place before them; each counts as an attempt.
    `max_attempts`: runs in all; by default 1 + immediate retries + delays; more repeats the last delay. `max_age`: counted
    from the first failure; a retry that would come later makes a dead letter with reason `expired`. `jitter` (0 to 1): a
    delay is stretched by up to this share at random, so that records which failed together don't come back together.

    `blocking`: what waits meanwhile: nothing (None: other records overtake the failing one, which climbs the ladder of
    tiers), the later records of its `"key"`, or those of its `"partition"`. A record that blocks waits in memory in front
    of the others and needs no tiers; its attempts and its due are kept with the group's offsets. It fits a listener
    of the same `order`. `after_dead_letter`: what becomes of those that waited when it becomes a dead letter: they go on
    (`"release"`), wait until the letter was replayed or resolved (`"block"`), or become dead letters too until then
    (`"divert"`, by key only). `park`: write the records of a blocked key to `{topic}.parked` where memory or the room in
    commits doesn't suffice, instead of pausing the partition. `hold_at_most` (5 min): with `park`, longer delays are
    waited for there and not in memory.

    Raises ValueError for delays that are bare numbers, not positive, not in rising order, or repeated, for attempts that
    would leave a delay unused, and for blocking delays beyond a day. What doesn't fit the listener is told when its app
    is resolved.
    """

    delays_ms: tuple[int, ...]
    immediate: Backoff | None
    blocking: Blocking | None
    max_attempts: int
    max_age_ms: int | None
    jitter: float
    after_dead_letter: AfterDeadLetter
    park: bool
    hold_at_most_ms: int

    def __init__(
        self,
        *delays: Duration,
        immediate: Backoff | None = None,
        blocking: Blocking | None = None,
        max_attempts: int | None = None,
        max_age: Duration | None = None,
        jitter: float = 0.0,
        after_dead_letter: AfterDeadLetter = "release",
        park: bool = False,
        hold_at_most: Duration = "5m",
    ) -> None:
        delays_ms = tuple(parse_duration_ms(delay) for delay in delays)
        needed = 1 + (immediate.retries if immediate else 0) + len(delays_ms)
        _check_ladder(delays, delays_ms)
        _check_attempts(max_attempts, needed, has_tiers=bool(delays_ms))
        _check_choice("blocking", blocking, (None, *get_args(Blocking)))
        _check_choice("after_dead_letter", after_dead_letter, get_args(AfterDeadLetter))
        _check_choice("park", park, (True, False))
        if blocking is not None:
            _check_blocking_delays(delays, delays_ms)
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
            ("park", park),
            ("hold_at_most_ms", _hold_ms(hold_at_most)),
        ):
            object.__setattr__(self, name, value)

    @property
    def immediate_retries(self) -> int:
        """Runs in place after the first one, on the first delivery."""
        return self.immediate.retries if self.immediate else 0

    @property
    def tier_delays_ms(self) -> tuple[int, ...]:
        """The delays that have a retry topic each: none of a blocking policy, whose records wait where they are."""
        return self.delays_ms if self.blocking is None else ()

    @property
    def parks(self) -> bool:
        """Whether records of a blocked key may have to wait in a topic of their own."""
        return self.park and self.blocking == "key"

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


def _check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise ValueError(f"RetryPolicy({name}={value!r}): it is one of {', '.join(map(repr, choices))}")


def _check_blocking_delays(delays: tuple[Duration, ...], delays_ms: tuple[int, ...]) -> None:
    if delays_ms and delays_ms[-1] > MAX_BLOCKING_DELAY_MS:
        raise ValueError(
            f"RetryPolicy{tuple(map(str, delays))}: what blocks others waits {format_duration(MAX_BLOCKING_DELAY_MS)} at "
            "most, since all of them age towards their topic's retention; give shorter delays, and max_attempts to repeat "
            "the last one"
        )


def _hold_ms(hold_at_most: Duration) -> int:
    hold_ms = parse_duration_ms(hold_at_most, allow_zero=True)
    if hold_ms > MAX_HOLD_MS:
        raise ValueError(
            f"RetryPolicy(hold_at_most={hold_at_most!r}): at most {format_duration(MAX_HOLD_MS)}; what waits longer is parked"
        )
    return hold_ms


def misfits(policy: RetryPolicy, order: Order, give_up: str) -> Iterator[str]:
    """What of a policy doesn't fit the listener's `order` and `give_up`, or itself: each with why, and how to mend it."""
    blocking, after = policy.blocking, policy.after_dead_letter
    if blocking is not None and order != blocking:
        yield f"RetryPolicy(blocking={blocking!r}) doesn't fit order={order!r}: {_UNFIT[blocking, order]}"
    if after != "release":
        told = f"RetryPolicy(after_dead_letter={after!r})"
        if blocking is None:
            yield (
                f"{told} says what becomes of records that waited for a dead letter, but nothing waits without blocking: "
                "add blocking='key' with order='key', or leave it out"
            )
        if give_up != "dead-letter":
            yield (
                f"{told} waits for a dead letter to be replayed or resolved, but give_up={give_up!r} makes none: use "
                "give_up='dead-letter', or after_dead_letter='release'"
            )
    if after == "divert" and blocking == "partition":
        yield (
            "RetryPolicy(after_dead_letter='divert') would put a whole partition aside for one dead letter: use 'block', "
            "which lets it wait, or order='key' with blocking='key'"
        )
    if policy.park and after != "release":
        yield (
            f"RetryPolicy(park=True) doesn't go with after_dead_letter={after!r} yet: a key that is parked goes on behind a dead "
            "letter; use after_dead_letter='release', or leave park out"
        )
    if policy.park and blocking != "key":
        yield (
            "RetryPolicy(park=True) parks the records of a key that wait for a failing one: use it with blocking='key', or "
            "leave it out"
        )


#: Why a policy's `blocking` doesn't fit a listener's `order`, and what to do.
_UNFIT: dict[tuple[Blocking, Order], str] = {
    ("key", "partition"): (
        "records of all keys of a partition run one after another there, so one key can't wait by itself; use order='key', "
        "or blocking='partition'"
    ),
    ("key", "none"): "later records of a key may run before the failing one there; use order='key'",
    ("partition", "key"): (
        "other keys go on there while one fails; use blocking='key', or order='partition' to hold up all of them"
    ),
    ("partition", "none"): "records don't wait for each other there; use order='partition'",
}
