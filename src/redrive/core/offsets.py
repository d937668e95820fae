"""
What of one partition is finished, and how that is told in a commit.

The *frontier* is the offset below which all is finished; it is what Kafka's committed offset can say. Records finished
above it are kept as a map in the commit's metadata, so that one slow record doesn't make the next owner repeat the
hundred thousand behind it.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from itertools import islice, pairwise

from redrive.core.metadata import (
    METADATA_BUDGET_CHARS,
    NO_HEADS,
    NO_LEDGER,
    Head,
    Ledger,
    encode_metadata,
)
from redrive.core.offset_codec import Range

# What no commit's map can tell is not looked for: a bitmap reaches so many offsets, other maps not so many ranges.
_REACH_OFFSETS = METADATA_BUDGET_CHARS * 4 // 5 * 8
_REACH_RANGES = METADATA_BUDGET_CHARS * 4 // 5
_BATCH = 1_024
_SCAN_BATCHES = 64


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

    def without(self, offsets: Collection[int]) -> "OffsetMap":
        """The same, as if these offsets were finished: open ones, or such that weren't fetched yet."""
        other = OffsetMap(self.settled, self._restored, started=self.started)
        other._open = self._open.copy()
        other.close_all(offsets)
        for offset in offsets:
            if offset >= self.settled:
                other.restore(offset)
        return other

    def restore(self, offset: int) -> None:
        """Count an offset that wasn't fetched yet as finished by the owner before."""
        self._restored = merge([*self._restored, (offset, offset + 1)])

    def restored_above(self, offset: int) -> bool:
        """Whether the map of the owner before knows finished records at or above `offset`."""
        return bool(self._restored) and self._restored[-1][1] > offset

    def was_finished(self, offset: int) -> bool:
        """Whether the owner before had finished this record: it must not run again."""
        at = bisect_right(self._restored, (offset, 1 << 63)) - 1
        return at >= 0 and offset < self._restored[at][1]

    def is_finished(self, offset: int) -> bool:
        """Whether this record is finished, by us or by the owner before; gaps below `settled` count as finished."""
        return (offset < self.settled and offset not in self._open) or self.was_finished(offset)

    def finished_above_frontier(self) -> tuple[Range, ...]:
        """The finished ranges from the frontier on, apart; nothing above the highest finished offset is claimed."""
        ranges = self._between_open()
        floor = self.settled
        restored = [(max(a, floor), b) for a, b in self._restored if b > floor]
        if ranges and restored and ranges[-1][1] == restored[0][0]:
            restored[0] = (ranges.pop()[0], restored[0][1])
        return (*ranges, *restored)

    def _between_open(self) -> list[Range]:
        """Looks at no more than a commit can tell, a batch at a time: the rest may be a hundred times as much."""
        ranges: list[Range] = []
        edges = iter(self._open)
        at = next(edges, self.settled)
        reach = at + _REACH_OFFSETS
        for _ in range(_SCAN_BATCHES):
            batch = list(islice(edges, _BATCH))
            is_last = len(batch) < _BATCH
            if is_last:
                batch.append(self.settled)
            ranges += [(a + 1, b) for a, b in pairwise((at, *batch)) if b > a + 1]
            at = batch[-1]
            if is_last or (at > reach and len(ranges) > _REACH_RANGES):
                break
        return ranges

    def snapshot(
        self,
        identity: str,
        heads: Mapping[int, Head] = NO_HEADS,
        ledger: Ledger = NO_LEDGER,
        *,
        is_bare: bool = False,
        budget: int = METADATA_BUDGET_CHARS,
    ) -> tuple[int, str]:
        """
        The frontier and its metadata, of one moment: what one commit says about this partition. `heads`: of its records that
        failed and wait; `ledger`: of the crash guard; `is_bare`: without the map; `budget`: in characters.
        """
        frontier = self.frontier
        ranges = () if is_bare else self.finished_above_frontier()
        return frontier, encode_metadata(
            frontier, ranges, identity, ledger=ledger, heads=heads, budget=budget
        )


def merge(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Gives ranges ascending and apart."""
    merged: list[Range] = []
    for first, end in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((first, end))
    return tuple(merged)
