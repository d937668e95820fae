"""
What was done to a service and its cluster, what its processes said of it, and which repetitions that explains: values, and
functions of them.

That something failed somewhere explains no repetition. What a process ran is run again only if that process was killed, or
said itself that it lost the partition, or couldn't commit when it gave it back, or that writes were refused which it still
had to repeat then, and only when the partition was taken after that; or if the process said that it doesn't know what became
of a transaction.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

#: By kind, how long after its end a fault may still keep commits from going through: reconnects take turns, and a transaction
#: has ten seconds, until which a client may hang that lost its broker.
#: What isn't named here disturbs nothing: a rolling restart, a change of a topic's settings, a slow network.
AFTER_MS = {
    "kill": 0,
    "crash": 0,
    "stop": 5_000,
    "broker": 15_000,
    "cut": 15_000,
    "hold": 15_000,
    "mute": 15_000,
}
#: By somebody; by a record.
_KILLS = ("kill", "crash")

TOOK, GAVE, LOST, UNCOMMITTED, UNKNOWN = "took", "gave", "lost", "uncommitted", "unknown"
#: A write was refused; a transaction was aborted, so that for as long nothing was committed.
REFUSED, ABORTED = "refused", "aborted"
#: What a process says of partitions, by the event that tells it.
WORDS = {
    "assigned": TOOK,
    "revoked": GAVE,
    "lost": LOST,
    "last-commit-refused": UNCOMMITTED,
    "transaction-unknown": UNKNOWN,
}
SAID = frozenset((*WORDS.values(), REFUSED, ABORTED))
#: Where somebody takes a partition of which this was said last, what wasn't committed runs again.
_UNFINISHED = (LOST, UNCOMMITTED)
#: So soon after it lost a partition a process may still note the end of a run.
_ENDING_MS = 1000.0
#: So long a process that stood still or was cut off doesn't know that its partitions were given to others.
_LATE_MS = 30_000.0
#: A log line that sums up refused writes comes so late.
_SUMMED_UP_MS = 11_000.0
#: A transaction may take so long until it is known that it is aborted. The brokers' reason is everybody's: a coordinator moves.
_ABORTED_AFTER_MS = 10_000.0


class Fault(NamedTuple):
    """`pid`: the process that it was done to; 0: it concerns all. `ended_ms` of a kill is when it was done, at the latest."""

    kind: str
    whom: str
    began_ms: float
    ended_ms: float
    pid: int = 0


class Word(NamedTuple):
    """What a process said. `about`: a partition, as `topic/number/`; the topic of a write that was `REFUSED`; "" for all."""

    about: str
    pid: int
    what: str
    at_ms: float


class Faults:
    """`kills`: when each process was killed, or ended by its own doing, at the earliest. `words` in the order of their times."""

    def __init__(self, faults: Iterable[Fault] = (), words: Iterable[Word] = ()) -> None:
        self.all = sorted(faults, key=lambda fault: fault.began_ms)
        self.kills = {fault.pid: fault.began_ms for fault in self.all if fault.kind in _KILLS}
        self._shakes = [
            (fault.pid, fault.began_ms, fault.ended_ms + AFTER_MS[fault.kind])
            for fault in self.all
            if fault.kind in AFTER_MS and fault.kind not in _KILLS
        ]
        self._words: dict[str, list[Word]] = defaultdict(list)
        self._refused_ms: dict[int, list[float]] = defaultdict(list)
        for word in words:
            if word.what == ABORTED:
                self._shakes.append((0, word.at_ms - _ABORTED_AFTER_MS, word.at_ms))
            elif word.what == REFUSED:
                self._refused_ms[word.pid].append(word.at_ms)
            self._words[word.about].append(word)

    def shook(self, pid: int, from_ms: float, to_ms: float) -> bool:
        """Whether between these times something, but for a kill, may have kept the process from committing."""
        return any(
            whom in (0, pid) and began_ms <= to_ms and ended_ms >= from_ms
            for whom, began_ms, ended_ms in self._shakes
        )

    def undid(self, place: str, pid: int, since_ms: float, by_ms: float) -> bool:
        """Whether what the process did in a partition at one time may begin again there by another time."""
        killed_ms = self.kills.get(pid, math.inf)
        if not self._words:  # nobody noted any: only kills were done
            return killed_ms <= by_ms
        words = self._words.get(place, [])
        tenure = _tenure(words, pid, since_ms)
        if any(word.what == UNKNOWN and since_ms - _ENDING_MS <= word.at_ms <= by_ms for word in tenure):
            return True
        if not tenure or tenure[0].at_ms >= _latest_ms(words, TOOK, by_ms):
            return False
        if any(word.what in _UNFINISHED for word in tenure) or self._held_back(tenure, pid, since_ms):
            return True
        gave_ms = _latest_ms(tenure, GAVE, killed_ms)
        was_handed_over = gave_ms and _latest_ms(words, TOOK, killed_ms) > gave_ms
        return killed_ms <= by_ms and not was_handed_over

    def held_back(self, place: str, pid: int, since_ms: float) -> bool:
        """
        Whether the process may have given the partition back while writes for some of its records waited to be repeated: these
        records run again, and later ones don't.
        """
        return self._held_back(_tenure(self._words.get(place, []), pid, since_ms), pid, since_ms)

    def _held_back(self, tenure: list[Word], pid: int, since_ms: float) -> bool:
        gave_ms = _latest_ms(tenure, GAVE, math.inf)
        return any(since_ms <= at_ms <= gave_ms + _SUMMED_UP_MS for at_ms in self._refused_ms.get(pid, ()))

    def was_late(self, place: str, pid: int, at_ms: float) -> bool:
        """Whether another one had taken the partition by then, of which the process may not have known yet."""
        words = self._words.get(place, [])
        tenure = _tenure(words, pid, at_ms)
        if not tenure or tenure[0].at_ms >= _latest_ms(words, TOOK, at_ms):
            return False
        ends_ms = [word.at_ms for word in tenure if word.what in _UNFINISHED]
        ends_ms.append(self.kills.get(pid, math.inf))
        return any(at_ms - _ENDING_MS <= end_ms <= at_ms + _LATE_MS for end_ms in ends_ms)

    def broke_off(self, place: str, from_ms: float, to_ms: float) -> bool:
        """Whether between these times a partition was taken from a process that had not committed all it did."""
        pids = {word.pid for word in self._words.get(place, [])}
        return any(self.undid(place, pid, from_ms, to_ms) for pid in pids)

    def refused(self, topic: str, pid: int, from_ms: float, to_ms: float) -> bool:
        """Whether between these times a write of the process was refused there: it may be there all the same, and is repeated."""
        return any(
            word.pid == pid and from_ms <= word.at_ms <= to_ms + _SUMMED_UP_MS
            for word in self._words.get(topic, [])
        )


def _latest_ms(words: Iterable[Word], what: str, by_ms: float) -> float:
    """When this was said the last time until then; 0: never."""
    return max((word.at_ms for word in words if word.what == what and word.at_ms <= by_ms), default=0.0)


def _tenure(words: Iterable[Word], pid: int, at_ms: float) -> list[Word]:
    """What the process said of a partition from when it had taken it last until it took it the next time."""
    tenure: list[Word] = []
    for word in words:
        if word.pid != pid:
            continue
        if word.what == TOOK:
            if word.at_ms > at_ms:
                break
            tenure.clear()
        tenure.append(word)
    return tenure


def of_kills(kills: dict[int, float]) -> Faults:
    """Faults that are kills only: process and time."""
    return Faults(Fault("kill", str(pid), at_ms, at_ms, pid) for pid, at_ms in kills.items())
