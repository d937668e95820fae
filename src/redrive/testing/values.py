"""What a test sees of its app's records."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from redrive.core.envelope import Envelope
from redrive.core.record import Record
from redrive.deadletters.dead_letter import DeadLetter

Headers = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]


class Begun(NamedTuple):
    """
    A run of a handler that began: what it is given, the number of the run, when (epoch ms) it began, and the number of the
    process in which it did.
    """

    listener: str
    value: Any
    record: Record
    attempt: int
    at_ms: float
    worker: int = 0


class Handled(NamedTuple):
    """A run of a handler that ended well: what it was given, the number of the run, when (epoch ms) it ended, and where."""

    listener: str
    value: Any
    record: Record
    attempt: int
    at_ms: float
    worker: int = 0


class FailedRun(NamedTuple):
    """A run of a handler that raised `error`; what became of the record is decided by the policy."""

    listener: str
    value: Any
    record: Record
    attempt: int
    at_ms: float
    error: BaseException
    worker: int = 0


class NewRecord(NamedTuple):
    """A record for `explore` to send, with what `Harness.send` takes."""

    topic: str
    value: Any
    key: bytes | str | None = None
    headers: Headers = ()
    partition: int = -1


class Waiting(NamedTuple):
    """A record on a retry topic: `attempt` runs have failed, the next one starts at `due_ms` (epoch ms), in `in_ms`."""

    topic: str
    due_ms: int
    in_ms: float
    attempt: int
    key: bytes | None
    value: bytes | None
    envelope: Envelope


class LetterRun(NamedTuple):
    """
    A run of a handler under `@app.on_dead_letter`: its name, what it was given, when (epoch ms) it ended, and what it raised.
    """

    handler: str
    value: Any
    letter: DeadLetter
    at_ms: float
    error: BaseException | None


def to_bytes(value: Any) -> bytes | None:
    """A record's value as a producer would write it: bytes and None as they are, text as UTF-8, all else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if hasattr(value, "model_dump_json"):  # pydantic, without importing it
        return str(value.model_dump_json()).encode()
    return msgspec.json.encode(value)


def to_key(key: bytes | str | None) -> bytes | None:
    """A record's key as a producer would write it: text as UTF-8. Raises TypeError for what is neither that nor bytes."""
    return _raw(key, "key")


def to_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """A record's headers as a producer would write them. Raises TypeError for a name that isn't text, or another value."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise TypeError(f"headers: {pair!r} is no header; write a dict, or pairs of a name and a value")
    return [(name, _raw(value, f"headers: {name}")) for name, value in pairs]


def _raw(given: bytes | str | None, what: str) -> bytes | None:
    if isinstance(given, str):
        return given.encode()
    if given is None or isinstance(given, bytes):
        return given
    raise TypeError(f"{what}: {given!r} can't be sent; give bytes, text or None")


def check_counts(what: str, **counts: int) -> None:
    """Raises ValueError for what isn't a whole number of 1 or more. `what`: what is told to be called with them."""
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"{what}({name}={count!r}): a whole number, at least 1")
