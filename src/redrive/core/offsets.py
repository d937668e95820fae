"""
What of one partition is finished, and how that is told in a commit.

The *frontier* is the offset below which all is finished; it is what Kafka's committed offset can say. Records finished
above it are kept as a map in the commit's metadata, so that one slow record doesn't make the next owner repeat the
hundred thousand behind it.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice, pairwise

from redrive.core.metadata import encode_metadata
from redrive.core.offset_codec import Range

__all__ = ["OffsetMap", "Range"]

#: More unfinished offsets than this are not looked through for a map: what fits into a commit ends long before.
_SCAN_OFFSETS = 20_000


class OffsetMap:
    """
    The finished and unfinished offsets of one partition, during one assignment.

    `settled`: below it every offset is finished but those that are `open`. Offsets that don't exist (transaction
    markers, compaction) are never opened, so they are no holes.
    """

    __slots__ = ("_open", "_restored", "settled", "started")

    def __init__(self, start: int, restored: tuple[Range, ...] = (), *, started: bool = True) -> None:
        self.settled = start
        #: False while the start isn't a number yet (the beginning of a partition that nobody read before).
        self.started = started
        self._restored = restored
        self._open: dict[int, None] = {}

    @property
    def frontier(self) -> int:
        """All below is finished. Ascending: offsets are opened in the order in which they were fetched."""
        return next(iter(self._open), self.settled)

    @property
    def open_count(self) -> int:
        """How many offsets below `settled` are unfinished."""
        return len(self._open)

    def begin(self, first: int) -> None:
        """Tell the first offset ever seen, when the partition was started at its beginning."""
        self.settled = first
        self.started = True

    def open(self, offsets: Iterable[int]) -> None:
        """Mark fetched offsets, ascending and at or above `settled`, as unfinished. Settle behind them afterwards."""
        self._open.update(dict.fromkeys(offsets))

    def settle(self, end: int) -> None:
        """Everything below `end` was handed out: finished unless it is open."""
        self.settled = max(self.settled, end)

    def close(self, offset: int) -> None:
        """Mark one open offset as finished. Closing it twice is harmless: a late acknowledgement may do so."""
        self._open.pop(offset, None)

    def close_all(self, offsets: Iterable[int]) -> None:
        """Mark open offsets as finished."""
        pop = self._open.pop
        for offset in offsets:
            pop(offset, None)

    def restored_above(self, offset: int) -> bool:
        """Whether the map of the owner before knows finished records at or above `offset`."""
        return bool(self._restored) and self._restored[-1][1] > offset

    def was_finished(self, offset: int) -> bool:
        """Whether the owner before had finished this record: it must not run again."""
        at = bisect_right(self._restored, (offset, 1 << 63)) - 1
        return at >= 0 and offset < self._restored[at][1]

    def finished_above_frontier(self) -> tuple[Range, ...]:
        """The finished ranges from the frontier on; nothing above the highest finished offset is claimed."""
        if not self._open:
            ranges: list[Range] = []
        else:
            edges = list(islice(self._open, _SCAN_OFFSETS))
            if len(edges) == len(self._open):
                edges.append(self.settled)
            ranges = [(a + 1, b) for a, b in pairwise(edges) if b > a + 1]
        floor = self.settled
        ranges.extend((max(a, floor), b) for a, b in self._restored if b > floor)
        return tuple(ranges)

    def snapshot(self, identity: str) -> tuple[int, str]:
        """The frontier and its metadata, of one moment: what one commit says about this partition."""
        frontier = self.frontier
        return frontier, encode_metadata(frontier, self.finished_above_frontier(), identity)
