"""A write on its way: of which record, and what is to be done when it is there."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redrive.core.emitting import Emission, Emitted
from redrive.core.envelope import Envelope
from redrive.core.lane import Lane
from redrive.core.record import RawRecord

if TYPE_CHECKING:
    from redrive.core.parked import Parked


class Pending:
    """One successor on its way. Passed to the producer as a token; what comes back for it is looked up nowhere."""

    __slots__ = (
        "alone",
        "emission",
        "emitted",
        "envelope",
        "frees",
        "headers_only",
        "is_dead_letter",
        "lane",
        "note",
        "parked",
        "record",
        "step",
        "topic",
        "tries",
    )

    def __init__(self, lane: Lane, record: RawRecord, envelope: Envelope, topic: str) -> None:
        self.lane = lane
        self.record = record
        self.envelope = envelope
        self.topic = topic
        self.is_dead_letter = topic == lane.listener.plan.dlq
        self.alone = False
        self.headers_only = False
        #: Key and value of what is written instead of a copy: the end of a discarded record.
        self.note: tuple[bytes, bytes] | None = None
        #: What the record's handler emits, instead of a copy; and, where each is written by itself, which one this is.
        self.emitted: Emitted | None = None
        self.emission: Emission | None = None
        #: Of what becomes of a replay: the holes, by partition and offset, that are closed when this is written.
        self.frees: Sequence[tuple[Lane, int]] = ()
        #: Of a copy that is to wait in the parked topic: the pair of partitions.
        self.parked: Parked | None = None
        self.step = 0
        self.tries = 0

    @property
    def is_wanted(self) -> bool:
        """Whether it is still this process that has to write it."""
        return (
            self.lane.alive
            and not self.misses_source
            and (self.parked is None or self.parked is self.lane.parked)
        )

    @property
    def misses_source(self) -> bool:
        """Whether what this frees is elsewhere by now."""
        return any(not lane.alive for lane, _ in self.frees)

    def will_free(self) -> None:
        """It is on its way: until it is written nothing more follows what died."""
        for lane, hole in self.frees:
            if lane.heads.is_dead(hole):
                lane.heads.closing.add(hole)

    def free(self) -> None:
        """It is written: what waited for these holes goes on."""
        for lane, hole in self.frees:
            lane.free(hole, self.record.key())
