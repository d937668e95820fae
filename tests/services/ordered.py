"""
A service whose records wait for the failing ones of their key: one listener on threads, one on the event loop.

It notes in the ledger when each run begins and how it ends. `SERVICE` holds its shape as JSON, `LEDGER` the ledger's path.
"""

import asyncio
import os
import time

import msgspec

from redrive import App, Record, RetryPolicy
from tests.chaos.key_order import BEGAN, FAILED, HANDLED
from tests.ledger import Ledger

MOST_ATTEMPTS = 5
#: More failures than attempts.
FOR_GOOD = 1000


class Shape(msgspec.Struct, frozen=True):
    """Its group, and the sources of its two listeners. `parks`: the second wait of a record is in the parked topic."""

    group: str
    threads: str
    loop: str
    parks: bool = False


class Work(msgspec.Struct, omit_defaults=True):
    """`fails`: so many first attempts fail. `takes_ms`: how long each run takes."""

    fails: int = 0
    takes_ms: float = 0.0


def make(shape: Shape, ledger: Ledger) -> App:
    """The app; its settings come from the environment."""
    app = App(shape.group)
    policy = RetryPolicy(
        "200ms",
        "500ms",
        blocking="key",
        max_attempts=MOST_ATTEMPTS,
        park=shape.parks,
        hold_at_most="400ms" if shape.parks else "5m",
    )

    @app.listener(shape.threads, retry=policy, order="key", concurrency=8)
    def on_threads(work: Work, record: Record) -> None:
        ledger.note(record, BEGAN)
        time.sleep(work.takes_ms / 1000)
        _end(ledger, work, record)

    @app.listener(shape.loop, retry=policy, order="key", concurrency=64)
    async def on_the_loop(work: Work, record: Record) -> None:
        ledger.note(record, BEGAN)
        await asyncio.sleep(work.takes_ms / 1000)
        _end(ledger, work, record)

    return app


def _end(ledger: Ledger, work: Work, record: Record) -> None:
    if record.attempt <= work.fails:
        ledger.note(record, FAILED)
        raise ConnectionError
    ledger.note(record, HANDLED)


if "SERVICE" in os.environ:
    app = make(msgspec.json.decode(os.environ["SERVICE"], type=Shape), Ledger(os.environ["LEDGER"]))
