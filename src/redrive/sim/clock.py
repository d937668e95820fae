"""A clock that stands still until it is told to move, and on which a wait takes no time but its own."""

import threading
from collections.abc import Generator
from contextlib import contextmanager

from redrive.core.plan import Now

#: 2027-01-15, 08:00 UTC: dues and timestamps in a simulation look like those of a real day.
START_WALL_MS = 1_800_000_000_000.0


class VirtualClock:
    """
    Implements the clock port. Nothing blocks: whoever waits moves both clocks forward instead.

    `horizon_mono_ms`: waits end there at the latest, so that whoever drives a simulation up to an instant gets no
    further than that. `advance` and `step_wall` are not bound by it.
    """

    def __init__(self, wall_ms: float = START_WALL_MS) -> None:
        self._wall_ms = wall_ms
        self._mono_ms = 0.0
        self.horizon_mono_ms = float("inf")

    def now(self) -> Now:
        """Both times at once."""
        return Now(self._wall_ms, self._mono_ms)

    def wall_ms(self) -> float:
        """What a clock on the wall says, in epoch milliseconds: dues and timestamps go by it. Begins on 2027-01-15, 08:00 UTC."""
        return self._wall_ms

    def mono_ms(self) -> float:
        """Milliseconds since the clock began; `step_wall` doesn't change it."""
        return self._mono_ms

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        """Gives whether the event is set; if it isn't, both clocks have moved by `timeout_ms`, but not beyond the horizon."""
        if not event.is_set():
            self.pass_time(timeout_ms)
        return event.is_set()

    def pass_time(self, ms: float) -> None:
        """What a wait of `ms` costs: time goes forward by it, but not beyond the horizon."""
        self.advance(max(0.0, min(ms, self.horizon_mono_ms - self._mono_ms)))

    @contextmanager
    def unbounded(self) -> Generator[None, None, None]:
        """For what takes the time it takes: within, waits go beyond the horizon."""
        horizon_ms, self.horizon_mono_ms = self.horizon_mono_ms, float("inf")
        try:
            yield
        finally:
            self.horizon_mono_ms = horizon_ms

    def advance(self, ms: float) -> None:
        """
        Move both clocks forward. Nobody does what becomes due in it: `Harness.advance` lets the app. Raises ValueError for a
        negative `ms`: only the wall clock can go back.
        """
        if ms < 0:
            raise ValueError(f"advance({ms}): time goes forward; step_wall steps the wall clock alone")
        self._wall_ms += ms
        self._mono_ms += ms

    def step_wall(self, ms: float) -> None:
        """Set the wall clock forward or back, as NTP or a person does; intervals aren't touched."""
        self._wall_ms += ms
