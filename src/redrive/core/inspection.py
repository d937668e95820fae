"""
What a process is at, as values: for a person who wants to know why nothing moves.

Taken by another thread than the pump's, which is neither waited for nor held up: what grows and shrinks is copied first,
so a view may mix two moments some microseconds apart. It names topics, partitions, offsets, attempts, times, and types
of failures; never a key, a value or a header's text.
"""

from collections.abc import Callable
from heapq import nsmallest
from itertools import islice
from typing import Any, TypeVar

import msgspec

from redrive.core.breaker import State
from redrive.core.commands import Run
from redrive.core.engine import Engine
from redrive.core.key_lanes import KeyLanes
from redrive.core.lane import Lane
from redrive.core.listener_state import ListenerState
from redrive.core.metadata import Head
from redrive.core.pending import Pending
from redrive.core.plan import Now
from redrive.core.readings import copied
from redrive.core.record import RawRecord
from redrive.core.schedule import Window
from redrive.core.successors import envelope_of
from redrive.core.translator import Translator

T = TypeVar("T")

#: Of what there may be thousands of, the first so many are told, and how many there are.
MOST_TOLD = 100


class RunSeen(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a handler's slot works on: `offset` is the record at hand, None between two; `running_s` how long it has been at
    it, None where the slot hasn't begun; `left`: records of the run behind it.
    """

    slot: int
    topic: str
    partition: int
    offset: int | None
    running_s: float | None
    left: int


class StuckSeen(msgspec.Struct, frozen=True, kw_only=True):
    """
    A record that isn't finished and holds back what is behind it, or the committed offset. `state`: what it waits for.
    `attempt`: the runs it had, None where nobody knows. `due_ms`: when it runs again, epoch ms; None where that isn't a
    matter of time. `age_s`: since its first failure, else since it began. `why`: the type of its failure.
    """

    topic: str
    partition: int
    offset: int
    state: str
    attempt: int | None = None
    due_ms: int | None = None
    age_s: float | None = None
    why: str = ""


class PausedSeen(msgspec.Struct, frozen=True, kw_only=True):
    """Who paused a listener, why, and when (epoch ms)."""

    who: str
    why: str
    since_ms: int


class ListenerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """
    One listener in this process. `slots`: handlers that may run at once. `queued`: fetched records that no handler has yet.
    `held`: records that wait for their due; `held_in_outage`: those that failed in an outage, and run again after it.
    `stuck`: the first ones due, of `stuck_count`. `outage_wait_s`: in an outage, how long until a record is tried; None while
    one is.
    """

    group: str
    name: str
    topic: str
    slots: int
    partitions: int
    queued: int
    held: int
    runs: tuple[RunSeen, ...]
    stuck: tuple[StuckSeen, ...]
    stuck_count: int
    brake_on: bool
    breaker: State
    held_in_outage: int
    outage_wait_s: float | None
    paused: PausedSeen | None


class PartitionSeen(msgspec.Struct, frozen=True, kw_only=True):
    """
    One assigned partition. `frontier`: all below is finished; None before anything was read. `finished_above`: finished
    records above it. `held`: records that wait for their due. `open`: unfinished ones that were handed out, or wait.
    `unconfirmed`: copies and dead letters that no broker has confirmed yet. `is_paused`: nothing of it is fetched for now.
    `committed`: what the group has committed as far as this process knows, None for nothing; `committed_age_s`: how long ago a
    commit of this process was confirmed, None before the first: where nothing changes nothing is committed. `front`: what is
    at the frontier.
    """

    group: str
    listener: str
    topic: str
    partition: int
    frontier: int | None
    finished_above: int
    queued: int
    held: int
    open: int
    unconfirmed: int
    is_paused: bool
    committed: int | None
    committed_age_s: float | None
    front: StuckSeen | None


class GroupSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One group of a process."""

    listeners: tuple[ListenerSeen, ...]
    partitions: tuple[PartitionSeen, ...]


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """
    One process at one moment, `now_ms` (epoch). `worker`: its number under a supervisor, else 0. `step_age_s`: how long ago
    its pump moved. `why`: what keeps it from being ready.
    """

    worker: int
    host: str
    pid: int
    version: str
    now_ms: int
    step_age_s: float
    is_ready: bool
    why: tuple[str, ...]
    listeners: tuple[ListenerSeen, ...]
    partitions: tuple[PartitionSeen, ...]


class WorkersSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What is told at one address: a process by itself, or all workers of a supervisor. `silent`: those that didn't answer."""

    workers: tuple[WorkerState, ...]
    silent: tuple[int, ...] = ()


def inspect(group: str, engine: Engine, translator: Translator, now: Now) -> GroupSeen:
    """Look at one group. Any thread."""
    runs = copied(engine.runs)
    lanes = sorted(copied(engine.lanes.values()), key=lambda lane: lane.key)
    writes = engine.successors.refused()
    look = _Look(group, translator, now, runs, writes)
    listeners = tuple(
        look.listener(each, [lane for lane in lanes if lane.listener is each]) for each in engine.listeners
    )
    return GroupSeen(listeners=listeners, partitions=tuple(look.partition(lane) for lane in lanes))


class _Look:
    """One look at one group."""

    def __init__(
        self,
        group: str,
        translator: Translator,
        now: Now,
        runs: list[Run],
        writes: list[Pending],
    ) -> None:
        self._group = group
        self._translator = translator
        self._now = now
        self._runs = runs
        self._writes = writes

    def listener(self, listener: ListenerState, lanes: list[Lane]) -> ListenerSeen:
        breaker, paused = listener.breaker, listener.paused
        stuck = [self._refused(each) for each in self._writes if each.lane.listener is listener]
        stuck += [
            self._head(lane, offset, head) for lane in lanes for offset, head in lane.heads.copy().items()
        ]
        return ListenerSeen(
            group=self._group,
            name=listener.plan.name,
            topic=listener.plan.source,
            slots=listener.plan.concurrency,
            partitions=len(lanes),
            queued=listener.queued,
            held=sum(map(_held, lanes)),
            runs=tuple(
                islice((self._run(run) for run in self._runs if run.lane.listener is listener), MOST_TOLD)
            ),
            stuck=tuple(nsmallest(MOST_TOLD, stuck, key=_by_due)),
            stuck_count=len(stuck),
            brake_on=listener.brake.is_on,
            breaker=breaker.state,
            held_in_outage=sum(len(lane.held) for lane in lanes),
            outage_wait_s=_seconds(breaker.probe_ms - self._now.mono_ms) if breaker.state == "open" else None,
            paused=None
            if paused is None
            else PausedSeen(who=paused.who, why=paused.why, since_ms=paused.when_ms),
        )

    def partition(self, lane: Lane) -> PartitionSeen:
        offsets, frontier = lane.offsets, _frontier(lane)
        return PartitionSeen(
            group=self._group,
            listener=lane.listener.plan.name,
            topic=lane.key.topic,
            partition=lane.key.partition,
            frontier=frontier if offsets.started else None,
            finished_above=max(0, offsets.settled - frontier - offsets.open_count),
            queued=_settled(lane.queued),
            held=_held(lane),
            open=offsets.open_count,
            unconfirmed=lane.writes.count,
            is_paused=lane.is_paused,
            committed=None if lane.acked is None else lane.acked[0],
            committed_age_s=None
            if lane.acked_mono_ms is None
            else _seconds(self._now.mono_ms - lane.acked_mono_ms),
            front=self._front(lane) if offsets.started else None,
        )

    def _front(self, lane: Lane) -> StuckSeen | None:
        """What is at the frontier of a partition; None where nothing is unfinished."""
        frontier = _frontier(lane)
        for run in self._runs:
            if run.lane is lane and any(record.offset() == frontier for record in run.records):
                return self._running(run, frontier)
        for pending in self._writes:
            if pending.lane is lane and pending.record.offset() == frontier:
                return self._refused(pending)
        if (head := lane.heads.get(frontier)) is not None:
            return self._head(lane, frontier, head)
        if frontier in lane.held:
            return self._stuck(lane, frontier, state="failed in an outage, to run again")
        for window in (lane.window, lane.reposts):
            for record in _records_of(window):
                if record.offset() == frontier:
                    return self._held(lane, record)
        if frontier >= lane.offsets.settled:
            queued = [batch.records[0].offset() for batch in copied(lane.queue) if batch.records]
            return self._stuck(lane, queued[0], state="next in line") if queued else None
        if lane.keys is not None and frontier in _waiting(lane.keys):
            return self._stuck(lane, frontier, state="next in line")
        state = "its copy is being written" if lane.writes.count else "its listener stopped at it"
        return self._stuck(lane, frontier, state=state)

    def _running(self, run: Run, frontier: int) -> StuckSeen:
        """What of a run is first in its partition. Of a stretch what is before the record at hand is finished."""
        at_hand, head = _at_hand(run), run.lane.heads.get(frontier)
        if at_hand is None or (run.is_apart and at_hand.offset() != frontier):
            return self._stuck(run.lane, frontier, state="next in line", attempt=head and head.attempt)
        head = run.lane.heads.get(at_hand.offset())
        return self._stuck(
            run.lane,
            at_hand.offset(),
            state="a handler is at it",
            attempt=head and head.attempt,
            age_s=self._running_s(run),
        )

    def _head(self, lane: Lane, offset: int, head: Head) -> StuckSeen:
        envelope = lane.heads.envelope(offset)
        if head.is_dead:
            return self._stuck(
                lane, offset, state="a dead letter, for which later ones wait", age_s=self._age_s(head.due_ms)
            )
        is_due = head.due_ms <= self._now.wall_ms
        return self._stuck(
            lane,
            offset,
            state="is due, and waits for its turn or for a commit"
            if is_due
            else "waits in front of its lane",
            attempt=head.attempt,
            due_ms=head.due_ms,
            age_s=self._age_s(head.first_failed_ms),
            why="" if envelope is None else envelope.failure_type,
        )

    def _refused(self, pending: Pending) -> StuckSeen:
        envelope = pending.envelope
        return self._stuck(
            pending.lane,
            pending.record.offset(),
            state=f"its copy for {pending.topic} is refused (try {pending.tries})",
            attempt=envelope.attempt,
            age_s=self._age_s(envelope.first_failed_ms),
            why=envelope.failure_type,
        )

    def _held(self, lane: Lane, record: RawRecord) -> StuckSeen:
        envelope, _ = envelope_of(record, self._translator)
        return self._stuck(
            lane,
            record.offset(),
            state="waits for its due",
            attempt=envelope.attempt,
            due_ms=envelope.due_ms,
            age_s=self._age_s(envelope.first_failed_ms),
            why=envelope.failure_type,
        )

    def _stuck(self, lane: Lane, offset: int, *, state: str, **known: Any) -> StuckSeen:
        return StuckSeen(
            topic=lane.key.topic, partition=lane.key.partition, offset=offset, state=state, **known
        )

    def _run(self, run: Run) -> RunSeen:
        at_hand = _at_hand(run)
        return RunSeen(
            slot=run.slot,
            topic=run.lane.key.topic,
            partition=run.lane.key.partition,
            offset=None if at_hand is None else at_hand.offset(),
            running_s=self._running_s(run),
            left=max(0, run.count - run.taken()),
        )

    def _running_s(self, run: Run) -> float | None:
        if run.started_mono_ms is None:
            return None
        return _seconds(self._now.mono_ms - max(run.started_mono_ms, run.moved_mono_ms))

    def _age_s(self, since_ms: int | None) -> float | None:
        return None if since_ms is None else _seconds(self._now.wall_ms - since_ms)


def _at_hand(run: Run) -> RawRecord | None:
    """The record that the worker is at. It may let go of them all at any moment."""
    records, taken = run.records, run.taken()
    return records[taken - 1] if 0 < taken <= len(records) else None


def _settled(read: Callable[[], T]) -> T:
    """What `read` gives of something that another thread changes."""
    while True:
        try:
            return read()
        except RuntimeError:  # it changed its size meanwhile
            continue


def _frontier(lane: Lane) -> int:
    return _settled(lambda: lane.offsets.frontier)


def _records_of(window: Window) -> list[RawRecord]:
    return _settled(lambda: list(window.records()))


def _waiting(keys: KeyLanes) -> set[int]:
    return _settled(lambda: {record.offset() for record in keys.records()})


def _held(lane: Lane) -> int:
    return len(lane.window) + len(lane.reposts)


def _by_due(stuck: StuckSeen) -> float:
    return stuck.due_ms or 0


def _seconds(ms: float) -> float:
    return round(max(0.0, ms) / 1000, 3)
