"""
Whether dead letters with the reason `crashed` blame whom they may: the guard's own rules, judged by what ran in which process.

A record that doesn't kill may only be blamed where some process came to a bad end (killed, or given up by its group) in which no
other record was running, and where there had been two bad ends before. One that kills must be blamed, and runs three times
at most; three times more for each fault from outside meanwhile, which may undo what was known: a process that comes to
a bad end while a suspect runs alone explains that end, also to its other partitions.
"""

from collections import defaultdict
from collections.abc import Iterable

from tests.chaos.faults import AFTER_MS, TOOK, Faults
from tests.chaos.key_order import BEGAN, Step, Verdict

#: A killer ends so many processes, then it isn't run again.
MOST_KILLS = 3


class Alone:
    """Told each step of all processes, it keeps which of the `blamed` records ran beside others, and in which process."""

    def __init__(self, blamed: Iterable[str]) -> None:
        self._blamed = frozenset(blamed)
        self._running: dict[int, set[str]] = defaultdict(set)
        self._beside: set[tuple[str, int]] = set()
        self.pids: set[int] = set()
        self.runs: dict[str, list[float]] = defaultdict(list)

    def take(self, step: Step) -> None:
        self.pids.add(step.pid)
        if step.what == TOOK:
            return
        running = self._running[step.pid]
        if step.what != BEGAN:
            running.discard(step.record)
            return
        running.add(step.record)
        if step.record in self._blamed:
            self.runs[step.record].append(step.at_ms)
        if len(running) > 1:
            self._beside.update((record, step.pid) for record in running & self._blamed)

    def was_alone(self, record: str, pid: int) -> bool:
        """Whether that process came to its end with nothing else running, as far as handlers noted."""
        return (record, pid) not in self._beside and self._running[pid] <= {record}


def judge(blamed: Iterable[str], killers: frozenset[str], alone: Alone, faults: Faults) -> Verdict:
    """Judge all `crashed` letters, by their records, when the whole history was told."""
    verdict = Verdict()
    blamed = set(blamed)
    bad_ends = [fault for fault in faults.all if fault.pid in alone.pids]
    for record in sorted(blamed - killers):
        verdict.counts["blamed for kills"] += 1
        if not any(alone.was_alone(record, fault.pid) for fault in bad_ends[2:]):
            verdict.note("blamed", f"{record} is a crashed letter, but no process ended while it ran alone")
    for record in sorted(killers):
        runs_ms = alone.runs[record]
        verdict.counts["runs of killers"] += len(runs_ms)
        if record not in blamed:
            verdict.note("not blamed", f"{record} kills its process, and is no crashed letter")
        elif len(runs_ms) > MOST_KILLS * (1 + _count_from_outside(faults, runs_ms)):
            verdict.note("killed again", f"{record} ran {len(runs_ms)} times, each the end of a process")
    return verdict


def _count_from_outside(faults: Faults, runs_ms: list[float]) -> int:
    """How many faults began between the first and the last of these runs that were none of the record's doing."""
    kinds = AFTER_MS.keys() - {"crash"}
    return sum(fault.kind in kinds and runs_ms[0] <= fault.began_ms <= runs_ms[-1] for fault in faults.all)
