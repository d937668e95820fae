"""
What a crash costs while one record is stuck: how many records run again after a SIGKILL.

    scripts/kafka start
    .venv/bin/python -m benchmarks.stuck_record [--repeats 3] [--concurrency 100] [--takes-ms 10] [--json results.json]

200,000 records of 1,000 keys, key order, a commit each 500 ms. The handler of the very first record never ends. When 100,000
others are done the process is killed; a second one does the rest. What ran again is compared with what was in flight plus
what was done in 500 ms at the rate before the kill. Each run's begin and end is counted in a file mapped into memory, which
outlives the process.
"""

import argparse
import asyncio
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any

from benchmarks.contestant import app_of, serve
from benchmarks.workload import TOPIC, drop_topics, end_after
from redrive import RetryPolicy
from tests.waiting import until

RECORDS = 200_000
KILL_AFTER = 100_000
COMMIT_EVERY_MS = 500
#: Over how long the rate before the kill is taken.
RATE_OVER_S = 1.0
STUCK = 0


class Counts:
    """For each record how often its handler began and ended, in a file that both processes and their parent see."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("r+b")
        self._bytes = mmap.mmap(self._file.fileno(), 2 * RECORDS)

    def begin(self, number: int) -> int:
        """Count a beginning; gives how many there were of this record."""
        self._bytes[number] += 1
        return self._bytes[number]

    def end(self, number: int) -> None:
        self._bytes[RECORDS + number] += 1

    def begun(self) -> bytes:
        return self._bytes[:RECORDS]

    def ended(self) -> bytes:
        return self._bytes[RECORDS:]

    def finished(self) -> int:
        """How many records ended at least once."""
        return RECORDS - self.ended().count(0)

    @property
    def done(self) -> bool:
        """Whether all are: what `serve` waits for."""
        return self.finished() == RECORDS

    def report(self) -> dict[str, object]:
        return {}


def work(path: Path, concurrency: int, takes_s: float) -> None:
    """One life of the service: until it is killed, or all are done."""
    end_after(280)
    counts = Counts(path)
    app, topics = app_of((), commit_interval=f"{COMMIT_EVERY_MS}ms")

    @app.listener(TOPIC, retry=RetryPolicy(), order="key", concurrency=concurrency)
    async def handle(value: dict[str, Any]) -> None:
        number = value["id"]
        if counts.begin(number) == 1 and number == STUCK:
            await asyncio.Event().wait()
        await asyncio.sleep(takes_s)
        counts.end(number)

    asyncio.run(serve(app, counts))
    drop_topics(topics)
    os._exit(0)


def run_once(concurrency: int, takes_s: float, folder: Path) -> dict[str, Any]:
    """Two lives of one group; what the second had to do again."""
    run = uuid.uuid4().hex[:8]
    path = folder / run
    path.write_bytes(bytes(2 * RECORDS))
    counts = Counts(path)
    env = {
        **os.environ,
        "BENCH_RUN": run,
        "BENCH_TOPIC": "bench-stuck",
        "BENCH_RECORDS": str(RECORDS),
        "BENCH_SPREAD": "even",
    }
    subprocess.run([sys.executable, "-m", "benchmarks.feed", "backlog"], env=env, check=True)
    command = [sys.executable, "-m", "benchmarks.stuck_record", "--work", str(path)]
    command += ["--concurrency", str(concurrency), "--takes-ms", str(takes_s * 1000)]
    life = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    try:
        rate = _rate_at(counts, KILL_AFTER, life)
        life.kill()
        life.wait()
        at_kill = counts.begun(), counts.ended()
        life = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
        until(lambda: counts.done or life.poll() is not None, "the second one did the rest", within_s=200)
        life.wait(60)
    finally:
        life.kill()
    return _account(rate, *at_kill, counts)


def _account(rate: float, begun: bytes, ended: bytes, counts: Counts) -> dict[str, Any]:
    """What ran again of what had begun and ended at the kill, and how much might have."""
    in_flight = sum(first > last for first, last in zip(begun, ended, strict=True))
    again = sum(0 < before < after for before, after in zip(begun, counts.begun(), strict=True))
    allowed = in_flight + rate * COMMIT_EVERY_MS / 1000
    return {
        "done_at_kill": RECORDS - ended.count(0),
        "rate": round(rate),
        "in_flight": in_flight,
        "allowed": round(allowed),
        "again": again,
        "share": round(again / allowed, 3),
        "lost": RECORDS - counts.finished(),
        "is_right": again <= allowed and counts.done,
    }


def _rate_at(counts: Counts, goal: int, life: "subprocess.Popen[bytes]") -> float:
    """Wait until so many are done; gives how many a second it were before."""
    seen: deque[tuple[float, int]] = deque()
    deadline_s = time.monotonic() + 240
    while True:
        now_s, done = time.monotonic(), counts.finished()
        seen.append((now_s, done))
        while now_s - seen[0][0] > RATE_OVER_S:
            seen.popleft()
        if done >= goal:
            (first_s, first), (last_s, last) = seen[0], seen[-1]
            return (last - first) / (last_s - first_s)
        if life.poll() is not None or now_s > deadline_s:
            raise SystemExit(f"{done} of {goal} records were done when it ended, or took too long")
        time.sleep(0.01)


def main() -> None:
    """Run the repeats and tell each of them, or one life."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument("--takes-ms", type=float, default=10.0)
    parser.add_argument("--json", type=Path, help="write every run here")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        work(asked.work, asked.concurrency, asked.takes_ms / 1000)
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(asked.repeats):
            runs.append(run_once(asked.concurrency, asked.takes_ms / 1000, Path(folder)))
            print(json.dumps(runs[-1]), file=sys.stderr)
    if asked.json:
        asked.json.write_text(json.dumps({"concurrency": asked.concurrency, "runs": runs}, indent=1) + "\n")
    print(
        "| done at the kill | records/s | in flight | allowed | ran again | lost |\n|---|---|---|---|---|---|"
    )
    for one in runs:
        told = [
            f"{one[name]:,}" for name in ("done_at_kill", "rate", "in_flight", "allowed", "again", "lost")
        ]
        print(f"| {' | '.join(told)} |")
    sys.exit(0 if all(one["is_right"] for one in runs) else 1)


if __name__ == "__main__":
    main()
