"""
How an envelope is spelled in Kafka headers.

A dialect is a table: envelope field, header name, encoding, decoding. Reading and writing know no header by name, so
another framework's headers are another table and no code. `REDRIVE` is our own: UTF-8 text under `redrive-` names.

Our headers are *replaced* on every hop, never appended; all others pass through as they came, in their order, with
repeats and nulls. What a header says is never trusted: a value that can't be read, or that can't be true (attempt
99,999, due in the year 12,000), counts as absent. It never makes a record poison.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import msgspec

from redrive.core.envelope import OWN_PREFIX, Envelope
from redrive.core.policy import MAX_ATTEMPTS

Headers = Sequence[tuple[str, bytes | None]]

#: The last millisecond of the year 9999: a later instant is not a time but a mistake in its unit.
MAX_INSTANT_MS = 253_402_300_799_999
#: Limits of written texts, in bytes of UTF-8: every hop pays for a message; a stack is on dead letters only.
MAX_MESSAGE_BYTES = 1024
MAX_STACK_BYTES = 8 * 1024

#: What a record says that carries none of our headers.
NO_ENVELOPE = Envelope()

_DEFAULTS = NO_ENVELOPE.__struct_defaults__
_NEVER = object()  # equal to no value of a field
#: Replays and hops beyond that can't be believed, nor said in four bytes.
MAX_COUNT = 2**31 - 1
_MAX_INT64 = 2**63 - 1


#: On which records a line is written: retries and dead letters, one of them, or none, because another line says the
#: same (`never`), or because the header is the producer's (`theirs`: also left alone where a dialect is replaced).
On = Literal["any", "retry", "letter", "never", "theirs"]


class HeaderField(NamedTuple):
    """
    One line of a dialect: which envelope field, under which name, in which encoding.

    `encode` turns the field's value into bytes. `decode` turns bytes (or None, from a null header) back, and refuses
    what it can't read or believe by raising. `always`: written also when it has its default. `encoding` and `counts`
    are the names by which `encodings.py` gave the two; our own dialect has texts and decimal digits.
    """

    field: str
    header: str
    encode: Callable[[Any], bytes]
    decode: Callable[[Any], object]
    always: bool = False
    encoding: str = ""
    on: On = "any"
    counts: str = "runs"


class _Writer(NamedTuple):
    position: int
    header: str
    absent: object
    encode: Callable[[Any], bytes]


#: Fields that say the same on thousands of copies: their headers are kept spelled. Those that a tier's reader asks for come
#: last, and behind them what differs from record to record, where it finds them at once (`read_due`, `mark_of`).
_STEADY = (
    "failure_kind", "failure_type", "reason", "listener", "replay_topic", "hops", "replays", "source_topic",
    "source_partition", "attempt", "group",
)  # fmt: skip
_LAST = ("source_timestamp_ms", "source_offset", "due_ms")
#: So long they may be together: several times what Kafka's limit for the name of a topic makes of them.
_KEPT_BYTES = 4096
_names = NO_ENVELOPE.__struct_fields__
_steady_of = itemgetter(*(_names.index(name) for name in _STEADY))


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """
    A naming and encoding of envelopes. A field without a line can't be said in this dialect.

    `readers` (by header name), `steady`, `numbers`, `others` and `last` are the table as the code wants it that runs
    for each failing record. Numbers are encoded in place, since a call for each header would double its cost.
    """

    name: str
    fields: tuple[HeaderField, ...]
    readers: dict[str, tuple[str, Callable[[Any], object]]] = field(init=False, repr=False)
    steady: tuple[_Writer, ...] = field(init=False, repr=False)
    numbers: tuple[tuple[int, str, object], ...] = field(init=False, repr=False)
    others: tuple[_Writer, ...] = field(init=False, repr=False)
    last: tuple[_Writer, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        writers: dict[str, _Writer] = {}
        for line in self.fields:
            position = _names.index(line.field)
            absent = _NEVER if line.always else _DEFAULTS[position]
            writers[line.field] = _Writer(position, line.header, absent, line.encode)
        steady = tuple(
            writers.pop(name)._replace(position=at) for at, name in enumerate(_STEADY) if name in writers
        )
        last = tuple(writers.pop(name) for name in _LAST if name in writers)
        numbers = [one for one in writers.values() if one.encode is _encode_int]
        others = [one for one in writers.values() if one.encode is not _encode_int]
        object.__setattr__(self, "readers", {line.header: (line.field, line.decode) for line in self.fields})
        object.__setattr__(self, "steady", steady)
        object.__setattr__(self, "numbers", tuple((one.position, one.header, one.absent) for one in numbers))
        object.__setattr__(self, "others", tuple(others))
        object.__setattr__(self, "last", last)


def _encode_int(value: int) -> bytes:
    return b"%d" % value


def _decode_int(low: int, high: int) -> Callable[[bytes], int]:
    def decode(value: bytes) -> int:
        number = int(value)
        if low <= number <= high:
            return number
        raise ValueError(number)

    return decode


def _head(text: str, limit: int) -> str:
    """The first characters that fit into `limit` bytes of UTF-8."""
    return text.encode()[:limit].decode(errors="ignore")


def _tail(text: str, limit: int) -> str:
    """The last characters that fit into `limit` bytes of UTF-8."""
    return text.encode()[-limit:].decode(errors="ignore")


def _encode_cut(limit: int, cut: Callable[[str, int], str]) -> Callable[[str], bytes]:
    def encode(text: str) -> bytes:
        encoded = text.encode()
        return encoded if len(encoded) <= limit else cut(text, limit).encode()

    return encode


_decode_instant = _decode_int(0, MAX_INSTANT_MS)
_decode_count = _decode_int(0, MAX_COUNT)
# Kafka itself takes any timestamp, and says -1 for none: the source's is handed on as it was.
_decode_timestamp = _decode_int(-1, _MAX_INT64)

# `str.encode` and `bytes.decode` as they are: a function of ours around each would double the cost of a header.
_encode_text, _decode_text = str.encode, bytes.decode

REDRIVE = Dialect(
    "redrive",
    (
        HeaderField("group", "redrive-group", _encode_text, _decode_text),
        HeaderField("attempt", "redrive-attempt", _encode_int, _decode_int(0, MAX_ATTEMPTS), always=True),
        HeaderField("due_ms", "redrive-due-ms", _encode_int, _decode_instant),
        HeaderField("event_id", "redrive-id", _encode_text, _decode_text),
        HeaderField("source_topic", "redrive-source-topic", _encode_text, _decode_text),
        HeaderField("source_partition", "redrive-source-partition", _encode_int, _decode_count),
        HeaderField("source_offset", "redrive-source-offset", _encode_int, _decode_int(0, _MAX_INT64)),
        HeaderField("source_timestamp_ms", "redrive-source-timestamp-ms", _encode_int, _decode_timestamp),
        HeaderField("first_failed_ms", "redrive-first-failed-ms", _encode_int, _decode_instant),
        HeaderField("last_failed_ms", "redrive-last-failed-ms", _encode_int, _decode_instant),
        HeaderField("failure_kind", "redrive-failure-kind", _encode_text, _decode_text),
        HeaderField("failure_type", "redrive-failure-type", _encode_text, _decode_text),
        HeaderField(
            "failure_message", "redrive-failure-message", _encode_cut(MAX_MESSAGE_BYTES, _head), _decode_text
        ),
        HeaderField("reason", "redrive-reason", _encode_text, _decode_text),
        HeaderField(
            "failure_stack", "redrive-failure-stack", _encode_cut(MAX_STACK_BYTES, _tail), _decode_text
        ),
        HeaderField("fingerprint", "redrive-fingerprint", _encode_text, _decode_text),
        HeaderField("listener", "redrive-listener", _encode_text, _decode_text),
        HeaderField("replay_topic", "redrive-replay-topic", _encode_text, _decode_text),
        HeaderField("holds", "redrive-holds", _encode_text, _decode_text),
        HeaderField("replay_id", "redrive-replay-id", _encode_text, _decode_text),
        HeaderField("replays", "redrive-replays", _encode_int, _decode_count),
        HeaderField("hops", "redrive-hops", _encode_int, _decode_count),
        HeaderField("frees", "redrive-frees", _encode_text, _decode_text),
    ),
)


def read_envelope(headers: Headers | None, dialect: Dialect = REDRIVE) -> tuple[Envelope, tuple[str, ...]]:
    """
    Gives the envelope that `headers` say, and the names of those whose values can't be read or believed.

    Never raises, whatever the bytes. Where a header repeats, its last value counts, as for Kafka's own `lastHeader`:
    a writer that appends instead of replacing put the newest one there. An unreadable value counts as absent.
    """
    if not headers:
        return NO_ENVELOPE, ()
    readers = dialect.readers
    found: dict[str, Any] = {}
    unreadable: dict[str, None] = {}
    for name, value in headers:
        reader = readers.get(name)
        if reader is None:
            continue
        field_name, decode = reader
        try:
            found[field_name] = decode(value)
        except Exception:  # a decoder refuses by raising; which error it takes is its own affair
            found.pop(field_name, None)
            unreadable[name] = None
    return Envelope(**found), tuple(unreadable)


def read_due(headers: Headers | None) -> tuple[str, int | None]:
    """
    Gives group and due time (epoch ms UTC) of our own dialect alone: what a tier's window needs of each record.

    They are what `read_envelope` gives: the last of repeated headers counts, and what can't be read is "" or None.
    """
    group: bytes | None = None
    due: bytes | None = None
    if (
        headers
        and len(headers) > 3
        and headers[-1][0] == "redrive-due-ms"
        and headers[-4][0] == "redrive-group"
    ):
        due, group = headers[-1][1], headers[-4][1]  # as `write_headers` leaves them
    else:
        for name, value in headers or ():
            if name == "redrive-due-ms":
                due = value
            elif name == "redrive-group":
                group = value
    try:
        group_text = group.decode() if group else ""
    except UnicodeDecodeError:
        group_text = ""
    try:
        return group_text, _decode_instant(due) if due else None
    except ValueError:
        return group_text, None


def mark_of(headers: Headers | None) -> int | None:
    """
    Gives a number that two copies of one source record share when they wait for the same attempt, and others don't.

    None for what a person sent again, and where our own dialect wasn't written last: then nothing is told. Of Python's own
    hashes, so the number means something in this process only, and nobody can make another record have it.
    """
    if not headers or len(headers) < _MARKED:
        return None
    topic, partition, attempt, _, timestamp, offset, due = headers[-_MARKED:]
    if (
        due[0] != "redrive-due-ms"
        or topic[0] != "redrive-source-topic"
        or offset[0] != "redrive-source-offset"
    ):
        return None
    if len(headers) > _MARKED and headers[-1 - _MARKED][0] == "redrive-replays":
        return None
    return hash((topic, partition, attempt, timestamp, offset))


#: The last headers, from the source topic to the due.
_MARKED = 7


def write_headers(envelope: Envelope, dialect: Dialect = REDRIVE) -> list[tuple[str, bytes]]:
    """
    Spells `envelope` in headers, in an order of no meaning. What says nothing is left out, but for the attempt.

    Texts longer than `MAX_MESSAGE_BYTES` and `MAX_STACK_BYTES` are cut between characters; a stack keeps its end,
    where the innermost frames are. What UTF-8 can't say (lone surrogates in a message) becomes "?".
    """
    values = msgspec.structs.astuple(envelope)
    try:
        return _spell(values, dialect)
    except UnicodeEncodeError:
        return _spell(tuple(_sayable(v) if isinstance(v, str) else v for v in values), dialect)


def _spell(values: tuple[Any, ...], dialect: Dialect) -> list[tuple[str, bytes]]:
    spelled: list[tuple[str, bytes]] = []
    for position, header, absent in dialect.numbers:
        number = values[position]
        if number != absent:
            spelled.append((header, b"%d" % number))
    _append(spelled, dialect.others, values)
    steady = _steady_of(values)
    try:
        spelled += _spell_steady(dialect, steady)
    except _TooLongToKeep:
        _append(spelled, dialect.steady, steady)
    _append(spelled, dialect.last, values)
    return spelled


class _TooLongToKeep(Exception):
    """Names of absurd lengths, which somebody else wrote: a thousand of them could be all of the memory."""


@lru_cache(maxsize=1024)
def _spell_steady(dialect: Dialect, values: tuple[Any, ...]) -> tuple[tuple[str, bytes], ...]:
    spelled: list[tuple[str, bytes]] = []
    _append(spelled, dialect.steady, values)
    if sum(len(value) for _, value in spelled) > _KEPT_BYTES:
        raise _TooLongToKeep  # what raises isn't kept
    return tuple(spelled)


def _append(spelled: list[tuple[str, bytes]], writers: tuple[_Writer, ...], values: tuple[Any, ...]) -> None:
    for position, header, absent, encode in writers:
        value = values[position]
        if value != absent:
            spelled.append((header, encode(value)))


def foreign_headers(headers: Headers | None) -> list[tuple[str, bytes | None]]:
    """Gives the headers that are not redrive's, as they came: order, repeats and nulls kept."""
    return [header for header in headers or () if header[0][:8] != OWN_PREFIX]


def with_envelope(headers: Headers | None, envelope: Envelope) -> list[tuple[str, bytes | None]]:
    """Gives the headers of a record's next copy: the foreign ones as they came, then ours, written anew."""
    return [*foreign_headers(headers), *write_headers(envelope)]


def replay_headers_only(envelope: Envelope) -> Envelope:
    """
    Gives what an envelope may say on a source topic: a replay's event id, replay id and count, else nothing.

    Anyone may write to a source topic. Ignoring the rest there means that a producer can't forge attempts, due times
    or an origin; and a record that somebody copied out of a retry topic by hand starts anew.
    """
    if not envelope.replay_id:
        return NO_ENVELOPE
    return Envelope(event_id=envelope.event_id, replay_id=envelope.replay_id, replays=envelope.replays)


#: What a copy can't do without: decisions that are still to come (when, how often, since when, for whom, whose
#: replay) and the way back to the original.
_MINIMAL = (
    "group", "attempt", "due_ms", "event_id", "source_topic", "source_partition", "source_offset", "first_failed_ms",
    "reason", "listener", "replay_topic", "holds", "replay_id", "replays", "hops",
)  # fmt: skip

_SHRINK_STEPS: tuple[Callable[[Envelope], Envelope], ...] = (
    lambda e: msgspec.structs.replace(e, failure_stack=_tail(_sayable(e.failure_stack), 1024)),
    lambda e: msgspec.structs.replace(e, failure_stack=""),
    lambda e: msgspec.structs.replace(e, failure_message=_head(_sayable(e.failure_message), 100)),
    lambda e: msgspec.structs.replace(e, failure_message=""),
    lambda e: Envelope(**{name: getattr(e, name) for name in _MINIMAL}),
)


def shrink(envelope: Envelope, step: int) -> Envelope | None:
    """
    Gives `envelope` cut down for a record that is too large with its headers, or None when nothing is left to give.

    Step 0 shortens the stack to 1 KiB, 1 drops it, 2 shortens the message to 100 bytes, 3 drops it, 4 keeps only what
    the record can't do without. Each step includes those before it, so it may be given the original or the last one.
    """
    if step >= len(_SHRINK_STEPS):
        return None
    for shorten in _SHRINK_STEPS[: step + 1]:
        envelope = shorten(envelope)
    return envelope


def _sayable(text: str) -> str:
    return text.encode(errors="replace").decode()
