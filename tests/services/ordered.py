"""
A service whose records wait for the failing ones of their key: one listener on threads, one on the event loop. A third one,
where there is one, has a ladder: there nothing waits.

It notes in the ledger when each run begins and how it ends, and what the process says of its partitions and writes. `SERVICE`
holds its shape as JSON, `LEDGER` the ledger's path.
"""

import asyncio
import logging
import os
import signal
import time

import msgspec

from redrive import App, Record, RetryPolicy
from tests.chaos.faults import ABORTED, REFUSED, WORDS
from tests.chaos.key_order import BEGAN, FAILED, HANDLED
from tests.ledger import Ledger

MOST_ATTEMPTS = 5
TIERS = ("200ms", "500ms")
#: More failures than attempts.
FOR_GOOD = 1000


class Shape(msgspec.Struct, frozen=True):
    """
    Its group, and the sources of its listeners. `parks`: the second wait of a record is in the parked topic. `emits_to`: where
    each run that succeeds emits the id of its record.
    """

    group: str
    threads: str
    loop: str
    parks: bool = False
    ladder: str = ""
    emits_to: str = ""


class Work(msgspec.Struct, omit_defaults=True):
    """`fails`: so many first attempts fail; `bug`: for good. `takes_ms`: how long each run takes. `kills`: its process, each time."""

    fails: int = 0
    takes_ms: float = 0.0
    bug: bool = False
    kills: bool = False


def make(shape: Shape, ledger: Ledger) -> App:
    """The app; its settings come from the environment."""
    app = App(shape.group)
    policy = RetryPolicy(
        *TIERS,
        blocking="key",
        max_attempts=MOST_ATTEMPTS,
        park=shape.parks,
        hold_at_most="400ms" if shape.parks else "5m",
    )

    def work_on_a_thread(work: Work, record: Record) -> None:
        ledger.note(record, BEGAN)
        time.sleep(work.takes_ms / 1000)
        _end(ledger, shape, work, record)

    async def work_on_the_loop(work: Work, record: Record) -> None:
        ledger.note(record, BEGAN)
        await asyncio.sleep(work.takes_ms / 1000)
        _end(ledger, shape, work, record)

    app.listener(shape.threads, retry=policy, order="key", concurrency=8, name="threads")(work_on_a_thread)
    app.listener(shape.loop, retry=policy, order="key", concurrency=64, name="loop")(work_on_the_loop)
    if shape.ladder:
        app.listener(shape.ladder, retry=RetryPolicy(*TIERS), concurrency=4, name="ladder")(work_on_a_thread)
    return app


def _end(ledger: Ledger, shape: Shape, work: Work, record: Record) -> None:
    if work.kills:
        os.kill(os.getpid(), signal.SIGKILL)
    if work.bug or record.attempt <= work.fails:
        ledger.note(record, FAILED)
        raise TypeError if work.bug else ConnectionError
    if shape.emits_to:
        record.emit(shape.emits_to, record.event_id)
    ledger.note(record, HANDLED)


class _Words(logging.Handler):
    """Notes what this process says: that partitions came, before any of their records runs here, and how they went."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "redrive_event", "")
        if event == "write-refused":
            self._ledger.note_process(record.redrive_topic, REFUSED)
        elif event == "transaction-aborted":
            self._ledger.note_process("", ABORTED)
        elif event in WORDS:
            for told in record.redrive_partitions.split(", "):
                topic, *numbers = told.split(" ")
                for number in numbers:
                    self._ledger.note_process(f"{topic}/{number}/", WORDS[event])


if "SERVICE" in os.environ:
    _ledger = Ledger(os.environ["LEDGER"])
    logging.getLogger("redrive").addHandler(_Words(_ledger))
    app = make(msgspec.json.decode(os.environ["SERVICE"], type=Shape), _ledger)
