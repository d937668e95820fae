"""Dead letters counted by what they have in common, and listed one by one."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from redrive.core.record import RawRecord, TopicPartition, headers_of
from redrive.core.translator import PLAIN, Translator
from redrive.deadletters.letters import Glance, Position, glance
from redrive.deadletters.selection import Selection
from redrive.deadletters.states import Mark, StateBook
from redrive.runtime.ports import Log


class Row(msgspec.Struct):
    """
    Letters of one topic with one reason, failure type and group; "" where they don't say it. `dialect`: in whose words.

    `unresolved`: those without a final state; `unknown` of them were claimed by a job that didn't end, or is at work.
    `first_ms`, `last_ms`: when the oldest and the newest were put aside.
    """

    topic: str
    reason: str
    failure_type: str
    group: str
    letters: int = 0
    unresolved: int = 0
    unknown: int = 0
    first_ms: int = 2**63
    last_ms: int = -1
    dialect: str = ""

    @property
    def resolved(self) -> int:
        """Replayed, discarded or resolved otherwise."""
        return self.letters - self.unresolved


class Listed(msgspec.Struct, frozen=True):
    """One letter of a list. `mark`: its state, None is open."""

    position: Position
    timestamp_ms: int
    seen: Glance
    mark: Mark | None


def list_letters(
    selection: Selection,
    books: Sequence[StateBook],
    log: Log,
    *,
    unresolved: bool = False,
    translator: Translator = PLAIN,
) -> Iterator[Listed]:
    """
    Gives the letters that a selection means, by topic, partition and offset. The books must have been read.

    `unresolved`: only those without a final state. Raises PortError.
    """
    for book, record in _all(books, log):
        position = Position(record.topic(), record.partition(), record.offset())
        seen = glance(headers_of(record), translator)
        timestamp_ms = record.timestamp()[1]
        if not selection.matches(position, seen, timestamp_ms):
            continue
        mark = book.mark(position, timestamp_ms)
        if not (unresolved and mark is not None and mark.state.is_final):
            yield Listed(position, timestamp_ms, seen, mark)


def count_letters(
    selection: Selection,
    books: Sequence[StateBook],
    log: Log,
    *,
    unresolved: bool = False,
    translator: Translator = PLAIN,
) -> list[Row]:
    """Gives the letters that a selection means, counted: most unresolved first. Raises PortError."""
    return count_listed(list_letters(selection, books, log, unresolved=unresolved, translator=translator))


def count_listed(letters: Iterable[Listed]) -> list[Row]:
    """Gives letters counted: most unresolved first."""
    rows: dict[tuple[str, ...], Row] = {}
    for letter in letters:
        seen = letter.seen
        place = letter.position.topic, seen.reason, seen.failure_type, seen.group, seen.dialect
        row = rows.get(place)
        if row is None:
            row = rows[place] = Row(*place[:4], dialect=seen.dialect)
        row.letters += 1
        row.first_ms = min(row.first_ms, letter.timestamp_ms)
        row.last_ms = max(row.last_ms, letter.timestamp_ms)
        if letter.mark is None:
            row.unresolved += 1
        elif not letter.mark.state.is_final:
            row.unresolved += 1
            row.unknown += 1
    return sorted(rows.values(), key=lambda row: (-row.unresolved, row.topic, -row.last_ms))


def _all(books: Sequence[StateBook], log: Log) -> Iterator[tuple[StateBook, RawRecord]]:
    for book in books:
        for partition, (first, end) in book.dlq.bounds.items():
            for record in log.scan(TopicPartition(book.dlq.topic, partition), first, end):
                yield book, record
