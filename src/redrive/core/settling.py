"""What a run's result means for its partition: what is finished, what failed and moves on, or is held."""

from collections.abc import Sequence
from math import ceil

from redrive.core.aftermath import Aftermath
from redrive.core.commands import Again, Failed, Run
from redrive.core.commits import Commits
from redrive.core.emitting import Emitted
from redrive.core.heeding import Heeding
from redrive.core.lane import Lane
from redrive.core.metadata import Head
from redrive.core.outages import Outages
from redrive.core.plan import Now
from redrive.core.record import RawRecord
from redrive.core.router import Hold
from redrive.core.successors import Fate, Successors

_UNFINISHED: frozenset[Fate] = frozenset(["retried", "held", "stopped"])


class Settling:
    """Settles runs, whole or as far as they came."""

    def __init__(
        self,
        successors: Successors,
        commits: Commits,
        notices: Heeding,
        aftermath: Aftermath,
        outages: Outages,
    ) -> None:
        self._successors = successors
        self._commits = commits
        self._notices = notices
        self._aftermath = aftermath
        self._outages = outages

    def settle(self, run: Run, records: list[RawRecord], done: int, now: Now) -> bool:
        """
        The first `done` records of the run are finished or failed; those before `run.settled` were counted. `records`:
        the run's; of a stretch that has ended whole they are let go, and not needed. Whether the brake changed by it.
        """
        listener = run.lane.listener
        failures = run.failures[run.failures_seen :]
        if done < run.count:  # the worker may be further by now
            settled = {record.offset() for record in records[run.settled : done]}
            failures = [failed for failed in failures if failed.record.offset() in settled]
        run.failures_seen += len(failures)
        count = done - run.settled
        open_offsets = [failed.record.offset() for failed in failures]
        emitted = self._emitted(run, records, done, open_offsets) if run.emitting is not None else ()
        if emitted:
            open_offsets = sorted([*open_offsets, *(each.record.offset() for each in emitted)])
        self._close(run, records, done, open_offsets)
        run.settled = done
        self._commits.ended(count)
        for each in emitted:
            self._successors.emit(run.lane, each)
        handled = count - len(failures)
        listener.counters.handled += handled
        routed = self._outages.sifted(run, failures, handled, now, row=run.row(done))
        fates = [self._route(run, failed, now) for failed in routed]
        # A record that moved on to a tier, or waits, hasn't ended yet: counted as finished it would hide that all die.
        ended = handled + len(routed) - sum(fate in _UNFINISHED for fate in fates)
        return bool(
            ended and listener.plan.brake and listener.brake.finished(ended, fates.count("dead"), now.mono_ms)
        )

    def _emitted(
        self, run: Run, records: list[RawRecord], done: int, failed_offsets: list[int]
    ) -> Sequence[Emitted]:
        """What the records settled now have emitted. Each of them is passed when that was written."""
        if run.emitting is None:
            return ()
        is_all = done == run.count
        offsets = None if is_all else {record.offset() for record in records[run.settled : done]}
        return run.emitting.take(offsets, failed_offsets)

    def _close(self, run: Run, records: list[RawRecord], done: int, open_offsets: list[int]) -> None:
        lane = run.lane
        if not run.is_apart:
            end = run.end if done == run.count else records[done].offset()
            if open_offsets:
                lane.offsets.open(open_offsets)
            if done > run.settled:
                lane.offsets.settle(end)
                if lane.heads:
                    lane.heads.drop_below(end, open_offsets)
            return
        offsets = [record.offset() for record in records[run.settled : done]]
        if open_offsets or run.open_offsets:
            run.open_offsets.update(open_offsets)
            offsets = [offset for offset in offsets if offset not in run.open_offsets]
        lane.offsets.close_all(offsets)
        if lane.heads:
            for offset in offsets:
                lane.heads.drop(offset)
        if lane.held:
            lane.held.difference_update(offsets)
        if lane.parked is not None or lane.frees:
            self._tell_ended(lane, records[run.settled : done], set(offsets))
        if run.is_of_tier and (lateness := lane.listener.counters.lateness.get(lane.key.topic)):
            lateness.add_all(run.late_ms())

    def _tell_ended(self, lane: Lane, records: list[RawRecord], finished: set[int]) -> None:
        """Whoever waits for these records elsewhere."""
        if lane.parked is not None and lane.parked.lane is lane:
            for offset in finished:
                lane.parked.finished(offset)
        if lane.frees:
            for record in records:
                if record.offset() in finished:
                    self._aftermath.handled(lane, record)

    def _route(self, run: Run, failed: Failed, now: Now) -> Fate:
        run.lane.held.discard(failed.record.offset())
        if (notice := self._notices.skips(run.lane, failed.record.offset())) is not None:
            run.lane.listener.counters.failed_runs += 1
            run.lane.heads.drop(failed.record.offset())
            self._notices.skip(run.lane, failed.record, notice, now)
            return "skipped"
        fate = self._successors.route(run.lane, failed)
        if isinstance(fate, Hold):
            run.is_held = True
            self._wait(run.lane, failed, fate.due_ms, now, must_tell=True)
            return "held"
        if fate == "dead":
            run.lane.listener.died_of(failed.failure.type, now.mono_ms)
            run.is_held = self._aftermath.dies(run.lane, failed.record)
        elif fate == "skipped" and run.lane.frees:
            self._aftermath.handled(run.lane, failed.record)
        return fate

    def again(self, lane: Lane, again: Again, now: Now) -> None:
        """A record waits in front of its lane, to be tried again in place."""
        lane.listener.counters.failed_runs += 1
        due_ms = ceil(again.failed.failed_ms + again.wait_ms)
        self._wait(lane, again.failed, due_ms, now, must_tell=False)

    def _wait(self, lane: Lane, failed: Failed, due_ms: int, now: Now, *, must_tell: bool) -> None:
        envelope = self._successors.envelope_after(failed, due_ms)
        head = Head(failed.attempt, due_ms, envelope.first_failed_ms or int(failed.failed_ms))
        lane.heads.put(failed.record.offset(), head, envelope, must_tell=must_tell)
        if must_tell:
            self._commits.hurry(lane, due_ms - now.wall_ms, now)
            if lane.parked is not None and lane.parked.source is not None:
                # Told together: else a crash might find copies finished of which the source still has the records open.
                self._commits.hurry(lane.parked.source, due_ms - now.wall_ms, now)
