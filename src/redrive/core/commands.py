"""What the engine asks the runtime to do, and the two things that come back: a run's result, a write's answer."""

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from operator import length_hint, sub
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from redrive.core.emitting import Emitting
from redrive.core.envelope import Envelope
from redrive.core.failure import Failure
from redrive.core.record import RawRecord, TopicPartition

if TYPE_CHECKING:
    from redrive.core.heads import Heads
    from redrive.core.key_lanes import KeyLane
    from redrive.core.lane import Lane

#: `crashed` comes from the crash guard, the others from handlers.
Signal = Literal["", "retry-later", "dead-letter", "skip", "crashed"]
#: Why a run ended before its last record.
Halt = Literal["", "outage", "budget", "again", "held", "row", "cut"]


class Failed(msgspec.Struct, frozen=True):
    """A record whose handler raised, or that could not be decoded. Values only: the exception stays in the worker."""

    record: RawRecord
    failure: Failure
    #: The number of the run that failed, the first is 1.
    attempt: int
    #: When it failed, epoch milliseconds.
    failed_ms: float
    #: What was known of the record before this run.
    envelope: Envelope
    #: What the handler asked for by raising a signal.
    signal: Signal = ""


class Again(msgspec.Struct, frozen=True):
    """A record that is to be tried again in place, `wait_ms` after it failed."""

    failed: Failed
    wait_ms: int


class Gate:
    """Shut by whoever stops a run early, so that runs queued behind it in the same lane don't overtake its rest."""

    __slots__ = ("is_shut",)

    def __init__(self) -> None:
        self.is_shut = False


class Run:
    """
    Records of one lane, to be handled one after another. Owned by the engine; the worker that has it writes only
    `iterator`, `started_mono_ms`, `failures`, `starts_ms`, `unreadable`, `outage`, `again`,
    `emitting` and by `fails_at`, and in the end `records`.

    The worker walks `iterator` over `records`. That makes two things free for records that succeed: how far it came
    can be read from outside (`taken`), and it is stopped by moving the iterator to its end (`cut`).

    Records of several key lanes (`key_lanes`: of each record its lane) are taken from `rest` instead, one by one from the
    left; what the worker hasn't taken up can be taken back from the right at once (`take_back`), though a handler hangs.

    A worker that is through with all of a source's records lets go of them (`let_go`), so that they are freed where
    they still are in the processor's cache: by the pump's thread it costs a tenth of all the time.
    """

    __slots__ = (
        "_row",
        "_row_end",
        "again",
        "budget",
        "count",
        "emitting",
        "end",
        "open_offsets",
        "failures",
        "failures_seen",
        "gate",
        "heads",
        "held_offsets",
        "is_apart",
        "is_cut",
        "is_held",
        "iterator",
        "key_lanes",
        "lane",
        "listener",
        "most_dead",
        "moved_mono_ms",
        "outage",
        "records",
        "rest",
        "settled",
        "slot",
        "started_mono_ms",
        "starts_seen",
        "unreadable",
        "starts_ms",
        "wakes_ms",
    )

    def __init__(self, lane: "Lane", slot: int, records: list[RawRecord], end: int, budget: int) -> None:
        self.lane = lane
        self.listener: int = lane.listener.index
        self.slot = slot
        self.records = records
        self.count = len(records)
        self.end = end
        self.budget = budget
        #: How many dead letters it can cause: it stops at its budget, and has no more than its records.
        self.most_dead = 0
        self.gate: Gate = lane.gate
        self.wakes_ms: list[int] | None = None
        #: Whether each record's offset is open and closed by itself; else the run is a stretch of its partition.
        self.is_apart = False
        self.rest: deque[RawRecord] | None = None
        self.key_lanes: list[KeyLane] = []
        #: What is known of records that failed before, where there are any.
        self.heads: Heads | None = None
        self.again: Again | None = None
        #: What handlers emit for its records, where they are given the record.
        self.emitting: Emitting | None = None
        #: Its last record failed, and waits in front of its lane.
        self.is_held = False
        self.iterator: Iterator[RawRecord] | None = None
        self.is_cut = False
        self.failures: list[Failed] = []
        self.starts_ms: list[float] = []
        self.outage: Failed | None = None
        self._row = self._row_end = 0
        self.started_mono_ms: float | None = None
        #: When it was last seen to be at another record than the time before.
        self.moved_mono_ms = 0.0
        self.failures_seen = 0
        self.starts_seen = 0
        #: Headers of ours that could not be read.
        self.unreadable = 0
        #: Settled records that are passed only when something was written.
        self.open_offsets: set[int] = set()
        #: Failed in an outage: they go back to the front of their lanes.
        self.held_offsets: set[int] = set()
        self.settled = 0

    @property
    def is_of_tier(self) -> bool:
        """Whether the records come from a retry or replay topic and carry an envelope."""
        return self.wakes_ms is not None

    def taken(self) -> int:
        """How many records the worker has taken up so far, the one it works on included; 0 once it was cut."""
        if self.iterator is None:
            return 0
        if self.rest is not None:
            return self.count - len(self.rest)
        # An iterator that was cut has nothing left either, but its records did not run.
        return 0 if self.is_cut else self.count - length_hint(self.iterator)

    def fails_at(self, taken: int) -> bool:
        """The worker's record, that many it has `taken` up, fails. False where others came through just before it."""
        goes_on = taken == self._row_end + 1
        self._row = self._row + 1 if goes_on else 1
        self._row_end = taken
        return goes_on

    def row(self, done: int) -> int:
        """How many of the first `done` records, the last ones, failed in a row."""
        return min(self._row, done) if self._row_end == done else 0

    def is_stuck(self, mono_ms: float, since_ms: float) -> bool:
        """Whether the worker has been at one record for so long while others stand behind it that can be taken back."""
        began_ms = self.started_mono_ms
        return (
            bool(self.rest)
            and began_ms is not None
            and mono_ms - max(began_ms, self.moved_mono_ms) >= since_ms
        )

    def walk(self) -> Iterator[RawRecord]:
        """What the worker goes along; called by it once."""
        self.iterator = iter(self.records) if self.rest is None else _taken_from(self.rest)
        return self.iterator

    def divide(self, key_lanes: "list[KeyLane]") -> None:
        """These are the lanes of its records: what isn't taken up can be taken back."""
        self.key_lanes = key_lanes
        self.rest = deque(self.records)
        self.is_apart = True

    def take_back(self) -> list[RawRecord]:
        """Take from the worker what it hasn't taken up; the run ends with the record it is at."""
        rest = self.rest
        if rest is None:
            return []
        # First the mark: a worker that finds nothing left asks it whether it had all.
        self.is_cut = True
        taken: list[RawRecord] = []
        while rest:
            try:
                taken.append(rest.pop())
            except IndexError:  # the worker was quicker
                break
        self.count -= len(taken)
        taken.reverse()
        return taken

    def late_ms(self) -> Iterator[float]:
        """How long after their wake times a tier's records started, of those that weren't told before."""
        seen, self.starts_seen = self.starts_seen, len(self.starts_ms)
        starts_ms = islice(self.starts_ms, seen, self.starts_seen)
        return map(sub, starts_ms, islice(self.wakes_ms or (), seen, None))

    def cut(self) -> None:
        """Let the worker stop after the record it is at. Its result tells how far it came."""
        self.gate.is_shut = True
        self.is_cut = True
        if self.rest is not None:
            self.take_back()
        elif self.iterator is not None:
            # What a copy of a half-read iterator is told, by the protocol of `copy`: where to go on.
            cast("Any", self.iterator).__setstate__(self.count)

    def let_go(self) -> None:
        """All records of the run have ended."""
        if not self.is_apart:
            self.records = []


def _taken_from(rest: "deque[RawRecord]") -> Iterator[RawRecord]:
    try:
        while True:
            yield rest.popleft()
    except IndexError:
        return


class RunResult(msgspec.Struct, frozen=True):
    """`done`: records of the run that finished or failed, from its start on; the others have not run."""

    run: Run
    done: int
    seconds: float
    halt: Halt = ""


class Produce(msgspec.Struct, frozen=True):
    """Write a successor. `token` comes back with the answer. `alone`: not in one batch with others."""

    token: Any
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    alone: bool = False


class Refusal(msgspec.Struct, frozen=True):
    """
    Why a write, or the commit of a partition, was not confirmed. `too-large`, of a commit: its metadata is longer than the
    broker takes. That is judged by the engine; all else is tried again, for ever.
    """

    kind: Literal["too-large", "unavailable"]
    detail: str


class Commit(msgspec.Struct, frozen=True):
    """Commit offsets with their metadata; answered by the snapshot number."""

    snapshot: int
    offsets: dict[TopicPartition, tuple[int, str]]


class Transaction(msgspec.Struct, frozen=True):
    """Writes and offsets with their metadata, all of them or none. `number` comes back with the outcome."""

    number: int
    writes: tuple[Produce, ...]
    offsets: Mapping[TopicPartition, tuple[int, str]]


class Pause(msgspec.Struct, frozen=True):
    """Stop fetching these partitions; what the client has prefetched of them is dropped."""

    partitions: tuple[TopicPartition, ...]


class Resume(msgspec.Struct, frozen=True):
    """Fetch again, from these offsets on; None: from the beginning."""

    offsets: dict[TopicPartition, int | None]


class Report(msgspec.Struct, frozen=True):
    """Something an operator may want to read: an event name of the catalogue with its fields."""

    event: str
    fields: dict[str, Any]


class AskHealth(msgspec.Struct, frozen=True):
    """Ask the health function of listener number `listener`; answered with what it says, and never waited for."""

    listener: int


Command = Run | Produce | Commit | Transaction | Pause | Resume | Report | AskHealth
