"""Three workers under load, killed at random and started again."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.chaos.key_order import Verdict
from tests.chaos.ordered_service import OrderedService
from tests.service_process import ServiceProcess
from tests.waiting import until

WORKERS = 3


@contextmanager
def fed(service: OrderedService, rate: float) -> Iterator[None]:
    """Records arrive meanwhile."""
    stop = threading.Event()
    feeder = threading.Thread(target=service.feed, args=(rate, stop))
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join()


def run_under_kills(
    service: OrderedService,
    seconds: float,
    *,
    rate: float,
    seed: int,
    pause_s: tuple[float, float],
    told: Callable[[float], object] = lambda _: None,
) -> Verdict:
    """Kill one of three workers after each pause, for so long; then let them finish, and judge."""
    dice = random.Random(seed)
    workers = [service.worker() for _ in range(WORKERS)]
    try:
        for worker in workers:
            worker.start(awaits="")
        with fed(service, rate):
            _await_assigned(workers)
            end_s = time.monotonic() + seconds
            while (left_s := end_s - time.monotonic()) > 0:
                told(left_s)
                time.sleep(min(left_s, dice.uniform(*pause_s)))
                victim = dice.choice(workers)
                service.kill(victim)
                victim.start(awaits="")
        service.await_end(within_s=120)
        _await_assigned(workers)
        assert [worker.terminate() for worker in workers] == [0] * WORKERS
    finally:
        for worker in workers:
            worker.end()
    return service.verdict()


def _await_assigned(workers: list[ServiceProcess]) -> None:
    for worker in workers:
        until(lambda worker=worker: "assigned" in worker.said(), "partitions for each worker")
