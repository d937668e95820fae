"""The account of what is being written for the records of one lane: successors, and what handlers emit."""

from collections import Counter

from redrive.core.record import RawRecord

#: Unacknowledged successors of one lane: beyond this its intake waits, so that memory stays bounded while the
#: dead-letter topic is away. More of them than a commit's map can say (some 1,600 lone holes) cost repeats after a crash.
PENDING_RECORDS = 10_000
PENDING_BYTES = 16 << 20


class Writes:
    """
    `count` writes aren't acknowledged yet, of which `waiting` were refused and wait to be sent again. `by_key`: whether it is
    asked which keys they are of.
    """

    __slots__ = ("_keys", "count", "size_bytes", "waiting")

    def __init__(self, *, by_key: bool) -> None:
        self.count = self.size_bytes = self.waiting = 0
        self._keys: Counter[bytes | None] | None = Counter() if by_key else None

    def began(self, record: RawRecord) -> None:
        """Something is written for this record, which isn't finished before."""
        self.count += 1
        self.size_bytes += len(record)
        if self._keys is not None:
            self._keys[record.key()] += 1

    def ended(self, record: RawRecord) -> None:
        """It is there, or isn't needed any more."""
        self.count -= 1
        self.size_bytes -= len(record)
        if self._keys is not None:
            key = record.key()
            self._keys[key] -= 1
            if not self._keys[key]:
                del self._keys[key]

    def are_of(self, key: bytes | None) -> bool:
        """Whether some are of this key. Records without one have nothing in common."""
        return key is not None and self._keys is not None and key in self._keys

    @property
    def is_quiet(self) -> bool:
        """Whether none is on its way: those that were refused wait."""
        return self.count == self.waiting

    @property
    def are_few(self) -> bool:
        """Whether more may be caused."""
        return self.count < PENDING_RECORDS and self.size_bytes < PENDING_BYTES
