"""A dead letter as users see it: given to `@app.on_dead_letter` handlers, and by the tests' harness."""

from typing import Any, Self

import msgspec

from redrive.core.dialects import foreign_headers
from redrive.core.envelope import Envelope
from redrive.core.record import RawRecord, headers_of
from redrive.deadletters.letters import Letter, Position, read_letter


class DeadLetter(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """
    A record that was put aside for a person, with all that is known of why. Read-only.

    Texts are "" and numbers None where the letter doesn't say. Times are epoch milliseconds UTC. Its `repr` holds
    neither key nor value, so it may be logged.
    """

    #: Where the letter lies; `str(letter.position)` is what `redrive dlq show` and `replay --at` take.
    position: Position
    #: Where the record was on its source topic.
    source: Position | None
    #: Raw bytes, as they came; None also for a value that was too large for the dead-letter topic.
    key: bytes | None
    value: bytes | None
    #: The producer's, in their order, repeats and nulls kept; redrive's own are left out.
    headers: tuple[tuple[str, bytes | None], ...]
    #: The letter's own timestamp: when it was put aside.
    dead_since_ms: int
    #: All that redrive says of it.
    envelope: Envelope
    #: What the app's lifespan yielded.
    resources: Any = None

    @property
    def reason(self) -> str:
        """Why it is one: `permanent`, `exhausted`, `expired`, `poison`, `crashed`, `asked`, `too-large` or `diverted`."""
        return self.envelope.reason

    @property
    def listener(self) -> str:
        """The name of the listener that failed it."""
        return self.envelope.listener

    @property
    def group(self) -> str:
        """The consumer group that failed it."""
        return self.envelope.group

    @property
    def event_id(self) -> str:
        """The same as `record.event_id` in every attempt and replay of the record."""
        return self.envelope.event_id

    @property
    def attempts(self) -> int:
        """How often the handler was run."""
        return self.envelope.attempt

    @property
    def failure_kind(self) -> str:
        """The sort of the last failure: `transient`, `permanent` or `poison`."""
        return self.envelope.failure_kind

    @property
    def failure_type(self) -> str:
        """The exception's type, such as `httpx.ReadTimeout`."""
        return self.envelope.failure_type

    @property
    def failure_message(self) -> str:
        """What the exception says, at most 1 KiB; it may quote the record."""
        return self.envelope.failure_message

    @property
    def failure_stack(self) -> str:
        """The stack, at most 8 KiB, innermost frames kept; it may quote the record."""
        return self.envelope.failure_stack

    @property
    def fingerprint(self) -> str:
        """What letters of the same cause share: alert once for each of these."""
        return self.envelope.fingerprint

    @property
    def timestamp_ms(self) -> int | None:
        """The Kafka timestamp of the record on its source topic."""
        return self.envelope.source_timestamp_ms

    @property
    def first_failed_ms(self) -> int | None:
        """When the first attempt failed."""
        return self.envelope.first_failed_ms

    @property
    def last_failed_ms(self) -> int | None:
        """When the last attempt failed."""
        return self.envelope.last_failed_ms

    @property
    def replays(self) -> int:
        """How often the record was replayed before it died this time."""
        return self.envelope.replays

    @property
    def json(self) -> Any:
        """The value, decoded. Raises msgspec.DecodeError for what is no JSON."""
        return msgspec.json.decode(self.value or b"")

    @classmethod
    def of(cls, letter: Letter, resources: Any = None) -> Self:
        """The letter as users like to see it."""
        said, record = letter.envelope, letter.record
        is_known = said.source_topic and said.source_partition is not None and said.source_offset is not None
        return cls(
            position=letter.position,
            source=Position(said.source_topic, said.source_partition or 0, said.source_offset or 0)
            if is_known
            else None,
            key=record.key(),
            value=record.value(),
            headers=tuple(foreign_headers(headers_of(record))),
            dead_since_ms=record.timestamp()[1],
            envelope=said,
            resources=resources,
        )

    def __repr__(self) -> str:
        said = self.envelope
        return (
            f"DeadLetter({self.position}, {said.reason}, {said.failure_type}, listener={said.listener!r}, "
            f"source={self.source})"
        )


def dead_letter_from(
    record: RawRecord, _envelope: Envelope | None, _attempt: int, resources: Any, _emitting: object = None
) -> DeadLetter:
    """Gives the letter that a fetched record is, as a handler gets it. Never raises."""
    return DeadLetter.of(read_letter(record), resources)
