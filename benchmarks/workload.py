"""What every contestant has to do, how it is counted, and the one line of JSON that it prints at the end."""

import array
import json
import os
import sys
import threading
import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient, NewTopic

BOOTSTRAP = os.environ.get("BENCH_BOOTSTRAP", "127.0.0.1:29092")
#: Records to handle before a run ends.
RECORDS = int(os.environ.get("BENCH_RECORDS", "2000000"))
TOPIC = os.environ.get("BENCH_TOPIC", "bench-w1")
#: How the records of the topic are spread over keys, as `by_key.keys_of` has it.
SPREAD = os.environ.get("BENCH_SPREAD", "own")
#: Unique for each run: group and retry topics.
RUN = os.environ.get("BENCH_RUN", "try")
PARTITIONS = 4


def amount_of(number: int) -> int:
    """An amount that differs from record to record, so that a sum tells which were handled."""
    return (number * 7919) % 10007


def value_of(number: int) -> bytes:
    """An order of about 185 bytes."""
    order = {
        "id": number,
        "customer": f"customer-{number % 5000:06d}",
        "amount": amount_of(number),
        "currency": "EUR",
        "items": [
            {"sku": f"sku-{number % 997:05d}", "qty": 1 + number % 4},
            {"sku": f"sku-{number % 499:05d}", "qty": 2},
        ],
        "ts": 1767225600000 + number,
        "note": "leave at the door",
    }
    return json.dumps(order, separators=(",", ":")).encode()


def key_of(key: int) -> bytes:
    """The bytes of a key."""
    return b"key-%012d" % key


def make_topic(name: str) -> None:
    """Create a topic unless it is there, and wait until it can be used."""
    admin = _admin()
    if name in admin.list_topics(timeout=10).topics:
        return
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()
    deadline = time.monotonic() + 10
    while len(admin.list_topics(timeout=10).topics.get(name, _Missing).partitions) != PARTITIONS:
        if time.monotonic() > deadline:
            raise RuntimeError(f"topic {name} does not come up")
        time.sleep(0.05)


def drop_topics(names: list[str]) -> None:
    """Delete topics; those that are gone already don't matter."""
    admin = _admin()
    for future in admin.delete_topics(names).values():
        future.exception()


def count_records(topic: str) -> int:
    """How many records a topic holds; 0 when there is none of this name."""
    from confluent_kafka import Consumer, TopicPartition

    if topic not in _admin().list_topics(timeout=10).topics:
        return 0
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "bench-count"})
    marks = [consumer.get_watermark_offsets(TopicPartition(topic, number)) for number in range(PARTITIONS)]
    consumer.close()
    return sum(end - first for first, end in marks)


def _admin() -> AdminClient:
    return AdminClient({"bootstrap.servers": BOOTSTRAP, "log_level": 0})


class _Missing:
    partitions: tuple[()] = ()


class Tally:
    """W1: counts and sums; takes the time at the first and at the last record. The clock starts at the first."""

    def __init__(self, records: int = RECORDS) -> None:
        self.goal, self.seen, self.total = records, 0, 0
        self.first_s = self.last_s = 0.0
        self.done = False

    def add(self, amount: int) -> None:
        """Count one handled record."""
        self.total += amount
        seen = self.seen = self.seen + 1
        if seen == 1:
            self.first_s = time.perf_counter()
        elif seen == self.goal:
            self.last_s = time.perf_counter()
            self.done = True

    def report(self) -> dict[str, object]:
        """The result: right only when exactly the topic's records were handled, once each."""
        seconds = self.last_s - self.first_s
        expected = sum(map(amount_of, range(self.goal)))
        return {
            "records": self.seen,
            "seconds": round(seconds, 3),
            "rate": round(self.goal / seconds),
            "is_right": self.seen == self.goal and self.total == expected,
        }


class Attempts:
    """
    W2 and W3: which record was tried how often, and how late the later attempts came.

    Due = the time at which the attempt before raised + the delay; the same wall clock and rule for every contestant,
    taken in the handler.
    """

    def __init__(self, records: int, fails: Callable[[int], bool], delays_s: tuple[float, ...]) -> None:
        self._fails, self._delays_s, self._records = fails, delays_s, records
        self._tried = bytearray(records)
        self._failed_s = array.array("d", bytes(8 * records))
        self._late_s = [array.array("d") for _ in delays_s]
        self._first_s = self._last_s = 0.0
        self._handled = self._repeats = 0
        self.done = False

    def attempt(self, number: int) -> None:
        """Run for one record; raises when this attempt has to fail."""
        now_s = time.time()
        tried = self._tried[number]
        self._tried[number] = min(tried + 1, 255)
        self._first_s = self._first_s or now_s
        failures = len(self._delays_s) if self._fails(number) else 0
        if 0 < tried <= failures:
            self._late_s[tried - 1].append(now_s - self._failed_s[number] - self._delays_s[tried - 1])
        if tried < failures:
            self._failed_s[number] = time.time()
            raise RuntimeError("it fails the first times")
        if tried > failures:
            self._repeats += 1
            return
        self._handled += 1
        if self._handled == self._records:
            self._last_s = now_s
            self.done = True

    def report(self) -> dict[str, object]:
        """The result, with the spread of lateness for each delay."""
        seconds = self._last_s - self._first_s
        lateness = {
            f"late_{delay_s:g}s_ms": spread_ms(late_s)
            for delay_s, late_s in zip(self._delays_s, self._late_s, strict=True)
        }
        return {
            "records": self._handled,
            "seconds": round(seconds, 3),
            "rate": round(self._handled / seconds),
            "is_right": self._handled == self._records and self._repeats == 0,
            "repeats": self._repeats,
            **lateness,
        }


def every_tenth(number: int) -> bool:
    """W2: one in ten fails once."""
    return number % 10 == 0


def every(number: int) -> bool:
    """W3: all fail, once for each delay."""
    return number >= 0


def spread_ms(late_s: "array.array[float]") -> dict[str, float]:
    """Minimum, median, 99th percentile, maximum; how many were early."""
    ordered = sorted(late * 1000 for late in late_s)
    if not ordered:
        return {"count": 0}

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

    early = sum(late < 0 for late in ordered)
    return {
        "count": len(ordered),
        "min": at(0),
        "p50": at(0.5),
        "p99": at(0.99),
        "max": at(1),
        "early": early,
    }


def emit(report: dict[str, object]) -> None:
    """The one line that the runner reads."""
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


def end_after(seconds: float) -> None:
    """A contestant that hangs must not hang the series."""

    def end() -> None:
        emit({"error": f"not done after {seconds:g} s"})
        os._exit(3)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
