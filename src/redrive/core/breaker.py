"""
The breaker: an outage of what a handler calls must not send its topic up the ladder, and on into the dead-letter topic.

When nearly all of the last attempts failed as transient, the listener starts nothing new. What fails is held where it is,
uncounted, since nothing was learned about the record; one record at a time is tried as a probe, with growing pauses, until
one comes through.

What counts, and why so:

- Only a record's first delivery is evidence against the downstream, since each record has one: three records that fail for
  reasons of their own, tried for hours, never add up to an outage. A success is evidence for it at any attempt.
- What fails as permanent or poison is left out: neither can a topic that is half poison hide an outage, nor do bad records
  make one. But a probe that fails for good ends it: the downstream had another answer, and bad records are the brake's.
- Nine of ten of the last attempts: of as few as make 100, or 20 where these took ten seconds. By number and not by time, since
  it is numbers that do harm: at any rate about a hundred records climb the ladder before it opens, be it in a millisecond or
  a minute. Where 30 % fail at random, 90 of 100 do once in 10^34 times, and 18 of 20 once in 27 million.
- Ten minutes are the oldest that counts: twenty failures in a week are twenty records, not an outage. The same holds for an
  exception that means an outage: when probes have failed in other ways for that long, it says nothing any more. Else a lane
  whose first record fails for reasons of its own, and that has no other to try, would never go on.
"""

from collections import deque
from typing import Literal

from redrive.core.commands import Failed
from redrive.core.failure import Kind

#: So many attempts are judged whatever time they took.
ENOUGH_ATTEMPTS = 100
#: After so many failures in a row a worker tells each at once, and doesn't go on with its run meanwhile.
ENOUGH_IN_A_ROW = 20
#: So many are enough where they took `SLOW_MS`: a handler that waits for timeouts makes few a minute.
ENOUGH_SLOW_ATTEMPTS = 20
SLOW_MS = 10_000.0
WINDOW_MS = 600_000.0
#: "Nearly all": nine of ten.
FAILING_SHARE = 0.9
#: The pause before the first probe, which doubles with each that fails.
PROBE_FIRST_MS = 1_000.0
PROBE_MOST_MS = 60_000.0
#: A probe whose handler hangs is not waited for any longer: another one may start beside it.
PROBE_PATIENCE_MS = 300_000.0
#: Who fails again so soon after a probe came through has not recovered: it opens after `ENOUGH_SLOW_ATTEMPTS`, and the pauses
#: go on growing where they were.
STEADY_MS = 60_000.0
#: An outage that an exception told of is over when for `WINDOW_MS` none did, and so many probes failed as transient.
UNTOLD_PROBES = 5
#: Moves to the dead-letter topic while it isn't closed: so many at once, one more each five minutes, one for each success.
TOKENS_MOST = 10
TOKEN_EACH_MS = 300_000.0

State = Literal["closed", "half-open", "open"]
#: What a probe, or the listener's health function, said of the downstream.
Sign = Literal["up", "down", "outage", "other", "none"]
#: The signs of a downstream that is away.
AWAY: tuple[Sign, Sign] = ("down", "outage")
#: What the breaker wants next: nothing yet, the health function asked, or a probe.
Step = Literal["wait", "ask", "probe"]

_SIGNS: dict[Kind, Sign] = {Kind.TRANSIENT: "down", Kind.OUTAGE: "outage", Kind.POISON: "none"}


def sign_of(failed: Failed) -> Sign:
    """
    What a failed record says of the downstream.

    "up": a handler that asks for Skip or RetryLater has come to a decision. "down": transient. "outage": an exception that means
    one. "other": it failed for good, or asked for a dead letter, so the downstream answered, or wasn't asked. "none": poison, or
    it killed its process; no handler came to an end.
    """
    if failed.signal == "crashed":
        return "none"
    if failed.signal:
        return "other" if failed.signal == "dead-letter" else "up"
    return _SIGNS.get(failed.failure.kind, "other")


def is_evidence(failed: Failed) -> bool:
    """
    Whether this failure counts against the downstream: that some records fail again and again says nothing of it.
    """
    return failed.attempt == 1 and sign_of(failed) in AWAY


class Row:
    """How many first deliveries of a listener failed in a row, as far as its workers see: they write it without a lock."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def failed(self, *, goes_on: bool) -> bool:
        """One more; `goes_on`: no success came before it in its run. Whether each of them should be told at once from now on."""
        self._count = self._count + 1 if goes_on else 1
        return self._count >= ENOUGH_IN_A_ROW

    def ends(self) -> None:
        """A run had no failure."""
        self._count = 0


class Breaker:
    """
    Judges one listener's attempts, by monotonic time. `has_health`: a health function is asked before each probe.

    Closed, it counts what runs tell (`finished`) until that opens it, or an exception that means an outage by itself does
    (`open`). From then on `next_step` says when to start a probe, and what came of it goes to `probed`.
    """

    __slots__ = (
        "_answer_until_ms",
        "_attempts",
        "_closed_ms",
        "_failing",
        "_has_health",
        "_is_asked",
        "_tokens",
        "_tokens_ms",
        "_told_ms",
        "_untold",
        "_window",
        "has_answered",
        "opened_ms",
        "pause_ms",
        "probe_ms",
        "state",
    )

    def __init__(self, *, has_health: bool = False) -> None:
        self.state: State = "closed"
        #: How long it waits between two probes, and when the next one may start.
        self.pause_ms = PROBE_FIRST_MS
        self.probe_ms = 0.0
        self.opened_ms = 0.0
        #: Whether the downstream has answered since the last outage began.
        self.has_answered = True
        #: When an exception said last that there is an outage; None for one that was concluded from failures.
        self._told_ms: float | None = None
        self._untold = 0
        self._has_health = has_health
        self._is_asked = False
        #: Until when the health function's "yes" is good for a probe.
        self._answer_until_ms = 0.0
        #: Results since it closed, the oldest first: when, attempts, failing ones. As few of the last ones as are enough.
        self._window: deque[tuple[float, int, int]] = deque()
        self._attempts = 0
        self._failing = 0
        self._closed_ms = -STEADY_MS
        self._tokens = TOKENS_MOST
        self._tokens_ms = 0.0

    @property
    def is_closed(self) -> bool:
        """Whether all goes as usual."""
        return self.state == "closed"

    # -- closed --------------------------------------------------------------------------------------------------

    def finished(self, ok: int, failing: int, mono_ms: float) -> bool:
        """
        Count `ok` attempts that came through and `failing` first deliveries that failed (`sign_of`). True when that
        opened it: then these failures are to be held, too.

        Of a run that was through its records as they began to fail, tell the tail by itself: it is later evidence.
        """
        self._tokens = min(TOKENS_MOST, self._tokens + ok)
        attempts = ok + failing
        if self.state != "closed" or not attempts:
            return False
        window = self._window
        window.append((mono_ms, attempts, failing))
        self._attempts += attempts
        self._failing += failing
        return self.refresh(mono_ms)

    def refresh(self, mono_ms: float) -> bool:
        """
        Judge again, as time passes. True when that opened it. For who has no more to tell *because* records failed: where
        each of them holds up those behind it.
        """
        window = self._window
        if self.state != "closed":
            return False
        while window and (window[0][0] <= mono_ms - WINDOW_MS or self._is_enough_without_first(mono_ms)):
            _, attempts, failing = window.popleft()
            self._attempts -= attempts
            self._failing -= failing
        if not window or self._failing < FAILING_SHARE * self._attempts:
            return False
        if not self._is_enough(self._attempts, window[0][0], mono_ms):
            return False
        self.open(mono_ms)
        return True

    def _is_enough_without_first(self, mono_ms: float) -> bool:
        window = self._window
        return len(window) > 1 and self._is_enough(self._attempts - window[0][1], window[1][0], mono_ms)

    def _is_enough(self, attempts: int, since_ms: float, mono_ms: float) -> bool:
        if attempts >= ENOUGH_ATTEMPTS:
            return True
        took_long = mono_ms - since_ms >= SLOW_MS
        return attempts >= ENOUGH_SLOW_ATTEMPTS and (took_long or self._closed_lately(mono_ms))

    def _closed_lately(self, mono_ms: float) -> bool:
        return mono_ms - self._closed_ms < STEADY_MS

    def open(self, mono_ms: float, *, is_told: bool = False) -> None:
        """
        Start nothing new from now on; the first probe comes after a pause. Nothing changes when it wasn't closed. `is_told`:
        an exception means it.
        """
        if self.state != "closed":
            return
        self.state, self.has_answered = "open", False
        self._told_ms, self._untold = (mono_ms if is_told else None), 0
        self.opened_ms = mono_ms
        self.pause_ms = self._longer() if self._closed_lately(mono_ms) else PROBE_FIRST_MS
        self._wait(mono_ms)
        self._forget()

    # -- open and half-open --------------------------------------------------------------------------------------

    def next_step(self, mono_ms: float) -> Step:
        """What to do now for a listener that has a record to try: nothing while closed, and before the pause is over."""
        if self.state == "closed" or mono_ms < self.probe_ms:
            return "wait"
        if not self._has_health or mono_ms < self._answer_until_ms:
            return "probe"
        return "wait" if self._is_asked else "ask"

    def asked(self) -> None:
        """The health function is being asked: it isn't again before it answered."""
        self._is_asked = True

    def answered(self, *, is_healthy: bool, mono_ms: float) -> None:
        """
        What the health function said. "No" is waited upon as upon a probe that failed; "yes" lets one probe start, within
        the pause at most: it never closes by itself.
        """
        self._is_asked = False
        if self.state == "closed":
            return
        if is_healthy:
            self._answer_until_ms = mono_ms + self.pause_ms
        else:
            self._failed_again(mono_ms)

    def probing(self, mono_ms: float) -> None:
        """The probe was started; until it is back nothing else is, for five minutes at most."""
        self.state = "half-open"
        self.probe_ms = mono_ms + PROBE_PATIENCE_MS
        self._answer_until_ms = 0.0

    def probed(self, sign: Sign, mono_ms: float) -> bool:
        """
        What came of the probe. True when that closed the breaker. One that said nothing ("none") is followed by another
        after the same pause.
        """
        if self.state != "half-open":
            return False
        self.has_answered = sign in ("up", "other")
        if self.has_answered or self._is_told_no_more(sign, mono_ms):
            self.state = "closed"
            self._closed_ms = mono_ms
            return True
        self.state = "open"
        if sign in AWAY:
            self._failed_again(mono_ms)
        else:
            self._wait(mono_ms)
        return False

    def _is_told_no_more(self, sign: Sign, mono_ms: float) -> bool:
        if self._told_ms is None:
            return False
        if sign == "outage":
            self._told_ms, self._untold = mono_ms, 0
        self._untold += sign == "down"
        return self._untold >= UNTOLD_PROBES and mono_ms - self._told_ms >= WINDOW_MS

    def unprobed(self) -> None:
        """The probe never ran, as its partition went away: another one may start at once."""
        if self.state == "half-open":
            self.state, self.probe_ms = "open", 0.0

    def take_token(self, mono_ms: float) -> bool:
        """
        Whether a record may become a dead letter now. Always while closed; else as long as there are tokens: what fails for
        good in an outage may be told so by the outage (an error page that can't be parsed, a 404 of a proxy).
        """
        if self.state == "closed":
            return True
        grown = int((mono_ms - self._tokens_ms) // TOKEN_EACH_MS)
        self._tokens = min(TOKENS_MOST, self._tokens + grown)
        self._tokens_ms += grown * TOKEN_EACH_MS
        if not self._tokens:
            return False
        self._tokens -= 1
        return True

    def _failed_again(self, mono_ms: float) -> None:
        self.pause_ms = self._longer()
        self._wait(mono_ms)

    def _longer(self) -> float:
        return min(PROBE_MOST_MS, 2 * self.pause_ms)

    def _wait(self, mono_ms: float) -> None:
        self.probe_ms = mono_ms + self.pause_ms

    def _forget(self) -> None:
        self._window.clear()
        self._attempts = self._failing = 0
