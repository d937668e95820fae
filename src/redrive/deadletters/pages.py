"""One topic's letters, page by page: each page begins where the one before ended, and reads no further than it must."""

from collections.abc import Collection, Iterator

import msgspec

from redrive.core.record import RawRecord, TopicPartition, headers_of
from redrive.core.translator import PLAIN, Translator
from redrive.deadletters.letters import Letter, Position, glance, read_letter
from redrive.deadletters.selection import Selection
from redrive.deadletters.states import Mark, State, StateBook
from redrive.runtime.ports import Log

OPEN, UNKNOWN = "open", "unknown"
#: The states by which letters can be asked for; `unresolved` stands for the first two.
STATES = (OPEN, UNKNOWN, *(state for state in State if state.is_final))
UNRESOLVED = frozenset({OPEN, UNKNOWN})


class Page(msgspec.Struct, frozen=True):
    """Letters with their states by partition and offset. `next`: the first letter of the next page, None at the end."""

    letters: tuple[tuple[Letter, Mark | None], ...]
    next: Position | None


def read_page(
    selection: Selection,
    book: StateBook,
    log: Log,
    *,
    limit: int,
    start: Position | None = None,
    states: Collection[str] = STATES,
    translator: Translator = PLAIN,
) -> Page:
    """
    Gives up to `limit` letters that a selection means, from the position `start` on. The book must have been read.

    Letters that arrived after the book was made aren't in it. Raises PortError.
    """
    found: list[tuple[Letter, Mark | None]] = []
    for record in _from(book, log, start):
        position = Position(record.topic(), record.partition(), record.offset())
        letter_ms = record.timestamp()[1]
        if not selection.matches(position, glance(headers_of(record), translator), letter_ms):
            continue
        mark = book.mark(position, letter_ms)
        if (OPEN if mark is None else mark.shown) not in states:
            continue
        if len(found) == limit:
            return Page(tuple(found), position)
        found.append((read_letter(record, translator), mark))
    return Page(tuple(found), None)


def _from(book: StateBook, log: Log, start: Position | None) -> Iterator[RawRecord]:
    first_partition, first_offset = (-1, 0) if start is None else start[1:]
    for partition, (first, end) in sorted(book.dlq.bounds.items()):
        if partition >= first_partition:
            begin = max(first, first_offset) if partition == first_partition else first
            yield from log.scan(TopicPartition(book.dlq.topic, partition), begin, end)
