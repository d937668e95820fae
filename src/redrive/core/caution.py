"""
How the engine heeds the crash guard: what of a suspected partition is started, and what is committed before.

Nothing here is used for partitions that are free, which is nearly always all of them.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from redrive.core.commands import Command, Failed, Run
from redrive.core.commits import Commits
from redrive.core.crash_guard import CrashGuard, Watch
from redrive.core.envelope import Envelope
from redrive.core.failure import Failure, Kind
from redrive.core.fingerprint import fingerprint
from redrive.core.lane import Lane
from redrive.core.metadata import NO_LEDGER, Ledger
from redrive.core.offset_codec import Range
from redrive.core.plan import Now
from redrive.core.record import RawRecord, TopicPartition
from redrive.core.returning import cut_short
from redrive.core.successors import envelope_of, source_envelope
from redrive.core.taking import Taking
from redrive.core.translator import Translator

_TYPE = "ProcessCrashed"
_MESSAGE = (
    "The process that ran this record ended without a word at least three times in a row, the last time while nothing else "
    "ran in it: killed by the system, by a native library, or for want of memory. The record was not run again."
)


class Caution:
    """
    The crash guard at work in one engine. `runs`: what workers have; `translator` reads the headers of a tier's records.
    """

    def __init__(
        self,
        nonce: str,
        outbox: list[Command],
        runs: Mapping[Run, None],
        commits: Commits,
        taking: Taking,
        translator: Translator,
    ) -> None:
        self.guard = CrashGuard(nonce, outbox)
        self._runs = runs
        self._commits = commits
        self._taking = taking
        self._translator = translator

    def watch(
        self, lane: Lane, ledger: Ledger = NO_LEDGER, ranges: Sequence[Range] = (), end: int | None = None
    ) -> None:
        """Begin with a partition of which it is known where it begins: nothing of it starts until its ledger is open."""
        if ledger.nonce not in ("", self.guard.nonce):
            lane.listener.counters.unclean_ends += 1
        lane.watch = self.guard.watch(lane.key, ledger, lane.offsets.frontier, ranges, end)
        lane.limit = lane.watch.limit

    def begin(self, lane: Lane, offset: int) -> None:
        """It is known now where a partition begins of which nothing was committed."""
        lane.offsets.begin(offset)
        self.watch(lane)

    def forget(self, lane: Lane) -> None:
        """The partition is no longer ours."""
        if lane.watch is not None:
            self.guard.forget(lane.watch)

    def is_free(self, lane: Lane) -> bool:
        """Whether this partition may start what it likes."""
        return self.guard.turn is None and (lane.watch is None or lane.watch.is_free)

    def tick(self, lanes: Mapping[TopicPartition, Lane], now: Now) -> None:
        """Ask for the commits that partitions wait for, and give the process back to all when nothing runs alone."""
        self.guard.tick(now.mono_ms)
        for key, watch in self.guard.watched.items():
            if watch.named >= 0 and lanes[key].heads.is_dead(watch.named):
                watch.named = -1  # its letter is written, and its lane waits for a replay
        for key in self.guard.wanting():
            self._commits.demand(lanes[key], now)

    def run_of(self, lane: Lane, slot: int, most: int, now: Now) -> Run | None:
        """A run of what may start now; None when nothing may."""
        guard, watch = self.guard, lane.watch
        if watch is None or not watch.limit or guard.turn not in (None, watch):
            return None
        most = min(most, guard.run_most)
        if watch.named >= 0 and _can_be_pulled(lane) and not watch.is_buried:
            return self._named(lane, watch, slot)
        lowest = self._taking.lowest(lane, most, now)
        if lowest is None:
            # What the owner before had finished is passed, what waits is let rest.
            return self._limited(lane, slot, most, 0, now)
        if lowest == watch.named:
            return None if lane.has_stretches_out() else self._limited(lane, slot, 1, lowest + 1, now)
        if watch.is_suspect(lowest):
            return self._alone(lane, slot, lowest, now)
        run = self._limited(lane, slot, most, watch.bound(lowest), now)
        if run is not None:
            watch.reach(max(record.offset() for record in run.records))
        return run

    def _named(self, lane: Lane, watch: Watch, slot: int) -> Run | None:
        """The named record, before all others; None until it is fetched."""
        record = self._taking.pull(lane, watch.named)
        if record is None:
            if lane.next_offset > watch.named:
                watch.named = -1  # the log was cut
            return None
        run = Run(lane, slot, [record], 0, 0)
        run.is_apart = True
        if lane.tier is not None:
            run.wakes_ms = [0]
        return run

    def _alone(self, lane: Lane, slot: int, suspect: int, now: Now) -> Run | None:
        guard, watch = self.guard, lane.watch
        if watch is None:
            return None
        had_turn = guard.turn is watch
        if watch.may_run_alone(suspect, len(self._runs), now.mono_ms):
            run = self._limited(lane, slot, 1, suspect + 1, now)
            if run is None:  # a person wants it skipped
                watch.ended()
            return run
        if guard.turn is watch and not had_turn:
            self._interrupt()
        return None

    def _limited(self, lane: Lane, slot: int, most: int, limit: float, now: Now) -> Run | None:
        before, lane.limit = lane.limit, limit
        try:
            return self._taking.run_of(lane, slot, most, now)
        finally:
            lane.limit = before

    def _interrupt(self) -> None:
        """A suspect waits for the process: let all handlers end the record they are at."""
        for run in self._runs:
            cut_short(run)

    def ended(self, run: Run, now: Now) -> None:
        """A run came back."""
        watch = run.lane.watch
        if watch is not None and watch.is_alone:
            watch.ended()
            if run.lane.alive:
                # Asked for at once: an idle pump would first wait for records.
                self._commits.demand(run.lane, now)

    def is_named(self, run: Run) -> bool:
        """Whether this is the record that is not to be run."""
        watch = run.lane.watch
        return watch is not None and watch.named == run.records[0].offset() and not watch.is_buried

    def bury(self, run: Run, now: Now) -> None:
        """The record of this run killed its process: let it count as failed for good, without running it."""
        lane, record = run.lane, run.records[0]
        if lane.watch is not None:
            lane.watch.is_buried = True
        kind = Kind.PERMANENT
        failure = Failure(
            kind, _TYPE, _MESSAGE, "the crash guard", fingerprint=fingerprint(kind, _TYPE, _MESSAGE)
        )
        envelope = self._envelope(lane, record)
        run.failures.append(Failed(record, failure, envelope.attempt + 1, now.wall_ms, envelope, "crashed"))

    def _envelope(self, lane: Lane, record: RawRecord) -> Envelope:
        """What is known of a record before its last run."""
        if lane.tier is not None:
            envelope, _ = envelope_of(record, self._translator)
        else:
            envelope = source_envelope(record, lane.listener.plan.id_header)
        head = lane.heads.get(record.offset())
        if head is None:
            return envelope
        return msgspec.structs.replace(envelope, attempt=head.attempt, first_failed_ms=head.first_failed_ms)

    def learn(self, ledgers: Collection[Ledger]) -> None:
        """Look through all ledgers of an assignment before its partitions are watched."""
        self.guard.learn(ledgers)


def _can_be_pulled(lane: Lane) -> bool:
    """Whether the named record needn't wait until those before it are through."""
    return lane.is_apart and not lane.keeps_holes and not lane.is_paused
