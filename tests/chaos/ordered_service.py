"""Feeds the service of `tests/services/ordered.py`, runs workers of it, and has judged what they did."""

import random
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from confluent_kafka import Producer

from tests.chaos.faults import SAID, of_kills
from tests.chaos.key_order import Letter, Sent, Step, Verdict, judge
from tests.ledger import Ledger
from tests.plain_kafka import count_all, create_topics_of, is_all_committed, read_all, unique
from tests.service_process import ServiceProcess
from tests.services.ordered import FOR_GOOD, MOST_ATTEMPTS, Shape, Work, make
from tests.waiting import until

PARTITIONS = 6
KEYS = 300
COMMIT_INTERVAL_MS = 500
#: What had ended longer before a kill was committed: two intervals, and a busy machine.
REPEAT_WITHIN_MS = 2 * COMMIT_INTERVAL_MS + 1500
GARBAGE = b"\xff{not json"
_TICK_S = 0.02


class OrderedService:
    """A group with its two sources; what is sent is decided by `seed`."""

    def __init__(
        self, bootstrap: str, folder: Path, seed: int = 1, *, parks: bool = False, **settings: str
    ) -> None:
        self.bootstrap, self._folder, self._settings = bootstrap, folder, settings
        self.shape = Shape(unique("group"), unique("by-threads"), unique("by-loop"), parks)
        self.sources = (self.shape.threads, self.shape.loop)
        self.ledger = Ledger(folder / "ledger")
        self.kills: dict[int, float] = {}
        self._dice = random.Random(seed)
        self._count = 0
        create_topics_of(bootstrap, make(self.shape, self.ledger), PARTITIONS)

    def worker(self) -> ServiceProcess:
        """One more process, not started yet."""
        self._count += 1
        environment = {
            "SERVICE": msgspec.json.encode(self.shape).decode(),
            "LEDGER": str(self.ledger.path),
            "REDRIVE_BOOTSTRAP_SERVERS": self.bootstrap,
            "REDRIVE_COMMIT_INTERVAL": f"{COMMIT_INTERVAL_MS}ms",
            **{f"REDRIVE_{name.upper()}": value for name, value in self._settings.items()},
        }
        return ServiceProcess("tests.services.ordered:app", self._folder / f"log-{self._count}", environment)

    def kill(self, worker: ServiceProcess) -> None:
        """SIGKILL, and keep in mind when: not later than it can have had an effect."""
        self.kills[worker.pid] = time.time() * 1000
        worker.kill()

    def feed(self, rate: float, stop: threading.Event) -> None:
        """Send so many records a second, half to each source, until told to stop."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, "enable.idempotence": True})
        began_s, sent = time.monotonic(), 0
        while not stop.wait(_TICK_S):
            due = int((time.monotonic() - began_s) * rate)
            for number in range(sent, due):
                key, value = self._record()
                producer.produce(self.sources[number % 2], value, key)
            sent = max(sent, due)
            producer.poll(0)
        left = producer.flush(30)
        assert left == 0, f"{left} records were not written"

    def _record(self) -> tuple[bytes, bytes]:
        """Few keys have many; three in a hundred fail some times, one in a thousand for good or can't be read."""
        dice = self._dice
        key = b"key-%d" % int(KEYS * dice.random() ** 2)
        roll = dice.random()
        if roll < 0.0002:
            return key, GARBAGE
        fails = FOR_GOOD if roll < 0.001 else dice.randint(1, MOST_ATTEMPTS - 1) if roll < 0.03 else 0
        return key, msgspec.json.encode(Work(fails, round(dice.uniform(0, 4), 1)))

    def is_through(self) -> bool:
        parked = [f"{source}.parked" for source in self.sources] if self.shape.parks else []
        return is_all_committed(self.bootstrap, self.shape.group, [*self.sources, *parked])

    def await_end(self, *, within_s: float = 60.0) -> None:
        until(self.is_through, "all is committed", within_s=within_s)

    def count_parked(self) -> int:
        """How many copies wait, or waited, in the parked topics."""
        if not self.shape.parks:
            return 0
        return sum(count_all(self.bootstrap, f"{source}.parked") for source in self.sources)

    def count_sent(self) -> int:
        return sum(count_all(self.bootstrap, source) for source in self.sources)

    def verdict(self, kills: Mapping[int, float] | None = None) -> Verdict:
        """Judge all that was done so far, by what the topics hold."""
        sent: list[Sent] = []
        poison: set[str] = set()
        letters: list[Letter] = []
        for source in self.sources:
            for seen in read_all(self.bootstrap, source):
                record = f"{source}/{seen.partition}/{seen.offset}"
                if seen.value == GARBAGE:
                    poison.add(record)
                    continue
                fails = msgspec.json.decode(seen.value, type=Work).fails
                key = f"{source} {seen.key.decode()}"
                sent.append(Sent(record, key, MOST_ATTEMPTS if fails == FOR_GOOD else 0))
            dead = read_all(self.bootstrap, f"{source}.dlq")
            letters += [Letter(one.own["id"], one.own["reason"]) for one in dead]
        return judge(
            sent,
            self._steps(),
            of_kills(self.kills if kills is None else kills),
            letters,
            poison=frozenset(poison),
            repeat_within_ms=REPEAT_WITHIN_MS,
        )

    def _steps(self) -> Iterator[Step]:
        for run in self.ledger.each():
            if run.note in SAID:
                continue
            yield Step(run.event_id, run.attempt, run.note, run.pid, run.start_ms, run.due_ms)
