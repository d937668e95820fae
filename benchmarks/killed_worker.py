"""
How long partitions stand still when a worker is killed, and in a rolling restart, by group protocol.

    .venv/bin/python -m benchmarks.killed_worker [--repeats 3]

One broker with its default timings; for each protocol a service of two workers and four partitions, which get a record each
every 0.2 s. The longest pause of a partition is that between two runs of its handler. What handlers note comes from their own
processes, so nothing here is measured through the supervisor.
"""

import argparse
import os
import re
import signal
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from tests.broker import Broker
from tests.services.launch import ObedientService
from tests.services.obedient import Order
from tests.waiting import until

PARTITIONS = 4
WAYS = {
    "KIP-848 (the default)": {},
    "classic": {"group_protocol": "classic"},
    "classic, static": {"membership": "static"},
}


class Measured:
    """One service under a supervisor."""

    def __init__(self, bootstrap: str, folder: Path, settings: dict[str, str]) -> None:
        folder.mkdir(parents=True)
        self.service = ObedientService(bootstrap, folder)
        self.service.create_topics(PARTITIONS)
        self.process = self.service.process("--workers", "2", **settings)

    def pid_of(self, worker: int) -> int:
        return int(re.findall(rf"Worker {worker} runs as process (\d+)", self.process.said())[-1])

    def by_partition(self) -> dict[str, list[tuple[float, int]]]:
        """When its handlers ran, and in which process."""
        runs = defaultdict(list)
        for run in self.service.ledger.runs():
            runs[run.event_id.split("/")[1]].append((run.start_ms, run.pid))
        return runs

    def is_shared(self, since_ms: float) -> bool:
        """Whether each partition has had two runs since, in two processes over all."""
        recent = {
            key: [pid for at, pid in runs if at > since_ms] for key, runs in self.by_partition().items()
        }
        return (
            len(recent) == PARTITIONS
            and all(len(pids) > 2 for pids in recent.values())
            and len({pids[-1] for pids in recent.values()}) == 2
        )

    def pauses_s(self, since_ms: float) -> dict[str, float]:
        """The longest pause of each partition since then."""
        found = {}
        for key, runs in self.by_partition().items():
            starts = [at for at, _ in runs if at > since_ms - 1000]
            found[key] = max(b - a for a, b in pairwise(starts)) / 1000
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    killed, others, rolled = defaultdict(list), defaultdict(list), defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder) / "kafka", quick_rebalances=False)
        broker.start()
        try:
            for repeat in range(repeats):
                _once(broker.bootstrap, Path(folder) / str(repeat), killed, others, rolled)
        finally:
            broker.kill()
    print("| | its partitions | the others' | rolling restart, any |\n|---|---|---|---|")
    for way in WAYS:
        print(f"| {way} | {_told(killed[way])} | {_told(others[way])} | {_told(rolled[way])} |")


def _once(bootstrap: str, folder: Path, killed: dict, others: dict, rolled: dict) -> None:
    services = {
        way: Measured(bootstrap, folder / str(at), settings)
        for at, (way, settings) in enumerate(WAYS.items())
    }
    stop = threading.Event()
    feeders = [threading.Thread(target=_feed, args=(each.service, stop)) for each in services.values()]
    try:
        for each in services.values():
            each.process.start()
        for feeder in feeders:
            feeder.start()
        since_ms = _settled(services)
        victims = {}
        for way, each in services.items():
            pid = each.pid_of(1)
            victims[way] = {key for key, runs in each.by_partition().items() if runs[-1][1] == pid}
            os.kill(pid, signal.SIGKILL)
        _settled(services, at_least_s=60)
        for way, each in services.items():
            for key, pause_s in each.pauses_s(since_ms).items():
                (killed if key in victims[way] else others)[way].append(pause_s)
        since_ms = _settled(services)
        for each in services.values():
            each.process.signal(signal.SIGHUP)
        for each in services.values():
            until(
                lambda each=each: "workers were replaced" in each.process.said(), "all replaced", within_s=120
            )
        _settled(services)
        for way, each in services.items():
            rolled[way] += each.pauses_s(since_ms).values()
    finally:
        stop.set()
        for each in services.values():
            each.process.end()


def _settled(services: dict[str, Measured], at_least_s: float = 5.0) -> float:
    """Wait until all partitions of all services are handled, by two workers each; gives the time then."""
    begun = time.time()
    until(lambda: time.time() > begun + at_least_s, "some time has passed", within_s=at_least_s + 10)
    for way, each in services.items():
        until(
            lambda each=each: each.is_shared((time.time() - 2) * 1000),
            f"all is well with {way}",
            within_s=180,
        )
    return time.time() * 1000


def _feed(service: ObedientService, stop: threading.Event) -> None:
    while not stop.wait(0.2):
        service.send_to_each(PARTITIONS, Order())


def _told(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} s ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    main()
