"""What a run's result means for its partition: what is finished, what failed and moves on, what goes back to its place."""

from collections.abc import Sequence
from math import ceil

from redrive.core.aftermath import Aftermath
from redrive.core.commands import Again, Failed, Gate, Run
from redrive.core.commits import Commits
from redrive.core.emitting import Emitted
from redrive.core.heeding import Heeding
from redrive.core.lane import Batch, Lane
from redrive.core.metadata import Head
from redrive.core.plan import Now
from redrive.core.record import RawRecord
from redrive.core.router import Hold
from redrive.core.successors import Fate, Successors

_UNFINISHED: frozenset[Fate] = frozenset(["retried", "held", "stopped"])


class Settling:
    """Settles runs, whole or as far as they came."""

    def __init__(
        self, successors: Successors, commits: Commits, notices: Heeding, aftermath: Aftermath
    ) -> None:
        self._successors = successors
        self._commits = commits
        self._notices = notices
        self._aftermath = aftermath

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
            if run.lane.frees:
                self._aftermath.handled(each.record)
        fates = [self._route(run, failed, now) for failed in failures]
        listener.counters.handled += count - len(failures)
        # A record that moved on to a tier, or waits, hasn't ended yet: counted as finished it would hide that all die.
        ended = count - sum(fate in _UNFINISHED for fate in fates)
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
        if lane.frees:
            finished = set(offsets)
            for record in records[run.settled : done]:
                if record.offset() in finished:
                    self._aftermath.handled(record)
        if run.is_of_tier:
            lane.listener.counters.lateness[lane.key.topic].add_all(run.late_ms())

    def _route(self, run: Run, failed: Failed, now: Now) -> Fate:
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
            self._aftermath.handled(failed.record)
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

    def give_back(self, run: Run, done: int) -> bool:
        """
        What the run left undone goes back to its place; for a stretch, once all runs of its partition are home. Whether the
        partition may have work by that.
        """
        lane = run.lane
        if lane.keys is not None:
            if not lane.is_stopping:
                self._put_back(run, done, run.count)
            lane.keys.home(run.key_lanes[: run.count])
            return True
        rest = run.records[done:]
        if rest and not lane.is_stopping:
            if run.is_apart:
                _hold_again(lane, rest, run.wakes_ms[done:] if run.wakes_ms is not None else [0] * len(rest))
            else:
                lane.returned.append(Batch(rest, run.end))
                lane.listener.queued += len(rest)
        if not lane.gate.is_shut or lane.runs or lane.is_stopping:
            return False
        lane.queue.extendleft(reversed(lane.returned))
        lane.returned = []
        lane.gate = Gate()
        return True

    def take_back(self, run: Run) -> bool:
        """A handler takes long: let others have the records that stand behind its own. Whether there were any."""
        before = run.count
        if not run.take_back() or run.lane.keys is None:
            return False
        self._put_back(run, run.count, before)
        run.lane.keys.home(run.key_lanes[run.count : before])
        return True

    def _put_back(self, run: Run, first: int, end: int) -> None:
        """
        These of the run's records go back into their lanes. A tier's wait for their turn in its window, but for those that
        later ones of their key may not overtake.
        """
        lane, records = run.lane, run.records[first:end]
        if lane.keys is None or (run.wakes_ms is not None and lane.listener.plan.policy.blocking is None):
            _hold_again(
                lane, records, run.wakes_ms[first:end] if run.wakes_ms is not None else [0] * len(records)
            )
            return
        lane.keys.put_back(records, run.key_lanes[first:end])
        if run.wakes_ms is None:
            lane.listener.queued += len(records)
        else:
            wakes_ms = zip(records, run.wakes_ms[first:end], strict=True)
            lane.wakes_ms.update((record.offset(), wake_ms) for record, wake_ms in wakes_ms)


def _hold_again(lane: Lane, records: list[RawRecord], wakes_ms: list[int]) -> None:
    for record, wake_ms in zip(records, wakes_ms, strict=True):
        head = lane.heads.get(record.offset())
        lane.window.hold(wake_ms if head is None else max(wake_ms, head.due_ms), record)
