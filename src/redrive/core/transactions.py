"""
Exactly-once routing: which writes go into a transaction together, and what becomes of them when it is aborted.

What a record's end writes (its successor, or all that its handler emitted) is a *unit*: it is in one transaction, whole,
together with the commit that passes the record's offset. Nothing is counted as finished before that transaction is
committed, so an abort has nothing to undo: its units are simply sent again.

One transaction is on its way at a time. One that a write spoils is cut up until the guilty unit is alone; the others
follow in portions of their own.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec

from redrive.core.commands import Produce, Refusal, Transaction
from redrive.core.plan import Now
from redrive.core.record import TopicPartition

MOST_UNITS = 5_000
MOST_BYTES = 16 << 20
#: After an abort whose reason lies with no write, and the longest such pause when it happens again and again.
PAUSE_FIRST_MS = 100.0
PAUSE_MOST_MS = 5_000.0
#: So many of them in a row: perhaps one unit is to blame, though nobody says so.
UNEXPLAINED_MOST = 4
#: Units of which no commit can tell are tried again after a wait that doubles: to find that out costs a whole commit's text.
UNTOLD_MOST_MS = 100.0
#: A topic that refuses writes is tried with one unit only, after a wait that doubles.
SHUN_FIRST_MS = 500.0
SHUN_MOST_MS = 30_000.0


class Completed(msgspec.Struct, frozen=True):
    """All of the transaction is there, and whoever reads only what is committed sees it."""

    number: int


class Aborted(msgspec.Struct, frozen=True):
    """
    Nothing of the transaction is there, and never will be. `writes`: those that were refused, by their place, as far as
    the broker says; `offsets`: partitions whose commit it refused, and why. Neither: the reason lies elsewhere.
    """

    number: int
    detail: str
    writes: Mapping[int, Refusal] = {}
    offsets: Mapping[TopicPartition, Refusal] = {}


class Fenced(msgspec.Struct, frozen=True):
    """
    Nobody can tell whether the transaction is there. What the group has committed must be asked, and everything begins
    again there. `is_final`: this producer may not go on, since another process has its id, or a right is missing.
    """

    number: int
    detail: str
    is_final: bool


Outcome = Completed | Aborted | Fenced
Answer = tuple[Any, Refusal | None]
Unit = tuple[Produce, ...]
"""All that is written for one record; each write has the same token."""

_GONE = Refusal("unavailable", "its partition is no longer ours")


class _Shunned:
    """A topic that refuses writes for now."""

    __slots__ = ("is_probed", "refusal", "until_mono_ms", "wait_ms")

    def __init__(self) -> None:
        self.wait_ms = SHUN_FIRST_MS / 2
        self.until_mono_ms = 0.0
        self.refusal = _GONE
        self.is_probed = False


class Transactions:
    """
    The units that wait for a transaction, and those in the one that is on its way. `is_alive` tells by its token whether
    the record of a unit is still ours; `linger_ms`: how long the first one waits for others. Answers are pairs of token and
    refusal, one for each unit.
    """

    def __init__(
        self, is_alive: Callable[[Any], bool] = attrgetter("is_wanted"), *, linger_ms: float
    ) -> None:
        self._is_alive = is_alive
        self._linger_ms = self._wait_ms = linger_ms
        self._new: list[Unit] = []
        self._fresh: deque[Unit] = deque()
        self._since_mono_ms = 0.0
        #: Cut out of aborted transactions, or to go alone; each is a transaction, before anything fresh.
        self._portions: deque[list[Unit]] = deque()
        #: One of them can't be told of yet: what is fresh may be what it waits for, and has the next turn.
        self._lets_fresh_by = False
        self._shunned: dict[str, _Shunned] = {}
        self._out: tuple[int, list[Unit]] | None = None
        #: Whether what was chosen last was cut out.
        self._is_portion = False
        self._pause_until_mono_ms = 0.0
        self._unexplained = self._offsets_refused = 0

    def put(self, unit: Unit) -> None:
        """This is to be written."""
        self._new.append(unit)

    @property
    def is_out(self) -> bool:
        """Whether a transaction is on its way."""
        return self._out is not None

    def is_free(self, now: Now) -> bool:
        """Whether a transaction may be begun."""
        return self._out is None and now.mono_ms >= self._pause_until_mono_ms

    def choose(self, now: Now, *, at_once: bool = False) -> tuple[list[Unit], list[Answer]]:
        """
        Units for the next transaction, to be told to `begin` or `put_back`; and answers to those that can't be in any, now
        or ever. `at_once`: without waiting for more of them.
        """
        answers: list[Answer] = []
        if self._new:
            self._take_in(now, answers)
        if not (at_once or self._is_time(now)):
            return [], answers
        self._is_portion = bool(self._portions) and not (self._lets_fresh_by and self._fresh)
        if self._is_portion:
            chosen = self._portions.popleft()
        else:
            self._lets_fresh_by = False
            chosen = self._front()
        is_alive = self._is_alive
        alive = [unit for unit in chosen if is_alive(unit[0].token)]
        if len(alive) < len(chosen):
            for unit in chosen:
                if not is_alive(unit[0].token):
                    self._let_probe_go(unit)
                    answers.append((unit[0].token, _GONE))
        return alive, answers

    def begin(
        self, number: int, units: list[Unit], offsets: Mapping[TopicPartition, tuple[int, str]]
    ) -> Transaction:
        """The transaction of these units and offsets, which is on its way from now on."""
        if units:
            self._wait_ms = self._linger_ms
        self._out = number, units
        return Transaction(number, tuple(chain.from_iterable(units)), offsets)

    def put_back(self, units: Collection[Unit], now: Now) -> None:
        """
        Chosen units that no commit can be made for now. They go behind the others: those may be what they wait for.
        """
        if units:
            self._since_mono_ms = now.mono_ms
            self._wait_ms = min(UNTOLD_MOST_MS, 2 * max(1.0, self._wait_ms))
        for unit in units:
            if unit[0].alone or self._shunned.keys() & _topics(unit):
                self._portions.append([unit])
                self._lets_fresh_by = True
            else:
                self._fresh.append(unit)

    def answered(self, outcome: Completed | Aborted, now: Now) -> list[Answer]:
        """What became of the transaction on its way; of an older one nothing is known any more."""
        if self._out is None or self._out[0] != outcome.number:
            return []
        (_, units), self._out = self._out, None
        if isinstance(outcome, Completed):
            self._unexplained = self._offsets_refused = 0
            if self._shunned:
                for topic in {topic for unit in units for topic in _topics(unit)}:
                    self._shunned.pop(topic, None)
            return [(unit[0].token, None) for unit in units]
        if outcome.writes:
            return self._isolate(units, outcome.writes, now)
        if outcome.offsets:
            # The next one may be refused likewise.
            self._pause_until_mono_ms = now.mono_ms + PAUSE_FIRST_MS
            self._wait_for_others(units)
            return []
        return self._try_again(units, outcome.detail, now)

    def abandon(self) -> None:
        """Nobody knows what became of the transaction on its way. Its units are given up, as their partitions are."""
        if self._out is not None:
            self._again(self._out[1])
            self._out = None

    # -- parts ---------------------------------------------------------------------------------------------------

    def _is_time(self, now: Now) -> bool:
        if now.mono_ms >= self._since_mono_ms + self._wait_ms:
            return True
        # What waits for others lingers no more, but for as long as nothing can be told of it.
        return self._wait_ms == self._linger_ms and (bool(self._portions) or len(self._fresh) >= MOST_UNITS)

    def _take_in(self, now: Now, answers: list[Answer]) -> None:
        if not self._fresh:
            self._since_mono_ms = now.mono_ms
        units, self._new = self._new, []
        for unit in units:
            shunned = [self._shunned[topic] for topic in self._shunned.keys() & _topics(unit)]
            if closed := [one for one in shunned if one.is_probed or now.mono_ms < one.until_mono_ms]:
                answers.append((unit[0].token, closed[0].refusal))
            elif shunned or unit[0].alone:
                for one in shunned:
                    one.is_probed = True
                self._portions.append([unit])
            else:
                self._fresh.append(unit)

    def _front(self) -> list[Unit]:
        """As many fresh units as fit into one transaction; at least one."""
        fresh, size_bytes = self._fresh, 0
        taken: list[Unit] = []
        while fresh and len(taken) < MOST_UNITS and (not taken or size_bytes < MOST_BYTES):
            unit = fresh.popleft()
            size_bytes += sum(len(write.value or b"") for write in unit)
            taken.append(unit)
        return taken

    def _again(self, units: list[Unit]) -> None:
        if units:
            self._portions.appendleft(units)

    def _wait_for_others(self, units: list[Unit]) -> None:
        """
        Their commit was refused. With fewer records finished behind an unfinished one it may be shorter, and the end of that one may
        be among the units that have not been chosen: it is in the next transaction, or gets its turn.
        """
        if not units:
            return
        self._offsets_refused += 1
        if self._is_portion:
            self._portions.append(units)
            self._lets_fresh_by = True
        elif self._offsets_refused < UNEXPLAINED_MOST:
            self._fresh.extendleft(reversed(units))
        else:
            self._fresh.extend(units)

    def _halve(self, units: list[Unit]) -> None:
        middle = len(units) // 2
        self._again(units[middle:])
        self._again(units[:middle])

    def _try_again(self, units: list[Unit], detail: str, now: Now) -> list[Answer]:
        """Aborted, and no write is named. After some of these it may be a write's fault all the same."""
        pause_ms = min(PAUSE_MOST_MS, PAUSE_FIRST_MS * 2 ** min(self._unexplained, 10))
        self._pause_until_mono_ms = now.mono_ms + pause_ms
        self._unexplained += 1
        if self._unexplained < UNEXPLAINED_MOST and not self._is_portion:
            self._fresh.extendleft(reversed(units))  # in their order, with what came since
        elif self._unexplained < UNEXPLAINED_MOST or not units:
            self._again(units)
        elif len(units) > 1:
            self._halve(units)
        else:
            refusal = Refusal("unavailable", detail)
            self._shun(_topics(units[0]), refusal, now)
            return [(units[0][0].token, refusal)]
        return []

    def _isolate(self, units: list[Unit], refused: Mapping[int, Refusal], now: Now) -> list[Answer]:
        """
        Take the guilty ones out. Of those that are too large nobody can say which it was: one fails all that are in
        its batch. Any other refusal is about a topic, and holds for all that is written there.
        """
        innocent: list[Unit] = []
        too_large: list[Unit] = []
        answers: list[Answer] = []
        place = 0
        for unit in units:
            refusals = {write.topic: refused[at] for at, write in enumerate(unit, place) if at in refused}
            place += len(unit)
            elsewhere = {topic: one for topic, one in refusals.items() if one.kind != "too-large"}
            for topic, refusal in elsewhere.items():
                self._shun([topic], refusal, now)
            if elsewhere:
                answers.append((unit[0].token, next(iter(elsewhere.values()))))
            elif refusals:
                too_large.append(unit)
            else:
                innocent.append(unit)
        if too_large and len(units) == 1:
            self._let_probe_go(too_large[0])
            answers.append(
                (too_large[0][0].token, next(one for one in refused.values() if one.kind == "too-large"))
            )
        elif len(too_large) == 1:
            self._again(too_large)  # perhaps one that was refused for its topic was the large one
        elif too_large:
            self._halve(too_large)
        self._again(innocent)
        return answers

    def _shun(self, topics: Iterable[str], refusal: Refusal, now: Now) -> None:
        for topic in topics:
            shunned = self._shunned.setdefault(topic, _Shunned())
            if now.mono_ms >= shunned.until_mono_ms:
                shunned.wait_ms = min(SHUN_MOST_MS, 2 * shunned.wait_ms)
                shunned.until_mono_ms = now.mono_ms + shunned.wait_ms
            shunned.refusal, shunned.is_probed = refusal, False

    def _let_probe_go(self, unit: Unit) -> None:
        """The unit that was to tell about its topics won't: another one has to."""
        for topic in self._shunned.keys() & _topics(unit):
            self._shunned[topic].is_probed = False


def _topics(unit: Unit) -> set[str]:
    return {write.topic for write in unit}
