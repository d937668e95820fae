"""
The pump: the one thread that calls the Kafka consumer.

A second thread that called any of its methods would starve while this one polls, and waiting in a revoke callback for
such a thread would never end (both tried). The pump runs no handlers and decides nothing: it tells the engine what
happened and performs what the engine asks.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from redrive.core.commands import (
    AskHealth,
    Command,
    Commit,
    Pause,
    Produce,
    Refusal,
    Report,
    Resume,
    Run,
    Transaction,
)
from redrive.core.engine import Engine
from redrive.core.lane import Lane
from redrive.core.notices import Posted
from redrive.core.pausing import Pausing
from redrive.core.plan import Now
from redrive.core.readings import copied
from redrive.core.record import TopicPartition
from redrive.core.transacting import Transacting
from redrive.core.transactions import Aborted, Fenced
from redrive.errors import ListenerStopped, PortError
from redrive.runtime.checkups import Checkups
from redrive.runtime.clock import Clock
from redrive.runtime.ports import Cluster, Executor, Sink, Source, SourceProblem, Transactor
from redrive.runtime.starting import Starter

#: Nothing can wake a poll: this is how long a stop, or the first record of an idle service, may wait for the pump.
IDLE_POLL_MS = 100.0
#: While handlers or writes are out, their results are looked for this often.
BUSY_POLL_MS = 1.0
#: While runs are out, acknowledgements are taken this often: each look gives the GIL away.
PACE_MS = 2.0
#: Without room the pump doesn't poll; after this long it pauses the partitions and polls again, for the group's sake.
UNPOLLED_MOST_MS = 1000.0
PAUSE_AT_MS = 250.0
#: With room for nothing more the pump sleeps until a result wakes it: waking by itself takes the GIL from the workers.
FULL_WAIT_MS = 50.0
ASK_AGAIN_MS = 1000.0
#: The first question for committed offsets may take long; asked again it must not hold up the other partitions.
ASK_TIMEOUT_S = 5.0
ASK_AGAIN_TIMEOUT_S = 0.2
IDLE_LOOK_MS = 1000.0
#: What the drain didn't bring to an end gets this long each: writes without an answer, handlers that never end.
CLOSE_S = 1.0
#: The last transaction of a revoke or shut-down gets so long; the group waits meanwhile.
LAST_TRANSACTION_MS = 5_000.0


class PumpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`starts`: each source topic's `start=`; `drain_ms`: how long a revoke or a shut-down waits for handlers."""

    starts: Mapping[str, str]
    drain_ms: float = 10_000.0


class Pump:
    """
    Drives one engine over its ports. `report` is told what an operator may want to read; it never raises. `notices` gives
    those that came since it was asked last, without waiting. `transactor`: where writes and commits go with delivery
    `exactly-once`; nothing is written or committed any other way then. `checkups`: asks health functions, where listeners
    have such.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        source: Source,
        sink: Sink,
        executor: Executor,
        cluster: Cluster,
        clock: Clock,
        settings: PumpSettings,
        identity: Callable[[str], str],
        report: Callable[[Report], None],
        notices: Callable[[], Sequence[Posted | Pausing]] = tuple,
        transactor: Transactor | None = None,
        checkups: Checkups | None = None,
    ) -> None:
        self.engine = engine
        self.report = report
        self.stop_requested = threading.Event()
        self.has_joined = False
        self.last_problem: SourceProblem | None = None
        #: Monotonic time of the last step: the pump is alive while it moves.
        self.stepped_mono_ms = clock.mono_ms()
        self._source, self._sink, self._executor, self._cluster = source, sink, executor, cluster
        self._clock, self._settings = clock, settings
        self._notices, self._transactor, self._checkups = notices, transactor, checkups
        self._performers: dict[type[Command], Callable[[Any], None]] = {
            Run: executor.submit,
            Produce: sink.produce,
            Commit: source.commit,
            Transaction: self._submit,
            Pause: lambda pause: source.pause(pause.partitions),
            Resume: lambda resume: source.resume(resume.offsets),
            Report: report,
            AskHealth: self._ask_health,
        }
        self._starter = Starter(engine, source, cluster, settings.starts, identity, report)
        self._never = threading.Event()
        self._polled_mono_ms, self._answers_mono_ms, self._ask_mono_ms = clock.mono_ms(), 0.0, 0.0
        #: Assigned, but nobody could tell yet where they begin; and those whose next offset is gone.
        self._unstarted, self._cut = set[TopicPartition](), set[TopicPartition]()

    @property
    def drain_s(self) -> float:
        """How long a revoke or a shut-down waits for handlers."""
        return self._settings.drain_ms / 1000

    @property
    def producer_problem(self) -> str:
        """Why nothing can be written, while something has to be; empty when it can, or needn't be. Any thread."""
        problem = self._sink.problem or (self._transactor.problem if self._transactor else "")
        if not problem:
            return ""
        return problem if any(lane.writes.count for lane in copied(self.engine.lanes.values())) else ""

    def join(self) -> None:
        """Become a member of the group; partitions come with later steps."""
        self._source.join(self.engine.topics, self)

    def run(self) -> None:
        """Join, and step until a stop is requested, then drain and leave the group. Raises what makes going on impossible."""
        self.join()
        try:
            while not self.stop_requested.is_set():
                self.step()
                for listener in self.engine.listeners:
                    if listener.stopped is not None:
                        raise ListenerStopped(
                            listener.plan.name, listener.stopped.record, listener.stopped.why
                        )
        except BaseException:
            # What is finished can still be committed; why it ended matters more than whether that works.
            with contextlib.suppress(Exception):
                self.shut_down()
            raise
        self.shut_down()

    def step(self, *, poll: bool = True) -> None:
        """One round. Without `poll` the consumer is left alone: the round of a rebalance or a shut-down."""
        now = self._clock.now()
        self.stepped_mono_ms = now.mono_ms
        if posted := self._notices():
            self.engine.notices.post(posted, now)
        if self._checkups is not None:
            for listener, is_healthy in self._checkups.answers():
                self.engine.outages.answered(self.engine.listeners[listener], now, is_healthy=is_healthy)
        self.engine.tick(now)
        self._perform()
        if not poll:
            self._take_results(BUSY_POLL_MS if self.engine.runs else 0.0)
        elif self.engine.wants_records() or self._make_room_to_poll(now):
            self._take_results(0.0)
            self._poll(now, self.engine.room_to_fetch)
        elif self._transactor is None and self.engine.commits.awaited_in_ms(now.mono_ms) <= 0:
            # Answers to these commits come by polling only. What else it brings is one record too many, so it is results
            # that are waited for: else each step would hand out a run of that one record, thirty times slower.
            self._poll(now, 1, 0.0 if self.engine.runs else BUSY_POLL_MS)
            self._take_results(BUSY_POLL_MS)
        else:
            wait_ms = max(PACE_MS, min(FULL_WAIT_MS, self.engine.next_wake_ms - now.wall_ms))
            if self.engine.successors.outstanding:
                wait_ms = PACE_MS
            if not self.engine.runs:  # an outage, the brake, or writes that are refused
                self._clock.wait(self._never, wait_ms)
            self._take_results(wait_ms)
        self._take_answers(now)
        self._perform()

    def shut_down(self) -> None:
        """Let handlers end the record they are at, commit, leave the group. Bounded by the drain time."""
        keys = list(self.engine.lanes)
        # Each step is made whatever went wrong in those before it, the last one named first: else the partitions would
        # wait for this member's session to end, and the loop for its handlers.
        with contextlib.ExitStack() as steps:
            steps.callback(self._close_executor)
            steps.callback(self._sink.close, CLOSE_S)
            if self._transactor is not None:
                steps.callback(self._transactor.close, CLOSE_S)
            steps.callback(self._source.close)
            # Leaving the group doesn't wait for the same handlers once more.
            steps.callback(self.engine.forget, keys)
            self._drain(keys)

    def _close_executor(self) -> None:
        if not self._executor.close(CLOSE_S):
            self.report(Report("handlers-left", {"seconds": self.drain_s}))

    # -- the group's events, called from within poll and close ---------------------------------------------------

    def on_assigned(self, keys: Sequence[TopicPartition]) -> None:
        """Start each partition at an explicit offset; ask again later where the broker doesn't say which."""
        self.has_joined = True
        if keys:
            self.report(Report("assigned", {"partitions": _told(keys)}))
            self._begin(keys, ASK_TIMEOUT_S)

    def on_revoked(self, keys: Sequence[TopicPartition]) -> None:
        """Finish what is out, commit it, let go."""
        self.report(Report("revoked", {"partitions": _told(keys)}))
        self._drain(keys)
        self._let_go(keys)

    def on_lost(self, keys: Sequence[TopicPartition]) -> None:
        """Somebody else may have them already: let go without a commit."""
        self.report(Report("lost", {"partitions": _told(keys)}))
        self._let_go(keys)

    def _let_go(self, keys: Sequence[TopicPartition]) -> None:
        self._unstarted.difference_update(keys)
        self._cut.difference_update(keys)
        self.engine.forget(keys)

    # -- parts of a step -----------------------------------------------------------------------------------------

    def _poll(self, now: Now, most: int, most_ms: float = IDLE_POLL_MS) -> None:
        wait_ms = min(most_ms, BUSY_POLL_MS)
        if not self.engine.runs:
            idle_ms = BUSY_POLL_MS if self.engine.successors.outstanding else IDLE_POLL_MS
            wait_ms = min(most_ms, idle_ms, max(0.0, self.engine.next_wake_ms - now.wall_ms))
            wait_ms = min(wait_ms, max(BUSY_POLL_MS, self.engine.commits.awaited_in_ms(now.mono_ms)))
        self._polled_mono_ms = now.mono_ms
        for key, records in self._source.poll(wait_ms / 1000, most):
            self.engine.fetched(key, records, self._clock.now())
        if problems := self._source.problems():
            self._handle(problems)
        if (self._unstarted or self._cut) and now.mono_ms >= self._ask_mono_ms:
            self._ask_again()
        for snapshot, refused in self._source.commit_answers():
            self._take_commit_answer(snapshot, refused)

    def _take_commit_answer(self, snapshot: int, refused: Mapping[TopicPartition, Refusal]) -> None:
        commits = self.engine.commits
        before_chars = commits.metadata_chars
        is_too_large = any(refusal.kind == "too-large" for refusal in refused.values())
        commits.answered(snapshot, refused, self._clock.now(), is_too_large=is_too_large)
        self._report_refused(refused, before_chars)

    def _report_refused(self, refused: Mapping[TopicPartition, Refusal], before_chars: int) -> None:
        if self.engine.commits.metadata_chars < before_chars:
            self.report(Report("metadata-limited", {"chars": self.engine.commits.metadata_chars}))
        elif refused:
            detail = next(iter(refused.values())).detail
            self.report(Report("commit-refused", {"error": detail, "partitions": len(refused)}))

    def _make_room_to_poll(self, now: Now) -> bool:
        """All listeners are full. Whether to pause them and poll, because that will last or has lasted for long."""
        unpolled_ms = now.mono_ms - self._polled_mono_ms
        paused = self.engine.pause_full(0.0 if unpolled_ms >= UNPOLLED_MOST_MS else PAUSE_AT_MS)
        self._perform()
        return paused

    def _take_results(self, wait_ms: float) -> None:
        if not self.engine.runs:
            return
        for result in self._executor.results(wait_ms / 1000):
            self.engine.finished(result, self._clock.now())
        self._perform()

    def _take_answers(self, now: Now) -> None:
        if self._transactor is not None:
            self._take_outcomes(self._transactor)
        # Also with nothing outstanding: the client's log lines pile up until somebody looks.
        successors = self.engine.successors
        pace_ms = (PACE_MS if self.engine.runs else 0.0) if successors.outstanding else IDLE_LOOK_MS
        if now.mono_ms < self._answers_mono_ms + pace_ms:
            return
        self._answers_mono_ms = now.mono_ms
        successors.answered(self._sink.answers(), now)

    def _ask_health(self, ask: AskHealth) -> None:
        if self._checkups is not None:
            self._checkups.ask(ask.listener)

    def _perform(self) -> None:
        for command in self.engine.take_commands():
            self._performers[type(command)](command)

    def _drain(self, keys: Sequence[TopicPartition]) -> None:
        """
        Wait for what is out of these partitions, then commit once. What isn't acknowledged by then stays unfinished.
        """
        # What a run has finished is committed even if the record it is at never ends, or waiting for it goes wrong.
        self.engine.harvest(self._clock.now())
        self.engine.stop(keys)
        deadline_ms = self._clock.mono_ms() + self._settings.drain_ms
        try:
            while not self.engine.is_quiet(keys) and self._clock.mono_ms() < deadline_ms:
                self.step(poll=False)
                if not self.engine.runs:  # only acknowledgements are missing
                    self._clock.wait(self._never, BUSY_POLL_MS)
        finally:
            self._commit_last(keys)

    def _commit_last(self, keys: Sequence[TopicPartition]) -> None:
        lanes = [lane for key in keys if (lane := self.engine.lanes.get(key)) is not None]
        if self.engine.transacting is not None:
            if not self._transact_last(self.engine.transacting, lanes):
                self.report(Report("last-commit-refused", {"partitions": _told(keys)}))
            return
        for missing in self.engine.commits.send_last(lanes, self._source.commit_now):
            self.report(Report("last-commit-refused", {"partitions": _told(list(missing))}))

    # -- delivery exactly-once: no commit but in a transaction ---------------------------------------------------

    def _submit(self, transaction: Transaction) -> None:
        if self._transactor is not None:
            self._transactor.submit(transaction, self._source.membership)

    def _take_outcomes(self, transactor: Transactor) -> None:
        for outcome in transactor.outcomes():
            if isinstance(outcome, Fenced):
                self._start_over(outcome)
            elif self.engine.transacting is not None:
                before_chars = self.engine.commits.metadata_chars
                self.engine.transacting.answered(outcome, self._clock.now())
                if isinstance(outcome, Aborted):
                    self.report(Report("transaction-aborted", {"error": outcome.detail}))
                    self._report_refused(outcome.offsets, before_chars)

    def _start_over(self, fenced: Fenced) -> None:
        """Nobody can tell what of the last transaction is there: every partition begins where the group has committed."""
        keys = list(self.engine.lanes)
        self.engine.forget(keys)
        if fenced.is_final:
            raise PortError(fenced.detail)
        if self.engine.transacting is not None:
            self.engine.transacting.abandon()
        self.report(Report("transaction-unknown", {"error": fenced.detail, "partitions": _told(keys)}))
        self._source.pause(keys)
        self._unstarted.update(keys)
        self._ask_mono_ms = self._clock.mono_ms() + ASK_AGAIN_MS

    def _transact_last(self, transacting: Transacting, lanes: Sequence[Lane]) -> bool:
        """Commit what these lanes have finished. False when that isn't certain in time: then it isn't waited for."""
        deadline_ms = self._clock.mono_ms() + LAST_TRANSACTION_MS
        while not transacting.is_settled(lanes):
            if self._clock.mono_ms() >= deadline_ms:
                return False
            if (transaction := transacting.due(lanes, self._clock.now(), at_once=True)) is not None:
                self._submit(transaction)
            self._take_answers(self._clock.now())
            self._clock.wait(self._never, BUSY_POLL_MS)
        return True

    # -- starting partitions -------------------------------------------------------------------------------------

    def _begin(self, keys: Sequence[TopicPartition], timeout_s: float) -> None:
        transacting = self.engine.transacting
        open_keys = transacting.on_its_way if transacting is not None else ()
        askable = [key for key in keys if key not in open_keys]
        starts = self._starter.starts_of(askable, timeout_s) if askable else {}
        self._unstarted.difference_update(starts)
        self.engine.assigned(starts)
        self._source.start_at({key: start.offset for key, start in starts.items()})
        if unanswered := [key for key in keys if key not in starts]:
            self._unstarted.update(unanswered)
            self._ask_mono_ms = self._clock.mono_ms() + ASK_AGAIN_MS
            self._source.keep_waiting(unanswered)

    def _ask_again(self) -> None:
        self._ask_mono_ms = self._clock.mono_ms() + ASK_AGAIN_MS
        if self._unstarted:
            self._begin(list(self._unstarted), ASK_AGAIN_TIMEOUT_S)
        if self._cut:
            self._jump_over_lost(list(self._cut))

    # -- problems ------------------------------------------------------------------------------------------------

    def _handle(self, problems: Sequence[SourceProblem]) -> None:
        for problem in problems:
            self.last_problem = problem
            if problem.kind == "out-of-range" and problem.key is not None:
                self._cut.add(problem.key)
                self._ask_mono_ms = 0.0
            elif problem.kind == "fatal":
                raise PortError(f"the consumer is of no use any more: {problem.detail}")
            else:
                self.report(Report("source-problem", {"kind": problem.kind, "error": problem.detail}))

    def _jump_over_lost(self, keys: Sequence[TopicPartition]) -> None:
        """Retention was faster than this group: tell how many records nobody will ever see, and go on."""
        try:
            found = self._cluster.offsets(keys, "earliest")
            parked = [key for key in keys if key.topic in self.engine.parked_topics]
            ends = self._cluster.offsets(parked, "latest") if parked else {}
        except PortError as error:
            self.report(Report("start-unknown", {"error": str(error)}))
            return
        for key, earliest in found.items():
            self._cut.discard(key)
            if (lane := self.engine.lanes.get(key)) is None:
                continue
            fields = {"topic": key.topic, "partition": key.partition, "offset": lane.next_offset}
            lost = self.engine.log_was_cut(key, earliest, ends.get(key, 0))
            lane.listener.counters.lost += lost
            if lost:
                self.report(Report("records-lost", {**fields, "lost": lost}))
            elif not lane.alive:
                self.report(Report("log-restarted", fields))
        self._perform()


def _told(keys: Sequence[TopicPartition]) -> str:
    """`orders 0 1 2, orders.retry.5s 0`: for a log line."""
    by_topic: dict[str, list[int]] = {}
    for key in sorted(keys):
        by_topic.setdefault(key.topic, []).append(key.partition)
    told = ", ".join(f"{topic} {' '.join(map(str, numbers))}" for topic, numbers in by_topic.items())
    return told or "no partitions"
