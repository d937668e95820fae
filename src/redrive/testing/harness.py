"""An app under test, on a cluster in memory."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from redrive.app import App
from redrive.core.commands import Report
from redrive.core.record import TopicPartition
from redrive.core.settings import Settings
from redrive.core.successors import envelope_of
from redrive.core.topology import Role
from redrive.core.units import parse_duration_ms
from redrive.deadletters.dead_letter import DeadLetter
from redrive.deadletters.letters import Position, read_letter
from redrive.deadletters.replay import Desk, Job
from redrive.deadletters.replay import Report as ReplayReport
from redrive.deadletters.selection import Selection, make_plan
from redrive.deadletters.states import Author, StateBook
from redrive.deadletters.topics import Names, find_dlqs
from redrive.errors import RedriveError, SettingsError, TopologyError
from redrive.runtime.declaration import ResolvedApp
from redrive.runtime.planning import plan_group, plan_letters, wanted_topics
from redrive.runtime.provisioning import carry_out, compare, with_source_partitions
from redrive.sim.clock import VirtualClock
from redrive.sim.cluster import SimCluster
from redrive.sim.records import SimRecord
from redrive.testing.values import (
    Begun,
    FailedRun,
    Handled,
    Headers,
    LetterRun,
    Waiting,
    check_counts,
    to_bytes,
    to_headers,
    to_key,
)
from redrive.testing.watching import watched
from redrive.testing.workers import Workers


class Harness:
    """
    Runs `app` on a simulated cluster, in the test's own thread. Time stands still until the test moves it. A function instead of
    the app is called for each process that starts: what its app keeps in memory dies with the process, as in life.

    The code at work is that of `redrive run`, down to the Kafka client, in whose place the simulated cluster is: same
    retries, dead letters, commits. Coroutine handlers run on an event loop that goes by the same clock, so
    `asyncio.sleep(3600)` in a handler takes an hour of it and no time. Topics are created as `redrive topics apply` does.

    `partitions`: of each source topic; 1 by default, so that records are handled in the order in which they were sent.
    `settings`: by default those of a `Settings()`; neither environment nor `redrive.toml` is read, so a test does the same
    everywhere. `seed`: lets things happen in another order than the plainest, the same for the same seed. `cluster`: that
    of another harness, on which this app works too: its next release, or another group.

    `clock`, `cluster` and `workers` are the simulated ones, for tests of faults: `harness.cluster.is_down = True`,
    `harness.cluster.faults.refuse_writes("orders.dlq", 3)`, `harness.clock.step_wall(-60_000)`, `harness.workers.cut_off(1)`.

    Raises ListenerError for an app that can't be run, as one without listeners; SettingsError, TopologyError; TypeError for
    what is no app; ValueError for less than one partition.
    """

    def __init__(
        self,
        app: App | Callable[[], App],
        *,
        partitions: int = 1,
        settings: Settings | None = None,
        seed: int | None = None,
        cluster: SimCluster | None = None,
    ) -> None:
        check_counts("Harness", partitions=partitions)
        self.cluster = cluster or SimCluster(VirtualClock(), seed=seed)
        self.handled: list[Handled] = []
        self.failed: list[FailedRun] = []
        #: Runs as they began, and as they ended, in the order of that.
        self.history: list[Begun | Handled | FailedRun] = []
        self.letter_runs: list[LetterRun] = []
        make = _maker(app)
        self._app = made(make).resolve()
        self._settings = _settings_of(self._app, settings)
        self._create_topics(partitions)
        # What can be done at once is done at once: a transaction doesn't wait for others.
        self._plan = msgspec.structs.replace(
            plan_group(self._app, self._settings, self.cluster.topics), transaction_linger_ms=0.0
        )
        self._jobs = 0
        self._is_closed = False
        letter_plan = plan_letters(self._app, self._settings)
        self.workers = Workers(self._watched(make), self._plan, letter_plan, self._settings, self.cluster)
        try:
            self.workers.start()
        except BaseException:
            self.workers.close(in_order=False)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what happens --------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: bytes | str | None = None,
        headers: Headers = (),
        partition: int = -1,
    ) -> SimRecord:
        """
        Write a record as any producer would, and let the app do at once what it can.

        `value`: bytes and None as they are, text as UTF-8, all else (dict, dataclass, pydantic, msgspec) as JSON.
        `partition`: by default by the key, as Java's producers do. Raises TopologyError when there is no such topic,
        PortError when it has no such partition, TypeError for a key or headers that can't be sent.
        """
        self._require(topic)
        record = self.cluster.append(
            topic,
            to_bytes(value),
            key=to_key(key),
            headers=to_headers(headers),
            partition=partition,
        )
        self.workers.settle()
        return record

    def advance(self, duration: str | timedelta) -> None:
        """
        Let time pass (`"10m"`, `"1h30m"` or a timedelta), and the app do all that becomes due in it, each at its time.
        """
        self._require()
        self.workers.advance(parse_duration_ms(duration, allow_zero=True))

    def replay(self, *letters: DeadLetter) -> ReplayReport:
        """
        Send dead letters back, as `redrive dlq replay` does, and let the app handle them: those named, else all that
        are open. What is named may be poison. Gives the account of it. Raises ReplayRefused, TopologyError.
        """
        return self._operate("replay", letters)

    def discard(self, *letters: DeadLetter) -> ReplayReport:
        """
        Discard dead letters, as `redrive dlq discard` does: those named, else all that are open. What waits for them goes on.
        Raises as `replay`.
        """
        return self._operate("discard", letters)

    def _operate(self, kind: Literal["replay", "discard"], letters: Sequence[DeadLetter]) -> ReplayReport:
        books = self._books()
        selection = Selection(at=frozenset(letter.position for letter in letters), everything=not letters)
        desk = Desk(self.cluster.admin(), self.cluster.log(), self.clock, self._plan.translator)
        plan = make_plan(selection, books, desk.log, kind=kind, translator=desk.translator)
        self._jobs += 1
        job = Job(desk, plan, books, Author("the test", f"test-{self._jobs}"), threading.Event())
        report = job.replay() if kind == "replay" else job.discard()
        self.workers.settle()
        return report

    def restart(self) -> None:
        """
        End the process in order, and start a new one: handlers finish, what is done is committed. Several are replaced one
        after another, as by a rolling restart.
        """
        self._require()
        for _ in range(len(self.workers.running)):
            self.workers.stop()
            self.workers.start()

    def crash(self) -> None:
        """
        End the process as `kill -9` does, of several the oldest, and start a new one: what was in flight, or finished within
        about the last second before, runs again.
        """
        self._require()
        if self.workers.running:
            self.workers.kill()
        self.workers.start()

    def rebalance(self, to: int = 2) -> None:
        """
        Let `to` processes share the partitions from now on: new ones join the group, or the oldest leave it in order. So
        `rebalance(to=2)` and then `rebalance(to=1)` moves every partition. By default two, the fewest that share.

        A partition is at one process: with fewer of them than `to` (`Harness(app, partitions=…)`) some processes have none.
        Raises ValueError for what isn't a whole number of 1 or more.
        """
        self._require()
        if not isinstance(to, int) or to < 1:
            raise ValueError(
                f"rebalance(to={to!r}): a whole number, at least one process; harness.workers.stop() ends the last one, too"
            )
        while len(self.workers.running) < to:
            self.workers.start()
        while len(self.workers.running) > to:
            self.workers.stop()
        self.workers.settle()

    def break_topic(self, topic: str, why: str = "not enough replicas in sync") -> None:
        """
        Refuse all that is written to a topic by the app, a replay or a discard, until `mend_topic`; `why`: what brokers answer. What
        `send` writes isn't refused. Raises TopologyError when there is no such topic.
        """
        self._require(topic)
        self.cluster.faults.broken_topics[topic] = why

    def mend_topic(self, topic: str) -> None:
        """Take writes to a topic again. The app writes anew what was refused when its back-off is over, within 30 s."""
        self._require(topic)
        self.cluster.faults.broken_topics.pop(topic, None)

    def close(self) -> None:
        """End all processes in order. Calling it twice is harmless."""
        self._is_closed = True
        self.workers.close()

    # -- what can be seen ----------------------------------------------------------------------------------------

    @property
    def clock(self) -> VirtualClock:
        """Wall and monotonic time of everything in here."""
        return self.cluster.clock

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """Dead letters that are open, the oldest first; those that were sent back or discarded are not."""
        found = [
            (record.timestamp()[1], DeadLetter.of(read_letter(record, self._plan.translator)))
            for book in self._books()
            for record in self.cluster.records(book.dlq.topic)
            if not _is_final(book, record)
        ]
        return [letter for _, letter in sorted(found, key=lambda pair: (pair[0], pair[1].position))]

    @property
    def waiting(self) -> list[Waiting]:
        """Records that wait on retry topics for their next run, the one that is due first in front."""
        tiers = [tier for plan in self._plan.listeners for tier in (*plan.tiers, *plan.drained)]
        found: list[Waiting] = []
        for tier in tiers:
            for record in self.cluster.records(tier.topic):
                envelope, _ = envelope_of(record, self._plan.translator)
                if envelope.group in {self._app.group, ""} and not self._is_finished(record):
                    due_ms = (
                        record.timestamp()[1] + tier.delay_ms if envelope.due_ms is None else envelope.due_ms
                    )
                    in_ms = due_ms - self.clock.wall_ms()
                    found.append(
                        Waiting(
                            tier.topic,
                            due_ms,
                            in_ms,
                            envelope.attempt,
                            record.key(),
                            record.value(),
                            envelope,
                        )
                    )
        return sorted(found, key=lambda waiting: waiting.due_ms)

    @property
    def reports(self) -> list[Report]:
        """What an operator would read in the log: `event` and `fields`, such as `brake-on` or `write-refused`."""
        return self.workers.reports

    # -- parts ---------------------------------------------------------------------------------------------------

    def _create_topics(self, partitions: int) -> None:
        admin, replication = self.cluster.admin(), self._settings.replication
        self.cluster.brokers = max(self.cluster.brokers, replication)
        existing = self.cluster.topics
        wanted = with_source_partitions(
            wanted_topics(self._app, self._settings, existing), existing, missing=partitions, by_source={}
        )
        failed = carry_out(admin, compare(admin, wanted), replication=replication)
        if failed:
            raise TopologyError("; ".join(f"{topic}: {why}" for topic, why in failed.items()))
        self._dlqs = {topic.name for topic in wanted if topic.role is Role.DLQ}

    def _watched(self, make: Callable[[], App]) -> Callable[[int], ResolvedApp]:
        """What makes the app that a process of that number runs. The first one has that by which all was planned."""
        first = [self._app]

        def make_watched(worker: int) -> ResolvedApp:
            return watched(
                first.pop() if first else made(make).resolve(),
                began=partial(self._note_begun, worker),
                ended=partial(self._note, worker),
                letter_ended=self._note_letter,
            )

        return make_watched

    def _require(self, topic: str | None = None) -> None:
        """Raises RedriveError when all is over, TopologyError when there is no such topic."""
        if self._is_closed:
            raise RedriveError("the harness is closed")
        if topic is not None and topic not in self.cluster.topics:
            known = ", ".join(sorted(self.cluster.topics))
            raise TopologyError(
                f"there is no topic {topic}; there are: {known}. Others are made by harness.cluster.create_topic(name)"
            )

    def _books(self) -> list[StateBook]:
        admin, log = self.cluster.admin(), self.cluster.log()
        names = Names((self._settings.naming,), self._app.group)
        books = [
            StateBook(admin, log, self.clock, dlq)
            for dlq in find_dlqs(admin, names)
            if dlq.topic in self._dlqs
        ]
        for book in books:
            book.read()
        return books

    def _is_finished(self, record: SimRecord) -> bool:
        """Whether the process that has the record's partition knows that it needn't run."""
        self._require()
        key, offset = TopicPartition(record.topic(), record.partition()), record.offset()
        lanes = (
            process.engine.lanes.get(key) for worker in self.workers.running for process in worker.groups
        )
        return any(
            offset < lane.offsets.frontier
            or any(first <= offset < end for first, end in lane.offsets.finished_above_frontier())
            for lane in lanes
            if lane is not None
        )

    def _note_begun(self, worker: int, listener: str, value: Any, record: Any) -> None:
        self.history.append(Begun(listener, value, record, record.attempt, self.clock.wall_ms(), worker))

    def _note(self, worker: int, listener: str, value: Any, record: Any, error: BaseException | None) -> None:
        if self.workers.is_killing:
            return
        run = (listener, value, record, record.attempt, self.clock.wall_ms())
        if error is None:
            self.handled.append(Handled(*run, worker))
            self.history.append(self.handled[-1])
        else:
            self.failed.append(FailedRun(*run, error, worker))
            self.history.append(self.failed[-1])

    def _note_letter(self, name: str, value: Any, letter: Any, error: BaseException | None) -> None:
        self.letter_runs.append(LetterRun(name, value, letter, self.clock.wall_ms(), error))


def made(make: Callable[[], App]) -> App:
    """The app for a process. Raises TypeError where it is none."""
    app = make()
    if not isinstance(app, App):
        raise TypeError(f"{make!r} is to make an App, but gave {app!r}")
    return app


def _maker(app: App | Callable[[], App]) -> Callable[[], App]:
    if isinstance(app, App):
        return lambda: app
    if not callable(app):
        raise TypeError(f"Harness({app!r}) takes an App, or a function that makes one")
    return app


def _settings_of(app: ResolvedApp, settings: Settings | None) -> Settings:
    """What the app sets itself goes before. Raises SettingsError."""
    found = settings or Settings(bootstrap_servers="sim:9092")
    if app.dialects:
        found = replace(found, dialects=app.dialects)
    if app.delivery:
        found = replace(found, delivery=app.delivery)
    if problems := replace(found, bootstrap_servers="sim:9092").problems():
        raise SettingsError(problems)
    return found


def _is_final(book: StateBook, record: SimRecord) -> bool:
    position = Position(record.topic(), record.partition(), record.offset())
    mark = book.mark(position, record.timestamp()[1])
    return mark is not None and mark.state.is_final
