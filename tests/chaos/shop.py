"""
A service of `tests/services/ordered.py` with all three listeners on several brokers: what is sent to it, and its workers.

Of all records 10 % fail in their first attempt or two, one in a hundred of these in each; 1 % fail for good, 0.1 % can't be
read, and one kills its process each time it runs.
"""

import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.chaos.ordered_service import COMMIT_INTERVAL_MS, GARBAGE
from tests.ledger import Ledger
from tests.plain_kafka import create_topics, create_topics_of, is_through, unique
from tests.service_process import ServiceProcess
from tests.services.ordered import FOR_GOOD, TIERS, Shape, Work, make

WORKERS = 3
KEYS = 1000
_TICK_S = 0.02


class Mode(NamedTuple):
    """What is tried: `parks`: keys wait in a topic of their own; with delivery `exactly-once`, or without."""

    parks: bool = False
    exactly_once: bool = False


MODES = {"held": Mode(), "parked": Mode(parks=True), "exactly-once": Mode(exactly_once=True)}


class Shop:
    """
    The group, its topics on the cluster at `direct`, its workers, which see it at `bootstrap`. What is sent is decided by `seed`.
    """

    def __init__(
        self,
        bootstrap: str,
        direct: str,
        folder: Path,
        *,
        mode: Mode,
        seed: int,
        partitions: int,
        replicas: int,
    ) -> None:
        self.direct, self.mode, self.partitions = direct, mode, partitions
        # Short names: a log line tells all partitions of an assignment, up to 500 characters.
        self.shape = Shape(unique("g"), "threads", "loop", mode.parks, ladder="ladder", emits_to="emitted")
        self.by_key = (self.shape.threads, self.shape.loop)
        self.sources = (*self.by_key, self.shape.ladder)
        self.tiers = [f"{self.shape.ladder}.retry.{delay}" for delay in TIERS]
        self.ledger = Ledger(folder / "ledger")
        self.sent = 0
        self.refused: list[str] = []
        self._dice = random.Random(seed)
        environment = {
            "SERVICE": msgspec.json.encode(self.shape).decode(),
            "LEDGER": str(self.ledger.path),
            "REDRIVE_BOOTSTRAP_SERVERS": bootstrap,
            "REDRIVE_COMMIT_INTERVAL": f"{COMMIT_INTERVAL_MS}ms",
            # A minute holds more of them than with the client's 10 s.
            "REDRIVE_KAFKA__RECONNECT_BACKOFF_MAX_MS": "1000",
        }
        self.workers = [
            Worker(f"worker-{at}", folder, environment, exactly_once=mode.exactly_once)
            for at in range(1, WORKERS + 1)
        ]
        create_topics_of(direct, make(self.shape, self.ledger), partitions, replicas=replicas)
        create_topics(direct, [self.shape.emits_to], partitions, replicas=replicas)

    def feed(self, count: int, seconds: float, stop: threading.Event) -> None:
        """Send so many records, evenly over so long, a third to each source; past all that happens to the workers' network."""
        producer = Producer({"bootstrap.servers": self.direct, "linger.ms": 5, "enable.idempotence": True})
        killer = int(count * self._dice.uniform(0.2, 0.4))
        began_s = time.monotonic()
        while self.sent < count and not stop.wait(_TICK_S):
            due = min(count, int((time.monotonic() - began_s) * count / seconds) + 1)
            for number in range(self.sent, due):
                key, value = self._record(kills=number == killer)
                producer.produce(self.sources[number % 3], value, key, on_delivery=self._told)
                producer.poll(0)
            self.sent = due
        if left := producer.flush(60):
            self.refused.append(f"{left} records without an answer")

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.refused.append(error.str())

    def _record(self, *, kills: bool) -> tuple[bytes, bytes]:
        """A few keys have many records."""
        dice = self._dice
        key = b"key-%d" % int(KEYS * dice.random() ** 2)
        roll = dice.random()
        takes_ms = round(dice.uniform(0, 4), 1)
        if kills:
            return key, msgspec.json.encode(Work(kills=True))
        if roll < 0.001:
            return key, GARBAGE
        if roll < 0.011:
            return key, msgspec.json.encode(Work(takes_ms=takes_ms, bug=True))
        fails = FOR_GOOD if roll < 0.012 else 2 if roll < 0.03 else int(roll < 0.111)
        return key, msgspec.json.encode(Work(fails, takes_ms))

    def is_through(self) -> bool:
        """Whether all is done and committed; records go from sources to tiers, so it is looked for in that order."""
        parked = [f"{source}.parked" for source in self.by_key] if self.mode.parks else []
        with suppress(KafkaException):  # a coordinator that has just moved is asked again
            return is_through(self.direct, self.shape.group, [*self.sources, *self.tiers, *parked])
        return False


class Worker(ServiceProcess):
    """One of the shop's processes. `is_taken`: something is being done to it."""

    def __init__(self, name: str, folder: Path, environment: dict[str, str], *, exactly_once: bool) -> None:
        own = {"REDRIVE_DELIVERY": "exactly-once", "REDRIVE_INSTANCE_ID": name} if exactly_once else {}
        super().__init__("tests.services.ordered:app", folder / f"{name}.log", {**environment, **own})
        self.name = name
        self.is_taken = False
