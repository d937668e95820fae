"""Processes that are restarted one after another, and one that the machine froze."""

import signal
import time

import pytest

from tests.plain_kafka import count_all, is_all_committed, read_all
from tests.services.launch import ObedientService
from tests.services.obedient import Order
from tests.waiting import until

PARTITIONS = 4


def _feed(shop: ObedientService, count: int) -> None:
    """So many a partition: a tenth fails once, a fiftieth always."""
    shop.send_to_each(PARTITIONS, *(Order(fails=int(at % 10 == 0), bug=at % 50 == 1) for at in range(count)))


def _await_end(shop: ObedientService, count: int) -> None:
    topics = [shop.source, f"{shop.source}.retry.300ms"]
    until(lambda: is_all_committed(shop.bootstrap, shop.shape.group, topics), "all committed", within_s=60)
    until(lambda: count_all(shop.bootstrap, f"{shop.source}.dlq") >= count * PARTITIONS // 50, "all letters")


@pytest.mark.chaos
@pytest.mark.parametrize(
    "is_async", [False, pytest.param(True, marks=pytest.mark.long)], ids=lambda is_async: f"async={is_async}"
)
def test_a_rolling_restart_runs_nothing_twice(kafka, tmp_path, is_async, is_long):
    count, restarts = (5000, 6) if is_long else (2000, 3)
    shop = ObedientService(
        kafka.bootstrap, tmp_path, tiers=("300ms",), is_async=is_async, takes_s=0.001, concurrency=2
    )
    shop.create_topics(PARTITIONS)
    _feed(shop, count)
    processes = [shop.process().start() for _ in range(2)]
    try:
        for restart in range(restarts):
            _await_runs(shop, (restart + 1) * count * PARTITIONS // (restarts + 2))
            process = processes[restart % 2]
            assert process.terminate() == 0
            process.start()
        _await_end(shop, count)
    finally:
        for process in processes:
            process.end()

    assert len(shop.ledger.by_record()) == count * PARTITIONS
    assert shop.ledger.repeats() == 0
    assert shop.ledger.early() == []
    letters = [letter.own["id"] for letter in read_all(shop.bootstrap, f"{shop.source}.dlq")]
    assert len(letters) == len(set(letters)) == count * PARTITIONS // 50


@pytest.mark.chaos
@pytest.mark.long
@pytest.mark.parametrize("is_async", [False, True], ids=lambda is_async: f"async={is_async}")
def test_a_process_that_was_frozen_beyond_its_session_commits_nothing_over_its_heirs_and_works_on(
    kafka, tmp_path, is_async
):
    count = 1500
    shop = ObedientService(
        kafka.bootstrap, tmp_path, tiers=("300ms",), is_async=is_async, takes_s=0.003, concurrency=2
    )
    shop.create_topics(PARTITIONS)
    _feed(shop, count)
    frozen, heir = (shop.process().start() for _ in range(2))
    try:
        until(lambda: {frozen.pid, heir.pid} <= {run.pid for run in shop.ledger.runs()}, "both are at work")
        frozen.signal(signal.SIGSTOP)
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 9, "its session ended")
        frozen.signal(signal.SIGCONT)
        _await_end(shop, count)
        ran = _runs_of(shop, frozen.pid)
        _feed(shop, count)
        _await_end(shop, 2 * count)
        assert _runs_of(shop, frozen.pid) > ran
    finally:
        frozen.end()
        heir.end()

    assert len(shop.ledger.by_record()) == 2 * count * PARTITIONS
    assert shop.ledger.early() == []
    letters = {letter.own["id"] for letter in read_all(shop.bootstrap, f"{shop.source}.dlq")}
    assert len(letters) == 2 * count * PARTITIONS // 50


def _await_runs(shop: ObedientService, count: int) -> None:
    until(lambda: shop.ledger.count() > count, f"{count} runs", within_s=60)


def _runs_of(shop: ObedientService, pid: int) -> int:
    return sum(run.pid == pid for run in shop.ledger.runs())
