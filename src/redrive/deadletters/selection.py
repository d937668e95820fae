"""Which letters an operation is about: from what a person says to a frozen plan, before anything is sent."""

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from redrive.core.dialects import REDRIVE
from redrive.core.record import RawRecord, TopicPartition, headers_of
from redrive.core.router import Reason
from redrive.core.translator import PLAIN, Translator
from redrive.deadletters.letters import Glance, Position, cause_of, glance, read_letter
from redrive.deadletters.states import Mark, State, StateBook
from redrive.errors import ReplayRefused
from redrive.runtime.ports import Log

Kind = Literal["replay", "discard"]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a person selects by. Several values of one field mean any of them, several fields all of them.

    `at`, `event_ids` *name* letters; what is named may be poison. `from_ms`, `until_ms`: put aside then or later, then or
    before; epoch ms. `limit`: that many, the oldest first. `everything`: all unresolved letters. `again`: also those of
    which nobody knows whether they were sent, and of the named ones also those that were replayed or discarded.
    `own_topics`: where letters that name no group are meant besides those of `groups`.
    """

    at: frozenset[Position] = frozenset()
    event_ids: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    own_topics: frozenset[str] = frozenset()
    from_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None
    everything: bool = False
    include_poison: bool = False
    again: bool = False

    @property
    def names(self) -> bool:
        """Whether it names single letters."""
        return bool(self.at or self.event_ids)

    def require(self) -> None:
        """Raises ReplayRefused when nothing was selected by, or when it contradicts itself."""
        chosen = (
            self.names
            or self.reasons
            or self.types
            or self.groups
            or self.from_ms is not None
            or self.until_ms is not None
            or self.limit is not None
            or self.everything
        )
        if not chosen:
            raise ReplayRefused(
                "say which letters: --at DLQ/PARTITION/OFFSET, --event-id, --reason, --type, --group, --older-than, "
                "--newer-than, --limit N (the oldest), or --all"
            )
        if self.limit is not None and self.limit < 1:
            raise ReplayRefused(f"--limit {self.limit} selects nothing; give 1 or more, or --all")
        if self.everything and self.limit is not None:
            raise ReplayRefused(f"--all and --limit {self.limit} contradict each other; leave one out")
        if self.everything and self.names:
            raise ReplayRefused(
                "--all contradicts --at and --event-id, which name single letters; leave one out"
            )

    def _is_ownerless_here(self, position: Position, seen: Glance) -> bool:
        return not seen.group and position.topic in self.own_topics

    def matches(self, position: Position, seen: Glance, put_aside_ms: int) -> bool:
        """Whether a letter is meant, whatever became of it."""
        return (
            (not self.at or position in self.at)
            and (not self.event_ids or (seen.event_id or str(position)) in self.event_ids)
            and (not self.reasons or seen.reason in self.reasons)
            and (not self.types or seen.failure_type in self.types)
            and (not self.groups or seen.group in self.groups or self._is_ownerless_here(position, seen))
            and (self.from_ms is None or put_aside_ms >= self.from_ms)
            and (self.until_ms is None or put_aside_ms <= self.until_ms)
        )


class Entry(msgspec.Struct, frozen=True, gc=False):
    """
    One letter of a plan. `target`: where its copy goes; `over`: the job that it has to be taken from, see `states`;
    `dialect`: whose letter it is. `frees`: the topic by which records that wait for it are told to go on, "" where none
    wait, or where its copy tells them.
    """

    position: Position
    letter_ms: int
    reason: str
    target: str = ""
    over: str | None = None
    dialect: str = REDRIVE.name
    frees: str = ""

    @property
    def is_foreign(self) -> bool:
        """Whether its target is the topic that another system says it came from, unless a person said where to."""
        return self.dialect != REDRIVE.name


class Plan(msgspec.Struct, frozen=True):
    """
    What is to be done, and what was left out.

    `entries` by topic, partition and offset. `missing`: what was named and isn't there. `left_out`: how many letters
    match but are left out, by why. `beyond_limit`: how many more there were. `seen`: all letters looked at, by reason.
    """

    kind: Kind
    entries: tuple[Entry, ...]
    missing: tuple[str, ...] = ()
    left_out: Mapping[str, int] = {}
    beyond_limit: int = 0
    seen: Mapping[str, int] = {}

    @property
    def selected(self) -> int:
        """What each run must account for."""
        return len(self.entries) + len(self.missing)

    def routes(self) -> Mapping[tuple[str, str], Counter[str]]:
        """From which topic to which, and how many by reason."""
        routes: dict[tuple[str, str], Counter[str]] = {}
        for entry in self.entries:
            routes.setdefault((entry.position.topic, entry.target), Counter())[
                cause_of(entry.reason, entry.dialect)
            ] += 1
        return routes

    def shared_targets(self) -> Sequence[str]:
        """The topics that copies go to because a letter of another system came from there: whoever reads them gets them."""
        return sorted({entry.target for entry in self.entries if entry.is_foreign and entry.target})


def make_plan(
    selection: Selection,
    books: Sequence[StateBook],
    log: Log,
    *,
    kind: Kind,
    to: str = "",
    translator: Translator = PLAIN,
) -> Plan:
    """
    Look at the letters within the bounds of `books` and select. The books must have been read.

    `to`: the topic that copies go to; by default that by which the failing group takes replays, or, of a foreign letter,
    the topic that it came from. Raises ReplayRefused for a selection that is empty or
    contradicts itself, PortError.
    """
    selection.require()
    planner = _Planner(selection, kind, to, translator)
    found = planner.candidates(books, log)
    if selection.limit is None:
        entries = list(found)
    else:
        # All are looked at, so that what is left out and beyond the limit can be told.
        entries = heapq.nsmallest(selection.limit, found, key=lambda entry: (entry.letter_ms, entry.position))
    return Plan(
        kind,
        tuple(sorted(entries, key=lambda entry: entry.position)),
        planner.missing(),
        planner.left_out,
        planner.candidate_count - len(entries),
        planner.seen,
    )


class _Planner:
    def __init__(self, selection: Selection, kind: Kind, to: str, translator: Translator) -> None:
        self.left_out: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.candidate_count = 0
        self._selection = selection
        self._kind = kind
        self._to = to
        self._translator = translator
        self._found: set[Position | str] = set()
        self._takes_poison = (
            kind == "discard"
            or selection.names
            or selection.include_poison
            or Reason.POISON in selection.reasons
        )

    def candidates(self, books: Sequence[StateBook], log: Log) -> Iterator[Entry]:
        for book in books:
            for record in _letters(book, log, self._selection.at):
                position = Position(record.topic(), record.partition(), record.offset())
                seen = glance(headers_of(record), self._translator)
                self.seen[cause_of(seen.reason, seen.dialect)] += 1
                if position in self._selection.at:
                    self._found.add(position)
                letter_ms = record.timestamp()[1]
                if not self._selection.matches(position, seen, letter_ms):
                    continue
                if self._selection.event_ids:
                    self._found.add(seen.event_id or str(position))
                mark = book.mark(position, letter_ms)
                if why := self._why_not(mark, seen, record):
                    self.left_out[why] += 1
                    continue
                self.candidate_count += 1
                target = self._target(seen) if self._kind == "replay" else ""
                yield Entry(
                    position,
                    letter_ms,
                    seen.reason,
                    target,
                    None if mark is None else mark.job,
                    seen.dialect,
                    seen.replay_topic if seen.holds and target != seen.replay_topic else "",
                )

    def missing(self) -> tuple[str, ...]:
        """What was named and isn't there at all."""
        wanted = {*self._selection.at, *self._selection.event_ids}
        return tuple(sorted(str(each) for each in wanted - self._found))

    def _target(self, seen: Glance) -> str:
        """Where a copy goes; "" where nobody says it."""
        if self._to or seen.is_foreign:
            return self._to or seen.source_topic
        # Without a group every group that reads the target would run it.
        return seen.replay_topic if seen.group else ""

    def _why_not(self, mark: Mark | None, seen: Glance, record: RawRecord) -> str:
        """Why a letter is left out, "" when it isn't."""
        selection = self._selection
        if mark is not None and mark.state is State.SENDING and not selection.again:
            return "unknown whether it was sent"
        if mark is not None and mark.state.is_final and not (selection.again and selection.names):
            return f"{mark.state} already"
        if self._kind == "discard":
            return ""
        if seen.reason == Reason.POISON and not self._takes_poison:
            return "poison"
        if record.value() is None and (letter := read_letter(record, self._translator)).has_lost_its_value:
            if letter.is_pointer:
                return "without its value, which its share group didn't copy"
            return "without its value, which was too large"
        target = self._target(seen)
        if not target:
            return "foreign, doesn't say where to go" if seen.is_foreign else "doesn't say where to go"
        if target == record.topic():
            return "says that it came from this dead-letter topic"
        return ""


def _letters(book: StateBook, log: Log, at: frozenset[Position]) -> Iterator[RawRecord]:
    """The letters that may be meant: where they are named by position, only these are read."""
    topic, bounds = book.dlq.topic, book.dlq.bounds
    if not at:
        for partition, (first, end) in bounds.items():
            yield from log.scan(TopicPartition(topic, partition), first, end)
        return
    for position in sorted(at):
        first, end = bounds.get(position.partition, (0, 0))
        if position.topic == topic and first <= position.offset < end:
            yield from log.scan(
                TopicPartition(topic, position.partition), position.offset, position.offset + 1
            )
