"""
Parking: a key that fails for long waits in a topic of its own, `{topic}.parked`, and loses none of its order.

Source and parked topic have the same partitions, and one process works on both partitions of a number. Of one such pair:

1. **The lock is the parked partition itself.** A key is parked while a copy of one of its records is unfinished there.
   Nothing else tells it, so nothing else can be lost, or left behind.
2. **Nothing of the source partition starts before the parked one was read to the end that it had when it was assigned.**
   Until then nobody knows which keys are parked.
3. **Parking a record**: its copy is written, with attempts and due; when all in-sync replicas have it, the source's offset is
   closed. Nothing before it of its key is open by then: it waits for the dead letters, and for what was emitted. Of one key one copy is on its way at a time, so copies lie in the order of the source, though a write is refused and
   repeated.
4. **Later records of the key follow it**, each when it is the first of its lane: written, acknowledged, closed.
5. **Copies run in the order of their offsets**, a key's one after another. One that fails again stays where it is: its attempts and
   its due stand in the commits of the parked partition, as those of any record that blocks.
6. **A record of the source at or below the last one that has an unfinished copy isn't written again**: it was handled before the
   key was parked, or has its copy in front of that one. Its offset is closed.
7. **The key is free again** when all its copies are finished *and* a commit that says so was confirmed. Its next record then runs
   from the source; until then it waits.
8. **A refused write may be there all the same**, and is repeated. Each copy tells by which try it was written; all up to the
   one that was confirmed are waited for, and of several copies of a record only the first runs.

What a crash does between any two of these writes:

| crash after | the next owner finds | and does |
|---|---|---|
| the record failed | no copy | the record is first of its lane in the source, with the attempts of the last commit; parks it again |
| the copy was written, not acknowledged, or acknowledged and the source's offset not committed | the copy | closes the source's offset (6) |
| the copy of a later record, in the same way | both copies, in their order | the same |
| a copy was run, not committed | the copy | runs it again, and those behind it: the order holds |
| all copies were finished, not committed | the copies | runs them again; nothing behind them had run (7) |
| that commit was confirmed, the source's wasn't | no unfinished copy | runs the key's open records from the source again, in their order |

Without 6 a copy would be appended behind later ones of its key, without 7 a crash would run old records after newer ones.

Not covered: a process that lost both partitions and doesn't know it yet may write a copy after the new owner has read to the
end. The copy is then run, though its record was handled by the new owner: once more, and late.

This module is the account of one pair; it holds no records. `wants` tells what to do with the first record of a lane.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Literal

#: Keys of one partition that may be parked at once; each costs some 300 bytes. Beyond, a key waits in memory.
KEYS_MOST = 100_000

#: What is done with the first record of a source lane: it runs, has a copy written, has one and is closed, or waits.
Wanted = Literal["run", "park", "pass", "wait"]


class _ParkedKey:
    """
    One parked key. `last`: the highest source offset that has a copy, or gets one now (`is_writing`; `before` it). `tries`: how
    often its write was repeated. `read`: the last copy that was read back, by its source offset and try. `kept`: the highest
    source offset whose copy is to run. `final`: where the last copy is that was read. `left`: how many of them aren't
    finished. `closing`: the copy that was finished last.
    """

    __slots__ = ("before", "closing", "final", "is_writing", "kept", "last", "left", "read", "tries")

    def __init__(self, last: int) -> None:
        self.last = last
        self.tries = 0
        self.read: tuple[int, int] = (-1, 0)
        self.before = self.kept = self.final = self.closing = -1
        self.left = 0
        self.is_writing = False

    def is_worked_off(self) -> bool:
        """Whether all copies there are were read and are finished."""
        return not self.left and not self.is_writing and self.read >= (self.last, self.tries)


class Parking:
    """The parked keys of one source partition and its parked one. The offsets of copies are those of the parked partition."""

    __slots__ = ("_keys", "_worked_off", "is_complete")

    def __init__(self) -> None:
        self._keys: dict[Hashable, _ParkedKey] = {}
        #: Keys whose end no commit has told yet.
        self._worked_off: set[Hashable] = set()
        #: Whether the parked partition was read to the end that it had when it was assigned.
        self.is_complete = False

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    @property
    def has_room(self) -> bool:
        """Whether one more key may be parked."""
        return len(self._keys) < KEYS_MOST

    # -- what was read from the parked partition ------------------------------------------------------------------

    def found(
        self, key: Hashable, source_offset: int, copy_offset: int, tries: int = 0, *, is_kept: bool = True
    ) -> bool:
        """
        An unfinished copy was read; it may have been read before, and not been kept. `tries`: how often its write had been
        repeated. Whether it is to run: a second copy of a record is not, and is finished where it is kept.
        """
        parked = self._keys.get(key)
        if parked is None:
            parked = self._keys[key] = _ParkedKey(source_offset)
        if copy_offset > parked.final:
            parked.final = copy_offset
            if source_offset > parked.read[0]:
                parked.left += 1
            parked.read = max(parked.read, (source_offset, tries))
            if source_offset > parked.last:
                parked.last, parked.tries = source_offset, 0
        is_new = source_offset > parked.kept
        if is_kept and is_new:
            parked.kept = source_offset
        if not is_new:
            # The commit that frees the key has to tell of this one too.
            parked.closing = copy_offset
        self._judge(key, parked)
        return is_new

    def _judge(self, key: Hashable, parked: _ParkedKey) -> None:
        if parked.is_worked_off():
            self._worked_off.add(key)
        else:
            self._worked_off.discard(key)

    def finished(self, key: Hashable, copy_offset: int) -> None:
        """A copy ended: handled, dropped, or its dead letter was acknowledged. Told once of each."""
        if (parked := self._keys.get(key)) is not None:
            parked.left -= 1
            parked.closing = copy_offset
            self._judge(key, parked)

    @property
    def awaits_commit(self) -> bool:
        """Whether a key is free as soon as a commit tells it."""
        return bool(self._worked_off)

    def confirmed(self, is_told: Callable[[int], bool]) -> Iterator[Hashable]:
        """
        A commit of the parked partition was confirmed; `is_told(offset)`: whether it tells that a copy is finished. Gives the
        keys that are free by that: their next records may run from the source.
        """
        for key in list(self._worked_off):
            # What was finished before the last one is told together with it: a commit is of one moment.
            if is_told(self._keys[key].closing):
                self._worked_off.discard(key)
                del self._keys[key]
                yield key

    # -- what is done with records of the source ------------------------------------------------------------------

    def wants(self, key: Hashable, source_offset: int) -> Wanted:
        """What to do with the first record of the key's lane in the source."""
        if not self.is_complete:
            return "wait"
        parked = self._keys.get(key)
        if parked is None:
            return "run"
        if parked.is_writing:
            return "wait"
        if source_offset <= parked.last:
            return "pass"
        return "wait" if parked.is_worked_off() else "park"

    def park(self, key: Hashable, source_offset: int) -> None:
        """The copy of this record is being written: the first of its key, or the next one."""
        parked = self._keys.get(key)
        if parked is None:
            parked = self._keys[key] = _ParkedKey(source_offset)
        else:
            parked.before = parked.last
        parked.last, parked.tries = source_offset, 0
        parked.is_writing = True
        self._worked_off.discard(key)

    def written(self, key: Hashable, tries: int = 0) -> None:
        """
        All in-sync replicas have the copy: the source's offset may be closed. `tries`: how often the write was repeated; that
        it was refused doesn't say that it isn't there.
        """
        parked = self._keys[key]
        parked.is_writing, parked.tries = False, tries
        # It may have been read and run before its acknowledgement came.
        self._judge(key, parked)

    def withdrawn(self, key: Hashable) -> None:
        """There will be no copy of this record: it became a dead letter, or the source's partition was given up meanwhile."""
        parked = self._keys[key]
        parked.is_writing = False
        parked.last, parked.tries = max(parked.before, parked.read[0]), 0
        if parked.last < 0:
            del self._keys[key]
        else:
            self._judge(key, parked)

    def let_go(self) -> None:
        """The source's partition was given up: nobody is told what becomes of the copies that are on their way."""
        for key in [key for key, parked in self._keys.items() if parked.is_writing]:
            self.withdrawn(key)
