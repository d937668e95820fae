"""
What really happened: one line for each run of a handler, appended to a file that outlives the process.

A line is written with one call on a file opened for appending, so lines of several processes never mix, and what was
written before a SIGKILL is there. Imported by the services that tests run, so it needs nothing but Python.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """One start of a handler. `due_ms` is 0 in a first attempt; `note` is the test's own word."""

    event_id: str
    attempt: int
    start_ms: float
    due_ms: int
    pid: int
    note: str


class Ledger:
    """`note` in handlers, the rest in tests."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(self, record, note: str = "") -> None:
        """Write down that a handler starts with a record."""
        self._write(record.event_id, record.attempt, record.due_ms or 0, note)

    def note_process(self, about: str, note: str) -> None:
        """Write down what became of this process, not of a record."""
        self._write(about, 0, 0, note)

    def _write(self, about: str, attempt: int, due_ms: int, note: str) -> None:
        line = f"{about} {attempt} {time.time() * 1000:.3f} {due_ms} {os.getpid()} {note}\n"
        os.write(self._file, line.encode())

    def each(self) -> Iterator[Run]:
        """All runs so far, in the order in which they were written, one at a time: a ledger may be larger than memory."""
        with self.path.open() as lines:
            for line in lines:
                if line.endswith("\n"):
                    yield _run(line[:-1])

    def runs(self) -> list[Run]:
        """All runs so far, in the order in which they were written."""
        return list(self.each())

    def count(self) -> int:
        """How many runs there were so far."""
        return self.path.read_bytes().count(b"\n")

    def by_record(self) -> dict[str, list[Run]]:
        """The runs of each record, by its event id."""
        found: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs():
            found[run.event_id].append(run)
        return found

    def early(self) -> list[Run]:
        """Runs that started before they were due: there must be none, ever."""
        return [run for run in self.runs() if run.due_ms and run.start_ms < run.due_ms]

    def lateness_ms(self) -> list[float]:
        """How long after their due the retries started, ascending."""
        return sorted(run.start_ms - run.due_ms for run in self.runs() if run.due_ms)

    def repeats(self) -> int:
        """Runs beyond the first of the same record with the same attempt number: what a crash made happen twice."""
        times = Counter((run.event_id, run.attempt) for run in self.runs())
        return sum(count - 1 for count in times.values())


def _run(line: str) -> Run:
    event_id, attempt, start_ms, due_ms, pid, note = line.split(" ", 5)
    return Run(event_id, int(attempt), float(start_ms), int(due_ms), int(pid), note)
