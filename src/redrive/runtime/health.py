"""The health of a running pump, for whoever asks: probes, the demo, an operator."""

from redrive.core.health import Health, Signs, judge
from redrive.runtime.clock import Clock
from redrive.runtime.pump import Pump


def health_of(pump: Pump, clock: Clock) -> Health:
    """The pump's state now, by any thread."""
    problem = pump.last_problem
    signs = Signs(
        now_mono_ms=clock.mono_ms(),
        stepped_mono_ms=pump.stepped_mono_ms,
        has_joined=pump.has_joined,
        is_stopping=pump.stop_requested.is_set(),
        producer_problem=pump.producer_problem,
        last_problem=f"{problem.kind}: {problem.detail}" if problem is not None else "",
    )
    return judge(pump.engine, signs)
