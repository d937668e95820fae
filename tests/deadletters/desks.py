"""A simulated cluster with dead letters in it, and operators at work on them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from redrive.core.dialects import Headers, read_envelope, with_envelope
from redrive.core.envelope import Envelope
from redrive.core.record import RawRecord, TopicPartition
from redrive.deadletters.letters import Position
from redrive.deadletters.replay import Desk, Job, Report
from redrive.deadletters.selection import Kind, Plan, Selection, make_plan
from redrive.deadletters.states import Author, StateBook
from redrive.deadletters.topics import Names, find_dlqs, open_dlqs
from redrive.runtime.ports import Log, NotWritten, Write, Written
from redrive.sim.cluster import SimCluster

ALL = Selection(everything=True)
TARGET = "orders.retry.5s"


def envelope(number: int, **more: Any) -> Envelope:
    """What the engine writes on a dead letter of `orders`."""
    said: dict[str, Any] = {
        "group": "payments",
        "attempt": 4,
        "event_id": f"orders/0/{number}",
        "source_topic": "orders",
        "source_partition": 0,
        "source_offset": number,
        "source_timestamp_ms": 1_700_000_000_000,
        "first_failed_ms": 1_700_000_001_000,
        "last_failed_ms": 1_700_000_002_000,
        "failure_kind": "permanent",
        "failure_type": "KeyError",
        "failure_message": "'card'",
        "reason": "permanent",
        "failure_stack": "Traceback",
        "fingerprint": "v1-0123456789ab",
        "listener": "charge",
        "replay_topic": TARGET,
    }
    return Envelope(**{**said, **more})


class Office:
    """
    `orders` with its tier and its dead-letter topic on a simulated cluster, and what an operator does there.

    Each call of `books`, `plan` and `replay` is what a new process would do.
    """

    def __init__(self, *, partitions: int = 1, log: Callable[[Log], Log] = lambda log: log) -> None:
        self.cluster = SimCluster()
        for topic in ("orders", TARGET, "orders.dlq"):
            self.cluster.create_topic(topic, partitions)
        self.desk = self.desk_with(log)
        self._jobs = 0

    def desk_with(self, log: Callable[[Log], Log]) -> Desk:
        """A desk with a wrapper round its log."""
        return Desk(self.cluster.admin(), log(self.cluster.log()), self.cluster.clock)

    def letter(
        self,
        number: int = 0,
        *,
        value: bytes | None = b"{}",
        key: bytes | None = b"key",
        foreign: Headers = (),
        partition: int = 0,
        headers: Headers | None = None,
        **said: Any,
    ) -> Position:
        """Put a dead letter aside, a millisecond after the one before."""
        self.cluster.clock.advance(1)
        written = with_envelope(foreign, envelope(number, **said)) if headers is None else list(headers)
        record = self.cluster.append("orders.dlq", value, key=key, headers=written, partition=partition)
        return Position(record.topic(), record.partition(), record.offset())

    def letters(self, count: int) -> list[Position]:
        """So many dead letters."""
        return [self.letter(number) for number in range(count)]

    def books(self, *topics: str, desk: Desk | None = None) -> list[StateBook]:
        """Dead-letter topics with their states, read anew; by default all."""
        at = desk or self.desk
        dlqs = open_dlqs(at.cluster, topics, Names()) if topics else find_dlqs(at.cluster, Names())
        books = [StateBook(at.cluster, at.log, at.clock, dlq) for dlq in dlqs]
        for book in books:
            book.read()
        return books

    def plan(self, selection: Selection = ALL, *, kind: Kind = "replay", to: str = "") -> Plan:
        """What would be done."""
        return make_plan(selection, self.books(), self.desk.log, kind=kind, to=to)

    def job(
        self, selection: Selection = ALL, *, kind: Kind = "replay", to: str = "", desk: Desk | None = None
    ) -> Job:
        """A job about to run."""
        at = desk or self.desk
        self._jobs += 1
        books = self.books(desk=at)
        plan = make_plan(selection, books, at.log, kind=kind, to=to)
        return Job(at, plan, books, Author("ann@host", f"job-{self._jobs}"), threading.Event())

    def replay(self, selection: Selection = ALL, *, to: str = "", desk: Desk | None = None) -> Report:
        """Plan and send."""
        return self.job(selection, to=to, desk=desk).replay()

    def discard(self, selection: Selection = ALL) -> Report:
        """Plan and discard."""
        return self.job(selection, kind="discard").discard()

    def copies(self, topic: str = TARGET) -> list[str]:
        """The event ids of what was sent to a topic, in its order."""
        return [read_envelope(record.headers())[0].event_id for record in self.cluster.records(topic)]

    def states(self) -> dict[str, str]:
        """The state of each letter that isn't open, by position."""
        return {
            f"{record.topic()}/{record.partition()}/{record.offset()}": mark.shown
            for book in self.books()
            for record in self.cluster.records(book.dlq.topic)
            if (
                mark := book.mark(
                    Position(book.dlq.topic, record.partition(), record.offset()), record.timestamp()[1]
                )
            )
        }


class WrappedLog:
    """A log whose single writes are counted and looked at: `before(n, write)` runs before the n-th, from 0."""

    def __init__(self, log: Log, before: Callable[[int, Write], None]) -> None:
        self._log = log
        self._before = before
        self.writes = 0

    def scan(self, key: TopicPartition, start: int, end: int) -> Iterator[RawRecord]:
        yield from self._log.scan(key, start, end)

    def write(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Any, partition: int = -1
    ) -> tuple[int, int]:
        raise NotImplementedError

    def write_many(self, writes: Sequence[Write]) -> Sequence[Written | NotWritten]:
        answers: list[Written | NotWritten] = []
        for write in writes:
            self._before(self.writes, write)
            self.writes += 1
            answers.extend(self._log.write_many([write]))
        return answers


class Killed(BaseException):
    """The process is no more."""


def dying(after: int) -> Callable[[Log], Log]:
    """A log that takes so many records and no more: the process is killed then."""

    def before(number: int, write: Write) -> None:
        if number == after:
            raise Killed

    return lambda log: WrappedLog(log, before)
