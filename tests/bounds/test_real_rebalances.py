"""What a process of a service has is the same after many rebalances, on a real broker."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer

from tests.bounds.counting import grown
from tests.bounds.counting_shop import COUNT, FAILS_ONCE, IS_FINE, TIER, Counts, Shape, make
from tests.ledger import Ledger
from tests.plain_kafka import Given, create_topics_of, is_through, send, unique
from tests.service_process import ServiceProcess
from tests.waiting import until

PARTITIONS = 4
WARM_UP = 5
#: How the second member joins.
PROTOCOLS = {
    "consumer": {"group.protocol": "consumer"},
    "classic": {"group.protocol": "classic", "partition.assignment.strategy": "range"},
}


class Shop:
    """One process of the service, and a stranger that joins its group and leaves it."""

    def __init__(self, bootstrap: str, folder: Path, protocol: str, delivery: str) -> None:
        self._shape = Shape(unique("group"), unique("orders"))
        self._bootstrap, self._protocol = bootstrap, protocol
        self._ledger, self._counts = Ledger(folder / "ledger"), folder / "counts"
        self._sent = 0
        environment = {
            "SERVICE": msgspec.json.encode(self._shape).decode(),
            "LEDGER": str(self._ledger.path),
            "COUNTS": str(self._counts),
            "REDRIVE_BOOTSTRAP_SERVERS": bootstrap,
            "REDRIVE_COMMIT_INTERVAL": "100ms",
            "REDRIVE_GROUP_PROTOCOL": protocol,
            "REDRIVE_DELIVERY": delivery,
        }
        if protocol == "classic":  # by its heartbeats the process learns of a rebalance
            environment["REDRIVE_KAFKA__HEARTBEAT_INTERVAL_MS"] = "100"
        self.process = ServiceProcess("tests.bounds.counting_shop:app", folder / "log", environment)
        create_topics_of(bootstrap, make(self._shape, self._ledger, self._counts), PARTITIONS)

    def rebalance(self, turns: int) -> None:
        """Two a turn: one as the stranger comes, one as it goes."""
        for _ in range(turns):
            with self._stranger():
                self._send(FAILS_ONCE, IS_FINE)
            # Also those in the partitions that the stranger had: they are back.
            until(lambda: len(self._ledger.by_record()) == self._sent, "all records were handled")

    def count(self) -> Counts:
        """What the process has while nothing is left to do."""
        before = len(self._counted())
        topics = [self._shape.source, f"{self._shape.source}.retry.{TIER}"]
        until(lambda: is_through(self._bootstrap, self._shape.group, topics), "all committed")
        send(self._bootstrap, self._shape.source, [Given(COUNT, partition=0)])
        return until(lambda: self._counted()[before:], "it has counted")[0]

    def _counted(self) -> list[Counts]:
        lines = self._counts.read_bytes().splitlines() if self._counts.exists() else []
        return [msgspec.json.decode(line, type=Counts) for line in lines]

    def _send(self, *values: bytes) -> None:
        """To each partition."""
        records = [Given(value, partition=number) for number in range(PARTITIONS) for value in values]
        send(self._bootstrap, self._shape.source, records)
        self._sent += len(records)

    @contextlib.contextmanager
    def _stranger(self) -> Iterator[None]:
        """It gets partitions of the source, and handles nothing."""
        conf = {
            "bootstrap.servers": self._bootstrap,
            "group.id": self._shape.group,
            **PROTOCOLS[self._protocol],
        }
        consumer = Consumer({**conf, "enable.auto.commit": False})
        consumer.subscribe([self._shape.source])
        try:
            until(
                lambda: (consumer.consume(1, 0.01), consumer.assignment())[1], "partitions for the stranger"
            )
            yield
        finally:
            consumer.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("protocol", "delivery"),
    [("consumer", "at-least-once"), ("classic", "at-least-once"), ("consumer", "exactly-once")],
)
def test_there_are_as_many_threads_file_descriptors_and_objects_as_before(
    kafka, tmp_path, protocol, delivery, is_long
):
    turns = 100 if is_long else 15
    shop = Shop(kafka.bootstrap, tmp_path, protocol, delivery)
    with shop.process:
        shop.rebalance(WARM_UP)
        before = shop.count()
        shop.rebalance(turns)
        after = shop.count()

    assert (after.threads, after.file_descriptors) == (before.threads, before.file_descriptors)
    assert grown(before.objects, after.objects) == {}
