"""
The brake: a bad release must not empty the source topic into the dead-letter topic.

Over the last minute at least 50 records finished and more than half of them became dead letters, whatever the reason:
then one record a second, until the share has fallen. The listener stays in the group, so the rollout of the mended
version gets through.
"""

from collections import deque

WINDOW_MS = 60_000
SLICE_MS = 1_000
#: Fewer finished records say nothing about a release.
ENOUGH_RECORDS = 50
INTAKE_INTERVAL_MS = 1_000


class Brake:
    """Counts what became of one listener's records, by monotonic time, in slices of a second."""

    __slots__ = ("_dead", "_finished", "_next_intake_ms", "_slices", "is_on")

    def __init__(self) -> None:
        self.is_on = False
        self._slices: deque[tuple[int, int, int]] = deque()
        self._finished = 0
        self._dead = 0
        self._next_intake_ms = 0.0

    def finished(self, count: int, dead: int, mono_ms: float) -> bool:
        """Count `count` finished records, `dead` of them dead letters. True when the brake changed by that."""
        at = int(mono_ms // SLICE_MS)
        if self._slices and self._slices[-1][0] == at:
            _, count_before, dead_before = self._slices.pop()
            self._slices.append((at, count_before + count, dead_before + dead))
        else:
            self._slices.append((at, count, dead))
        self._finished += count
        self._dead += dead
        return self.refresh(mono_ms)

    def refresh(self, mono_ms: float) -> bool:
        """Forget what is older than a minute and judge again. True when the brake went on or off."""
        oldest = int((mono_ms - WINDOW_MS) // SLICE_MS)
        while self._slices and self._slices[0][0] <= oldest:
            _, count, dead = self._slices.popleft()
            self._finished -= count
            self._dead -= dead
        mostly_dead = self._dead * 2 > self._finished
        # Once on it stays on at any number of records: at one a second fifty would take most of the window.
        should_be_on = mostly_dead and (self.is_on or self._finished >= ENOUGH_RECORDS)
        if should_be_on == self.is_on:
            return False
        self.is_on = should_be_on
        self._next_intake_ms = mono_ms + INTAKE_INTERVAL_MS
        return True

    def headroom(self) -> int:
        """
        How many dead letters may happen before the brake has to be asked again.

        Runs are given a share of it, so that a run of thousands can't all die before the first result is counted.
        """
        if self.is_on:
            return 1
        until_enough = ENOUGH_RECORDS - self._finished
        until_half = self._finished - 2 * self._dead
        return max(1, until_enough, until_half)

    def admits(self, mono_ms: float) -> bool:
        """Whether one record may start now while the brake is on."""
        return mono_ms >= self._next_intake_ms

    def admitted(self, mono_ms: float) -> None:
        """A record was started: the next one may follow in a second."""
        self._next_intake_ms = mono_ms + INTAKE_INTERVAL_MS
