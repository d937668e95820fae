"""
The waiting room of one tier partition: fetched records that are not due yet, read by due and not by offset.

Held in memory, since a record at hand can start within a fraction of a millisecond of its due, while a paused
partition needs up to a second to deliver again. Bounded in bytes: `held_bytes` tells when to pause the partition.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator

from redrive.core.record import RawRecord

#: What a held record costs besides its value: the message object, its headers, its place in the queue.
RECORD_OVERHEAD_BYTES = 1500
NEVER_MS = 1 << 62
#: A record that waits longer than its tier is written again no more often than this.
REPOST_AFTER_MS = 60_000


class Window:
    """Held records of one partition by the time at which they must be looked at again."""

    __slots__ = ("_fifo", "_heap", "_sequence", "held_bytes")

    def __init__(self) -> None:
        # Records of one tier come nearly in the order of their dues: the queue takes those that do, at a tenth of the
        # price of a heap; only the others (jitter, RetryLater) go through the heap.
        self._fifo: deque[tuple[int, RawRecord]] = deque()
        self._heap: list[tuple[int, int, RawRecord]] = []
        self._sequence = 0
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._fifo) + len(self._heap)

    def hold(self, wake_ms: int, record: RawRecord) -> None:
        """Keep a record until `wake_ms`."""
        fifo = self._fifo
        if not fifo or wake_ms >= fifo[-1][0]:
            fifo.append((wake_ms, record))
        else:
            self._sequence += 1
            heapq.heappush(self._heap, (wake_ms, self._sequence, record))
        self.held_bytes += len(record) + RECORD_OVERHEAD_BYTES

    @property
    def latest_ms(self) -> int:
        """What was held in turn wakes no later than this; 0 for nothing."""
        return self._fifo[-1][0] if self._fifo else 0

    def next_wake_ms(self) -> int:
        """When the next record must be looked at; `NEVER_MS` when none is held."""
        first = self._fifo[0][0] if self._fifo else NEVER_MS
        return min(first, self._heap[0][0]) if self._heap else first

    def take(self, now_ms: float, most: int) -> list[tuple[int, RawRecord]]:
        """Remove and return up to `most` records whose time has come, each with its wake time, earliest first."""
        taken: list[tuple[int, RawRecord]] = []
        fifo, heap = self._fifo, self._heap
        while len(taken) < most:
            if heap and (not fifo or heap[0][0] < fifo[0][0]):
                if heap[0][0] > now_ms:
                    break
                wake_ms, _, record = heapq.heappop(heap)
                taken.append((wake_ms, record))
            elif fifo and fifo[0][0] <= now_ms:
                taken.append(fifo.popleft())
            else:
                break
        self.held_bytes -= sum(len(record) for _, record in taken) + RECORD_OVERHEAD_BYTES * len(taken)
        return taken

    def lowest_due(self, now_ms: float) -> int | None:
        """The lowest offset whose time has come. Looks at all that are held."""
        held = (*self._fifo, *((wake_ms, record) for wake_ms, _, record in self._heap))
        return min((record.offset() for wake_ms, record in held if wake_ms <= now_ms), default=None)

    def take_below(self, limit: float, now_ms: float, most: int) -> list[tuple[int, RawRecord]]:
        """As `take`, of offsets below `limit` only. Looks at all that are held."""
        due = self.pull(lambda wake_ms, record: wake_ms <= now_ms and record.offset() < limit)
        due.sort(key=lambda held: held[0])
        for wake_ms, record in due[most:]:
            self.hold(wake_ms, record)
        return due[:most]

    def records(self) -> Iterator[RawRecord]:
        """What is held, in no order."""
        yield from (record for _, record in self._fifo)
        yield from (record for _, _, record in self._heap)

    def pull(self, is_meant: Callable[[int, RawRecord], bool]) -> list[tuple[int, RawRecord]]:
        """Remove and return the records of which `is_meant(wake_ms, record)`. Looks at all that are held."""
        pulled: list[tuple[int, RawRecord]] = []
        fifo: deque[tuple[int, RawRecord]] = deque()
        heap: list[tuple[int, int, RawRecord]] = []
        for wake_ms, record in self._fifo:
            (pulled if is_meant(wake_ms, record) else fifo).append((wake_ms, record))
        for wake_ms, sequence, record in self._heap:
            if is_meant(wake_ms, record):
                pulled.append((wake_ms, record))
            else:
                heap.append((wake_ms, sequence, record))
        heapq.heapify(heap)
        self._fifo, self._heap = fifo, heap
        self.held_bytes -= sum(len(record) for _, record in pulled) + RECORD_OVERHEAD_BYTES * len(pulled)
        return pulled


def wake_of(due_ms: int, timestamp_ms: int, delay_ms: int) -> int:
    """
    When a record on a tier must be looked at: at its due, or earlier to be posted on.

    A record asked to wait much longer than its tier (RetryLater) must not sit in memory for days, nor let the
    tier's retention reach it: after one delay it is posted again, with a new timestamp. Up to twice the delay and a
    minute is simply waited for, which covers any jitter, and keeps a short tier from being written to all day.
    """
    patience_ms = max(delay_ms, REPOST_AFTER_MS)
    return due_ms if due_ms <= timestamp_ms + delay_ms + patience_ms else timestamp_ms + patience_ms
