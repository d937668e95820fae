"""One run of chaos on three brokers, from their start to the verdict."""

import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.broker import free_ports
from tests.broker.cluster import BROKERS, Cluster
from tests.chaos.accounts import Accounts, Stall
from tests.chaos.faults import Fault
from tests.chaos.key_order import Verdict
from tests.chaos.proxy import Proxies
from tests.chaos.shop import MODES, Shop
from tests.chaos.storm import Storm
from tests.waiting import until

#: After the storm all that waits must be done within so long, and as long as the storm took: sessions end, transactions are
#: aborted, suspects run alone.
CALM_WITHIN_S = 240.0
#: What `key_order` calls violations of the order.
OUT_OF_ORDER = ("overtook", "at once", "gap", "repeated", "committed", "beside")


class Result(NamedTuple):
    """What came of a run. `calm_s`: from the last fault until all was done. `memory_mb`: the most that the judge's process took."""

    verdict: Verdict
    faults: list[Fault]
    sent: int
    began_ms: float
    calm_s: float
    stall: Stall
    stall_of_one: Stall
    memory_mb: int


def run(
    folder: Path,
    *,
    mode: str,
    seed: int,
    seconds: float,
    records: int,
    partitions: int = 4,
    pause_s: tuple[float, float] = (1.0, 3.0),
    loses_answers: bool = True,
    told: Callable[[str], object] = lambda _: None,
) -> Result:
    """Records come evenly over so many seconds, and so long faults begin, each after a pause; `loses_answers` as of `Storm`."""
    with Proxies(free_ports(BROKERS)) as proxies:
        cluster = Cluster(folder, [way.target for way in proxies.ways], proxies.ports)
        try:
            cluster.start()
            told(f"three brokers run; {mode}, seed {seed}, logs in {folder}")
            shop = Shop(
                cluster.bootstrap,
                cluster.direct,
                folder,
                mode=MODES[mode],
                seed=seed,
                partitions=partitions,
                replicas=BROKERS,
            )
            began_ms = time.time() * 1000
            storm = Storm(shop, cluster, proxies, seed, loses_answers=loses_answers)
            calm_s = _weather(shop, storm, seconds, records, pause_s, told)
            told("all is done; reading it back")
            accounts = Accounts(shop, storm.faults, folder)
            verdict = accounts.judge()
        finally:
            cluster.kill()
    for told_end in storm.ended:
        verdict.note("ended", told_end)
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Result(
        verdict, storm.faults, shop.sent, began_ms, calm_s, accounts.stall, accounts.stall_of_one, memory_mb
    )


def _weather(
    shop: Shop,
    storm: Storm,
    seconds: float,
    records: int,
    pause_s: tuple[float, float],
    told: Callable[[str], object],
) -> float:
    """Feed the workers through the storm, and wait until all is done. Gives how long that took when the storm was over."""
    stop = threading.Event()
    feeder = threading.Thread(target=shop.feed, args=(records, seconds, stop))
    try:
        for worker in shop.workers:
            worker.start(awaits="")
        feeder.start()
        until(lambda: _are_at_work(shop, storm), "partitions for each worker", within_s=120)
        progress = _Progress(shop, storm, told)
        storm.rage(seconds, pause_s, progress)
        feeder.join()
        over_s = time.monotonic()
        until(lambda: _is_calm(shop, storm, progress), "all is done", within_s=CALM_WITHIN_S + seconds)
        calm_s = time.monotonic() - over_s
        for worker in shop.workers:
            code = worker.terminate(within_s=60)
            if code != 0:
                storm.ended.append(f"{worker.name} ended with {code} when all was done")
    finally:
        stop.set()
        for worker in shop.workers:
            worker.end()
    return calm_s


def _are_at_work(shop: Shop, storm: Storm) -> bool:
    storm.look_after()
    return all("assigned" in worker.said() for worker in shop.workers)


def _is_calm(shop: Shop, storm: Storm, progress: "_Progress") -> bool:
    storm.look_after()
    progress(0)
    return shop.is_through() and not storm.doing


class _Progress:
    """A line each ten seconds."""

    def __init__(self, shop: Shop, storm: Storm, told: Callable[[str], object]) -> None:
        self._shop, self._storm, self._told = shop, storm, told
        self._next_s = 0.0
        self._notes, self._read_to = 0, 0

    def __call__(self, left_s: float) -> None:
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + 10
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self._storm.counts().items()))
        now = ", ".join(f"{doing.kind} {doing.whom}" for doing in self._storm.doing)
        quiet_s = time.time() - self._shop.ledger.path.stat().st_mtime
        quiet = f"; no run for {quiet_s:.0f} s" if quiet_s > 2 else ""
        self._told(
            f"{max(0, left_s):.0f} s to go: {self._shop.sent:,} sent, {self._count_notes():,} notes; "
            f"{counts or 'no fault yet'}; now: {now or 'calm'}{quiet}"
        )

    def _count_notes(self) -> int:
        """How often handlers began and ended, from where it was counted last: the ledger gets large."""
        with self._shop.ledger.path.open("rb") as ledger:
            ledger.seek(self._read_to)
            while chunk := ledger.read(1 << 20):
                self._notes += chunk.count(b"\n")
            self._read_to = ledger.tell()
        return self._notes
