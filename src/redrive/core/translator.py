"""
Reading headers in any dialect, writing them in those that an app speaks.

Who wrote a record last is what matters, since everybody passes the others' headers on. It is told by two things: our own
headers stand last where we wrote last, and what we wrote besides is named in `redrive-dialects`; another framework that
had the record since counts more attempts there than we do.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from redrive.core import dialects
from redrive.core.dialect_tables import FOREIGN
from redrive.core.dialects import (
    NO_ENVELOPE,
    REDRIVE,
    Dialect,
    HeaderField,
    Headers,
    read_envelope,
    write_headers,
)
from redrive.core.envelope import OWN_PREFIX, Envelope

#: Names the dialects that we wrote besides our own when we wrote last; none where it was our own alone.
SPOKEN_HEADER = "redrive-dialects"

_ATTEMPT = next(line for line in REDRIVE.fields if line.field == "attempt")
_NAMES = NO_ENVELOPE.__struct_fields__
_DEFAULTS: Mapping[str, object] = dict(zip(_NAMES, NO_ENVELOPE.__struct_defaults__, strict=True))
#: What a foreign author leaves unsaid and an earlier word of ours is still true of.
_LASTING = ("group", "event_id", "first_failed_ms", "replay_id", "replays", "hops")
_PLACE = ("source_topic", "source_partition", "source_offset")
#: What another framework that takes a copy over must not find: to it, a replay is a first attempt.
_RESET = frozenset(("attempt", "due_ms"))


class Reading(NamedTuple):
    """
    What a record says: the envelope, whose words these are (a dialect's name, "" when no known one is there), and the
    names of that dialect's headers whose values can't be read or believed.
    """

    envelope: Envelope
    dialect: str = ""
    unreadable: tuple[str, ...] = ()


class _Reader(NamedTuple):
    """A header in one dialect. Of several lines for one field the one of the lowest `rank` counts."""

    dialect: int
    rank: int
    line: HeaderField


class _Said:
    """What one dialect's headers say, as they are come upon."""

    __slots__ = ("headers", "ranks", "unreadable", "values")

    def __init__(self) -> None:
        self.headers = 0
        self.values: dict[str, Any] = {}
        self.ranks: dict[str, int] = {}
        self.unreadable: dict[str, None] = {}

    def take(self, reader: _Reader, value: bytes | None) -> None:
        field, rank = reader.line.field, reader.rank
        if reader.line.on != "theirs":
            self.headers += 1
        if rank > self.ranks.get(field, rank):
            return
        self.ranks[field] = rank
        self.values.pop(field, None)
        if value is None:  # Connect writes nulls for what there isn't
            return
        try:
            self.values[field] = reader.line.decode(value)
        except Exception:  # a decoder refuses by raising; which error it takes is its own affair
            self.unreadable[reader.line.header] = None


class Translator:
    """
    The dialects of one app: `written` are those that it writes, `redrive` among them, `known` all others that it reads.

    With only our own, everything goes the short way: `read_hop` and `write` are then the functions of `dialects.py`.
    """

    def __init__(
        self, written: Sequence[Dialect] = (REDRIVE,), known: Iterable[Dialect] = tuple(FOREIGN.values())
    ) -> None:
        others = tuple(dialect for dialect in written if dialect is not REDRIVE)
        self.known = tuple(dict.fromkeys([*others, *known]))
        self.written = (*others, REDRIVE)
        #: What a record on a retry topic says, if we wrote it or had it before, and which headers can't be read.
        self.read_hop: Callable[[Headers | None], tuple[Envelope, tuple[str, ...]]] = (
            self._read_hop if others else read_envelope
        )
        #: Group and due time of the same: what a retry topic's window needs of each record.
        self.read_due: Callable[[Headers | None], tuple[str, int | None]] = (
            self._read_due if others else dialects.read_due
        )
        #: The headers of a record's next copy: those that came, then what we say.
        self.write: Callable[[Headers | None, Envelope], list[tuple[str, bytes | None]]] = (
            self._write if others else dialects.with_envelope
        )
        self._names = [dialect.name for dialect in self.known]
        self._index = self._indexed(_NAMES)
        self._index_of_due = self._indexed(("group", "attempt", "due_ms"))
        self._replaced = names_of(others)
        self._spellers = [_Speller(dialect) for dialect in others]
        self._spoken = (SPOKEN_HEADER, ",".join(dialect.name for dialect in others).encode())

    def read(self, headers: Headers | None) -> Reading:
        """
        Gives what a record says in the words of whoever wrote it last. Never raises, whatever the bytes.

        That is the dialect of the last header that is any dialect's; where several have that header, the one that has
        more of the others, else the first. What a foreign author doesn't say but we said before is kept: group, event
        id, source, first failure. Without an event id it is the source's position, as we would have written it.
        """
        if not headers:
            return Reading(NO_ENVELOPE)
        said, author = self._hear(headers, self._index)
        if author is None:
            ours, unreadable = read_envelope(headers)
            return Reading(ours, REDRIVE.name if ours != NO_ENVELOPE or unreadable else "", unreadable)
        if not any(name[:8] == OWN_PREFIX for name, _ in headers):
            return self._reading(author, said[author], NO_ENVELOPE)
        return self._reading(author, said[author], read_envelope(headers)[0])

    def find_due(self, headers: Headers | None) -> tuple[str, int | None]:
        """Gives group and due time of a record on a retry topic, whoever wrote it; "" and None where nobody says them."""
        group, due_ms = self.read_due(headers)
        if group or due_ms is not None:
            return group, due_ms
        said = self.read(headers).envelope
        return said.group, said.due_ms

    def without_bookkeeping(self, headers: Headers | None) -> list[tuple[str, bytes | None]]:
        """
        Gives the headers that a replay keeps: all but ours, those of the dialect that wrote the record last, those we
        wrote besides, and any dialect's attempts and due times. A replay is a first attempt to whoever reads it.
        """
        headers = headers or ()
        spoken = set(_spoken_in(headers))
        spoken.add(self.read(headers).dialect)
        gone = names_of(dialect for dialect in self.known if dialect.name in spoken)
        gone |= names_of(self.known, _RESET)
        return [header for header in headers if header[0][:8] != OWN_PREFIX and header[0] not in gone]

    def names_in(self, dialect: str) -> frozenset[str]:
        """The names of the headers that a dialect has; none for one that isn't known here."""
        return names_of(each for each in self.known if each.name == dialect)

    # -- the long way ----------------------------------------------------------------------------------------------

    def _indexed(self, fields: Sequence[str]) -> dict[str, tuple[_Reader, ...]]:
        index: dict[str, tuple[_Reader, ...]] = {}
        for number, dialect in enumerate(self.known):
            for rank, line in enumerate(dialect.fields):
                if line.field in fields:
                    index[line.header] = (*index.get(line.header, ()), _Reader(number, rank, line))
        return index

    def _hear(
        self, headers: Headers, index: Mapping[str, tuple[_Reader, ...]]
    ) -> tuple[dict[int, _Said], int | None]:
        """What each foreign dialect says, and which one wrote last; None: we did, or nobody that is known."""
        said: dict[int, _Said] = {}
        last: tuple[_Reader, ...] = ()
        for name, value in headers:
            if (readers := index.get(name)) is not None:
                for reader in readers:
                    if reader.dialect not in said:
                        said[reader.dialect] = _Said()
                    said[reader.dialect].take(reader, value)
                last = tuple(reader for reader in readers if reader.line.on != "theirs") or last
            elif name[:8] == OWN_PREFIX:
                last = ()
        if not last:
            return said, None
        return said, min((reader.dialect for reader in last), key=lambda each: (-said[each].headers, each))

    def _reading(self, author: int, said: _Said, ours: Envelope) -> Reading:
        values = dict(said.values)
        for field in _LASTING:
            values.setdefault(field, getattr(ours, field))
        if not any(field in values for field in _PLACE):
            values |= {field: getattr(ours, field) for field in _PLACE}
            values.setdefault("source_timestamp_ms", ours.source_timestamp_ms)
        envelope = with_event_id(Envelope(**values))
        return Reading(envelope, self._names[author], tuple(said.unreadable))

    def _newest(self, headers: Headers, attempt: int) -> tuple[int, _Said] | None:
        """Which of the dialects that we wrote besides our own counts more attempts by now: its framework had it since."""
        spoken = _spoken_in(headers)
        if not spoken:
            return None
        newest: tuple[int, _Said] | None = None
        for number, said in self._hear(headers, self._index_of_due)[0].items():
            counted = said.values.get("attempt", 0)
            if counted > attempt and self._names[number] in spoken:
                newest, attempt = (number, said), counted
        return newest

    def _read_hop(self, headers: Headers | None) -> tuple[Envelope, tuple[str, ...]]:
        ours, unreadable = read_envelope(headers)
        newest = self._newest(headers or (), ours.attempt)
        if newest is None:
            return ours, unreadable
        number, _ = newest
        reading = self._reading(number, self._hear(headers or (), self._index)[0][number], ours)
        return reading.envelope, (*unreadable, *reading.unreadable)

    def _read_due(self, headers: Headers | None) -> tuple[str, int | None]:
        group, due_ms = dialects.read_due(headers)
        newest = self._newest(headers or (), _attempt_in(headers or ()))
        if newest is None:
            return group, due_ms
        _, said = newest
        return said.values.get("group", group), said.values.get("due_ms")

    def _write(self, headers: Headers | None, envelope: Envelope) -> list[tuple[str, bytes | None]]:
        replaced = self._replaced
        copied: list[tuple[str, bytes | None]] = [
            header for header in headers or () if header[0][:8] != OWN_PREFIX and header[0] not in replaced
        ]
        for speller in self._spellers:
            copied += speller.spell(envelope)
        # Ours come last: that is how it is told who wrote last.
        return [*copied, self._spoken, *write_headers(envelope)]


class _Speller:
    """A foreign dialect as it is written: which lines, on retries and on dead letters."""

    def __init__(self, dialect: Dialect) -> None:
        self._on_retries = [line for line in dialect.fields if line.on in {"any", "retry"}]
        self._on_letters = [line for line in dialect.fields if line.on in {"any", "letter"}]

    def spell(self, envelope: Envelope) -> list[tuple[str, bytes | None]]:
        """The headers that say `envelope`, as far as the dialect can."""
        values = dict(zip(_NAMES, msgspec.structs.astuple(envelope), strict=True))
        return [
            (line.header, line.encode(values[line.field]))
            for line in (self._on_letters if envelope.reason else self._on_retries)
            if values[line.field] != _DEFAULTS[line.field]
        ]


def names_of(those: Iterable[Dialect], fields: Iterable[str] = _NAMES) -> frozenset[str]:
    """The names of all headers that dialects have for these fields, but for those that are the producer's own."""
    wanted = frozenset(fields)
    return frozenset(
        line.header
        for dialect in those
        for line in dialect.fields
        if line.on != "theirs" and line.field in wanted
    )


def with_event_id(envelope: Envelope) -> Envelope:
    """The same with an event id, where it has none and its source is known."""
    said = envelope
    if said.event_id or not said.source_topic or said.source_partition is None or said.source_offset is None:
        return said
    return msgspec.structs.replace(
        said, event_id=f"{said.source_topic}/{said.source_partition}/{said.source_offset}"
    )


def _attempt_in(headers: Headers) -> int:
    """Our own attempts: all that is wanted of our envelope where only group and due time are."""
    found: bytes | None = None
    for name, value in headers:
        if name == _ATTEMPT.header:
            found = value
    try:
        return cast("int", _ATTEMPT.decode(found))
    except Exception:  # absent, or not to be believed
        return 0


def _spoken_in(headers: Headers) -> Sequence[str]:
    for name, value in headers:
        if name == SPOKEN_HEADER:
            return (value or b"").decode(errors="replace").split(",")
    return ()


#: With no app's settings at hand: reads all dialects of the tables, writes our own.
PLAIN = Translator()
