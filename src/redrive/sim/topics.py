"""Topics of the simulated cluster: partitions as logs with gaps and a start that retention moves."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import methodcaller

from redrive.sim.records import Header, SimRecord

#: What a broker answers for a topic that sets nothing itself.
DEFAULT_CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
}

_offset_of = methodcaller("offset")


class PartitionLog:
    """One partition. Offsets only grow; some of them hold no record."""

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        #: The first offset that may still be read, and the one that the next record gets.
        self.start = 0
        self.end = 0
        self._records: list[SimRecord] = []
        #: First offsets of transactions that are neither committed nor aborted, by whose they are.
        self._open: dict[object, int] = {}

    @property
    def stable_end(self) -> int:
        """Readers see nothing at or above: a transaction is open there."""
        return min(self._open.values(), default=self.end)

    def end_transaction(self, transaction: object, aborted: Iterable[SimRecord] = ()) -> None:
        """Its records are seen from now on, but for the aborted ones: they never were. A marker uses up an offset."""
        self._open.pop(transaction, None)
        self.punch(record.offset() for record in aborted)
        self.append_marker()

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp_ms: int,
        transaction: object = None,
    ) -> SimRecord:
        """Store a record at the end. In a transaction it is seen when that is committed."""
        if transaction is not None:
            self._open.setdefault(transaction, self.end)
        record = SimRecord(self.topic, self.number, self.end, key, value, headers, timestamp_ms)
        self._records.append(record)
        self.end += 1
        return record

    def append_marker(self, count: int = 1) -> None:
        """Use up offsets without a record, as transaction markers and aborted records do."""
        self.end += count

    def punch(self, offsets: Iterable[int]) -> None:
        """Remove records out of the middle, as compaction does."""
        gone = set(offsets)
        self._records = [record for record in self._records if record.offset() not in gone]

    def delete_before(self, offset: int) -> None:
        """Move the start of the log, as retention does."""
        self.start = max(self.start, min(offset, self.end))
        del self._records[: bisect_left(self._records, self.start, key=_offset_of)]

    def read(self, offset: int, most: int) -> list[SimRecord]:
        """Up to `most` records at or above `offset`, ascending; of transactions only those that are committed."""
        at = bisect_left(self._records, offset, key=_offset_of)
        if not self._open:
            return self._records[at : at + most]
        end = bisect_left(self._records, self.stable_end, key=_offset_of)
        return self._records[at : min(at + most, end)]

    def __iter__(self) -> Iterator[SimRecord]:
        return iter(tuple(self.read(self.start, len(self._records))))


class Topic:
    """A topic with its partitions and what was set when it was created."""

    def __init__(
        self, name: str, partitions: int, replication: int, topic_id: str, configs: Mapping[str, str]
    ) -> None:
        self.name = name
        self.replication = replication
        self.topic_id = topic_id
        self.configs = {**DEFAULT_CONFIGS, **configs}
        self.partitions = [PartitionLog(name, number) for number in range(partitions)]

    @property
    def max_message_bytes(self) -> int:
        """The largest record, with key and headers, that the topic takes."""
        return int(self.configs["max.message.bytes"])

    @property
    def is_compacted(self) -> bool:
        """Whether records need a key."""
        return "compact" in self.configs["cleanup.policy"]

    def grow(self, partitions: int) -> None:
        """Add partitions up to this many in all; never fewer than there are."""
        self.partitions.extend(
            PartitionLog(self.name, number) for number in range(len(self.partitions), partitions)
        )
