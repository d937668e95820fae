"""Dead letters as they lie in their topic: where each one is, what it says, and how it goes back."""

from typing import NamedTuple, Self

import msgspec

from redrive.core.dialect_tables import SHARE
from redrive.core.dialects import MAX_COUNT, REDRIVE, Headers, write_headers
from redrive.core.envelope import OWN_PREFIX, Envelope
from redrive.core.record import RawRecord, headers_of
from redrive.core.router import Reason
from redrive.core.translator import PLAIN, Reading, Translator


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
            example = f", as in {topic}/0/17" if topic else ""
            raise ValueError(f"{text!r} is no position: write TOPIC/PARTITION/OFFSET{example}")
        partition, offset = map(int, numbers)
        if partition >= 2**31 or offset >= 2**63:
            raise ValueError(f"{text!r} is no position: Kafka's numbers don't go as far")
        return cls(topic, partition, offset)


class Glance(NamedTuple):
    """
    What letters are counted and selected by. All texts, "" where a header is missing or can't be read.

    `holds`: what waits for it, "" for nothing. `dialect`: whose words these are, "" for nobody's that is known.
    `source_topic`: of foreign letters only.
    """

    group: str
    reason: str
    failure_type: str
    event_id: str
    replay_topic: str
    holds: str = ""
    source_topic: str = ""
    dialect: str = ""

    @property
    def is_foreign(self) -> bool:
        """Whether somebody else put this record here."""
        return self.dialect != REDRIVE.name


_GLANCED = {
    "redrive-group": 0,
    "redrive-reason": 1,
    "redrive-failure-type": 2,
    "redrive-id": 3,
    "redrive-replay-topic": 4,
    "redrive-holds": 5,
}
_index_of = _GLANCED.get


def glance(headers: Headers | None, translator: Translator = PLAIN) -> Glance:
    """
    Gives what a letter is counted and selected by. Of our own that takes a third of the time that `translator.read`
    takes: a listing looks at every letter.
    """
    if headers and headers[-1][0][:8] != OWN_PREFIX:
        reading = translator.read(headers)
        said = reading.envelope
        return Glance(
            said.group,
            said.reason,
            said.failure_type,
            said.event_id,
            said.replay_topic,
            said.holds,
            said.source_topic,
            _author(reading),
        )
    found: list[bytes | None] = [None] * len(_GLANCED)
    for name, value in headers or ():
        index = _index_of(name)
        if index is not None:
            found[index] = value
    seen = Glance._make([*map(_text, found), "", ""])
    return seen._replace(dialect=REDRIVE.name) if seen.group or seen.reason else seen


def cause_of(reason: str, dialect: str) -> str:
    """What a letter is counted by: its reason, else who put it aside."""
    return reason or (dialect if dialect != REDRIVE.name else "") or "foreign"


def _author(reading: Reading) -> str:
    """Whose a letter is: what carries headers of ours but neither a group nor a reason wasn't put aside by us."""
    is_ours = reading.dialect == REDRIVE.name
    return "" if is_ours and not reading.envelope.group and not reading.envelope.reason else reading.dialect


def _text(value: bytes | None) -> str:
    try:
        return value.decode() if value else ""
    except UnicodeDecodeError:
        return ""


class Letter(msgspec.Struct, frozen=True):
    """
    One dead letter, read in full: its record, what its headers say, in which dialect, and which of them can't be read.

    `record` holds key, value and all headers as they came; its timestamp is when it was put aside, or the source's
    where whoever did it kept that. `dialect`: "" where no known one is there.
    """

    position: Position
    record: RawRecord
    envelope: Envelope
    unreadable: tuple[str, ...]
    dialect: str = REDRIVE.name

    @property
    def is_foreign(self) -> bool:
        """Whether somebody else put this record here."""
        return self.dialect != REDRIVE.name

    @property
    def has_lost_its_value(self) -> bool:
        """
        Whether only the headers are here: the record was too large for the dead-letter topic, or a share group's
        dead-letter queue doesn't copy records, which is its default.

        What was cut that far by us has lost all that an envelope can do without, such as the source's timestamp; a null
        value that its producer wrote has not.
        """
        said = self.envelope
        if self.record.value() is not None:
            return False
        if self.is_foreign:
            return self.is_pointer
        return said.reason == Reason.TOO_LARGE or (said.source_timestamp_ms is None and not said.failure_kind)

    @property
    def is_pointer(self) -> bool:
        """Whether it only tells where the record is: a share group's dead letter, unless the group copies records."""
        return self.dialect == SHARE.name and self.record.value() is None


def read_letter(record: RawRecord, translator: Translator = PLAIN) -> Letter:
    """Gives the letter that a record is. Never raises, whatever its headers hold."""
    reading = translator.read(headers_of(record))
    position = Position(record.topic(), record.partition(), record.offset())
    return Letter(position, record, reading.envelope, reading.unreadable, _author(reading))


class Copy(NamedTuple):
    """What is sent for a letter, besides its key and value."""

    headers: list[tuple[str, bytes | None]]
    #: The source's, where there is one: the target has the same number where the counts agree.
    source_topic: str
    source_partition: int


def copy_of(letter: Letter, *, job: str, now_ms: int, translator: Translator = PLAIN) -> Copy:
    """
    Gives the headers of a letter's next start: the producer's as they came, ours anew, the bookkeeping of whoever put it
    aside not at all.

    No attempt made, due at once, for the same group and under the same event id; the position on the source is kept.
    What went wrong before stays with the letter: to the handler this is a first attempt, so a maximum age counts anew.
    A foreign letter's group isn't stamped on its copy: on its topic it is another system's word, and no promise of ours.
    """
    said = letter.envelope
    fresh = Envelope(
        group="" if letter.is_foreign else said.group,
        attempt=0,
        due_ms=now_ms,
        event_id=said.event_id or str(letter.position),
        source_topic=said.source_topic,
        source_partition=said.source_partition,
        source_offset=said.source_offset,
        source_timestamp_ms=said.source_timestamp_ms,
        replay_id=job,
        replays=min(said.replays + 1, MAX_COUNT),
    )
    partition = -1 if said.source_partition is None else said.source_partition
    kept = translator.without_bookkeeping(headers_of(letter.record))
    return Copy([*kept, *write_headers(fresh)], said.source_topic, partition)


def release_of(letter: Letter, *, job: str, now_ms: int) -> Copy:
    """Gives the headers of what frees the records that wait for a letter: it names the letter's source, and isn't run."""
    said = letter.envelope
    fresh = Envelope(
        group=said.group,
        due_ms=now_ms,
        event_id=said.event_id,
        source_topic=said.source_topic,
        source_partition=said.source_partition,
        source_offset=said.source_offset,
        frees=job,
    )
    return Copy(
        [*write_headers(fresh)],
        said.source_topic,
        -1 if said.source_partition is None else said.source_partition,
    )
