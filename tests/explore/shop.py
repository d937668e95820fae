"""The app that worlds are played with, in all its shapes, and the account of what its handlers did."""

import asyncio
import random
from typing import NamedTuple

import msgspec

from redrive import App, Backoff, Record, RetryPolicy
from redrive.core.plan import Delivery
from redrive.core.policy import Blocking, Order
from redrive.sim.clock import VirtualClock

BEGAN, FAILED, HANDLED = "began", "failed", "handled"
DELAYS = ("5s", "30s")


class Task(msgspec.Struct, frozen=True):
    """A record's value: how many runs of it fail, and how long each one takes."""

    fails: int = 0
    takes_s: float = 0.0
    is_bug: bool = False


class Shape(msgspec.Struct, frozen=True):
    """What a world is like."""

    partitions: int = 1
    keys: int = 3
    order: Order = "partition"
    blocking: Blocking | None = None
    concurrency: int = 1
    is_async: bool = False
    delivery: Delivery = "at-least-once"
    tries_in_place: int = 0
    #: What the broker takes with an offset, in UTF-16 units.
    metadata_units: int = 4095

    @property
    def most_attempts(self) -> int:
        return 1 + self.tries_in_place + len(DELAYS)


def draw_shape(chance: random.Random) -> Shape:
    """A shape that an app may have."""
    order: Order = chance.choice(("partition", "key", "key", "none"))
    blocking = chance.choice((None, order)) if order != "none" else None
    # In one transaction there is what is written, so what waits in memory has no part in it.
    delivery: Delivery = chance.choice(("at-least-once", "at-least-once", "exactly-once"))
    return Shape(
        partitions=chance.choice((1, 2, 3)),
        keys=chance.choice((1, 2, 5)),
        order=order,
        blocking=blocking if blocking != "none" else None,
        concurrency=chance.choice((1, 2, 5)),
        is_async=chance.random() < 0.5,
        delivery=delivery,
        tries_in_place=chance.choice((0, 0, 1)),
        metadata_units=chance.choice((4095, 4095, 511)),
    )


class Run(NamedTuple):
    """One thing that a handler did: `moment` counts them all, since in a simulator much happens at one instant."""

    moment: int
    what: str
    process: int
    event: str
    attempt: int
    at_ms: float
    due_ms: int | None


class Away(Exception):
    """What failing handlers raise."""


class Shop:
    """The app of a shape. `runs`: what its handlers did so far."""

    def __init__(self, shape: Shape, clock: VirtualClock | None = None) -> None:
        self.shape = shape
        self.clock = clock
        self.runs: list[Run] = []
        self.app = self._app(shape)

    def _app(self, shape: Shape) -> App:
        app = App("shop", delivery=shape.delivery)
        immediate = Backoff(shape.tries_in_place, "500ms") if shape.tries_in_place else None
        policy = RetryPolicy(*DELAYS, immediate=immediate, blocking=shape.blocking)
        listener = app.listener(
            "orders", name="work", retry=policy, order=shape.order, concurrency=shape.concurrency
        )

        async def work(task: Task, record: Record) -> None:
            self._note(record, BEGAN)
            await asyncio.sleep(task.takes_s)
            self._end(task, record)

        def work_at_once(task: Task, record: Record) -> None:
            self._note(record, BEGAN)
            self._end(task, record)

        listener(work if shape.is_async else work_at_once)
        return app

    def _end(self, task: Task, record: Record) -> None:
        if record.attempt <= task.fails:
            self._note(record, FAILED)
            raise KeyError("a bug") if task.is_bug else Away
        self._note(record, HANDLED)

    def _note(self, record: Record, what: str) -> None:
        at_ms = self.clock.wall_ms() if self.clock else 0.0
        self.runs.append(
            Run(
                len(self.runs),
                what,
                record.resources,
                record.event_id,
                record.attempt,
                at_ms,
                record.due_ms,
            )
        )
