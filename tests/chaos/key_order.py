"""
What a history of runs says about order by key: nothing but a function of what handlers noted and of what was done to whom.

For a listener with `blocking="key"`. A record is *through* when a run of it was handled, or its last attempt failed. Of one key

- no run begins before all earlier records are through, nor while another one goes on;
- what is through runs again only after what the process did that ran the key last was undone (`Faults.undid`), and then from
  some record on all that follow it, in their order, but for what was held back alone (`Faults.held_back`);
- what a process began with, or a retry waited in front of, tells what was committed: nothing before it runs again;
- attempts count on by one after a failure; the same attempt comes again only if it was undone.

Nothing is lost, nothing is early, and dead letters are those that were to be expected, one for each last run at most.

Where the history tells which process *took* its partition, what others still did there is late: a process that stood still
or was cut off doesn't know yet that it was given up. That is counted, it must say so soon, and it changes nothing of what is
judged: the one that took the partition does it all.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.chaos.faults import TOOK, Faults

BEGAN, HANDLED, FAILED = "began", "handled", "failed"
#: Of each kind so many are told in full; all are counted.
TOLD_MOST = 20


class Sent(NamedTuple):
    """A record that was sent. `dies_at`: the attempt whose failure makes a dead letter of it; 0: none does."""

    record: str
    key: str
    dies_at: int = 0


class Step(NamedTuple):
    """
    A run began, or ended one way or the other, as its handler noted it. `due_ms` 0: at once. Or the process took the partition,
    whatever the record.
    """

    record: str
    attempt: int
    what: str
    pid: int
    at_ms: float
    due_ms: float = 0.0


class Letter(NamedTuple):
    """A dead letter of a record. A `crashed` one blames the record for kills that weren't its fault: possible, so allowed."""

    record: str
    reason: str = "exhausted"


@dataclass
class Verdict:
    """`found`: violations by kind, in words. The rest are counts. `oldest_repeat_ms`: how long before a kill it had ended."""

    found: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)
    oldest_repeat_ms: float = 0.0

    @property
    def violations(self) -> int:
        return sum(self.counts[f"violations: {kind}"] for kind in self.found)

    def note(self, kind: str, told: str) -> None:
        self.counts[f"violations: {kind}"] += 1
        if len(self.found[kind]) < TOLD_MOST:
            self.found[kind].append(told)

    def add(self, other: "Verdict") -> None:
        """What was found of another part of the records."""
        for kind, told in other.found.items():
            self.found[kind] += told[: TOLD_MOST - len(self.found[kind])]
        self.counts += other.counts
        self.oldest_repeat_ms = max(self.oldest_repeat_ms, other.oldest_repeat_ms)


class _Last(NamedTuple):
    """The last step of a record."""

    attempt: int
    what: str
    pid: int
    at_ms: float


class _Key:
    """
    One key's records. `at`: the one whose turn it is; `through`: so many from the first on have been through; `floor`: so
    many must have been committed. `has_gaps`: of those that run again some may be left out.
    """

    def __init__(self) -> None:
        self.records: list[Sent] = []
        self.at = self.through = self.floor = 0
        self.has_gaps = False
        self.running: Step | None = None
        self.ran_by = 0
        self.ended_ms: dict[int, float] = {}


class _Judge:
    def __init__(
        self,
        sent: Iterable[Sent],
        faults: Faults,
        blamed: frozenset[str],
        repeat_within_ms: float,
        *,
        emits: bool,
    ) -> None:
        self.verdict = Verdict()
        self._emits = emits
        self.owner = 0
        self.keys: dict[str, _Key] = defaultdict(_Key)
        self.places: dict[str, tuple[_Key, int]] = {}
        self.last: dict[str, _Last] = {}
        self.last_runs: Counter[str] = Counter()
        self._begun: Counter[tuple[str, int, int]] = Counter()
        self._faults, self._blamed, self._repeat_within_ms = faults, blamed, repeat_within_ms
        for one in sent:
            key = self.keys[one.key]
            self.places[one.record] = key, len(key.records)
            key.records.append(one)

    def take(self, step: Step) -> None:
        if step.what == TOOK:
            self.owner = step.pid
            return
        self._begun[step.record, step.attempt, step.pid] += 1 if step.what == BEGAN else -1
        if self.owner not in (0, step.pid):
            self._take_late(step)
            return
        if step.record not in self.places:
            self.verdict.note("unknown", f"{_told(step)}: no such record was sent")
            return
        key, at = self.places[step.record]
        if step.what == BEGAN:
            self._begin(key, at, step)
        else:
            self._end(key, at, step)
        self.last[step.record] = _Last(step.attempt, step.what, step.pid, step.at_ms)
        key.ran_by = step.pid

    def _take_late(self, step: Step) -> None:
        if step.what != BEGAN:
            self.last_runs[step.record] += step.what == FAILED  # a letter may come of it
            return
        self.verdict.counts["late runs"] += 1
        if not any(self._faults.was_late(place, step.pid, step.at_ms) for place in _places(step.record)):
            self.verdict.note("beside", f"{_told(step)}, though {self.owner} had taken the partition")

    def _begin(self, key: _Key, at: int, step: Step) -> None:
        self.verdict.counts["runs"] += 1
        if step.due_ms and step.at_ms < step.due_ms:
            self.verdict.note("early", f"{_told(step)}, {step.due_ms - step.at_ms:.1f} ms before its due")
        if key.running and not self._was_lost(key.running.pid, key.running.at_ms, step):
            self.verdict.note("at once", f"{_told(step)} while {key.running.record} of its key was running")
        self._skip_blamed(key, at, step)
        if at > key.through:
            first = key.records[key.through].record
            self.verdict.note("overtook", f"{_told(step)} before {first} of its key was through")
        elif at > key.at and not key.has_gaps:
            left_out = key.records[key.at].record
            self.verdict.note(
                "gap", f"{_told(step)} again, but {left_out} before it, of the same tail, did not"
            )
        elif at < key.at:
            self._go_back(key, at, step)
        self.verdict.counts["runs of what was through"] += at < key.through
        self._check_attempt(key.records[at], step)
        if step.pid != key.ran_by or (step.attempt > 1 and not self._emits):
            key.floor = at
        key.at, key.running = at, step

    def _end(self, key: _Key, at: int, step: Step) -> None:
        running = key.running
        if running is None or running[:2] != step[:2] or running.pid != step.pid:
            if self._begun[step.record, step.attempt, step.pid] >= 0:
                return  # begun before the process lost the partition, and got it back
            self.verdict.note("end", f"{_told(step)}, but that run had not begun")
        key.running = None
        dies_at = key.records[at].dies_at
        if step.what == FAILED:
            self.verdict.counts["failed runs"] += 1
            if not dies_at or step.attempt < dies_at:
                return
            self.last_runs[step.record] += 1
        key.at = at + 1
        key.through = max(key.through, key.at)
        key.ended_ms[at] = step.at_ms

    def _go_back(self, key: _Key, at: int, step: Step) -> None:
        """A record that was through begins again: a kill must explain it, and no commit may have passed it."""
        ended_ms = key.ended_ms.get(at, 0.0)
        if not self._was_lost(key.ran_by, ended_ms, step):
            self.verdict.note(
                "repeated", f"{_told(step)} again, but {key.ran_by}, which ran its key, lived on"
            )
            return
        self.verdict.counts["repeated tails"] += 1
        key.has_gaps = any(
            self._faults.held_back(place, key.ran_by, ended_ms) for place in _places(step.record)
        )
        if at < key.floor and not key.has_gaps:
            first = key.records[key.floor].record
            self.verdict.note(
                "committed", f"{_told(step)} again, though an earlier repetition began at {first}"
            )
        killed_ms = self._faults.kills.get(key.ran_by)
        if killed_ms is None or self._faults.shook(key.ran_by, ended_ms, killed_ms):
            return  # commits may have failed for as long as that lasted
        age_ms = killed_ms - ended_ms
        self.verdict.oldest_repeat_ms = max(self.verdict.oldest_repeat_ms, age_ms)
        if age_ms > self._repeat_within_ms:
            self.verdict.note(
                "too old", f"{_told(step)} again, {age_ms:.0f} ms after it had ended, before the kill"
            )

    def _check_attempt(self, sent: Sent, step: Step) -> None:
        last = self.last.get(step.record)
        if last is None:
            allowed = {1}
        elif self._was_lost(last.pid, last.at_ms, step):
            has_failed = last.what == FAILED and last.attempt != sent.dies_at
            allowed = {last.attempt, last.attempt + 1} if has_failed else {last.attempt}
            self.verdict.counts["attempts again after a kill"] += step.attempt == last.attempt
        else:
            allowed = {last.attempt + 1} if last.what == FAILED else {last.attempt}
        if step.attempt not in allowed or (sent.dies_at and step.attempt > sent.dies_at):
            before = f"{last.what} with attempt {last.attempt}" if last else "not run"
            self.verdict.note("attempt", f"{_told(step)}; before it was {before}")
        self.verdict.counts["retries"] += step.attempt > 1

    def _skip_blamed(self, key: _Key, at: int, step: Step) -> None:
        """
        A record that became a `crashed` letter is through with the kill in which it ran; or was about to, its handler having
        noted nothing yet.
        """
        while key.at < at:
            record = key.records[key.at].record
            last = self.last.get(record)
            if record not in self._blamed:
                return
            if last is not None:
                if not self._was_lost(last.pid, last.at_ms, step):
                    return
                key.ended_ms[key.at] = self._faults.kills.get(last.pid, last.at_ms)
            key.at += 1
            key.through = max(key.through, key.at)

    def _was_lost(self, pid: int, since_ms: float, step: Step) -> bool:
        """Whether what a process did then may be done again by this step."""
        return any(self._faults.undid(place, pid, since_ms, step.at_ms) for place in _places(step.record))

    def check_end(self, letters: Sequence[Letter], poison: frozenset[str]) -> None:
        """Nothing is lost, and each dead letter has its reason."""
        for key in self.keys.values():
            for at in range(key.through, len(key.records)):
                sent = key.records[at]
                if sent.record not in self._blamed:
                    self.verdict.note("lost", f"{sent.record} of key {sent.key} never was through")
        written = Counter(letter.record for letter in letters)
        for record, count in written.items():
            place = self.places.get(record)
            dies_at = place[0].records[place[1]].dies_at if place else 0
            if not dies_at and record not in poison and record not in self._blamed:
                self.verdict.note("letter", f"{record} became a dead letter, but was to be handled")
            elif dies_at and record not in self._blamed and count > self.last_runs[record]:
                runs = self.last_runs[record]
                self.verdict.note("letter", f"{record} became {count} dead letters by {runs} last runs")
        dying = [one.record for key in self.keys.values() for one in key.records if one.dies_at]
        for record in (*dying, *poison):
            if record not in written:
                self.verdict.note("letter", f"{record} should have become a dead letter")
        self.verdict.counts["letters twice"] += written.total() - len(written)


def judge(
    sent: Iterable[Sent],
    steps: Iterable[Step],
    faults: Faults | None = None,
    letters: Sequence[Letter] = (),
    *,
    poison: frozenset[str] = frozenset(),
    repeat_within_ms: float = float("inf"),
    emits: bool = False,
) -> Verdict:
    """
    Judge a whole history; of one partition, where it tells who took it.

    `sent`: all records that can run, those of a key in their order. `steps`: in the order in which they were noted, over
    all processes. `faults`: what was done meanwhile. `poison`: records that can't be read, so
    never run, and become dead letters. `repeat_within_ms`: what ended longer before a kill must have been committed. `emits`:
    handlers write, and a record that was handled isn't passed before that is there; so a retry doesn't tell that those before
    it were.
    """
    letters = list(letters)
    blamed = frozenset(letter.record for letter in letters if letter.reason == "crashed")
    faults = faults or Faults()
    judging = _Judge(sent, faults, blamed, repeat_within_ms, emits=emits)
    for step in steps:
        judging.take(step)
    judging.check_end(letters, poison)
    verdict = judging.verdict
    verdict.counts.update(
        {
            "records": len(judging.places) + len(poison),
            "keys": len(judging.keys),
            "kills": len(faults.kills),
            "letters": len(letters),
            "blamed for kills": len(blamed),
        }
    )
    return verdict


def _places(record: str) -> tuple[str, str]:
    """Where it runs: from its partition, or from the parked one of the same number, which always goes with that."""
    topic, _, number = record.rpartition("/")[0].rpartition("/")
    return f"{topic}/{number}/", f"{topic}.parked/{number}/"


def _told(step: Step) -> str:
    return f"{step.record} {step.what} (attempt {step.attempt}, process {step.pid}, {step.at_ms:.0f})"
