"""A release that fails everything doesn't empty its topic into the dead-letter topic; its fix handles the rest."""

import time

import pytest

from redrive import App, RetryPolicy
from tests.faults import running_with
from tests.plain_kafka import Given, count_all, create_topics_of, is_all_committed, send, unique
from tests.waiting import until

RECORDS = 10_000
SECONDS = 3


def _app(
    bootstrap: str, group: str, orders: str, *tiers: str, is_async: bool, error: type[Exception] | None
) -> App:
    # The breaker would take the transient ones for an outage, and hold them before the brake sees any die.
    app = App(group, settings={"bootstrap_servers": bootstrap, "commit_interval": "100ms", "breaker": False})

    def handle(value: bytes) -> None:
        if error is not None:
            raise error

    async def handle_awaited(value: bytes) -> None:
        handle(value)

    app.listener(orders, retry=RetryPolicy(*tiers), concurrency=4)(handle_awaited if is_async else handle)
    return app


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("tiers", "is_async", "error"),
    [((), False, TypeError), (("200ms",), True, ConnectionError)],
    ids=["functions", "coroutines with a ladder"],
)
def test_at_most_a_hundred_and_one_a_second_become_dead_letters(kafka, tiers, is_async, error):
    orders, group = unique("orders"), unique("group")
    dlq = f"{orders}.dlq"
    bad = _app(kafka.bootstrap, group, orders, *tiers, is_async=is_async, error=error)
    fixed = _app(kafka.bootstrap, group, orders, *tiers, is_async=is_async, error=None)
    topics = create_topics_of(kafka.bootstrap, bad, 4)
    send(kafka.bootstrap, orders, [Given(key=b"%d" % number) for number in range(RECORDS)])
    began = time.monotonic()
    with running_with(bad) as service:
        until(lambda: service.told("brake-on"), "the brake engages")
        until(lambda: time.monotonic() - began > SECONDS, "time passes")
    dead = count_all(kafka.bootstrap, dlq)
    elapsed_s = time.monotonic() - began
    with running_with(fixed) as service:
        read = [topic for topic in topics if topic == orders or ".retry." in topic]
        until(lambda: is_all_committed(kafka.bootstrap, group, read), "the fix handles the rest", within_s=60)
        [listener] = service.service.pump.engine.listeners
        handled = listener.counters.handled

    assert 50 <= dead <= 100 + elapsed_s
    assert count_all(kafka.bootstrap, dlq) == dead
    assert handled == RECORDS - dead
