"""SIGTERM: handlers may end what they are at, for a bounded time; what they don't end is read again by the next owner."""

import signal
import time
from collections.abc import Callable

import pytest

from tests.plain_kafka import committed, unique
from tests.services.launch import ObedientService
from tests.services.obedient import Order
from tests.waiting import until

DRAIN_S = 1.5


@pytest.fixture
def service(kafka, tmp_path) -> Callable[..., ObedientService]:
    return lambda **shape: ObedientService(kafka.bootstrap, tmp_path, **shape)


@pytest.mark.parametrize("is_async", [True, False], ids=["coroutines", "threads"])
def test_at_sigterm_a_hundred_running_handlers_end_and_are_committed(service, is_async):
    shop = service(is_async=is_async, concurrency=100)
    shop.create_topics(partitions=100)
    shop.send_to_each(100, Order(takes_s=2.0))
    with shop.process(shutdown_timeout="10s") as process:
        until(lambda: shop.ledger.count() == 100, "a hundred handlers run")
        shop.send_to_each(100, Order(seen="too late"))
        exit_code = process.terminate()

    ended = {run.event_id for run in shop.ledger.runs() if run.note == "ended"}
    assert (exit_code, len(ended), shop.ledger.count()) == (0, 100, 200)
    assert committed(shop.bootstrap, shop.shape.group, shop.source) == dict.fromkeys(range(100), 1)


@pytest.mark.parametrize(
    ("ways", "is_async"),
    [
        (["in a thread"], False),
        (["awaits", "refuses to be cancelled", "waits for a thread"], True),
        (["blocks the loop"], True),
    ],
    ids=["threads", "coroutines", "the loop"],
)
def test_a_handler_that_never_ends_does_not_keep_the_process_and_its_record_is_read_again(
    service, ways, is_async
):
    shop = service(is_async=is_async, sources=tuple(unique("orders") for _ in ways))
    shop.create_topics()
    for way, source in zip(ways, shop.shape.sources, strict=True):
        shop.send(Order(seen="first"), Order(stuck=way, seen=way), source=source)
    with shop.process(shutdown_timeout=f"{DRAIN_S}s") as process:
        until(lambda: shop.ledger.count() == 2 * len(ways), "each second handler runs")
        began = time.monotonic()
        process.signal(signal.SIGTERM)
        process.wait(within_s=DRAIN_S + 12)
        took_s = time.monotonic() - began
    with shop.process(shutdown_timeout="100ms"):
        until(lambda: shop.ledger.count() >= 3 * len(ways), "the next owner reads it again")

    notes = [run.note for run in shop.ledger.runs()]
    assert sorted(notes) == sorted(["first"] * len(ways) + 2 * ways)
    assert took_s < DRAIN_S + 8
