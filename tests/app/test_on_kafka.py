"""`app.run()` and `app.serving()` on a real broker: they handle records, and end as they should."""

import asyncio
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from redrive import App, Record, RetryPolicy
from tests.conftest import NewTopicCalled, RunningKafka

SERVICE = """
from redrive import App, RetryPolicy
app = App("GROUP", settings={"bootstrap_servers": "BOOTSTRAP"})

@app.listener("TOPIC", retry=RetryPolicy())
def handle(value: dict) -> None:
    print(value["total"], flush=True)

app.run()
print("ended", flush=True)
"""


@pytest.fixture
def orders(topic: NewTopicCalled) -> str:
    """A source topic with the topics of a listener without a ladder."""
    name = topic("orders")
    for suffix in ("dlq", "dlq.state", "replay"):
        topic(f"{name}.{suffix}", exact=True)
    return name


def send(kafka: RunningKafka, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


def test_run_handles_records_until_sigterm(
    kafka: RunningKafka, orders: str, group: str, tmp_path: Path
) -> None:
    script = SERVICE.replace("GROUP", group).replace("BOOTSTRAP", kafka.bootstrap).replace("TOPIC", orders)
    (tmp_path / "service.py").write_text(script)
    send(kafka, orders, b'{"total": 17}')

    with subprocess.Popen(
        [sys.executable, "service.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()

    assert (first, rest, process.returncode) == ("17\n", "ended\n", 0)


def test_serving_runs_coroutine_handlers_on_the_hosts_loop(
    kafka: RunningKafka, orders: str, group: str
) -> None:
    @asynccontextmanager
    async def lifespan() -> Any:
        yield asyncio.get_running_loop()

    app = App(group, settings={"bootstrap_servers": kafka.bootstrap}, lifespan=lifespan)
    handled: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()

    @app.listener(orders, retry=RetryPolicy())
    async def handle(value: dict[str, int], record: Record) -> None:
        handled.put_nowait((value, record.resources, asyncio.get_running_loop()))

    async def host() -> None:
        loop = asyncio.get_running_loop()
        async with app.serving():
            assert await handled.get() == ({"total": 17}, loop, loop)

    send(kafka, orders, b'{"total": 17}')
    asyncio.run(host())
