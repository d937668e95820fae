"""Order by key on a real broker, with records that fail: workers killed at random, and workers that come and go."""

import os

import pytest

from tests.chaos.kills import fed, run_under_kills
from tests.chaos.ordered_service import OrderedService
from tests.waiting import until

SEED = int(os.environ.get("REDRIVE_TEST_SEED", "11"))


@pytest.mark.chaos
@pytest.mark.parametrize("parks", [False, True], ids=["held", "parked"])
def test_t_key_2_order_by_key_holds_under_random_kills_of_three_workers(kafka, tmp_path, parks):
    service = OrderedService(kafka.bootstrap, tmp_path, SEED, parks=parks)

    verdict = run_under_kills(service, 9, rate=300, seed=SEED, pause_s=(1.5, 3))

    assert verdict.found == {}
    assert verdict.counts["kills"] >= 3
    assert verdict.counts["records"] == service.count_sent() > 1500
    assert verdict.counts["retries"] > 50
    assert (service.count_parked() > 20) is parks


@pytest.mark.chaos
@pytest.mark.parametrize("parks", [False, True], ids=["held", "parked"])
@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_workers_come_and_go_and_nothing_is_lost_repeated_or_out_of_order(kafka, tmp_path, protocol, parks):
    service = OrderedService(kafka.bootstrap, tmp_path, SEED, parks=parks, group_protocol=protocol)
    workers = [service.worker() for _ in range(3)]
    try:
        workers[0].start()
        with fed(service, 300):
            _await_work(service, workers[:1])
            for worker in workers[1:]:
                worker.start()
            _await_work(service, workers)
            assert [worker.terminate() for worker in workers[1:]] == [0, 0]
            _await_work(service, workers[:1])
        service.await_end()
        assert workers[0].terminate() == 0
    finally:
        for worker in workers:
            worker.end()

    verdict = service.verdict()
    assert verdict.found == {}
    assert verdict.counts["runs of what was through"] == 0
    assert verdict.counts["records"] == service.count_sent()


def _await_work(service: OrderedService, workers: list) -> None:
    """Until each of them has begun some more runs."""
    before = len(service.ledger.runs())
    pids = {worker.pid for worker in workers}

    def are_at_work() -> bool:
        return pids <= {run.pid for run in service.ledger.runs()[before + 200 :]}

    until(are_at_work, f"{len(workers)} workers are at work")
