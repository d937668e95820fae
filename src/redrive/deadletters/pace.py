"""How fast letters are sent: `50/s`, and the waiting that keeps it."""

import re
import threading

from redrive.runtime.clock import Clock

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(?:/([smh]))?")
_UNIT_S = {None: 1, "s": 1, "m": 60, "h": 3600}
#: Beyond this no waiting would be left to do.
_MOST_PER_S = 1_000_000
#: Slices of a tenth of a second: what is claimed and not sent yet, should the process be killed, stays small.
_SLICES_PER_S = 10


def parse_rate(text: str) -> float:
    """Gives letters per second of `50`, `50/s`, `100/m` or `3600/h`. Raises ValueError, in words for whoever typed it."""
    matched = _RATE.fullmatch(text.strip())
    if matched is None:
        raise ValueError(f"{text!r} is no rate: write a number and /s, /m or /h, as in 50/s")
    per_s = float(matched[1]) / _UNIT_S[matched[2]]
    if not 0 < per_s <= _MOST_PER_S:
        raise ValueError(
            f"{text!r} can't be kept: give more than 0 and at most {_MOST_PER_S}/s, or no rate at all"
        )
    return per_s


class Pace:
    """Keeps a rate on the average since its first slice. `per_s`: None for as fast as it goes."""

    def __init__(self, clock: Clock, per_s: float | None = None) -> None:
        self._clock = clock
        self._per_s = per_s
        self._began_ms: float | None = None
        self._sent = 0

    def slice_of(self, most: int) -> int:
        """How many letters may go at once, of at most `most`."""
        return most if self._per_s is None else max(1, min(most, int(self._per_s / _SLICES_PER_S)))

    def wait(self, stop: threading.Event) -> None:
        """Wait until the next slice may go, or `stop` is set."""
        if self._per_s is None:
            return
        now_ms = self._clock.mono_ms()
        if self._began_ms is None:
            self._began_ms = now_ms
        wait_ms = self._began_ms + 1000 * self._sent / self._per_s - now_ms
        if wait_ms > 0:
            self._clock.wait(stop, wait_ms)

    def count(self, sent: int) -> None:
        """So many were sent."""
        self._sent += sent
