"""
What the engine does about outages: what runs tell the breakers, what is held meanwhile, which record is the next probe.

Held is what fails while a breaker isn't closed, and what failed in the very run that opened it: its offset stays open, the
failure isn't counted as an attempt, and after the outage it runs again. In its place, so that an outage changes no order;
but for a probe that failed, which goes behind the others, since it may fail for reasons of its own.
"""

from collections.abc import Mapping
from math import ceil

from redrive.core.breaker import AWAY, is_evidence, sign_of
from redrive.core.commands import AskHealth, Command, Failed, Report, Run, RunResult
from redrive.core.failure import Kind
from redrive.core.lane import Lane
from redrive.core.listener_state import ListenerState
from redrive.core.plan import Now
from redrive.core.returning import cut_short

_ANSWERED = "a record came through, or failed for good"
_UNTOLD = (
    "records fail still, but for ten minutes by no exception that means an outage, so their attempts count"
)


class Outages:
    """All breakers of a group. `runs`: what workers have."""

    def __init__(self, outbox: list[Command], runs: Mapping[Run, None]) -> None:
        self._outbox = outbox
        self._runs = runs

    # -- results -------------------------------------------------------------------------------------------------

    def done(self, result: RunResult, now: Now) -> int:
        """
        How many records of a run are to be settled. One at which it stopped is among them when it failed for good, or is
        held; not when it is to be tried again in place.
        """
        run = result.run
        listener = run.lane.listener
        if (failed := run.outage) is not None:
            if listener.breaker.is_closed and not _is_its_own(run.lane, failed):
                listener.breaker.open(now.mono_ms, is_told=True)
                self._begin(listener, f"{failed.failure.type} means an outage ({failed.failure.rule})")
        elif run.again is not None:
            failed = run.again.failed
            if listener.breaker.is_closed and not self._opened(listener, 0, [failed], now):
                return result.done
            run.again = None
        else:
            return result.done
        run.failures.append(failed)
        return result.done + 1

    def sifted(
        self, run: Run, failures: list[Failed], handled: int, now: Now, *, row: int = 0
    ) -> list[Failed]:
        """
        Hold what is to be held of these failures of a run, in which `handled` others came through; the last `row` of them
        failed after those. Gives those that are to be routed.
        """
        listener = run.lane.listener
        self._opened(listener, handled, failures, now, row)
        if listener.breaker.is_closed:
            return failures
        routed: list[Failed] = []
        for failed in failures:
            if self._is_held(listener, failed, now):
                self._hold(run, failed, now)
            else:
                routed.append(failed)
        return routed

    def _is_held(self, listener: ListenerState, failed: Failed, now: Now) -> bool:
        if failed.signal == "crashed":
            return False  # it must not run again
        sign = sign_of(failed)
        return sign in AWAY or (sign != "up" and not listener.breaker.take_token(now.mono_ms))

    def _hold(self, run: Run, failed: Failed, now: Now) -> None:
        lane, counters = run.lane, run.lane.listener.counters
        counters.failed_runs += 1
        counters.held += 1
        lane.held.add(failed.record.offset())
        if lane.listener.plan.policy.blocking:
            run.is_held = True
        elif lane.keys is not None and lane.tier is None:
            run.held_offsets.add(failed.record.offset())
        else:
            is_in_place = lane.tier is None and run is not lane.listener.probe
            lane.window.hold(0 if is_in_place else ceil(now.wall_ms), failed.record)

    # -- opening and closing -------------------------------------------------------------------------------------

    def _opened(
        self, listener: ListenerState, handled: int, failures: list[Failed], now: Now, row: int = 0
    ) -> bool:
        """Tell the breaker what a run brought. Whether that opened it."""
        breaker = listener.breaker
        if breaker.is_closed and not listener.plan.breaker:
            return False
        handled += sum(sign_of(failed) == "up" for failed in failures)
        down = [failed for failed in failures if is_evidence(failed)]
        row = min(row, len(down))
        is_opened = breaker.finished(handled, len(down) - row, now.mono_ms)
        if not (breaker.finished(0, row, now.mono_ms) or is_opened):
            return False
        # As time passes a record that came through may tell that those before it failed for long enough.
        latest = f", the latest with {down[-1].failure.type}" if down else ""
        self._begin(listener, f"nearly all of its last attempts failed{latest}")
        return True

    def look(self, listener: ListenerState, now: Now) -> None:
        """Judge again as time passes: where each failure holds up those behind it, few results are all there will be."""
        plan = listener.plan
        if plan.breaker and plan.policy.blocking and listener.breaker.refresh(now.mono_ms):
            self._begin(listener, "nearly all of its last attempts failed")

    def _begin(self, listener: ListenerState, why: str) -> None:
        listener.counters.outages += 1
        for run in self._runs:
            if run.listener == listener.index:
                cut_short(run)
        fields = {"why": why, "wait_s": listener.breaker.pause_ms / 1000}
        self._outbox.append(Report("outage", {"listener": listener.plan.name, **fields}))

    # -- probes --------------------------------------------------------------------------------------------------

    def answered(self, listener: ListenerState, now: Now, *, is_healthy: bool) -> None:
        """What its health function said."""
        listener.breaker.answered(is_healthy=is_healthy, mono_ms=now.mono_ms)

    def may_probe(self, listener: ListenerState, now: Now) -> bool:
        """Whether a probe may start. Where there is a health function that is asked first."""
        step = listener.breaker.next_step(now.mono_ms)
        if step == "ask":
            listener.breaker.asked()
            self._outbox.append(AskHealth(listener.index))
        return step == "probe"

    def probing(self, run: Run, now: Now) -> None:
        """This run is the probe."""
        listener = run.lane.listener
        listener.probe = run
        listener.breaker.probing(now.mono_ms)

    def probed(self, result: RunResult, now: Now) -> None:
        """The probe is back, and settled."""
        run = result.run
        listener = run.lane.listener
        listener.probe = None
        again = None if run.again is None else run.again.failed
        failed = run.failures[-1] if run.failures else run.outage or again
        if failed is None and not result.done:
            listener.breaker.unprobed()
            return
        sign = "up" if failed is None else sign_of(failed)
        # What is new has its turn after what was held, and the other way round.
        run.lane.skips_window = run.is_apart
        was_open_s = round((now.mono_ms - listener.breaker.opened_ms) / 1000)
        fields = {"listener": listener.plan.name, "lasted_s": was_open_s}
        if listener.breaker.probed(sign, now.mono_ms):
            why = _ANSWERED if listener.breaker.has_answered else _UNTOLD
            self._outbox.append(Report("outage-over", {**fields, "why": why}))
        elif failed is not None:
            fields |= {"type": failed.failure.type, "wait_s": listener.breaker.pause_ms / 1000}
            self._outbox.append(Report("outage-lasts", fields))


def _is_its_own(lane: Lane, failed: Failed) -> bool:
    """
    Whether a failure that means an outage is that record's alone: others came through since it was held. Then it climbs the
    ladder as a transient one does, and its envelope says so to whoever reads it there.
    """
    is_proven = failed.record.offset() in lane.held and lane.listener.breaker.has_answered
    return is_proven or failed.envelope.failure_kind == Kind.OUTAGE
