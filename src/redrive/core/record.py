"""
A record as redrive sees it: the raw one that the client fetched, and the one a handler is given.

Nothing here is ever written to: what travels on (retry copies, dead letters) is built from the raw record, so a
handler that changes what it was given changes its own copy only.
"""

from collections.abc import Callable, Iterable
from operator import methodcaller
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from redrive.core.dialects import NO_ENVELOPE, read_envelope, replay_headers_only
from redrive.core.emitting import Emission, Emitted, Emitting
from redrive.core.envelope import Envelope, is_own_header


class TopicPartition(NamedTuple):
    """A partition of a topic. Compares and hashes by both, unlike the client's class, whose offset gets in the way."""

    topic: str
    partition: int


class RawRecord(Protocol):
    """
    What the engine needs of a fetched record.

    The method names are the Kafka client's, so that its message objects pass through as they are: wrapping each of
    them would cost more than all else the engine does for a record. `timestamp()` gives (type, epoch ms);
    `headers()` gives a list of pairs, or None for no headers; `len()` is the length of the value, 0 for a null one.
    """

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> list[tuple[str, bytes | None]] | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def __len__(self) -> int: ...


#: What stands in for headers that the client can't read.
_UNREADABLE: list[tuple[str, bytes | None]] = [("headers-unreadable", b"a header's name was not UTF-8")]
_read_headers: Callable[[RawRecord], list[tuple[str, bytes | None]] | None] = methodcaller("headers")


def headers_of(record: RawRecord) -> list[tuple[str, bytes | None]] | None:
    """
    The headers of a record, also of one whose producer gave a header a name that isn't UTF-8.

    For such a record the client gives tuples without a name, and whoever looks at one ends the process
    (confluent-kafka 2.16). The first time it sets an exception too, which a plain call that Python has specialised
    doesn't see: `methodcaller` does. So its headers are replaced: a single one says what happened, to the handler and
    to whoever reads the dead letter.
    """
    try:
        return _read_headers(record)
    except Exception:
        cast("Any", record).set_headers(list(_UNREADABLE))
        return list(_UNREADABLE)


class LastFailure(msgspec.Struct, frozen=True, gc=False):
    """Why the attempt before this one failed: `kind` (`transient` …), `type` (exception class), `message` (≤ 1 KiB)."""

    kind: str
    type: str
    message: str


#: An id that is longer than that is something else.
MAX_EVENT_ID_CHARS = 256


def event_id_of(record: RawRecord, id_header: str = "") -> str:
    """
    The id of a record of a source topic: what its producer put into `id_header`, else topic, partition and offset.

    Where the header repeats, the last one counts. What is no printable text of at most 256 characters is no id.
    """
    if id_header:
        found = [value for name, value in headers_of(record) or () if name == id_header]
        try:
            said = found[-1].decode() if found and found[-1] else ""
        except UnicodeDecodeError:
            said = ""
        if said.isprintable() and 0 < len(said) <= MAX_EVENT_ID_CHARS:
            return said
    return f"{record.topic()}/{record.partition()}/{record.offset()}"


class Record(msgspec.Struct, frozen=True, gc=False, eq=False):
    """
    One Kafka record, as a handler sees it. Read-only.

    `topic`, `partition`, `offset` and `timestamp_ms` are those of the record on its *source* topic, also when this
    run comes from a retry topic; `position` is where this copy was read. `key`, `value` are the raw bytes or None.
    """

    _raw: RawRecord
    _envelope: Envelope | None = None
    attempt: int = 1
    resources: Any = None
    _emitting: Emitting | None = None
    _id_header: str = ""

    @property
    def topic(self) -> str:
        """The source topic."""
        return (self._envelope and self._envelope.source_topic) or self._raw.topic()

    @property
    def partition(self) -> int:
        """The partition on the source topic."""
        envelope = self._envelope
        if envelope is None or envelope.source_partition is None:
            return self._raw.partition()
        return envelope.source_partition

    @property
    def offset(self) -> int:
        """The offset on the source topic."""
        envelope = self._envelope
        if envelope is None or envelope.source_offset is None:
            return self._raw.offset()
        return envelope.source_offset

    @property
    def timestamp_ms(self) -> int:
        """The Kafka timestamp of the source record, epoch milliseconds UTC."""
        envelope = self._envelope
        if envelope is None or envelope.source_timestamp_ms is None:
            return self._raw.timestamp()[1]
        return envelope.source_timestamp_ms

    @property
    def position(self) -> tuple[str, int, int]:
        """Topic, partition and offset of the copy that is being run: a tier's while it is retried."""
        return self._raw.topic(), self._raw.partition(), self._raw.offset()

    @property
    def key(self) -> bytes | None:
        """The raw key; None when the producer gave none."""
        return self._raw.key()

    @property
    def value(self) -> bytes | None:
        """The raw value; None for a tombstone."""
        return self._raw.value()

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The producer's headers in their order, repeats and nulls kept; redrive's own are left out."""
        return tuple((name, value) for name, value in headers_of(self._raw) or () if not is_own_header(name))

    @property
    def event_id(self) -> str:
        """The same in every attempt and replay of this record: use it to recognise what was done before."""
        return self._said().event_id or event_id_of(self._raw, self._id_header)

    @property
    def first_failed_ms(self) -> int | None:
        """When the first attempt failed, epoch ms UTC; None in the first attempt."""
        return self._envelope.first_failed_ms if self._envelope else None

    @property
    def last_failure(self) -> LastFailure | None:
        """What went wrong in the attempt before; None in the first attempt."""
        envelope = self._envelope
        if envelope is None or not envelope.failure_type:
            return None
        return LastFailure(envelope.failure_kind, envelope.failure_type, envelope.failure_message)

    @property
    def due_ms(self) -> int | None:
        """The instant before which this attempt must not have started, epoch ms UTC; None in the first attempt."""
        return self._envelope.due_ms if self._envelope else None

    @property
    def is_replay(self) -> bool:
        """Whether a person sent this record again from the dead-letter topic."""
        return bool(self._said().replay_id)

    def emit(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        headers: Iterable[tuple[str, bytes | str | None]] = (),
        partition: int = -1,
    ) -> None:
        """
        Write a record to `topic` when this handler has returned; nothing when it raises. Doesn't wait, any thread.

        With delivery `exactly-once` all that a handler emits, and the commit that passes its record, are one transaction: who
        reads only what is committed sees all of it, once. Else it is written, perhaps twice, before the record is passed.

        `value`, `key`: text as UTF-8; None for none. `partition`: by default by the key, as Java's producers do. The topic must
        be there, and the service must have the right to write to it; until then the record isn't passed. What is larger than
        the topic takes makes this record a dead letter. What was emitted isn't tried again with the handler.

        Raises RuntimeError when the handler has ended, or runs without a group, as in a plain call.
        """
        if self._emitting is None:
            raise RuntimeError(
                "this record comes from no run of a listener, so nothing would write what it emits"
            )
        self._emitting.add(
            Emitted(self._raw, self.attempt, self._envelope, self._id_header),
            Emission(
                topic,
                _bytes(value),
                _bytes(key),
                [(name, _bytes(each)) for name, each in headers],
                partition,
            ),
        )

    def _said(self) -> Envelope:
        """The envelope; of a record on a source topic what a replay that was sent there says: nothing else counts."""
        if self._envelope is not None:
            return self._envelope
        headers = headers_of(self._raw)
        if headers and any(name == "redrive-replay-id" for name, _ in headers):
            return replay_headers_only(read_envelope(headers)[0])
        return NO_ENVELOPE


def _bytes(value: bytes | str | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"what is emitted is bytes, text or None, not {type(value).__name__}; encode it first")
