"""The app that worlds are played with, in all its shapes, and the account of what its handlers did."""

import asyncio
from collections import Counter
from typing import Any, NamedTuple, NoReturn

from redrive import App, Backoff, DeadLetterNow, Failures, Record, RetryLater, RetryPolicy, Skip
from redrive.sim.clock import VirtualClock
from tests.explore.shapes import DELAYS, PARKING_DELAYS, SOURCES, ListenerShape, Shape, Task

BEGAN, FAILED, AWAY, HANDLED = "began", "failed", "away", "handled"
#: What a handler asks for that says when it wants the record again: longer than the longest tier waits.
LATER = "13s"
MAILS = "mails"


class Run(NamedTuple):
    """
    One thing that a handler did: `moment` counts them all, since in a simulator much happens at one instant. `topic`: where
    the record was read.
    """

    moment: int
    what: str
    process: int
    topic: str
    event: str
    attempt: int
    at_ms: float
    due_ms: int | None
    is_replay: bool


class Away(Exception):
    """What handlers raise that fail for a while."""


class Down(Exception):
    """What they raise while all that they call is away, where that is told apart."""


class Shop:
    """The app of a shape, for one world after another. What its handlers did and were told stands in here."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.app = App("shop", delivery=shape.delivery)
        for source, listener in zip(SOURCES, shape.listeners, strict=False):
            self._declare(source, listener)

    def open(self, clock: VirtualClock) -> None:
        """A new world begins, on this clock."""
        self.clock = clock
        self.runs: list[Run] = []
        #: How often an operator sent each event's letters back.
        self.replays: Counter[str] = Counter()
        #: Processes that a record kills just now.
        self.dying: set[int] = set()
        #: Whether nothing fails any more that failed for a while: with nothing but failures an outage never ends.
        self.is_mended = False
        #: When what the handlers call went away; None while it is there.
        self.away_since_ms: float | None = None

    def _declare(self, source: str, shape: ListenerShape) -> None:
        listener = self.app.listener(
            source,
            name=source,
            retry=policy_of(shape),
            order=shape.order,
            concurrency=shape.concurrency,
            failures=Failures(outage=Down) if self.shape.declares_outages else Failures(),
            health=(lambda: self.away_since_ms is None) if shape.has_health else None,
        )

        async def work(task: Task, record: Record) -> None:
            self._begin(record, shape)
            if self._kills(task, record):
                self.dying.add(record.resources)
                await asyncio.Event().wait()
            if task.takes_s:
                await asyncio.sleep(task.takes_s)
            self._end(task, record)

        def work_at_once(task: Task, record: Record) -> None:
            self._begin(record, shape)
            self._end(task, record)

        listener(work if shape.is_async else work_at_once)

    def _begin(self, record: Record, shape: ListenerShape) -> None:
        self._note(record, BEGAN)
        if shape.emits:
            record.emit(MAILS, record.event_id)

    def _is_mended(self, task: Task, record: Record) -> bool:
        if self.is_mended and task.how == "away":
            return True
        return record.is_replay and self.replays[record.event_id] > task.stubborn

    def _kills(self, task: Task, record: Record) -> bool:
        # Also a later one: what the handler calls may have been away at that run.
        return task.how == "kill" and record.attempt >= task.fails and not self._is_mended(task, record)

    def _end(self, task: Task, record: Record) -> None:
        if self.away_since_ms is not None:
            self._note(record, AWAY)
            raise Down if self.shape.declares_outages else Away
        if record.attempt <= task.fails and not self._is_mended(task, record):
            self._note(record, FAILED)
            _fail(task)
        self._note(record, HANDLED)

    def _note(self, record: Record, what: str) -> None:
        self.runs.append(
            Run(
                len(self.runs),
                what,
                record.resources,
                record.position[0],
                record.event_id,
                record.attempt,
                self.clock.wall_ms(),
                record.due_ms,
                record.is_replay,
            )
        )


def policy_of(shape: ListenerShape) -> RetryPolicy:
    """When and how often failing records of such a listener are tried again."""
    options: dict[str, Any] = {}
    if shape.tries_in_place:
        options["immediate"] = Backoff(shape.tries_in_place, "500ms")
    if shape.parks:
        options |= {"park": True, "hold_at_most": shape.hold_at_most}
    delays = PARKING_DELAYS if shape.parks else DELAYS
    return RetryPolicy(*delays, blocking=shape.blocking, after_dead_letter=shape.after, **options)


def _fail(task: Task) -> NoReturn:
    if task.how == "bug":
        raise KeyError("a bug")
    if task.how == "later":
        raise RetryLater(LATER)
    if task.how == "letter":
        raise DeadLetterNow("it says so")
    if task.how == "skip":
        raise Skip("it says so")
    raise Away
