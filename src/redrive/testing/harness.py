"""An app under test, on a cluster in memory."""

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, Self

from redrive.app import App
from redrive.core.commands import Report
from redrive.core.record import Record, TopicPartition
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
from redrive.runtime.declaration import Listener
from redrive.runtime.letters import begin_at_end, letter_app
from redrive.runtime.planning import plan_group, plan_letters, wanted_topics
from redrive.runtime.provisioning import carry_out, compare, with_source_partitions
from redrive.sim.clock import VirtualClock
from redrive.sim.cluster import SimCluster
from redrive.sim.loop import VirtualLoop
from redrive.sim.records import SimRecord
from redrive.testing.process import Process, let_pass, settle
from redrive.testing.values import FailedRun, Handled, LetterRun, Waiting, to_bytes

Headers = Mapping[str, bytes | str | None] | Sequence[tuple[str, bytes | str | None]]


class Harness:
    """
    Runs `app` on a simulated cluster, in the test's own thread. Time stands still until the test moves it.

    The code at work is that of `redrive run`, down to the Kafka client, in whose place the simulated cluster is: same
    retries, dead letters, commits. Coroutine handlers run on an event loop that goes by the same clock, so
    `asyncio.sleep(3600)` in a handler takes an hour of it and no time. Topics are created as `redrive topics apply` does.

    `partitions`: of each source topic; 1 by default, so that records are handled in the order in which they were sent.
    `settings`: by default those of a `Settings()`; neither environment nor `redrive.toml` is read, so a test does the same
    everywhere. `seed`: lets things happen in another order than the plainest, the same for the same seed. `cluster`: that
    of another harness, on which this app works too: its next release, or another group.

    `clock` and `cluster` are the simulated ones, for tests of faults: `harness.cluster.is_down = True`,
    `harness.cluster.faults.refuse_writes("orders.dlq", 3)`, `harness.clock.step_wall(-60_000)`.

    Raises ListenerError for an app that can't be run, as one without listeners; SettingsError, TopologyError.
    """

    def __init__(
        self,
        app: App,
        *,
        partitions: int = 1,
        settings: Settings | None = None,
        seed: int | None = None,
        cluster: SimCluster | None = None,
    ) -> None:
        self.cluster = cluster or SimCluster(VirtualClock(), seed=seed)
        self.handled: list[Handled] = []
        self.failed: list[FailedRun] = []
        self.letter_runs: list[LetterRun] = []
        resolved = app.resolve()
        self._app = replace(
            resolved,
            listeners=tuple(self._watched(each, self._note) for each in resolved.listeners),
            on_dead_letter=tuple(self._watched(each, self._note_letter) for each in resolved.on_dead_letter),
        )
        self._settings = settings or Settings(bootstrap_servers="sim:9092")
        if resolved.dialects:
            self._settings = replace(self._settings, dialects=resolved.dialects)
        if resolved.delivery:
            self._settings = replace(self._settings, delivery=resolved.delivery)
        if problems := replace(self._settings, bootstrap_servers="sim:9092").problems():
            raise SettingsError(problems)
        self._create_topics(partitions)
        self._plan = plan_group(self._app, self._settings, self.cluster.topics)
        self._letter_plan = plan_letters(self._app, self._settings)
        self._loop = VirtualLoop(self.clock)
        self._jobs = 0
        self._is_at_work = False
        self._earlier_reports: list[Report] = []
        #: The app's, and that of its handlers of dead letters where it has some; none when it is closed.
        self._processes: tuple[Process, ...] = ()
        try:
            self._begin()
        except BaseException:
            self._loop.close()
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
        `partition`: by default by the key, as Java's producers do. Raises TopologyError when there is no such topic.
        """
        if topic not in self.cluster.topics:
            known = ", ".join(sorted(self.cluster.topics))
            raise TopologyError(
                f"there is no topic {topic}; there are: {known}. Others are made by harness.cluster.create_topic(name)"
            )
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        record = self.cluster.append(
            topic,
            to_bytes(value),
            key=key.encode() if isinstance(key, str) else key,
            headers=[(name, text.encode() if isinstance(text, str) else text) for name, text in pairs],
            partition=partition,
        )
        self._settle()
        return record

    def advance(self, duration: str | timedelta) -> None:
        """
        Let time pass (`"10m"`, `"1h30m"` or a timedelta), and the app do all that becomes due in it, each at its time.
        """
        ms = parse_duration_ms(duration, allow_zero=True)
        let_pass(ms, self.clock, lambda: self._processes, self._settle)

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
        self._settle()
        return report

    def restart(self) -> None:
        """End the process in order, and start a new one: handlers finish, what is done is committed."""
        self._end(Process.stop)
        self._begin()

    def crash(self) -> None:
        """
        End the process as `kill -9` does, and start a new one: what was in flight, or finished within about the last
        second before, runs again.
        """
        self._end(Process.kill)
        self._begin()

    def close(self) -> None:
        """End the process in order. Calling it twice is harmless."""
        if self._processes:
            try:
                self._end(Process.stop)
            finally:
                self._loop.close()

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
        return self._earlier_reports + [report for process in self._processes for report in process.reports]

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

    def _begin(self) -> None:
        process = Process(self._app, self._plan, self._settings, self.cluster, self._loop)
        self._processes = (process,)
        if self._app.on_dead_letter:
            app, plan = letter_app(self._app), self._letter_plan
            begin_at_end(self.cluster.admin(), app, plan, self.cluster.counts)
            beside = Process(app, plan, self._settings, self.cluster, self._loop, resources=process.resources)
            self._processes = (process, beside)
        settle(*self._processes)

    def _end(self, how: Callable[[Process], None]) -> None:
        self._running()
        processes, self._processes = self._processes, ()
        for process in processes:
            self._earlier_reports += process.reports
        for process in reversed(processes):  # the app's lifespan ends last
            how(process)

    def _running(self) -> Process:
        """The app's own."""
        if not self._processes:
            raise RedriveError("the harness is closed")
        return self._processes[0]

    def _settle(self) -> bool:
        if self._is_at_work:  # a handler sends: what it sent is read when it has ended
            return False
        self._is_at_work = True
        try:
            self._running()
            return settle(*self._processes)
        finally:
            self._is_at_work = False

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
        lane = self._running().engine.lanes.get(TopicPartition(record.topic(), record.partition()))
        if lane is None:
            return False
        offset, above = record.offset(), lane.offsets.finished_above_frontier()
        return offset < lane.offsets.frontier or any(first <= offset < end for first, end in above)

    def _note(self, listener: str, value: Any, record: Record, error: BaseException | None) -> None:
        run = (listener, value, record, record.attempt, self.clock.wall_ms())
        if error is None:
            self.handled.append(Handled(*run))
        else:
            self.failed.append(FailedRun(*run, error))

    def _note_letter(self, name: str, value: Any, letter: DeadLetter, error: BaseException | None) -> None:
        self.letter_runs.append(LetterRun(name, value, letter, self.clock.wall_ms(), error))

    def _watched(
        self, listener: Listener, note_run: Callable[[str, Any, Any, BaseException | None], None]
    ) -> Listener:
        """The same listener, whose runs are noted."""
        handler = listener.handler

        def call(value: Any, record: Any) -> Any:
            if not listener.takes_record:
                return handler(value)
            return handler(value, record) if listener.takes_value else handler(record)

        def note(value: Any, record: Any, error: BaseException | None = None) -> None:
            note_run(listener.name, value, record, error)

        def run(value: Any, record: Any) -> Any:
            try:
                result = call(value, record)
            except BaseException as error:
                note(value, record, error)
                raise
            if not inspect.isawaitable(
                result
            ):  # handed back instead of awaited: redrive counts that as a failure
                note(value, record)
            return result

        async def run_awaited(value: Any, record: Any) -> None:
            try:
                await call(value, record)
            except BaseException as error:
                note(value, record, error)
                raise
            note(value, record)

        return replace(
            listener,
            handler=run_awaited if listener.is_async else run,
            takes_value=True,
            takes_record=True,
        )


def _is_final(book: StateBook, record: SimRecord) -> bool:
    position = Position(record.topic(), record.partition(), record.offset())
    mark = book.mark(position, record.timestamp()[1])
    return mark is not None and mark.state.is_final
