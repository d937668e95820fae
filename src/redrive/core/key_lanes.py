"""
The lanes of one partition: records by key. Only the front of a lane may run, and lanes don't wait for each other.

A lane exists while it has records or a worker has some of it, so memory goes by what is in hand and not by how many
keys there are. Each step costs the same however many lanes there are: those that may run stand in a queue, and go
to its end after their turn, so one busy key starves nobody.
"""

from collections import deque
from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from contextlib import suppress

from redrive.core.heads import Heads
from redrive.core.policy import Blocking, Order
from redrive.core.record import RawRecord
from redrive.core.schedule import NEVER_MS

#: Where only records may run that failed before, so many lanes are looked at for them.
LOOKED_AT_MOST = 1_000
#: What a record is put into line by.
LaneKey = Callable[[RawRecord], Hashable]
#: Whether a record that comes into a lane stands before another one that is there.
GoesBefore = Callable[[RawRecord, RawRecord], bool]


def lane_key(order: Order, blocking: Blocking | None) -> LaneKey | None:
    """By what a listener's records are put into line; None where the partition as it was fetched is the line."""
    if order == "key":
        return _by_key
    if order == "none":
        return _by_itself
    return _all_alike if blocking == "partition" else None


def _by_key(record: RawRecord) -> Hashable:
    # Records without a key have nothing in common: an offset is no bytes, so it is nobody else's key.
    key = record.key()
    return record.offset() if key is None else key


def _by_itself(record: RawRecord) -> Hashable:
    return record.offset()


def _all_alike(_: RawRecord) -> Hashable:
    return b""


class KeyLane:
    """The records of one key that wait, in the order of their offsets. `out`: how many more a worker has."""

    __slots__ = ("key", "out", "queue")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.out = 0
        self.queue: deque[RawRecord] = deque()


class Taken:
    """What is handed to a worker: `records` of some lanes, and beside each of them its lane."""

    __slots__ = ("lanes", "records")

    def __init__(self) -> None:
        self.records: list[RawRecord] = []
        self.lanes: list[KeyLane] = []


class KeyLanes:  # size: what happens to lanes, a method each
    """
    All lanes of one partition. `key_of`: what a record is put into line by. `heads`: the partition's records that failed
    and wait; a lane whose front is one that may not run yet *rests* until `wake`, or until a record comes in behind where it
    `looks_behind`.
    """

    __slots__ = (
        "_heads",
        "_key_of",
        "_lanes",
        "_ready",
        "_resting",
        "goes_before",
        "held",
        "looks_behind",
        "waiting",
    )

    def __init__(self, key_of: LaneKey, heads: Heads, *, looks_behind: bool = False) -> None:
        self._key_of = key_of
        self._heads = heads
        self._lanes: dict[Hashable, KeyLane] = {}
        self._ready: deque[KeyLane] = deque()
        self._resting: set[KeyLane] = set()
        #: Records that no worker has.
        self.waiting = 0
        self.looks_behind = looks_behind
        #: Keys of which nothing runs from here: their lanes rest without end.
        self.held: Container[Hashable] | None = None
        self.goes_before: GoesBefore | None = None

    def __len__(self) -> int:
        """How many lanes there are."""
        return len(self._lanes)

    @property
    def ready_count(self) -> int:
        """How many lanes may have a turn."""
        return len(self._ready)

    @property
    def resting_count(self) -> int:
        """How many lanes wait for their first record's due."""
        return len(self._resting)

    def add(self, records: Iterable[RawRecord]) -> None:
        """Put records in line, ascending, behind those that are there, but for those that one `goes_before`."""
        lanes, key_of, ready, goes_before = self._lanes, self._key_of, self._ready, self.goes_before
        count = 0
        for record in records:
            key = key_of(record)
            lane = lanes.get(key)
            if lane is None:
                lane = lanes[key] = KeyLane(key)
                ready.append(lane)
            elif self.looks_behind:
                self.wake(lane)
            if goes_before is None:
                lane.queue.append(record)
            else:
                _add(lane.queue, record, goes_before)
            count += 1
        self.waiting += count

    def take(
        self,
        most: int,
        now_ms: float,
        may_start: float,
        rest: Callable[[KeyLane, int], None],
        *,
        only_heads: bool = False,
        besides: int = -1,
    ) -> Taken:
        """
        Take up to `most` records of lanes in their turn, from each as many as fit: a worker handles them one after another.

        `may_start`: only offsets below it. `only_heads`: only records that failed before, or that such ones wait for, and the
        offset `besides`, while lanes of held keys rest as ever; woken lanes are the first in turn.
        `rest(lane, due_ms)` is told of each lane whose front waits until then; -1: until a commit has told what is known of it.
        """
        taken = Taken()
        ready, heads = self._ready, self._heads
        later: list[KeyLane] = []
        for _ in range(min(len(ready), LOOKED_AT_MOST) if only_heads else len(ready)):
            if len(taken.records) >= most:
                break
            lane = ready.popleft()
            if only_heads and not self._has_turn(lane, besides) and not self._is_held(lane):
                later.append(lane)
                continue
            if (heads or self.held is not None) and self._must_rest(lane, now_ms, rest):
                continue
            self._take_of(lane, len(taken.records) + 1 if only_heads else most, may_start, taken)
            if not lane.out:
                later.append(lane)
        ready.extend(later)
        self.waiting -= len(taken.records)
        return taken

    def lowest(
        self,
        now_ms: float,
        rest: Callable[[KeyLane, int], None],
        *,
        only_heads: bool = False,
        besides: int = -1,
    ) -> int | None:
        """The lowest offset that `take` could take; None for none. Looks at all lanes that may have a turn."""
        ready = self._ready
        lowest: int | None = None
        for _ in range(len(ready)):
            lane = ready.popleft()
            if self._must_rest(lane, now_ms, rest):
                continue
            ready.append(lane)
            if only_heads and not self._has_turn(lane, besides):
                continue
            offset = lane.queue[0].offset()
            lowest = offset if lowest is None else min(lowest, offset)
        return lowest

    def _has_turn(self, lane: KeyLane, besides: int) -> bool:
        """Whether it waits for a record that failed, which has its room in commits, or for the one besides."""
        if self.goes_before is None:
            first = lane.queue[0].offset()
            return first == besides or self._heads.get(first) is not None
        return any(record.offset() in self._heads for record in lane.queue)

    def _must_rest(self, lane: KeyLane, now_ms: float, rest: Callable[[KeyLane, int], None]) -> bool:
        if self._is_held(lane):
            waits: int | None = NEVER_MS
        else:
            waits = self._heads.wait_of(lane.queue[0].offset(), now_ms)
        if waits is None:
            return False
        self._resting.add(lane)
        rest(lane, waits)
        return True

    def _is_held(self, lane: KeyLane) -> bool:
        return self.held is not None and lane.key in self.held

    def _take_of(self, lane: KeyLane, most: int, may_start: float, taken: Taken) -> None:
        queue, records, lanes, heads = lane.queue, taken.records, taken.lanes, self._heads
        room = most - len(records)
        while queue and room and queue[0].offset() < may_start:
            # One that failed before is always the first of its lane when it runs: what it waits for is looked at then.
            if lane.out and heads and queue[0].offset() in heads:
                break
            records.append(queue.popleft())
            lanes.append(lane)
            lane.out += 1
            room -= 1

    def wake(self, lane: KeyLane) -> None:
        """The front of a resting lane may run, or must be looked at again."""
        if lane in self._resting:
            self._resting.discard(lane)
            self._ready.appendleft(lane)

    def bring_forward(self, lane: KeyLane, record: RawRecord) -> None:
        """A record of a lane that rests is its first from now on."""
        lane.queue.remove(record)
        lane.queue.appendleft(record)
        self.wake(lane)

    def lane_at(self, offset: int, key: bytes | None) -> KeyLane | None:
        """The lane of the record at this offset, with this key, while there is one."""
        at: Hashable = b"" if self._key_of is _all_alike else offset
        return self._lanes.get(key if key is not None and self._key_of is _by_key else at)

    def drop(self, lane: KeyLane, offset: int) -> bool:
        """A record of the lane is finished without a run. False when it isn't in line."""
        record = next((each for each in lane.queue if each.offset() == offset), None)
        if record is None:
            return False
        lane.queue.remove(record)
        self.waiting -= 1
        if lane.queue:
            self.wake(lane)
        elif not lane.out:  # else it goes when its records come home
            self._forget(lane)
        return True

    def _forget(self, lane: KeyLane) -> None:
        if lane in self._resting:
            self._resting.discard(lane)
        else:
            with suppress(ValueError):
                self._ready.remove(lane)
        del self._lanes[lane.key]

    def get(self, key: Hashable) -> KeyLane | None:
        """The lane of a key, while there is one."""
        return self._lanes.get(key)

    def resting(self) -> list[KeyLane]:
        """The lanes that rest."""
        return list(self._resting)

    def home(self, lanes: Iterable[KeyLane]) -> None:
        """For each time a lane is named, one of its records came back from a worker, finished or not."""
        for lane in lanes:
            lane.out -= 1
            if lane.out:
                continue
            if lane.queue:
                self._ready.append(lane)
            else:
                del self._lanes[lane.key]

    def put_back(self, records: list[RawRecord], lanes: list[KeyLane]) -> None:
        """Records of a run that did not run, or that wait to run again, stand first in their lanes as before. `home` follows."""
        for record, lane in zip(reversed(records), reversed(lanes), strict=True):
            if self.goes_before is None:
                lane.queue.appendleft(record)
            else:
                _put_back(lane.queue, record, self.goes_before)
        self.waiting += len(records)

    def pull(self, is_meant: Callable[[RawRecord], bool]) -> list[RawRecord]:
        """Remove and return the records of which `is_meant` and that no worker has. Looks at all that wait."""
        pulled: list[RawRecord] = []
        for lane in list(self._lanes.values()):
            meant = [record for record in lane.queue if is_meant(record)]
            if not meant:
                continue
            pulled += meant
            lane.queue = deque(record for record in lane.queue if not is_meant(record))
            self.wake(lane)  # what it rested for may be gone
            if not lane.queue and not lane.out:
                self._ready.remove(lane)
                del self._lanes[lane.key]
        self.waiting -= len(pulled)
        return pulled

    def clear(self) -> list[RawRecord]:
        """Let go of all that no worker has."""
        gone = list(self.records())
        self._ready.clear()
        self._resting.clear()
        for lane in self._lanes.values():
            lane.queue.clear()
        self._lanes = {key: lane for key, lane in self._lanes.items() if lane.out}
        self.waiting = 0
        return gone

    def records(self) -> Iterator[RawRecord]:
        """What no worker has, in no order."""
        for lane in self._lanes.values():
            yield from lane.queue


def _add(queue: deque[RawRecord], record: RawRecord, goes_before: GoesBefore) -> None:
    at = len(queue)
    while at and goes_before(record, queue[at - 1]):
        at -= 1
    queue.insert(at, record)


def _put_back(queue: deque[RawRecord], record: RawRecord, goes_before: GoesBefore) -> None:
    """Behind those that came meanwhile and go before it."""
    at = 0
    while at < len(queue) and goes_before(queue[at], record):
        at += 1
    queue.insert(at, record)
