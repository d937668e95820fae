"""What a test sees of its app's records."""

from typing import Any, NamedTuple

import msgspec

from redrive.core.dialects import foreign_headers
from redrive.core.envelope import Envelope
from redrive.core.record import Record
from redrive.deadletters.letters import Letter, Position


class Handled(NamedTuple):
    """A run of a handler that ended well: what it was given, the number of the run, and when (epoch ms) it ended."""

    listener: str
    value: Any
    record: Record
    attempt: int
    at_ms: float


class FailedRun(NamedTuple):
    """A run of a handler that raised `error`; what became of the record is decided by the policy."""

    listener: str
    value: Any
    record: Record
    attempt: int
    at_ms: float
    error: BaseException


class Waiting(NamedTuple):
    """A record on a retry topic: `attempt` runs have failed, the next one starts at `due_ms` (epoch ms), in `in_ms`."""

    topic: str
    due_ms: int
    in_ms: float
    attempt: int
    key: bytes | None
    value: bytes | None
    envelope: Envelope


class DeadLetter(NamedTuple):
    """A dead letter that nobody has dealt with: why it is one, its bytes as they came, and all that redrive says of it."""

    reason: str
    failure_type: str
    failure_message: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    envelope: Envelope
    position: Position

    @property
    def json(self) -> Any:
        """The value, decoded. Raises msgspec.DecodeError for what is no JSON."""
        return msgspec.json.decode(self.value or b"")

    @classmethod
    def of(cls, letter: Letter) -> "DeadLetter":
        """The letter as tests like to see it."""
        said, record = letter.envelope, letter.record
        return cls(
            reason=said.reason,
            failure_type=said.failure_type,
            failure_message=said.failure_message,
            key=record.key(),
            value=record.value(),
            headers=tuple(foreign_headers(record.headers())),
            envelope=said,
            position=letter.position,
        )


def to_bytes(value: Any) -> bytes | None:
    """A record's value as a producer would write it: bytes and None as they are, text as UTF-8, all else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if hasattr(value, "model_dump_json"):  # pydantic, without importing it
        return str(value.model_dump_json()).encode()
    return msgspec.json.encode(value)
