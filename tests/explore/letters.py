"""What an operator does with the dead letters of a world: sends them back, or discards them."""

import threading
from typing import Literal

from redrive.core.dialects import read_envelope
from redrive.core.record import TopicPartition
from redrive.deadletters.letters import Position
from redrive.deadletters.replay import Desk, Job
from redrive.deadletters.selection import Selection, make_plan
from redrive.deadletters.states import Author, StateBook
from redrive.deadletters.topics import Names, find_dlqs
from tests.sim.fleet import Fleet


class Operator:
    """One for a whole world. Each call is a job of its own."""

    def __init__(self, fleet: Fleet) -> None:
        self._cluster = fleet.cluster
        self._names = Names((fleet.settings.naming,), fleet.app.group)
        self._desk = Desk(
            fleet.cluster.admin(), fleet.cluster.log(), fleet.cluster.clock, fleet.plan.translator
        )
        self._jobs = 0

    def job(self, kind: Literal["replay", "discard"], most: int | None) -> tuple[Job, list[str]]:
        """About all open letters, or the `most` oldest; replays leave garbage out. With the events that they are of."""
        cluster, log, clock, translator = self._desk
        books = [StateBook(cluster, log, clock, dlq) for dlq in find_dlqs(cluster, self._names)]
        for book in books:
            book.read()
        selection = Selection(everything=most is None, limit=most)
        plan = make_plan(selection, books, log, kind=kind, translator=translator)
        self._jobs += 1
        author = Author("an operator", f"job-{self._jobs}")
        events = [self._event_of(entry.position) for entry in plan.entries]
        return Job(self._desk, plan, books, author, threading.Event()), events

    def _event_of(self, position: Position) -> str:
        [letter] = self._cluster.partition(TopicPartition(position.topic, position.partition)).read(
            position.offset, 1
        )
        return read_envelope(letter.headers())[0].event_id
