"""
How single values of an envelope are spelled in the bytes of a header, by name: what dialects' tables are written with.

Which encodings a field may have depends on what it is: a text, a number, an instant. A decoder believes no more than
an envelope may hold, and refuses by raising; an encoder takes any value that an envelope may hold.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from redrive.core.policy import MAX_ATTEMPTS

#: The last millisecond of the year 9999: a later instant is not a time but a mistake in its unit.
MAX_INSTANT_MS = 253_402_300_799_999

_MAX_INT32 = 2**31 - 1
_MAX_INT64 = 2**63 - 1

Sort = Literal["text", "number", "instant", "flag"]
#: What an attempts header counts: runs so far, the number of the coming run, or retries so far (runs less the first).
Counts = Literal["runs", "next-run", "retries"]


class FieldSort(NamedTuple):
    """What a field of the envelope is and means, and the least and most that is believed of a number."""

    sort: Sort
    meaning: str
    least: int = 0
    most: int = 0


def _text_that(meaning: str) -> FieldSort:
    return FieldSort("text", meaning)


def _number_of(meaning: str, most: int = _MAX_INT32) -> FieldSort:
    return FieldSort("number", meaning, 0, most)


def _instant_when(meaning: str) -> FieldSort:
    return FieldSort("instant", meaning, 0, MAX_INSTANT_MS)


#: The fields of an envelope that a dialect may say.
FIELDS: Mapping[str, FieldSort] = MappingProxyType(
    {
        "group": _text_that("the consumer group that failed"),
        "attempt": _number_of("runs of the handler so far", MAX_ATTEMPTS),
        "due_ms": _instant_when("not to be run before"),
        "event_id": _text_that("the same in every attempt and replay"),
        "source_topic": _text_that("where the record came from"),
        "source_partition": _number_of("its partition there"),
        "source_offset": _number_of("its offset there", _MAX_INT64),
        # Kafka itself takes any timestamp, and says -1 for none: the source's is handed on as it was.
        "source_timestamp_ms": FieldSort("instant", "its Kafka timestamp there", -1, _MAX_INT64),
        "first_failed_ms": _instant_when("when the first attempt failed"),
        "last_failed_ms": _instant_when("when the last attempt failed"),
        "failure_kind": _text_that("`transient`, `permanent`, `poison`, `outage`"),
        "failure_type": _text_that("the exception's class"),
        "failure_message": _text_that("what it said, at most 1 KiB"),
        "reason": _text_that("why it is a dead letter"),
        "failure_stack": _text_that("the exception's stack, the innermost 8 KiB"),
        "fingerprint": _text_that("which dead letters are alike"),
        "listener": _text_that("the listener that failed"),
        "replay_topic": _text_that("where the group takes replays"),
        "holds": _text_that(
            "what waits until it was replayed or resolved: later records of its `key`, of its `partition`"
        ),
        "replay_id": _text_that("the job that sent it again"),
        "replays": _number_of("how often it was replayed"),
        "hops": _number_of("how often it was posted on while it waited"),
        "frees": _text_that("the job that resolved a dead letter: not to be run, what waits for it goes on"),
    }
)


class Encoding(NamedTuple):
    """`encode` turns a value into bytes, `decode` turns bytes back, and refuses what it can't read or believe."""

    encode: Callable[[Any], bytes]
    decode: Callable[[Any], Any]


#: Limits of written texts, in bytes of UTF-8: every hop pays for a message; a stack is on dead letters only.
MAX_MESSAGE_BYTES = 1024
MAX_STACK_BYTES = 8 * 1024


def encoding_of(field: str, name: str, counts: Counts = "runs") -> Encoding:
    """
    Gives the encoding called `name` for a field of the envelope. `counts`: what a header of attempts counts.

    Raises ValueError, in words for whoever wrote the table, when the field can't be spelled that way.
    """
    sort = FIELDS[field]
    fitting = encodings_for(field)
    if name not in fitting:
        raise ValueError(f"{field} is {_SORTS[sort.sort]}: its encoding is one of {', '.join(fitting)}")
    if sort.sort == "text":
        return _text(field)
    encode, decode = _SPELLINGS[name]
    shift = _SHIFTS[counts]
    least, most = sort.least, sort.most

    def encode_shifted(value: int) -> bytes:
        return encode(max(0, value + shift))

    def decode_believed(value: bytes) -> int:
        number: int = decode(value) - shift
        if least <= number <= most:
            return number
        raise ValueError(number)

    return Encoding(encode_shifted if shift else encode, decode_believed)


def encodings_for(field: str) -> tuple[str, ...]:
    """The names of the encodings that a field may have; the first one is the usual one."""
    sort = FIELDS[field]
    if sort.sort == "text":
        return ("text",)
    if field == "attempt":
        return (*_NUMBERS, "int32-or-byte")
    if field == "replays":
        return (*_NUMBERS, "flag")
    if sort.sort == "number":
        return _NUMBERS if sort.most <= _MAX_INT32 else _LARGE
    return _INSTANTS if sort.least == 0 else _LARGE


_SORTS = {"text": "a text", "number": "a number", "instant": "an instant in epoch milliseconds"}
_SHIFTS: Mapping[Counts, int] = {"runs": 0, "next-run": 1, "retries": -1}


def head(text: str, limit: int) -> str:
    """The first characters that fit into `limit` bytes of UTF-8."""
    return text.encode(errors="replace")[:limit].decode(errors="ignore")


def tail(text: str, limit: int) -> str:
    """The last characters that fit into `limit` bytes of UTF-8."""
    return text.encode(errors="replace")[-limit:].decode(errors="ignore")


def _text(field: str) -> Encoding:
    if field == "failure_message":
        return Encoding(lambda text: head(text, MAX_MESSAGE_BYTES).encode(), bytes.decode)
    if field == "failure_stack":
        return Encoding(lambda text: tail(text, MAX_STACK_BYTES).encode(), bytes.decode)
    # What UTF-8 can't say (lone surrogates) becomes "?".
    return Encoding(lambda text: text.encode(errors="replace"), bytes.decode)


def _fixed(size: int) -> Encoding:
    """Two's complement, big-endian: Java's `ByteBuffer.putInt` and `putLong`."""

    def decode(value: bytes) -> int:
        if len(value) != size:
            raise ValueError(len(value))
        return int.from_bytes(value, signed=True)

    return Encoding(lambda number: number.to_bytes(size, signed=True), decode)


def _encode_big_integer(number: int) -> bytes:
    """Java's `BigInteger.toByteArray()`: two's complement, big-endian, no longer than it must be."""
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(size, signed=True)


def _decode_big_integer(value: bytes) -> int:
    if not 1 <= len(value) <= 8:
        raise ValueError(len(value))
    return int.from_bytes(value, signed=True)


def _decode_int32_or_byte(value: bytes) -> int:
    """Spring's attempts: four bytes, before its 2.8 a single unsigned one; what it doesn't believe itself is refused."""
    number = value[0] if len(value) == 1 else int.from_bytes(value, signed=True) if len(value) == 4 else 0
    if 1 <= number <= 2**15 - 1:
        return number
    raise ValueError(number)


def _seconds(spelling: Encoding) -> Encoding:
    """Whole seconds, rounded up: a due that is a fraction too small would let a record start early."""
    return Encoding(
        lambda ms: spelling.encode(-(-ms // 1000)), lambda value: int(spelling.decode(value)) * 1000
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _encode_iso(ms: int) -> bytes:
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").encode()


def _decode_iso(value: bytes) -> int:
    instant = datetime.fromisoformat(value.decode())
    if instant.tzinfo is None:
        raise ValueError("without a time zone an instant is a guess")
    # Rounded up, as a due must be.
    return -((_EPOCH - instant) // timedelta(milliseconds=1))


def _decode_flag(value: bytes) -> int:
    return {b"true": 1, b"1": 1, b"false": 0, b"0": 0}[value.strip().lower()]


_DECIMAL = Encoding(lambda number: b"%d" % number, int)
_INT64 = _fixed(8)
_SPELLINGS: Mapping[str, Encoding] = {
    "decimal": _DECIMAL,
    "int32": _fixed(4),
    "int64": _INT64,
    "big-integer": Encoding(_encode_big_integer, _decode_big_integer),
    "int32-or-byte": Encoding(_fixed(4).encode, _decode_int32_or_byte),
    "decimal-seconds": _seconds(_DECIMAL),
    "int64-seconds": _seconds(_INT64),
    "iso-8601": Encoding(_encode_iso, _decode_iso),
    "flag": Encoding(lambda number: b"true" if number else b"false", _decode_flag),
}
_LARGE = ("decimal", "int64", "big-integer")
_NUMBERS = ("decimal", "int32", "int64", "big-integer")
_INSTANTS = ("decimal", "int64", "big-integer", "decimal-seconds", "int64-seconds", "iso-8601")
#: What the encodings are, for the reference.
ENCODINGS: Mapping[str, str] = MappingProxyType(
    {
        "text": "UTF-8",
        "decimal": "decimal digits in UTF-8; instants in epoch milliseconds",
        "int32": "four bytes, two's complement, big-endian",
        "int64": "eight bytes, two's complement, big-endian; instants in epoch milliseconds",
        "big-integer": "two's complement, big-endian, no longer than it must be (Java's `BigInteger.toByteArray()`), at most eight bytes",
        "int32-or-byte": "`int32`, from 1 to 32767; a single unsigned byte is read too",
        "decimal-seconds": "epoch seconds in decimal digits; rounded up when written",
        "int64-seconds": "epoch seconds in eight bytes, big-endian; rounded up when written",
        "iso-8601": "`2026-01-01T00:00:00.000+00:00`; any time zone is read, none is refused",
        "flag": "`true` or `false`; `1` and `0` are read too",
    }
)
