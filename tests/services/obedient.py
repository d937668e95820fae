"""
A service that does with each record what the record says, and notes each run in the ledger.

`SERVICE` holds its shape as JSON (`Shape`); `LEDGER` the ledger's path.
"""

import asyncio
import ctypes
import os
import signal
import threading
import time

import msgspec

from redrive import App, Record, RetryPolicy
from tests.ledger import Ledger


class Shape(msgspec.Struct, frozen=True):
    """What the service is: its group, its sources, and how its listeners run."""

    group: str
    sources: tuple[str, ...]
    tiers: tuple[str, ...] = ()
    is_async: bool = False
    concurrency: int = 1
    max_attempts: int | None = None
    give_up: str = "dead-letter"
    order: str = "partition"
    #: What each run takes besides.
    takes_s: float = 0.0
    #: Topics to which each run that succeeds emits the id of its record.
    emits_to: tuple[str, ...] = ()


class Order(msgspec.Struct, omit_defaults=True):
    """
    `fails`: so many first attempts fail. `takes_s`: how long each run takes. `stuck`: how it never ends. `kills`: how each
    run from `kills_from` on ends its process.
    """

    fails: int = 0
    bug: bool = False
    takes_s: float = 0.0
    stuck: str = ""
    seen: str = ""
    kills: str = ""
    kills_from: int = 1


def make(shape: Shape, ledger: Ledger) -> App:
    """The app; its settings come from the environment."""
    app = App(shape.group)
    policy = RetryPolicy(*shape.tiers, max_attempts=shape.max_attempts)
    handler = _coroutine(shape, ledger) if shape.is_async else _function(shape, ledger)
    for source in shape.sources:
        app.listener(
            source,
            retry=policy,
            name=source,
            order=shape.order,
            concurrency=shape.concurrency,
            give_up=shape.give_up,
        )(handler)
    return app


def _function(shape, ledger):
    def handle(order: Order, record: Record) -> None:
        _begin(shape, ledger, order, record)
        if order.stuck:
            threading.Event().wait()
        if order.takes_s:
            time.sleep(order.takes_s)
            ledger.note(record, "ended")
        for topic in shape.emits_to:
            record.emit(topic, record.event_id)

    return handle


def _coroutine(shape, ledger):
    async def handle(order: Order, record: Record) -> None:
        _begin(shape, ledger, order, record)
        match order.stuck:
            case "awaits":
                await asyncio.Event().wait()
            case "refuses to be cancelled":
                await _refuse_to_be_cancelled()
            case "waits for a thread":
                await asyncio.to_thread(threading.Event().wait)
            case "blocks the loop":
                threading.Event().wait()
        if order.takes_s:
            await asyncio.sleep(order.takes_s)
            ledger.note(record, "ended")

    return handle


def _begin(shape: Shape, ledger: Ledger, order: Order, record: Record) -> None:
    ledger.note(record, order.seen)
    if shape.takes_s:
        time.sleep(shape.takes_s)
    if order.kills and record.attempt >= order.kills_from:
        _end_process(order.kills)
    if order.bug:
        raise TypeError
    if record.attempt <= order.fails:
        raise ConnectionError


def _end_process(how: str) -> None:
    match how:
        case "exits":
            os._exit(7)
        case "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfaults":
            ctypes.string_at(0)


async def _refuse_to_be_cancelled() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


if "SERVICE" in os.environ:
    app = make(msgspec.json.decode(os.environ["SERVICE"], type=Shape), Ledger(os.environ["LEDGER"]))
