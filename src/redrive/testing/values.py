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
