"""Dead letters as they lie in their topic: where each one is, what it says, and how it goes back."""

from typing import NamedTuple, Self

import msgspec

from redrive.core.dialects import Headers, read_envelope, with_envelope
from redrive.core.envelope import Envelope
from redrive.core.record import RawRecord, headers_of
from redrive.core.router import Reason


class Position(NamedTuple):
    """Where a record lies; written `orders.dlq/3/1742`."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Gives the position that `text` writes. Raises ValueError, in words for whoever typed it."""
        topic, *numbers = text.split("/")
        if len(numbers) != 2 or not topic or not all(each.isascii() and each.isdecimal() for each in numbers):
            raise ValueError(f"{text!r} is no position: write TOPIC/PARTITION/OFFSET, as in orders.dlq/0/17")
        partition, offset = map(int, numbers)
        if partition >= 2**31 or offset >= 2**63:
            raise ValueError(f"{text!r} is no position: Kafka's numbers don't go as far")
        return cls(topic, partition, offset)


class Glance(NamedTuple):
    """
    What letters are counted and selected by. All texts, "" where a header is missing or can't be read.

    A letter without a group and a reason was not written by redrive: it is foreign.
    """

    group: str
    reason: str
    failure_type: str
    event_id: str
    replay_topic: str

    @property
    def is_foreign(self) -> bool:
        """Whether somebody else put this record here."""
        return not self.reason and not self.group


_GLANCED = {
    "redrive-group": 0,
    "redrive-reason": 1,
    "redrive-failure-type": 2,
    "redrive-id": 3,
    "redrive-replay-topic": 4,
}
_index_of = _GLANCED.get


def glance(headers: Headers | None) -> Glance:
    """
    Gives what `read_envelope` says of these five fields, at a third of its time: a listing looks at every letter.
    """
    found: list[bytes | None] = [None] * len(_GLANCED)
    for name, value in headers or ():
        index = _index_of(name)
        if index is not None:
            found[index] = value
    return Glance._make(map(_text, found))


def _text(value: bytes | None) -> str:
    try:
        return value.decode() if value else ""
    except UnicodeDecodeError:
        return ""


class Letter(msgspec.Struct, frozen=True):
    """
    One dead letter, read in full: its record, what its headers say, and which of them can't be read.

    `record` holds key, value and all headers as they came; its timestamp is when it was put aside.
    """

    position: Position
    record: RawRecord
    envelope: Envelope
    unreadable: tuple[str, ...]

    @property
    def is_foreign(self) -> bool:
        """Whether somebody else put this record here."""
        return not self.envelope.reason and not self.envelope.group

    @property
    def has_lost_its_value(self) -> bool:
        """
        Whether only the headers are left, because the record was too large for the dead-letter topic.

        What is cut that far has lost all that an envelope can do without, such as the source's timestamp; a null value
        that its producer wrote has not.
        """
        said = self.envelope
        if self.record.value() is not None or self.is_foreign:
            return False
        return said.reason == Reason.TOO_LARGE or (said.source_timestamp_ms is None and not said.failure_kind)


def read_letter(record: RawRecord) -> Letter:
    """Gives the letter that a record is. Never raises, whatever its headers hold."""
    envelope, unreadable = read_envelope(headers_of(record))
    return Letter(Position(record.topic(), record.partition(), record.offset()), record, envelope, unreadable)


class Copy(NamedTuple):
    """What is sent for a letter, besides its key and value."""

    headers: list[tuple[str, bytes | None]]
    #: The source's, where there is one: the target has the same number where the counts agree.
    source_topic: str
    source_partition: int


def copy_of(letter: Letter, *, job: str, now_ms: int) -> Copy:
    """
    Gives the headers of a letter's next start: foreign ones as they came, ours anew.

    No attempt made, due at once, for the same group and under the same event id; the position on the source is kept.
    What went wrong before stays with the letter: to the handler this is a first attempt, so a maximum age counts anew.
    """
    said = letter.envelope
    fresh = Envelope(
        group=said.group,
        attempt=0,
        due_ms=now_ms,
        event_id=said.event_id or str(letter.position),
        source_topic=said.source_topic,
        source_partition=said.source_partition,
        source_offset=said.source_offset,
        source_timestamp_ms=said.source_timestamp_ms,
        replay_id=job,
        replays=min(said.replays + 1, 2**31 - 1),
    )
    partition = -1 if said.source_partition is None else said.source_partition
    return Copy(with_envelope(headers_of(letter.record), fresh), said.source_topic, partition)
