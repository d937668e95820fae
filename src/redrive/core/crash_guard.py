"""
The crash guard: finds the record that kills the process each time it runs, and lets no other be blamed for it.

Nobody knows which record ran when a process died, unless it was committed; and a commit for each run is too dear. So
suspicion grows with the unclean ends in a row, and with it what is committed before records start. The account is the
`Ledger` in the metadata of each partition's commit:

    nonce    of the process at work, written before its first record starts; empty when it ended cleanly
    crashes  unclean ends in a row: a ledger with the nonce of another process was found
    hi       the suspects are the unfinished records below it
    ceil     no record at or above it has started
    solo     the record that runs alone in its process; with `crashes` below 2 a record that is named already

    crashes 0   nothing more is committed than without the guard                                     → dies
    crashes 1   records start below `ceil` only; it is raised by commits, early, so nothing waits     → dies
    crashes 2+  each suspect alone in the process, named in an acknowledged commit before it starts  → dies
    then        the record that the dead process had named is a dead letter; it doesn't run. crashes 0

Only a record named in a solo run is ever blamed: a process that was killed three times by something else blames nobody.
What holds it together:

- **A ledger counts when it was acknowledged**, but what was sent may have arrived: from the moment in which a name is
  sent until a commit without it is acknowledged nothing else runs in the process.
- **`hi` after the first crash is a bound**, since there was no ceiling: so many offsets beyond all that the last commit
  knew, and no further than the partition's end. A killer beyond it would survive a reset, but then the frontier has
  passed that bound: each such death moves the partition on, so it can't repeat for ever.
- **After the second crash it is exact**: the ceiling of the process that died.
- **A named record stays named** until it is finished: its ledger says so with `crashes` below 2, which no running one has.
  Nothing else of its partition starts until a commit has told its end.
"""

from collections.abc import Iterable, Sequence
from math import inf

import msgspec

from redrive.core.commands import Command, Report
from redrive.core.metadata import Ledger
from redrive.core.offset_codec import Range
from redrive.core.offsets import OffsetMap
from redrive.core.record import TopicPartition

NO_LIMIT = inf
#: From so many crashes on suspects run alone.
SOLO_CRASHES = 2
#: The ledger's room is bounded, and more than this says nothing new.
CRASHES_MOST = 99
#: How far the ceiling is above what starts: a commit for each half of it.
STEP_OFFSETS = 1_000
#: A process may be so far beyond its last commit, which comes each 100,000 records and takes milliseconds.
REACH_OFFSETS = 1_000_000
#: Who wants to run alone waits so long for the handlers at work; then these have their way for as long.
PATIENCE_MS = 10_000.0
#: Suspects follow each other for so long before the other partitions have the process for the same time.
STRETCH_MS = 1_000.0
#: Whoever has the process and doesn't use it for so long, to itself or for all others, gives it back.
UNUSED_MS = 20.0


class Suspicion(msgspec.Struct, frozen=True):
    """What a process has to believe of a partition that it was assigned; `named` -1: no record."""

    crashes: int = 0
    hi: int = 0
    ceil: int = -1
    named: int = -1


def suspicion_of(
    ledger: Ledger,
    ours: str,
    frontier: int,
    ranges: Sequence[Range] = (),
    end: int | None = None,
    reach: int = REACH_OFFSETS,
) -> Suspicion:
    """
    Judge a ledger that came with the commit at `frontier`, with the finished `ranges` above it. `ours`: the nonce of this
    process, which doesn't count as a crash. `end`: the partition's end now, where it is known: nothing beyond it ran.
    """
    is_crash = ledger.nonce not in ("", ours)
    was_alone = ledger.crashes >= SOLO_CRASHES
    named = ledger.solo if is_crash or not was_alone else -1
    if named < frontier or any(first <= named < last for first, last in ranges):
        named = -1
    if named >= 0 and was_alone:
        return Suspicion(named=named)
    crashes = min(ledger.crashes + is_crash, CRASHES_MOST)
    if named >= 0:
        # With more it could not be told from one that runs alone.
        crashes = min(crashes, SOLO_CRASHES - 1)
    hi = ledger.hi
    if is_crash:
        if not ledger.crashes:
            hi = max(hi, frontier, ranges[-1][1] if ranges else 0) + reach
        elif was_alone or crashes < SOLO_CRASHES:
            hi = max(hi, ledger.ceil)
        else:
            hi = ledger.ceil
    if end is not None:
        hi = min(hi, end)
    if not crashes or hi <= frontier:
        return Suspicion(named=named)
    return Suspicion(crashes, hi, ledger.ceil, named)


class CrashGuard:
    """
    The guard of one process, over all its partitions. `nonce`: of this process alone. `outbox` takes its reports.

    `turn`: the partition whose suspect has the process to itself; runs of others must not start. `watched`: the
    partitions of which not everything may start, or that have something to commit; empty while all goes well.
    """

    __slots__ = (
        "_asked_ms",
        "_explained",
        "_outbox",
        "_reach",
        "_rest_until_ms",
        "_since_ms",
        "_step",
        "_used_ms",
        "_waiting",
        "nonce",
        "turn",
        "watched",
    )

    def __init__(
        self,
        nonce: str,
        outbox: list[Command],
        *,
        step_offsets: int = STEP_OFFSETS,
        reach_offsets: int = REACH_OFFSETS,
    ) -> None:
        self.nonce = nonce
        self.turn: Watch | None = None
        self.watched: dict[TopicPartition, Watch] = {}
        self._outbox = outbox
        self._step, self._reach = step_offsets, reach_offsets
        #: Processes that died while a suspect ran alone: that was the cause, also for their other partitions.
        self._explained: set[str] = set()
        self._since_ms = self._asked_ms = self._rest_until_ms = self._used_ms = 0.0
        #: Who asked in vain for the process, the one that waits for longest first, and when it asked last.
        self._waiting: dict[Watch, float] = {}

    def learn(self, ledgers: Iterable[Ledger]) -> None:
        """Look through the ledgers of an assignment before its partitions are watched, for deaths that are explained."""
        for ledger in ledgers:
            if ledger.crashes >= SOLO_CRASHES and ledger.solo >= 0 and ledger.nonce not in ("", self.nonce):
                self._explained.add(ledger.nonce)

    def watch(
        self,
        key: TopicPartition,
        ledger: Ledger,
        frontier: int,
        ranges: Sequence[Range] = (),
        end: int | None = None,
    ) -> "Watch":
        """Begin to watch an assigned partition; arguments as of `suspicion_of`. Nothing of it starts before `acked`."""
        found = suspicion_of(ledger, self.nonce, frontier, ranges, end, self._reach)
        if ledger.nonce in self._explained:
            found = Suspicion(named=found.named)
        watch = self.watched[key] = Watch(self, key, found, frontier)
        if ledger.nonce == self.nonce and ledger.crashes >= SOLO_CRASHES and ledger.solo >= 0:
            # Ours before it was lost: whatever ended the process now, this record would be blamed.
            watch.keep(ledger.solo)
            if self.turn is None:
                self._hand_on()
        fields: dict[str, object] = {"topic": key.topic, "partition": key.partition}
        if found.crashes:
            self.report(Report("crash-suspected", {**fields, "crashes": found.crashes, "below": found.hi}))
        if found.named >= 0:
            self.report(Report("crash-named", {**fields, "offset": found.named}))
        return watch

    def forget(self, watch: "Watch") -> None:
        """The partition is no longer ours."""
        if self.watched.get(watch.key) is watch:
            del self.watched[watch.key]
        self._waiting.pop(watch, None)
        if self.turn is watch:
            self._hand_on()

    def wanting(self) -> list[TopicPartition]:
        """The partitions that wait for a commit of theirs, which should be sent at once."""
        return [key for key, watch in self.watched.items() if watch.wants_commit]

    def tick(self, mono_ms: float) -> None:
        """Take the process back from a partition that has nothing to run alone any more."""
        watch = self.turn
        if watch is not None and watch.is_kept:
            self._since_ms = min(self._since_ms, mono_ms)
            if (
                mono_ms - self._since_ms >= PATIENCE_MS
            ):  # its commits are refused: the others can't wait for ever
                watch.let_go()
        if watch is not None and not watch.is_alone and mono_ms >= self._asked_ms + UNUSED_MS:
            watch.unname()
            if not watch.is_known:
                self._give_back(mono_ms)

    def report(self, report: Report) -> None:
        """Tell the operator."""
        self._outbox.append(report)

    def step_above(self, offset: int) -> int:
        """The ceiling for a partition that is about to start `offset`."""
        return offset + self._step

    @property
    def run_most(self) -> int:
        """How many records a run under the ceiling may have, so that raising it in time is possible."""
        return max(1, self._step // 2)

    def has_process(self, watch: "Watch", runs_out: int, mono_ms: float) -> bool:
        """Whether this partition has the process to itself now; asking takes the turn, where nobody has it."""
        if self.turn is None:
            is_next = self._is_next(watch, mono_ms)
            if self._is_resting(runs_out, mono_ms) or not is_next:
                return False
            del self._waiting[watch]
            self.turn, self._since_ms, self._asked_ms = watch, mono_ms, mono_ms
        lasted_ms = mono_ms - self._since_ms
        if self.turn is not watch or (watch.is_between and lasted_ms >= STRETCH_MS):
            return False
        if runs_out and not watch.is_known and lasted_ms >= PATIENCE_MS:
            self._give_back(mono_ms)
            return False
        self._asked_ms = mono_ms
        return not runs_out

    def unnamed(self, watch: "Watch", mono_ms: float) -> None:
        """The broker knows that no record of this partition runs alone any more."""
        if self.turn is watch:
            self._give_back(mono_ms)

    def _is_next(self, watch: "Watch", mono_ms: float) -> bool:
        """Whether nobody who still asks waits for longer: else the one that is asked for first would have every turn."""
        asked_ms = self._waiting.get(watch, -inf)
        self._waiting[watch] = mono_ms
        for other, other_asked_ms in list(self._waiting.items()):
            if other is watch or other_asked_ms >= asked_ms:
                return other is watch
            del self._waiting[other]  # it didn't ask again between two questions of this one
        return True

    def _is_resting(self, runs_out: int, mono_ms: float) -> bool:
        """Whether those have the process that need it not for themselves; what they leave unused is given to the next."""
        if runs_out:
            self._used_ms = mono_ms
        return mono_ms < min(self._rest_until_ms, self._used_ms + UNUSED_MS)

    def _give_back(self, mono_ms: float) -> None:
        """Let the other partitions have the process for as long as they had to wait."""
        self._used_ms = mono_ms
        self._rest_until_ms = mono_ms + max(0.0, mono_ms - self._since_ms)
        self._hand_on()

    def _hand_on(self) -> None:
        """To a partition of which the broker believes that a suspect of it runs alone, if there is one."""
        self.turn = next((watch for watch in self.watched.values() if watch.is_kept), None)
        if self.turn is not None:
            self._since_ms = inf


class Watch:
    """
    What of one assigned partition may start. `is_free`: all of it, so long as no other partition has the process to
    itself; then nothing else needs to be asked.
    """

    __slots__ = (
        "_acked",
        "_ceil",
        "_frontier",
        "_guard",
        "_known",
        "_limit",
        "_solo",
        "crashes",
        "hi",
        "is_alone",
        "is_buried",
        "is_free",
        "key",
        "named",
    )

    def __init__(self, guard: CrashGuard, key: TopicPartition, found: Suspicion, frontier: int) -> None:
        self.key = key
        self.crashes, self.hi = found.crashes, found.hi
        #: The record that is not to be run but to become a dead letter; -1 when there is none.
        self.named = found.named
        #: Whether its end is on the way.
        self.is_buried = False
        #: Whether its suspect is at work, alone.
        self.is_alone = False
        self.is_free = False
        self._guard = guard
        self._ceil = max(found.ceil, guard.step_above(frontier))
        self._frontier = frontier
        #: What the broker has confirmed; offsets at or above `_limit` must not start.
        self._acked: Ledger | None = None
        self._limit: float = 0
        self._solo = -1
        #: Who runs alone by what the broker has confirmed, and by what was sent since.
        self._known: set[int] = set()

    # -- commits -------------------------------------------------------------------------------------------------

    def ledger(self, offsets: OffsetMap) -> Ledger:
        """
        What a commit of this moment must carry. Nothing is concluded from `offsets` here, but when that commit is
        acknowledged: a transaction may be aborted, and then they were never true.
        """
        named = -1 if offsets.is_finished(self.named) else self.named
        self._frontier = offsets.frontier
        if self._solo >= 0:
            self._known.add(self._solo)
        told = named if named >= 0 else self._solo
        if not self.crashes or self._frontier >= self.hi:
            return Ledger(self._guard.nonce, solo=told)
        return Ledger(self._guard.nonce, self.crashes, self.hi, self._ceil, told)

    def closed(self, offsets: OffsetMap) -> Ledger:
        """What the last commit of a revoke or a shut-down must carry: whoever comes next finds no crash."""
        solo, self._solo = self._solo, -1  # a suspect that is still at work has not killed the process
        ledger = self.ledger(offsets)
        self._solo = solo
        if not ledger.crashes:
            return Ledger(solo=ledger.solo)
        return Ledger("", ledger.crashes, ledger.hi, -1, ledger.solo)

    def acked(self, ledger: Ledger, mono_ms: float) -> None:
        """The broker has the commit that carried this ledger, and no later one was sent."""
        self._acked = ledger
        if ledger.solo < 0:
            self.named = -1
        if self.crashes and not ledger.crashes:
            self.crashes = 0
            fields: dict[str, object] = {"topic": self.key.topic, "partition": self.key.partition}
            self._guard.report(Report("crash-suspicion-over", fields))
        self._known = {ledger.solo} if ledger.solo >= 0 and ledger.crashes >= SOLO_CRASHES else set()
        self._limit = max(self._limit, ledger.ceil) if ledger.crashes else NO_LIMIT
        self.is_free = not ledger.crashes and ledger.solo < 0 and self.named < 0
        if self.is_free and self._guard.watched.get(self.key) is self:
            del self._guard.watched[self.key]
        if self._solo < 0 and not self.is_known:
            self._guard.unnamed(self, mono_ms)

    @property
    def wants_commit(self) -> bool:
        """Whether something waits for a commit of this partition to be acknowledged."""
        acked = self._acked
        if acked is None or acked.solo != self._told or self._known - {self._solo}:
            return True
        return acked.crashes != self.crashes or (self.crashes > 0 and acked.ceil < self._ceil)

    # -- starting ------------------------------------------------------------------------------------------------

    @property
    def limit(self) -> float:
        """No offset at or above it may start; 0 before the opened ledger is acknowledged."""
        return self._limit

    def is_suspect(self, offset: int) -> bool:
        """Whether this record must run alone."""
        return self.crashes >= SOLO_CRASHES and offset < self.hi

    def may_run_alone(self, suspect: int, runs_out: int, mono_ms: float) -> bool:
        """
        Whether the suspect is to be started now; it must be then, by itself, and its end be told (`ended`). Asking names it,
        once the process is free: `runs_out` are at work in all of it.
        """
        if self._acked is None or not self._guard.has_process(self, runs_out, mono_ms):
            return False
        self._solo = suspect
        # The broker knows this name and no other, and waits for none to arrive.
        self.is_alone = self._acked.solo == suspect and self._known == {suspect}
        return self.is_alone

    def bound(self, lowest: int) -> float:
        """Up to where a run may go that is no solo run and begins with `lowest`: only offsets below, 0 for none now."""
        if self._guard.turn is not None:
            return 0
        self.reach(lowest)
        if not self.holds:
            return self._limit
        return 0 if self.is_buried else min(self._limit, self.named)

    def reach(self, highest: int) -> None:
        """A run is to go so far: raise the ceiling early enough that nothing has to wait for it."""
        if self.crashes and highest + self._guard.run_most >= self._ceil:
            self._ceil = self._guard.step_above(highest)

    def ended(self) -> None:
        """The suspect that ran alone came back."""
        self.is_alone = False
        self.unname()

    def keep(self, solo: int) -> None:
        """The broker believes that this record runs alone, until the first commit says otherwise."""
        self._known.add(solo)

    def let_go(self) -> None:
        """It wasn't said in time."""
        self._known.clear()

    @property
    def is_kept(self) -> bool:
        """Whether no commit has taken back yet what the broker believed as this partition came."""
        return self._acked is None and self.is_known

    def unname(self) -> None:
        """No record is to run alone; what was told to the broker has to be taken back."""
        self._solo = -1

    @property
    def is_known(self) -> bool:
        """Whether the broker may believe that a suspect of this partition runs alone."""
        return bool(self._known)

    @property
    def holds(self) -> bool:
        """
        Whether a named record's end isn't known to the broker yet: nothing else of the partition starts, else another killer
        might end the process each time before it is.
        """
        acked = self._acked
        return self.named >= 0 or (acked is not None and acked.solo >= 0 and acked.crashes < SOLO_CRASHES)

    @property
    def suspects(self) -> int:
        """Among how many offsets the killer must be, by what a commit said last; 0 for none suspected."""
        return max(0, self.hi - self._frontier) if self.crashes else 0

    @property
    def is_between(self) -> bool:
        """Whether a suspect came back, and no other is named yet."""
        return self._solo < 0 and self.is_known

    @property
    def _told(self) -> int:
        return self.named if self.named >= 0 else self._solo
