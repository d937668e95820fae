"""
Fills topics: `python -m benchmarks.feed backlog` (all others), `python -m benchmarks.feed steady` (W3, 50 records/s).
"""

import os
import sys
import time

from confluent_kafka import Producer

from benchmarks.by_key import keys_of
from benchmarks.workload import (
    BOOTSTRAP,
    RECORDS,
    SPREAD,
    TOPIC,
    count_records,
    drop_topics,
    key_of,
    make_topic,
    value_of,
)

PER_SECOND = 50
HEADERS: list[tuple[str, str | bytes | None]] = [("source", b"shop-7")]


def backlog() -> None:
    """A topic of `RECORDS` records, kept between runs."""
    if count_records(TOPIC) == RECORDS:
        return
    drop_topics([TOPIC])
    time.sleep(1)  # a deletion goes on after it was answered
    make_topic(TOPIC)
    producer = Producer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "linger.ms": 20,
            "enable.idempotence": True,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for number, key in enumerate(keys_of(SPREAD, RECORDS)):
        while True:
            try:
                producer.produce(TOPIC, value_of(number), key_of(key), headers=HEADERS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit(f"{TOPIC}: not all records were written")


def steady() -> None:
    """50 records a second, after the contestant has had time to join its group."""
    time.sleep(float(os.environ.get("BENCH_FEED_AFTER", "8")))
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "linger.ms": 0})
    began_s = time.monotonic()
    for number in range(RECORDS):
        time.sleep(max(0.0, began_s + number / PER_SECOND - time.monotonic()))
        producer.produce(TOPIC, value_of(number), key_of(number), headers=HEADERS)
        producer.poll(0)
    producer.flush(10)


if __name__ == "__main__":
    {"backlog": backlog, "steady": steady}[sys.argv[1]]()
