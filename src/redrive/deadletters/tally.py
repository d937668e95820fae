"""
The dead letters of one topic, counted by whether they are done with: what stays in memory between two looks at it.

A topic of a million letters is read once; after that only what is new in it and in its state topic. So each letter is
kept, in 26 bytes: where it is, when it was put aside, why, and what its last change said.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Mapping

from redrive.core.router import Reason
from redrive.deadletters.letters import Glance, Position
from redrive.deadletters.states import Mark, Release, State

#: What the label `reason` may say of a letter: ours, one that names no reason and no group, one with another reason.
FOREIGN, OTHER = "foreign", "other"
REASONS = (*map(str, Reason), FOREIGN, OTHER)
_NUMBERS = {reason: number for number, reason in enumerate(REASONS)}

_OPEN, _SENDING, _FINAL = range(3)


class _Partition:
    """Parallel columns, by ascending offset. A job is kept as its hash: of two names that differ, so do these."""

    __slots__ = ("jobs", "offsets", "reasons", "states", "times_ms")

    def __init__(self) -> None:
        self.offsets, self.times_ms, self.jobs = array("q"), array("q"), array("q")
        self.reasons, self.states = bytearray(), bytearray()


class Tally:
    """
    `groups`: whose letters count; letters that name no group count too, since nobody else would tell of them. `most`: so
    many letters are kept, and none that come behind them (`is_full`, for good: their changes would be missed).
    """

    def __init__(self, groups: Collection[str], *, most: int) -> None:
        self.is_full = False
        #: How many letters are here, done with or not.
        self.kept = 0
        self._groups = frozenset(["", *groups])
        self._most = most
        self._oldest_ms: int | None = None
        self._is_oldest_known = True
        self._partitions: dict[int, _Partition] = {}
        self._unresolved = [0] * len(REASONS)

    @property
    def unresolved(self) -> Mapping[str, int]:
        """Letters without a final state, by reason; all reasons are there."""
        return dict(zip(REASONS, self._unresolved, strict=True))

    def oldest_ms(self) -> int | None:
        """When the oldest of them was put aside."""
        if not self._is_oldest_known:
            times_ms = (
                time_ms
                for partition in self._partitions.values()
                for time_ms, state in zip(partition.times_ms, partition.states, strict=True)
                if state != _FINAL
            )
            self._oldest_ms, self._is_oldest_known = min(times_ms, default=None), True
        return self._oldest_ms

    def add(self, partition: int, offset: int, letter_ms: int, seen: Glance) -> bool:
        """
        Take a letter; within a partition they come by ascending offset, one that was taken already changes nothing.

        False when there is no room for it.
        """
        if seen.group not in self._groups:
            return True
        if self.is_full or self.kept >= self._most:
            self.is_full = True
            return False
        columns = self._partitions.setdefault(partition, _Partition())
        if columns.offsets and offset <= columns.offsets[-1]:
            return True
        reason = _NUMBERS[FOREIGN] if seen.is_foreign else _NUMBERS.get(seen.reason, _NUMBERS[OTHER])
        columns.offsets.append(offset)
        columns.times_ms.append(letter_ms)
        columns.jobs.append(0)
        columns.reasons.append(reason)
        columns.states.append(_OPEN)
        self.kept += 1
        self._unresolved[reason] += 1
        self._is_oldest_known = False
        return True

    def change(self, at: Position, change: Mark | Release) -> None:
        """
        Follow a record of the state topic, by the rules of `states.follow`. One of a letter that isn't here, or of an
        older letter at its place, changes nothing.
        """
        columns = self._partitions.get(at.partition)
        if columns is None:
            return
        index = bisect_left(columns.offsets, at.offset)
        if index == len(columns.offsets) or columns.offsets[index] != at.offset:
            return
        if isinstance(change, Mark) and change.letter_ms not in {None, columns.times_ms[index]}:
            return
        before = columns.states[index]
        after = _after(before, columns.jobs[index], change)
        if after is None:
            return
        columns.states[index] = after
        columns.jobs[index] = hash(change.job)
        self._unresolved[columns.reasons[index]] += (before == _FINAL) - (after == _FINAL)
        self._is_oldest_known = False

    def forget_before(self, partition: int, first: int) -> None:
        """Drop letters that retention has deleted."""
        columns = self._partitions.get(partition)
        count = bisect_left(columns.offsets, first) if columns is not None else 0
        if columns is None or not count:
            return
        for reason, state in zip(columns.reasons[:count], columns.states[:count], strict=True):
            self._unresolved[reason] -= state != _FINAL
        for column in (columns.offsets, columns.times_ms, columns.jobs, columns.reasons, columns.states):
            del column[:count]
        self.kept -= count
        self._is_oldest_known = False

    def reopen(self) -> None:
        """Count all as unresolved again."""
        for columns in self._partitions.values():
            for reason, state in zip(columns.reasons, columns.states, strict=True):
                self._unresolved[reason] += state == _FINAL
            columns.states = bytearray(len(columns.states))
        self._is_oldest_known = False


def _after(before: int, job: int, change: Mark | Release) -> int | None:
    """The state after a change; None where the change doesn't count. `job`: the hash of that of the change before."""
    if isinstance(change, Release):
        is_its = not change.job or hash(change.job) == job
        return _OPEN if is_its and before != _OPEN else None
    if change.state is not State.SENDING:
        return _FINAL
    is_takeover = change.over is not None and hash(change.over) == job
    return _SENDING if before == _OPEN or is_takeover else None
