"""
Records of a partition that failed and wait in it: which attempt comes next, and when.

They are told in every commit, so that a crash neither resets their attempts nor lets them run early. What blocks its
lane may run again only when a commit that tells its last attempt was confirmed: so it runs no more often than
attempts and crashes together.
"""

from collections.abc import Collection, Mapping
from itertools import islice

from redrive.core.envelope import Envelope
from redrive.core.metadata import HEADS_MOST, Head
from redrive.core.schedule import NEVER_MS


class Heads:
    """The heads of one partition. `restored`: what the owner before had committed; that counts as confirmed."""

    __slots__ = (
        "_confirmed",
        "_envelopes",
        "_heads",
        "_must_tell",
        "_told",
        "_told_most",
        "closing",
        "dues_ms",
        "dying",
        "freed",
        "notes",
    )

    def __init__(self, restored: Mapping[int, Head]) -> None:
        self._heads: dict[int, Head] = dict(restored)
        self._confirmed: Mapping[int, Head] = dict(restored)
        #: What is known of them beyond what a commit can say: the last failure.
        self._envelopes: dict[int, Envelope] = {}
        self._must_tell: set[int] = {offset for offset, head in restored.items() if head.is_dead}
        #: Records whose dead letter is on its way: those behind them wait for that, and then for a person.
        self.dying: set[int] = set()
        #: Those of them for which nobody is to wait.
        self.freed: set[int] = set()
        #: Holes of which a replay was handled: what it emits is on its way, and closes them.
        self.closing: set[int] = set()
        #: Of a replay partition: what isn't to run, but tells in its turn that a dead letter was resolved.
        self.notes: set[int] = set()
        #: When records may begin that failed elsewhere, by what their headers say: no commit has to tell it.
        self.dues_ms: dict[int, int] = {}
        self._told: Mapping[int, Head] | None = None
        self._told_most = HEADS_MOST

    def __len__(self) -> int:
        return len(self._heads.keys() | self.dying) if self.dying else len(self._heads)

    def __bool__(self) -> bool:
        return bool(self._heads or self.dying or self.dues_ms or self.notes)

    def __contains__(self, offset: int) -> bool:
        return offset in self._heads or offset in self.dues_ms or offset in self.dying or offset in self.notes

    def get(self, offset: int) -> Head | None:
        """What is known of a record."""
        return self._heads.get(offset)

    def copy(self) -> dict[int, Head]:
        """All of them, by offset. Any thread."""
        return self._heads.copy()

    def put(self, offset: int, head: Head, envelope: Envelope, *, must_tell: bool) -> None:
        """A record failed and waits. `must_tell`: a commit has to be confirmed before it runs again."""
        self._heads[offset] = head
        self._envelopes[offset] = envelope
        self.dues_ms.pop(offset, None)
        if must_tell:
            self._must_tell.add(offset)
        self._told = None

    def drop(self, offset: int) -> None:
        """The record is finished."""
        self.dying.discard(offset)
        self.freed.discard(offset)
        self.closing.discard(offset)
        self.notes.discard(offset)
        self.dues_ms.pop(offset, None)
        if self._heads.pop(offset, None) is not None:
            self._envelopes.pop(offset, None)
            self._must_tell.discard(offset)
            self._told = None

    def as_written(self, offsets: Collection[int], now_ms: int) -> "Heads":
        """The same, as if what is written for these records were there; it tells what a commit says, no more."""
        if not (self._heads or self.dying):
            return self
        other = Heads(self._heads)
        other._must_tell, other.dying = self._must_tell.copy(), self.dying.copy()
        for offset in offsets:
            if offset in other.dying:
                other.died(offset, now_ms)
            else:
                other.drop(offset)
        return other

    def drop_below(self, end: int, but: Collection[int] = ()) -> None:
        """Records below `end` are finished, but for these."""
        for offset in [each for each in self._heads if each < end and each not in but]:
            self.drop(offset)

    def envelope(self, offset: int) -> Envelope | None:
        """All that is known of a record that failed in this process."""
        return self._envelopes.get(offset)

    def wait_of(self, offset: int, now_ms: float) -> int | None:
        """Until when a record must not run: -1 until a commit was confirmed; None when it may run now."""
        if offset in self.dying or offset in self.notes:
            return NEVER_MS
        head = self._heads.get(offset)
        if head is None:
            due_ms = self.dues_ms.get(offset, 0)
            return due_ms if due_ms > now_ms else None
        if head.is_dead:
            return NEVER_MS
        if head.due_ms > now_ms:
            return head.due_ms
        # The very value: that of an earlier attempt may say the same.
        is_told = offset not in self._must_tell or self._confirmed.get(offset) is head
        return None if is_told else -1

    def died(self, offset: int, now_ms: int) -> None:
        """Its dead letter is written."""
        self.dying.discard(offset)
        self._heads[offset] = Head.dead(now_ms)
        self._envelopes.pop(offset, None)
        self._must_tell.add(offset)
        self._told = None

    def is_dead(self, offset: int) -> bool:
        """Whether its dead letter is written, and those behind it wait."""
        head = self._heads.get(offset)
        return head is not None and head.is_dead

    def confirm(self, told: Mapping[int, Head]) -> None:
        """A commit that told these was confirmed."""
        self._confirmed = told

    def told(self, most: int = HEADS_MOST) -> Mapping[int, Head]:
        """
        What a commit says of them, `most` at most: first what must be told, and of that who keeps others waiting, then those
        due soonest. What isn't told yet waits for its turn. The same value until it changes.
        """
        if self._told is None or self._told_most != most:
            self._told_most = most
            must, heads = self._must_tell, self._heads
            if len(must) > most:  # the broker takes less than was known when they failed
                must = set(
                    sorted(must, key=lambda each: (not heads[each].is_dead, heads[each].due_ms))[:most]
                )
            others = islice((each for each in heads.items() if each[0] not in must), max(0, most - len(must)))
            self._told = {offset: heads[offset] for offset in must} | dict(others)
        return self._told
