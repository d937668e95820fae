"""The only place that asks the machine for the time, waits for it, or throws dice."""

import secrets
import threading
import time
from typing import Protocol

from redrive.core.plan import Now


class Clock(Protocol):
    """Both clocks, and waiting by one of them. The simulator has its own, which goes forward when it is told to."""

    def now(self) -> Now:
        """Wall and monotonic time in milliseconds, read together."""
        ...

    def wall_ms(self) -> float:
        """Epoch milliseconds UTC."""
        ...

    def mono_ms(self) -> float:
        """Monotonic milliseconds; only differences mean something."""
        ...

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        """Wait until the event is set, at most so long. True when it was set."""
        ...


def fresh_nonce() -> str:
    """A name that no other process has, now or earlier: twelve letters and digits."""
    return secrets.token_hex(6)


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Now:
        return Now(time.time() * 1000, time.monotonic() * 1000)

    def wall_ms(self) -> float:
        return time.time() * 1000

    def mono_ms(self) -> float:
        return time.monotonic() * 1000

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        return event.wait(timeout_ms / 1000)
