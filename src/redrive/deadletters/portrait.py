"""One dead letter with all that a person needs to understand it, as plain values: for a terminal and for JSON alike."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from redrive.core.dialects import foreign_headers
from redrive.core.record import TopicPartition, headers_of
from redrive.core.translator import PLAIN, Translator
from redrive.deadletters.letters import Letter, Position, read_letter
from redrive.deadletters.selection import Selection
from redrive.deadletters.states import Mark, Release, StateBook
from redrive.deadletters.summary import list_letters
from redrive.errors import ReplayRefused
from redrive.runtime.ports import Log

#: Bytes of a payload that are shown unless all are asked for; binary ones cost three characters each.
SHOWN_BYTES = 64 * 1024
SHOWN_HEX_BYTES = 1024


class Payload(msgspec.Struct, frozen=True):
    """
    Bytes for a person: `kind` is `json`, `text`, `hex`, `empty` or `null`; `text` how they look; `size_bytes` of all.

    `omitted_bytes`: how many more there are than `text` shows.
    """

    kind: str
    text: str
    size_bytes: int
    omitted_bytes: int = 0


def portray_bytes(value: bytes | None, *, full: bool = False) -> Payload:
    """Gives how bytes look: JSON indented, other UTF-8 as text, all else as hexadecimal. Never raises."""
    if value is None:
        return Payload("null", "", 0)
    if not value:
        return Payload("empty", "", 0)
    kind, text = "text", _as_json(value)
    if text is not None:
        kind = "json"
    else:
        text = _as_text(value)
    if text is None:
        shown = value if full else value[:SHOWN_HEX_BYTES]
        return Payload("hex", _hex_lines(shown), len(value), len(value) - len(shown))
    if full or len(value) <= SHOWN_BYTES:
        return Payload(kind, text, len(value))
    shown_text = value[:SHOWN_BYTES].decode(errors="ignore")
    return Payload("text", shown_text, len(value), len(value) - len(shown_text.encode()))


def portray(letter: Letter, mark: Mark | None, changes: Sequence[Mark | Release]) -> dict[str, Any]:
    """
    Gives a letter as values of JSON, without its payload. Times are epoch ms UTC; what isn't known is None or "".

    Foreign headers are pairs, since they may repeat; a value that is no UTF-8 is shown as `hex:…`.
    """
    said, record = letter.envelope, letter.record
    source = None
    if said.source_topic:
        source = {
            "topic": said.source_topic,
            "partition": said.source_partition,
            "offset": said.source_offset,
        }
    return {
        "at": str(letter.position),
        "state": mark.shown if mark is not None else "open",
        "foreign": letter.is_foreign,
        "dialect": letter.dialect,
        "dead_lettered_ms": record.timestamp()[1],
        "reason": said.reason,
        "group": said.group,
        "listener": said.listener,
        "event_id": said.event_id or str(letter.position),
        "source": source,
        "source_timestamp_ms": said.source_timestamp_ms,
        "failure": {
            "kind": said.failure_kind,
            "type": said.failure_type,
            "message": said.failure_message,
            "stack": said.failure_stack,
            "fingerprint": said.fingerprint,
        },
        "attempts": said.attempt,
        "first_failed_ms": said.first_failed_ms,
        "last_failed_ms": said.last_failed_ms,
        "replays": said.replays,
        "replay_id": said.replay_id,
        "replay_topic": said.replay_topic,
        "holds": said.holds,
        "value_lost": letter.has_lost_its_value,
        "unreadable_headers": list(letter.unreadable),
        "headers": [[name, header_text(value)] for name, value in foreign_headers(headers_of(record))],
        "history": [_change(change) for change in changes],
    }


def payload_values(value: bytes | None) -> dict[str, Any]:
    """Gives bytes for a program: the bytes themselves in base64, and what they say where they are JSON or text."""
    if value is None:
        return {"bytes": 0, "base64": None}
    said: dict[str, Any] = {"bytes": len(value), "base64": base64.b64encode(value).decode()}
    if _as_json(value) is not None:
        return {**said, "json": msgspec.json.decode(value)}
    text = _as_text(value)
    return said if text is None else {**said, "text": text}


def header_text(value: bytes | None) -> str | None:
    """A header's value as text, `hex:…` where it is none; None for a null one."""
    if value is None:
        return None
    text = _as_text(value)
    return f"hex:{value.hex()}" if text is None else text


def find_newest(
    event_id: str, books: Sequence[StateBook], log: Log, *, translator: Translator = PLAIN
) -> Position:
    """
    Gives where the letter of an event lies, of several the one put aside last. The books must have been read.

    Raises ReplayRefused when there is none, and says where it was looked for; PortError.
    """
    selection = Selection(event_ids=frozenset([event_id]))
    found = list(list_letters(selection, books, log, translator=translator))
    if not found:
        looked = ", ".join(book.dlq.topic for book in books)
        raise ReplayRefused(
            f"there is no letter of event {event_id!r} in {looked or 'any dead-letter topic'}"
        )
    return max(found, key=lambda letter: letter.timestamp_ms).position


def find_letter(position: Position, book: StateBook, log: Log, *, translator: Translator = PLAIN) -> Letter:
    """Gives the letter at a position. Raises ReplayRefused when there is none, and says what there is; PortError."""
    bounds = book.dlq.bounds
    if position.partition not in bounds:
        raise ReplayRefused(
            f"{position.topic} has no partition {position.partition}, it has {len(bounds)}: 0 to {len(bounds) - 1}"
        )
    first, end = bounds[position.partition]
    key = TopicPartition(position.topic, position.partition)
    for record in log.scan(key, position.offset, min(end, position.offset + 1)):
        if record.offset() == position.offset:
            return read_letter(record, translator)
    there = f"it has the offsets {first} to {end - 1}" if end > first else "it is empty"
    gap = (
        "; this one holds no record (compacted, or a transaction's marker)"
        if first <= position.offset < end
        else ""
    )
    raise ReplayRefused(f"there is no letter at {position}: {there}{gap}")


def _change(change: Mark | Release) -> Mapping[str, Any]:
    if isinstance(change, Release):
        return {"state": "open", "job": change.job}
    said = {"state": str(change.state), "who": change.who, "when_ms": change.when_ms, "job": change.job}
    return {
        **said,
        **({"over": change.over} if change.over else {}),
        **({"why": change.why} if change.why else {}),
    }


def _as_json(value: bytes) -> str | None:
    """Indented, and otherwise as it was written: numbers keep their digits, repeated keys stay."""
    if value.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        msgspec.json.decode(value)
        return msgspec.json.format(value, indent=2).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _as_text(value: bytes) -> str | None:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if all(char.isprintable() or char in "\r\n\t" for char in text) else None


def _hex_lines(value: bytes) -> str:
    return "\n".join(
        f"{at:08x}  {value[at : at + 16].hex(' '):<47}  {_dots(value[at : at + 16])}"
        for at in range(0, len(value), 16)
    )


def _dots(value: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in value)
