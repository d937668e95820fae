"""An app on a real broker shows itself at its HTTP address: alive, ready, and what became of its records."""

import asyncio
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from redrive import App, DeadLetterNow, RetryPolicy


@pytest.fixture
def orders(topic):
    """A source topic of two partitions, with the topics of a ladder of one tier."""
    name = topic("orders", partitions=2)
    for suffix in ("retry.1s", "dlq", "dlq.state"):
        topic(f"{name}.{suffix}", partitions=2, exact=True)
    return name


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def fetched(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def series(page: str) -> dict[tuple[str, ...], float]:
    """The values of redrive's metrics, by name and the labels that tell its own series apart."""
    return {
        (
            sample.name,
            *(value for name, value in sorted(sample.labels.items()) if name in {"outcome", "reason"}),
        ): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.startswith("redrive_") and not sample.name.endswith("_bucket")
    }


async def until(path: str, port: int, holds: Callable[[str], Any]) -> str:
    """The page, as soon as it is as wanted."""
    while True:
        _, page = await asyncio.to_thread(fetched, f"http://127.0.0.1:{port}{path}")
        if holds(page):
            return page
        await asyncio.sleep(0.05)


def app_on(orders, group, settings):
    app = App(group, settings=settings)

    @app.listener(orders, retry=RetryPolicy("1s"))
    def charge(value: dict) -> None:
        if value["total"] == 0:
            raise DeadLetterNow("nothing to charge")
        if value["total"] < 0:
            raise ConnectionError("the gateway is away")

    return app


def send(bootstrap, topic, *totals):
    producer = Producer({"bootstrap.servers": bootstrap})
    for total in totals:
        producer.produce(topic, json.dumps({"total": total}), partition=total % 2)
    assert producer.flush(30) == 0


async def watched(app: App, port: int) -> tuple[str, str]:
    """The app's metrics once all is done, and the details of its health."""
    async with app.serving():
        await until("/readyz", port, lambda page: page == "ok\n")
        # the failing one comes back from its tier and ends there
        await until("/metrics", port, lambda page: series(page)["redrive_dead_letters_total", "exhausted"])
        await until("/metrics", port, lambda page: series(page)["redrive_unconfirmed_writes",] == 0)
        page = await until(
            "/metrics", port, lambda page: series(page).get(("redrive_source_lag_records",)) == 0
        )
        return page, (await until("/livez?verbose", port, bool))


def test_an_app_tells_of_itself_over_http(kafka, orders, group, port):
    app = app_on(orders, group, {"bootstrap_servers": kafka.bootstrap, "http": f"127.0.0.1:{port}"})
    send(kafka.bootstrap, orders, 1, 2, 3, 0, -1)
    page, details = asyncio.run(asyncio.wait_for(watched(app, port), 60))
    found = series(page)
    counted = {key[1]: value for key, value in found.items() if key[0] == "redrive_records_total" and value}
    assert counted == {"handled": 3, "retried": 1, "dead-lettered": 2}
    assert found["redrive_dead_letters_total", "asked"] == 1
    assert found["redrive_retry_lateness_seconds_count",] == 1
    assert found["redrive_handler_duration_seconds_count",] == 6
    assert json.loads(details)["listeners"][0] | {"oldest_handler_s": 0} == {
        "name": "charge", "brake_on": False, "breaker": "closed", "held_in_outage": 0, "partitions": 4,
        "held": 0, "unconfirmed": 0, "refused": 0, "oldest_handler_s": 0, "paused": False,
    }  # fmt: skip
    with pytest.raises(urllib.error.URLError):
        fetched(f"http://127.0.0.1:{port}/livez")
