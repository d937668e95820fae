"""
The limit in Python: bare confluent-kafka loops that do the same work with nothing between.

    python -m benchmarks.bare w1 | w1-async | w2 | w3

`BENCH_TUNED=0`: the client's default settings. W2 and W3 confirm a produced retry before its offset is committed; they
have no dead letters, no classification, no rebalance handling.
"""

import asyncio
import os
import sys
import time
from collections import deque
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from benchmarks.workload import (
    BOOTSTRAP,
    RECORDS,
    RUN,
    TOPIC,
    Attempts,
    Tally,
    drop_topics,
    emit,
    end_after,
    every,
    every_tenth,
    make_topic,
)

BATCH = 500
COMMIT_EVERY_S = 1.0
HELD_MOST = 20_000
_decode = msgspec.json.decode


def consumer_of(group: str) -> Consumer:
    """A member that commits when it is told."""
    # What makes the difference: at the default of 1000 a full local queue makes the fetcher sleep a second.
    tuned = {"fetch.queue.backoff.ms": 10} if os.environ.get("BENCH_TUNED", "1") == "1" else {}
    conf: dict[str, Any] = {
        "bootstrap.servers": BOOTSTRAP,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **tuned,
    }
    return Consumer(conf)


def _commit_last(consumer: Consumer) -> None:
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:  # noqa: SLF001  the name that the client has for it
            raise


def w1() -> dict[str, object]:
    """One thread, a handler call a record, an asynchronous commit each second."""
    tally = Tally()

    def handle(value: bytes | None) -> None:
        tally.add(_decode(value or b"")["amount"])

    consumer = consumer_of(f"bare-{RUN}")
    consumer.subscribe([TOPIC])
    committed_s = time.monotonic()
    while not tally.done:
        for message in consumer.consume(BATCH, 0.2):
            if message.error() is None:
                handle(message.value())
        if time.monotonic() - committed_s >= COMMIT_EVERY_S:
            consumer.commit(asynchronous=True)
            committed_s = time.monotonic()
    _commit_last(consumer)
    consumer.close()
    return tally.report()


async def w1_async() -> dict[str, object]:
    """The same with `await handle(value)` on an event loop, the consumer in a thread."""
    tally = Tally()

    async def handle(value: Any) -> None:
        tally.add(value["amount"])

    loop = asyncio.get_running_loop()
    consumer = consumer_of(f"bare-{RUN}")
    consumer.subscribe([TOPIC])
    committed_s = time.monotonic()
    while not tally.done:
        for message in await loop.run_in_executor(None, consumer.consume, BATCH, 0.2):
            if message.error() is None:
                await handle(_decode(message.value() or b""))
        if time.monotonic() - committed_s >= COMMIT_EVERY_S:
            consumer.commit(asynchronous=True)
            committed_s = time.monotonic()
    _commit_last(consumer)
    consumer.close()
    return tally.report()


class RetryLoop:
    """W2 and W3: one thread, two consumers; records that are not due wait in a queue for each partition."""

    def __init__(self, attempts: Attempts, delays_s: tuple[float, ...]) -> None:
        self._attempts, self._delays_s = attempts, delays_s
        self._retry_topic = f"{TOPIC}-retry-{RUN}"
        make_topic(self._retry_topic)
        self._source, self._retries = consumer_of(f"bare-{RUN}"), consumer_of(f"bare-{RUN}-retry")
        self._producer = Producer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "linger.ms": 5,
                "acks": "all",
                "enable.idempotence": True,
                "queue.buffering.max.messages": 500_000,
            }
        )
        self._errors: list[KafkaError] = []
        # By partition and attempt: a long wait must not stand before a short one.
        self._waiting: dict[tuple[int, int], deque[tuple[float, int, Message]]] = {}
        self._held = 0
        self._handled: dict[int, int] = {}

    def run(self) -> dict[str, object]:
        """Until all records are handled."""
        self._source.subscribe([TOPIC])
        self._retries.subscribe([self._retry_topic])
        committed_s = time.monotonic()
        while not self._attempts.done:
            self._take_source()
            self._producer.poll(0)
            self._take_retries()
            self._run_due()
            if time.monotonic() - committed_s >= COMMIT_EVERY_S:
                self._commit()
                committed_s = time.monotonic()
        self._producer.flush()
        _commit_last(self._source)
        self._source.close()
        self._retries.close()
        drop_topics([self._retry_topic])
        return self._attempts.report()

    def _take_source(self) -> None:
        due_s = min((queue[0][0] for queue in self._waiting.values() if queue), default=time.time() + 0.02)
        for message in self._source.consume(BATCH, max(0.0, min(0.02, due_s - time.time()))):
            if message.error() is None:
                self._handle(message, 0)

    def _take_retries(self) -> None:
        if self._held >= HELD_MOST:
            return
        for message in self._retries.consume(BATCH, 0):
            if message.error() is None:
                headers = dict(message.headers() or ())
                due_s, tried = float(headers["due"] or 0), int(headers["tried"] or 0)
                self._waiting.setdefault((message.partition() or 0, tried), deque()).append(
                    (due_s, tried, message)
                )
                self._held += 1

    def _run_due(self) -> None:
        now_s = time.time()
        for queue in self._waiting.values():
            while queue and queue[0][0] <= now_s:
                _, tried, message = queue.popleft()
                self._held -= 1
                self._handle(message, tried)
                self._handled[message.partition() or 0] = (message.offset() or 0) + 1

    def _handle(self, message: Message, tried: int) -> None:
        try:
            self._attempts.attempt(_decode(message.value() or b"")["id"])
        except RuntimeError:
            due_s = time.time() + self._delays_s[tried]
            own: list[tuple[str, str | bytes | None]] = [
                ("due", b"%.6f" % due_s),
                ("tried", b"%d" % (tried + 1)),
            ]
            kept = [header for header in message.headers() or () if header[0] not in ("due", "tried")]
            self._producer.produce(
                self._retry_topic,
                message.value(),
                message.key(),
                headers=[*kept, *own],
                on_delivery=self._on_delivery,
            )

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def _commit(self) -> None:
        self._producer.flush()
        if self._errors:
            raise KafkaException(self._errors[0])
        self._source.commit(asynchronous=True)
        if self._handled:
            offsets = [
                TopicPartition(self._retry_topic, number, offset) for number, offset in self._handled.items()
            ]
            self._retries.commit(offsets=offsets, asynchronous=True)
            self._handled.clear()


def main(name: str) -> None:
    """Run one workload and print its result."""
    end_after(280)
    if name == "w1":
        emit(w1())
    elif name == "w1-async":
        emit(asyncio.run(w1_async()))
    elif name == "w2":
        emit(RetryLoop(Attempts(RECORDS, every_tenth, (1.0,)), (1.0,)).run())
    elif name == "w3":
        emit(RetryLoop(Attempts(RECORDS, every, (1.0, 5.0)), (1.0, 5.0)).run())
    else:
        raise SystemExit(f"no workload {name!r}")


if __name__ == "__main__":
    main(sys.argv[1])
