"""
What handlers emit: records that are written when their own record was handled, and not when it failed.

A worker collects it for its run; the pump takes it when it settles the run. With delivery `exactly-once` all that one record
emits is in the transaction whose commit passes the record.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from redrive.core.envelope import Envelope
from redrive.core.failure import Failure, Kind
from redrive.core.fingerprint import fingerprint

if TYPE_CHECKING:
    from redrive.core.record import RawRecord

#: The type of the failure of a record that emits what its topic doesn't take.
TOO_LARGE_TYPE = "redrive.EmittedTooLarge"


class Emission(msgspec.Struct, frozen=True):
    """One record to be written. `partition` -1: by the key, as Java's producers do."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int = -1


class Emitted:
    """
    All that the handler of one record emits. `envelope`: what was known of the record before this run, None when it was new;
    `attempt`: the run's number; `id_header`: where the record's producer puts its id.
    """

    __slots__ = ("attempt", "emissions", "envelope", "id_header", "is_void", "left", "record")

    def __init__(
        self, record: "RawRecord", attempt: int, envelope: Envelope | None = None, id_header: str = ""
    ) -> None:
        self.record = record
        self.attempt = attempt
        self.envelope = envelope
        self.id_header = id_header
        self.emissions: list[Emission] = []
        #: Where each is written by itself: how many aren't confirmed. With the last one the record is through.
        self.left = 0
        #: One of them can't be written, ever: the record has failed, and the others don't let it pass.
        self.is_void = False

    def was_last(self) -> bool:
        """One more of them is there. Whether the record is through by that."""
        self.left -= 1
        return self.left <= 0 and not self.is_void


class Emitting:
    """What the records of one run emit. Handlers' threads add to it, the pump takes from it: each step is one of a dict or list."""

    __slots__ = ("_by_offset", "is_over")

    def __init__(self) -> None:
        self._by_offset: dict[int, Emitted] = {}
        #: The run has ended: what is emitted now, nobody would write.
        self.is_over = False

    def add(self, emitted: Emitted, emission: Emission) -> None:
        """A handler emits. Raises RuntimeError when its run has ended."""
        if self.is_over:
            raise RuntimeError(
                "emitted after the handler had ended, so nothing would be written; await what emits"
            )
        self._by_offset.setdefault(emitted.record.offset(), emitted).emissions.append(emission)

    def take(self, offsets: Collection[int] | None, failed: Collection[int]) -> list[Emitted]:
        """What these records emitted (None: all), in the order of their first; nothing of those that failed."""
        settled = [offset for offset in list(self._by_offset) if offsets is None or offset in offsets]
        taken = [(offset, self._by_offset.pop(offset)) for offset in settled]
        return [emitted for offset, emitted in taken if offset not in failed]


def failure_of_emission(detail: str) -> Failure:
    """What is told of a record that emits what its topic doesn't take: to try it again would change nothing."""
    kind, name = Kind.PERMANENT, TOO_LARGE_TYPE
    message = f"what the handler emitted can't be written: {detail}"
    return Failure(kind, name, message, "record.emit", fingerprint=fingerprint(kind, name, message))
