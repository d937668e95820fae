"""What is done with dead letters for whoever asks over HTTP. All of it blocks: it runs in a thread."""

import threading
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from redrive.console.problems import Problem
from redrive.core.record import RawRecord, TopicPartition
from redrive.core.topology import Role
from redrive.deadletters.accounts import (
    job_name,
    letter_values,
    plan_values,
    report_values,
    row_values,
    state_notes,
)
from redrive.deadletters.counter import Counter
from redrive.deadletters.letters import Position
from redrive.deadletters.pages import read_page
from redrive.deadletters.portrait import find_letter, portray, portray_bytes
from redrive.deadletters.replay import Job
from redrive.deadletters.selection import Kind, Plan, Selection, make_plan
from redrive.deadletters.states import Author, StateBook
from redrive.deadletters.summary import Row, count_letters
from redrive.deadletters.topics import find_dlqs, open_dlqs
from redrive.errors import PortError, ReplayRefused, TopologyError
from redrive.runtime.ports import Log, NotWritten, Write, Written

#: Causes that an overview names of a topic; more than a person reads.
MOST_CAUSES = 200

Answer = dict[str, Any]


class Order(NamedTuple):
    """A replay or a discard as it was asked for. `why`: what the person said about it."""

    kind: Kind
    selection: Selection
    dry_run: bool = False
    why: str = ""


class Clerk:
    """
    Answers about the topics of `counter`, a request at a time in any number of threads.

    `topics`: the dead-letter topics that may be asked for; None: all that are called like one. A request's `stop`, once
    set, ends what it reads with a PortError, and a replay after the letters that are on their way.
    """

    def __init__(self, counter: Counter, topics: frozenset[str] | None = None) -> None:
        self._counter = counter
        self._topics = topics

    @property
    def groups(self) -> frozenset[str]:
        """Whose letters these are; none: everybody's. In an app's own topics those that name no group are its, too."""
        groups = self._counter.groups
        return groups | {""} if groups else groups

    def now_ms(self) -> float:
        """Epoch milliseconds by the counter's clock."""
        return self._counter.desk.clock.wall_ms()

    def overview(self, stop: threading.Event) -> Answer:
        """All topics with their letters counted by cause. Raises PortError."""
        counter = self._interruptible(stop)
        dlqs = find_dlqs(counter.desk.cluster, counter.names)
        books = counter.read([dlq for dlq in dlqs if self._topics is None or dlq.topic in self._topics])
        translator = counter.desk.translator
        rows = count_letters(Selection(groups=self.groups), books, counter.desk.log, translator=translator)
        by_topic = [(book, [row for row in rows if row.topic == book.dlq.topic]) for book in books]
        topics = [_topic_values(book, of_topic) for book, of_topic in by_topic]
        return {
            "topics": topics,
            "letters": sum(topic["letters"] for topic in topics),
            "unresolved": sum(topic["unresolved"] for topic in topics),
            "notes": list(state_notes(books)),
        }

    def page(
        self,
        topic: str,
        selection: Selection,
        stop: threading.Event,
        *,
        limit: int,
        start: Position | None,
        states: Collection[str],
    ) -> Answer:
        """Letters of a topic, without what they hold. Raises Problem, PortError."""
        counter = self._interruptible(stop)
        book = self._book(counter, topic)
        desk = counter.desk
        page = read_page(
            selection, book, desk.log, limit=limit, start=start, states=states, translator=desk.translator
        )
        return {
            "topic": topic,
            "letters": [letter_values(letter, mark) for letter, mark in page.letters],
            "next": None if page.next is None else str(page.next),
            "notes": list(state_notes([book])),
        }

    def letter(self, position: Position, stop: threading.Event, *, payload: bool) -> Answer:
        """One letter with its failure and its history; with `payload` also what it holds. Raises Problem, PortError."""
        counter = self._interruptible(stop)
        book = self._book(counter, position.topic)
        try:
            letter = find_letter(position, book, counter.desk.log, translator=counter.desk.translator)
        except ReplayRefused as error:
            raise Problem(404, str(error)) from None
        if self.groups and letter.envelope.group not in self.groups:
            raise Problem(404, f"the letter at {position} is another group's")
        mark = book.mark(position, letter.record.timestamp()[1])
        answer = portray(letter, mark, book.history(position))
        if not payload:
            del answer["headers"]  # a producer's may hold what the record holds
            return answer
        held = {"key": letter.record.key(), "value": letter.record.value()}
        return answer | {name: portray_bytes(value) for name, value in held.items()}

    def carry_out(self, topic: str, order: Order, who: str, stop: threading.Event) -> Answer:
        """
        Plan, and unless it is a dry run do it. Gives the plan with the counts.

        Raises Problem, PortError, TopologyError; nothing was sent or marked then.
        """
        log = _Interruptible(self._counter.desk.log, stop)
        desk = self._counter.desk._replace(log=log)
        book = self._book(self._counter._replace(desk=desk), topic)
        plan = self._counter.without_forgeries(
            make_plan(order.selection, [book], log, kind=order.kind, translator=desk.translator)
        )
        answer = {
            "dry_run": order.dry_run,
            **plan_values(plan, {}),
            "letters": [
                {"at": str(entry.position), "reason": entry.reason, "target": entry.target}
                for entry in plan.entries
            ],
            "notes": [*state_notes([book]), *_target_notes(plan, desk.cluster.describe())],
        }
        if order.dry_run:
            return answer
        author = Author(who, job_name(order.kind, desk.clock.wall_ms()), order.why)
        # What it claims it also ends: to break off in between would leave letters of which nobody knows.
        log.is_interruptible = False
        job = Job(desk, plan, [book], author, stop)
        report = job.replay() if order.kind == "replay" else job.discard()
        told = report_values(plan, report)
        if order.kind == "replay":
            told["replayed"] = told.pop("sent")
        return answer | told

    def _book(self, counter: Counter, topic: str) -> StateBook:
        """The states of a topic that may be asked for, read."""
        names, cluster = counter.names, counter.desk.cluster
        is_ours = self._topics is None or topic in self._topics
        if is_ours and names.role(topic) is Role.DLQ:
            try:
                dlqs = open_dlqs(cluster, [topic], names)
            except TopologyError as error:
                if topic in cluster.describe():
                    raise
                raise Problem(404, str(error)) from None
            [book] = counter.read(dlqs)
            return book
        there = self._topics or {name for name in cluster.describe() if names.role(name) is Role.DLQ}
        told = f"there is {', '.join(sorted(there))}" if there else "there is none"
        whose = "this console's app" if self._topics is not None else "this cluster, by its name"
        raise Problem(404, f"that is no dead-letter topic of {whose}; {told}")

    def _interruptible(self, stop: threading.Event) -> Counter:
        desk = self._counter.desk
        return self._counter._replace(desk=desk._replace(log=_Interruptible(desk.log, stop)))


class _Interruptible:
    """A log whose scans end when nobody waits for them any more."""

    def __init__(self, log: Log, stop: threading.Event) -> None:
        self._log = log
        self._stop = stop
        self.is_interruptible = True

    def scan(self, key: TopicPartition, start: int, end: int) -> Iterator[RawRecord]:
        for record in self._log.scan(key, start, end):
            if self.is_interruptible and self._stop.is_set():
                raise PortError(f"reading {key.topic} took too long and was given up", retriable=True)
            yield record

    def write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int = -1,
    ) -> tuple[int, int]:
        return self._log.write(topic, key, value, headers, partition)

    def write_many(self, writes: Sequence[Write]) -> Sequence[Written | NotWritten]:
        return self._log.write_many(writes)


def _topic_values(book: StateBook, rows: Sequence[Row]) -> Answer:
    return {
        "topic": book.dlq.topic,
        "state_topic": book.dlq.state if book.dlq.has_state else None,
        "letters": sum(row.letters for row in rows),
        "unresolved": sum(row.unresolved for row in rows),
        "unknown": sum(row.unknown for row in rows),
        "causes": [row_values(row) for row in rows[:MOST_CAUSES]],
        "causes_omitted": max(0, len(rows) - MOST_CAUSES),
    }


def _target_notes(plan: Plan, existing: Collection[str]) -> Iterator[str]:
    for target in plan.shared_targets():
        yield f"{target}: letters of other systems go to the topic that they came from, to every group that reads it"
    for target in sorted({target for _, target in plan.routes() if target and target not in existing}):
        yield f"{target} doesn't exist: letters for it fail; `redrive topics apply` creates it"
