"""Reads and writes partitions of the simulated cluster, without a group."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from redrive.core.record import RawRecord, TopicPartition
from redrive.errors import PortError
from redrive.runtime.ports import NotWritten, Write, Written
from redrive.sim.records import size_bytes

if TYPE_CHECKING:
    from redrive.sim.cluster import SimCluster


class SimLog:
    """Implements the log port."""

    def __init__(self, cluster: "SimCluster") -> None:
        self._cluster = cluster

    def scan(self, key: TopicPartition, start: int, end: int) -> Iterator[RawRecord]:
        self._require_broker()
        log = self._cluster.partition(key)
        if log is None:
            raise PortError(f"there is no topic {key.topic} with a partition {key.partition}")
        while records := [record for record in log.read(start, 100) if record.offset() < end]:
            for record in records:
                self._require_broker()
                yield record
            start = records[-1].offset() + 1

    def first_of(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> Mapping[TopicPartition, RawRecord]:
        firsts = ((key, next(self.scan(key, *span), None)) for key, span in spans.items())
        return {key: record for key, record in firsts if record is not None}

    def write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int = -1,
    ) -> tuple[int, int]:
        self._require_broker()
        known = self._cluster.topics.get(topic)
        if known is not None and size_bytes(key, value, headers) > known.max_message_bytes:
            raise PortError(
                f"the record is larger than the {known.max_message_bytes} bytes that {topic} takes"
            )
        if known is not None and known.is_compacted and key is None:
            raise PortError(f"{topic} is compacted, the record has no key")
        refusal = self._cluster.faults.next_refusal(topic)
        if refusal is not None:
            raise PortError(refusal.detail, retriable=refusal.kind == "unavailable")
        record = self._cluster.append(topic, value, key=key, headers=headers, partition=partition)
        if self._cluster.faults.next_ack_is_lost(topic):
            raise PortError("no answer in time", retriable=True)
        return record.partition(), record.offset()

    def write_many(self, writes: Sequence[Write]) -> Sequence[Written | NotWritten]:
        return [self._try(write) for write in writes]

    def _try(self, write: Write) -> Written | NotWritten:
        try:
            return Written(*self.write(write.topic, write.key, write.value, write.headers, write.partition))
        except PortError as error:
            return NotWritten(str(error), is_certain=not error.retriable)

    def _require_broker(self) -> None:
        if self._cluster.is_down:
            raise PortError("no broker answers", retriable=True)
