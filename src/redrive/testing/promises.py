"""What redrive itself promises of every record, whatever happens; checked after each step of a world and at its end."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from redrive.core.classification import Kind
from redrive.core.failure import classify, signal_in
from redrive.core.record import Record, TopicPartition
from redrive.core.successors import envelope_of
from redrive.core.translator import PLAIN
from redrive.errors import DeadLetterNow, RetryLater, Skip
from redrive.runtime.declaration import Listener, ResolvedApp
from redrive.testing.harness import Harness
from redrive.testing.values import Begun, FailedRun, Handled


class Broken(Exception):
    """Something doesn't hold. `what`: which sort of thing, the same for failures that are alike."""

    def __init__(self, what: str, told: str) -> None:
        super().__init__(told)
        self.what = what


class Event(NamedTuple):
    """A record by its place on its source topic."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


def event_of(record: Record) -> Event:
    """Whose run it is."""
    return Event(record.topic, record.partition, record.offset)


class Promises:
    """The account of one world's records. `app`: what its processes run."""

    def __init__(self, harness: Harness, app: ResolvedApp) -> None:
        self._harness = harness
        self._listeners: Mapping[str, Listener] = {each.topic: each for each in app.listeners}
        self._is_exactly_once = app.delivery == "exactly-once"
        self._read: dict[TopicPartition, int] = defaultdict(int)
        self._seen_runs = 0
        #: Those before and behind a record that it is handled in order with.
        self._lines: dict[tuple[str, int, bytes | None], list[Event]] = defaultdict(list)
        self._line_of: dict[Event, list[Event]] = {}
        #: No handler is called for what can't be decoded.
        self._poison: set[Event] = set()
        self._handled: set[Event] = set()
        self._skipped: set[Event] = set()
        #: The latest that the wall clock has said since their last failure.
        self._latest_ms: dict[Event, float] = {}
        #: Those behind which others may run.
        self._through: set[Event] = set()

    def check(self) -> None:
        """Raises Broken."""
        self._take_sent()
        for run in self._harness.history[self._seen_runs :]:
            event, listener = event_of(run.record), self._listeners[run.record.topic]
            self._clock_read(run.at_ms)
            if isinstance(run, Begun):
                self._check_due(run, event)
                self._check_order(run, event, listener)
            elif isinstance(run, Handled):
                self._handled.add(event)
                self._through.add(event)
            else:
                self._take_failed(run, event, listener)
        self._seen_runs = len(self._harness.history)
        self._clock_read(self._harness.clock.wall_ms())

    def unfinished(self) -> list[Event]:
        """Those that were neither handled nor dropped, and are no dead letters; in the order in which they were sent."""
        self._take_sent()
        ended = self._handled | self._skipped | self._given_up() | self._dead().keys()
        return [event for event in self._line_of if event not in ended and not self._waits_for_person(event)]

    def check_end(self) -> None:
        """The same as `check`, when time enough has passed without faults."""
        self.check()
        if left := self.unfinished():
            raise Broken("lost", f"{left[0]} was sent, and is neither handled nor a dead letter in the end")
        if self._is_exactly_once:
            for event, count in self._dead().items():
                if count > 1:
                    raise Broken("exactly once", f"{event} became {count} dead letters")

    # -- parts ---------------------------------------------------------------------------------------------------

    def _take_sent(self) -> None:
        """What is on the source topics, whoever wrote it."""
        for listener in self._listeners.values():
            for log in self._harness.cluster.topics[listener.topic].partitions:
                key = TopicPartition(listener.topic, log.number)
                for record in log.read(self._read[key], log.end):
                    event = Event(record.topic(), record.partition(), record.offset())
                    self._line_of[event] = self._line(event, record.key(), listener)
                    self._line_of[event].append(event)
                    self._read[key] = record.offset() + 1
                    if not _is_decodable(record.value(), listener):
                        self._poison.add(event)

    def _line(self, event: Event, key: bytes | None, listener: Listener) -> list[Event]:
        if listener.order == "none" or (listener.order == "key" and key is None):
            return []
        return self._lines[event.topic, event.partition, key if listener.order == "key" else None]

    def _clock_read(self, wall_ms: float) -> None:
        for event, latest_ms in self._latest_ms.items():
            self._latest_ms[event] = max(latest_ms, wall_ms)

    def _check_due(self, run: Begun, event: Event) -> None:
        """A record that was due, and waits for its turn, may run though the clock is set back meanwhile."""
        due_ms = run.record.due_ms
        latest_ms = max(self._latest_ms.get(event, 0.0), run.at_ms)
        if due_ms is not None and latest_ms < due_ms:
            early_ms = due_ms - latest_ms
            raise Broken("early", f"attempt {run.attempt} at {event} began {early_ms:g} ms before its due")

    def _check_order(self, run: Begun, event: Event, listener: Listener) -> None:
        if run.attempt > 1 and listener.policy.blocking is None:
            return  # it waited elsewhere, and others may overtake it
        for other in self._line_of[event]:
            if other == event:
                return
            passed = other in self._through or other in self._poison
            if not passed and other not in self._dead() and other not in self._given_up():
                told = f"order={listener.order!r}, but {event} began before {other} was through"
                raise Broken("order", f"listener {listener.name!r} has {told}")

    def _take_failed(self, run: FailedRun, event: Event, listener: Listener) -> None:
        self._latest_ms[event] = run.at_ms
        if isinstance(signal_in(run.error), Skip):
            self._skipped.add(event)
        if listener.policy.blocking is None or _is_final(run, listener):
            self._through.add(event)

    def _waits_for_person(self, event: Event) -> bool:
        """Whether it waits until a dead letter before it is replayed or discarded."""
        if self._listeners[event.topic].policy.after_dead_letter != "block":
            return False
        line, dead = self._line_of[event], self._dead()
        return any(other in dead for other in line[: line.index(event)])

    def _given_up(self) -> set[Event]:
        """What became no dead letter, as `give_up="skip"` says. Only an operator is told, and where the copy was that failed."""
        given_up = (each.fields for each in self._harness.reports if each.event == "record-given-up")
        return {self._event_at(at["source"], at["partition"], at["offset"]) for at in given_up}

    def _event_at(self, topic: Any, partition: Any, offset: Any) -> Event:
        log = self._harness.cluster.partition(TopicPartition(topic, partition))
        if topic in self._listeners or log is None:
            return Event(topic, partition, offset)
        said, _ = envelope_of(log.read(offset, 1)[0], PLAIN)
        return Event(said.source_topic, said.source_partition or 0, said.source_offset or 0)

    def _dead(self) -> Counter[Event]:
        sources = (letter.source for letter in self._harness.dead_letters)
        return Counter(Event(at.topic, at.partition, at.offset) for at in sources if at is not None)


def _is_decodable(value: bytes | None, listener: Listener) -> bool:
    try:
        listener.decode(value)
    except Exception:
        return False
    return True


def _is_final(run: FailedRun, listener: Listener) -> bool:
    """Whether the record may not be tried again. Where only the time tells: yes."""
    policy, signal = listener.policy, signal_in(run.error)
    if isinstance(signal, Skip | DeadLetterNow | RetryLater) or policy.max_age_ms is not None:
        return True
    # A run beyond its time limit is cancelled, and fails with TimeoutError.
    error = TimeoutError() if isinstance(run.error, asyncio.CancelledError) else run.error
    kind = classify(error, listener.failures, now_ms=run.at_ms).kind
    if kind in {Kind.PERMANENT, Kind.POISON}:
        return True
    return kind is not Kind.OUTAGE and policy.is_last(run.attempt)
