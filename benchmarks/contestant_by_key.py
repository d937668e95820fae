"""
redrive on the work of `by_key.py`, as `contestant.py` does it.

    python -m benchmarks.contestant_by_key w4 | w4-100 | w4-retried | w4-quick | w4-quick-threads | w5
"""

import asyncio
import os
import sys
from typing import Any

from benchmarks.by_key import WORKLOADS, InKeyOrder, Keyed
from benchmarks.contestant import app_of, serve
from benchmarks.workload import RECORDS, TOPIC, drop_topics, emit, end_after
from redrive import App, RetryPolicy


def listen(app: App, policy: RetryPolicy, workload: Keyed) -> InKeyOrder:
    """The handler: it waits as long as it is told, and fails as told."""
    counted = InKeyOrder(workload, RECORDS)
    listener = app.listener(TOPIC, retry=policy, order="key", concurrency=workload.concurrency)

    def quick(value: dict[str, Any]) -> None:
        counted.begin(value["id"])
        counted.end(value["id"])

    async def quick_async(value: dict[str, Any]) -> None:
        counted.begin(value["id"])
        counted.end(value["id"])

    async def slow(value: dict[str, Any]) -> None:
        counted.begin(value["id"])
        await asyncio.sleep(workload.takes_s)
        counted.end(value["id"])

    if workload.takes_s:
        listener(slow)
    else:
        listener(quick_async if workload.is_async else quick)
    return counted


def main(name: str) -> None:
    """Run one workload and print its result."""
    end_after(280)
    workload = WORKLOADS[name]
    delays = (f"{workload.delay_s:g}s",) if workload.fails_in_hundred else ()
    app, topics = app_of(() if workload.is_blocking else delays)
    policy = RetryPolicy(*delays, blocking="key" if workload.is_blocking else None)
    report = asyncio.run(serve(app, listen(app, policy, workload)))
    drop_topics(topics)
    emit(report)


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)
