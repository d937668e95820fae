"""
redrive on the same work, by its public interface, with all default metrics on and collected garbage as `redrive run`
has it.

    python -m benchmarks.contestant w1 | w1-record | w1-async | w2 | w2-exactly-once | w3
"""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

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
from redrive import App, Record, RetryPolicy
from redrive.cli.run import tune_gc

#: Where the wall clock of a waiting main thread looks; far below what is measured.
LOOK_S = 0.05


def app_of(delays: tuple[str, ...], **more: str | bool) -> tuple[App, list[str]]:
    """An app with topics of its own, for tiers of these delays; and what to delete when it is through. `more`: settings."""
    names = [f"{TOPIC}.retry.{delay}.{RUN}" for delay in delays]
    own = [*names, f"{TOPIC}.dlq.{RUN}", f"{TOPIC}.dlq.{RUN}.state", f"{TOPIC}.replay.{RUN}"]
    for name in own:
        make_topic(name)
    settings = {
        "bootstrap_servers": BOOTSTRAP,
        "retry_topic": "{topic}.retry.{delay}." + RUN,
        "dlq_topic": "{topic}.dlq." + RUN,
        "replay_topic": "{topic}.replay." + RUN,
        "http": "127.0.0.1:0",
        **more,
    }
    return App(f"redrive-{RUN}", settings=settings), own


class Counted(Protocol):
    """An account of what was handled, of whichever workload."""

    done: bool

    def report(self) -> dict[str, object]: ...


def w1(app: App, policy: RetryPolicy) -> Tally:
    """A plain function of the value."""
    tally = Tally()

    @app.listener(TOPIC, retry=policy)
    def handle(value: dict[str, Any]) -> None:
        tally.add(value["amount"])

    return tally


def w1_record(app: App, policy: RetryPolicy) -> Tally:
    """A plain function of the value and the record."""
    tally = Tally()

    @app.listener(TOPIC, retry=policy)
    def handle(value: dict[str, Any], record: Record) -> None:  # noqa: ARG001  that it is made is what costs
        tally.add(value["amount"])

    return tally


def w1_async(app: App, policy: RetryPolicy) -> Tally:
    """A coroutine function that doesn't wait."""
    tally = Tally()

    @app.listener(TOPIC, retry=policy)
    async def handle(value: dict[str, Any]) -> None:
        tally.add(value["amount"])

    return tally


def attempts(app: App, policy: RetryPolicy, fails: Callable[[int], bool]) -> Attempts:
    """W2 and W3: the handler raises as told."""
    counted = Attempts(RECORDS, fails, tuple(delay_ms / 1000 for delay_ms in policy.delays_ms))

    @app.listener(TOPIC, retry=policy)
    def handle(value: dict[str, Any]) -> None:
        counted.attempt(value["id"])

    return counted


async def serve(app: App, counted: Counted) -> dict[str, object]:
    """Until all records are handled; then what was committed must be all of it."""
    tune_gc()
    async with app.serving() as service:
        stopped = asyncio.ensure_future(service.stopped())
        while not counted.done and not stopped.done():
            await asyncio.wait([stopped], timeout=LOOK_S)
        stopped.cancel()
    return counted.report()


def main(name: str) -> None:
    """Run one workload and print its result."""
    end_after(280)
    work, _, delivery = name.partition("-")
    is_exact = delivery == "exactly-once"
    delays = {"w2": ("1s",), "w3": ("1s", "5s")}.get(work, ())
    # Where each record fails at first, a breaker would take it for an outage.
    app, topics = app_of(
        delays, delivery="exactly-once" if is_exact else "at-least-once", breaker=work != "w3"
    )
    policy = RetryPolicy(*delays)
    if work in ("w2", "w3"):
        counted: Counted = attempts(app, policy, every_tenth if work == "w2" else every)
    else:
        counted = {"w1": w1, "w1-record": w1_record, "w1-async": w1_async}[name](app, policy)
    report = asyncio.run(serve(app, counted))
    drop_topics(topics)
    emit(report)


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)
