"""
The limit in Python for key order: a bare asyncio loop, one chain of records a key.

    python -m benchmarks.bare_by_key w4 | w4-100 | w4-quick | w5

It commits each partition's finished prefix; what is finished above it a crash would repeat. Failing records wait in memory
and are forgotten by a crash. No classification, no rebalance handling.
"""

import asyncio
import sys
import time
from collections import deque
from typing import Any

import msgspec
from confluent_kafka import Message, TopicPartition

from benchmarks.bare import BATCH, COMMIT_EVERY_S, consumer_of
from benchmarks.by_key import WORKLOADS, InKeyOrder, Keyed
from benchmarks.workload import RECORDS, RUN, TOPIC, emit, end_after

_decode = msgspec.json.decode


class Chains:
    """A task for each key that has records; at most `concurrency` handlers at work."""

    def __init__(self, workload: Keyed, counted: InKeyOrder) -> None:
        self._workload, self._counted = workload, counted
        self._places = asyncio.Semaphore(workload.concurrency)
        self._chains: dict[bytes, deque[Message]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: dict[int, dict[int, None]] = {}  # by partition, in the order of their offsets
        self._next: dict[int, int] = {}
        # The client hands over one partition after another: with fewer the hottest key may come last.
        self._most = max(4000, 20 * workload.concurrency)

    async def run(self) -> dict[str, object]:
        """Until all records are handled."""
        loop = asyncio.get_running_loop()
        consumer = consumer_of(f"bare-{RUN}")
        consumer.subscribe([TOPIC])
        committed_s = time.monotonic()
        while not self._counted.done:
            if sum(map(len, self._open.values())) < self._most:
                for message in await loop.run_in_executor(None, consumer.consume, BATCH, 0.005):
                    if message.error() is None:
                        self._take(message)
            else:
                await asyncio.sleep(0.002)
            if time.monotonic() - committed_s >= COMMIT_EVERY_S and self._next:
                consumer.commit(offsets=self._finished(), asynchronous=True)
                committed_s = time.monotonic()
        consumer.close()
        return self._counted.report()

    def _finished(self) -> list[TopicPartition]:
        return [
            TopicPartition(TOPIC, number, next(iter(self._open[number]), after))
            for number, after in self._next.items()
        ]

    def _take(self, message: Message) -> None:
        partition, offset, key = message.partition() or 0, message.offset() or 0, message.key() or b""
        self._open.setdefault(partition, {})[offset] = None
        self._next[partition] = offset + 1
        if chain := self._chains.get(key):
            chain.append(message)
            return
        self._chains[key] = deque([message])
        task = asyncio.ensure_future(self._work_off(key))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work_off(self, key: bytes) -> None:
        chain = self._chains[key]
        while chain:
            message = chain[0]
            if not await self._is_handled(_decode(message.value() or b"")):
                await asyncio.sleep(self._workload.delay_s)
                continue
            del self._open[message.partition() or 0][message.offset() or 0]
            chain.popleft()
        del self._chains[key]

    async def _is_handled(self, value: dict[str, Any]) -> bool:
        number = value["id"]
        async with self._places:
            self._counted.begin(number)
            if self._workload.takes_s:
                await asyncio.sleep(self._workload.takes_s)
            try:
                self._counted.end(number)
            except RuntimeError:
                return False
        return True


def main(name: str) -> None:
    """Run one workload and print its result."""
    end_after(280)
    workload = WORKLOADS[name]
    emit(asyncio.run(Chains(workload, InKeyOrder(workload, RECORDS)).run()))


if __name__ == "__main__":
    main(sys.argv[1])
