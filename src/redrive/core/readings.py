"""
The metrics' values, read from a running engine by another thread than the pump.

Nothing is locked: numbers are read whole, and what grows and shrinks (runs, assigned partitions) is copied first. So
a reading may mix two moments some microseconds apart; none of its counters ever falls.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import msgspec

from redrive.core import catalogue
from redrive.core.catalogue import ALIASES, METRICS, Metric
from redrive.core.commands import Run
from redrive.core.counters import Histogram
from redrive.core.engine import Engine
from redrive.core.lane import Lane
from redrive.core.listener_state import ListenerState
from redrive.core.record import TopicPartition

T = TypeVar("T")


class Bounds(NamedTuple):
    """The offsets of the first record in a partition and behind its last one. `first` is known where it is needed."""

    first: int
    end: int


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """
    The unresolved letters of a dead-letter topic: how many by reason, and when the oldest was put aside, None without any.

    `retention_ms`: for how long the topic keeps a letter; None for ever, or not known.
    """

    unresolved: Mapping[str, int]
    oldest_ms: int | None
    retention_ms: int | None


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a reading needs besides the engine. `stepped_mono_ms`: the pump's last step; `bounds`: of the partitions of which
    they are known; `depths`: by dead-letter topic, of those of which they are known.
    """

    group: str
    version: str
    now_wall_ms: float
    now_mono_ms: float
    stepped_mono_ms: float
    bounds: Mapping[TopicPartition, Bounds]
    depths: Mapping[str, Depth] = MappingProxyType({})
    loop_stalls: int = 0


class Spread(NamedTuple):
    """A histogram at one moment: counts by bucket, not cumulated, the last one unbounded; and the sum in seconds."""

    counts: tuple[int, ...]
    sum_s: float


class Reading(NamedTuple):
    """One series: its labels, in the metric's order, and its value."""

    labels: tuple[str, ...]
    value: float | Spread


Found = Iterator[tuple[Metric, Reading]]


def copied(moving: Collection[T]) -> list[T]:
    """A copy of a set or dict that another thread changes."""
    while True:
        try:
            return list(moving)
        except RuntimeError:  # it changed its size meanwhile
            continue


def read(
    looks: Iterable[tuple[Engine, Look]], *, with_aliases: bool = False
) -> Mapping[Metric, list[Reading]]:
    """
    All series of all metrics, of the groups in this process. Those with a known set of labels are there from the start, at
    0; what groups share, as the version that runs, is there once. `with_aliases`: some under other names besides.
    """
    metrics = (*METRICS, *ALIASES) if with_aliases else METRICS
    found: dict[Metric, dict[tuple[str, ...], Reading]] = {metric: {} for metric in metrics}
    for engine, look in looks:
        aliases = _by_other_names(engine, look) if with_aliases else ()
        for metric, reading in (*_series(engine, look), *aliases):
            found[metric][reading.labels] = reading
    return {metric: list(readings.values()) for metric, readings in found.items()}


def oldest_handler_s(runs: Iterable[Run], listener: ListenerState, now_mono_ms: float) -> float:
    """For how long the longest running handler of a listener has been at its record."""
    began_ms = (
        max(run.started_mono_ms, run.moved_mono_ms)
        for run in runs
        if run.listener == listener.index and run.started_mono_ms is not None
    )
    return max(0.0, now_mono_ms - min(began_ms, default=now_mono_ms)) / 1000


def held_records(lanes: Iterable[Lane]) -> int:
    """How many records wait in memory for their due, or to be posted on."""
    return sum(len(lane.window) + len(lane.reposts) for lane in lanes)


def lag(lanes: Collection[Lane], bounds: Mapping[TopicPartition, Bounds]) -> int | None:
    """Unfinished records of some partitions; None while for one of them it isn't known, or when there is none."""
    counts = [_lag(lane, bounds[lane.key]) for lane in lanes if lane.key in bounds]
    return sum(counts) if counts and len(counts) == len(lanes) else None


def _lag(lane: Lane, known: Bounds) -> int:
    # What was fetched since the end was asked for is known to exist.
    end = max(known.end, lane.next_offset)
    settled = lane.offsets.settled if lane.offsets.started else known.first
    return max(0, end - settled) + lane.offsets.open_count


def _spread(histogram: Histogram) -> Spread:
    return Spread(tuple(histogram.counts), histogram.sum_s)


def _series(engine: Engine, look: Look) -> Found:
    group = (look.group,)
    runs = copied(engine.runs)
    for listener in engine.listeners:
        labels = (*group, listener.plan.name)
        yield from _of_records(listener, (*labels, listener.plan.source))
        yield from _of_handlers(listener, labels, runs, look.now_mono_ms)
        yield from _of_writes(listener, labels)
        yield from _of_topics(listener, labels, look.bounds)
        yield from _of_letters(listener, labels, look)
    counts = (engine.commits.confirmed, engine.commits.refused)
    for outcome, count in zip(catalogue.COMMIT_OUTCOMES, counts, strict=True):
        yield catalogue.COMMITS, Reading((*group, outcome), count)
    age_s = max(0.0, look.now_mono_ms - look.stepped_mono_ms) / 1000
    yield catalogue.PUMP_STEP_AGE, Reading(group, age_s)
    yield catalogue.LOOP_STALLS, Reading(group, look.loop_stalls)
    yield catalogue.BUILD_INFO, Reading((look.version,), 1)


def _of_records(listener: ListenerState, labels: tuple[str, ...]) -> Found:
    counters = listener.counters
    counts = {
        "handled": counters.handled,
        "retried": sum(counters.retried.values()),
        "dead-lettered": sum(counters.dead.values()),
        "skipped": counters.dropped["skip"],
        "discarded": counters.dropped["discarded"],
        "skipped-by-operator": counters.dropped["skipped-by-operator"],
        "given-up": sum(counters.dropped[reason] for reason in counters.dead),
        "passed-by": counters.passed_by,
        "duplicate": counters.duplicates,
        "restored": counters.restored,
        "lost": counters.lost,
    }
    for outcome in catalogue.OUTCOMES:
        yield catalogue.RECORDS, Reading((*labels, outcome), counts[outcome])
    for reason, count in counters.dead.items():
        yield catalogue.DEAD_LETTERS, Reading((*labels, reason), count)


def _of_handlers(
    listener: ListenerState,
    labels: tuple[str, ...],
    runs: list[Run],
    now_mono_ms: float,
) -> Found:
    counters = listener.counters
    yield catalogue.HANDLER_DURATION, Reading(labels, _spread(counters.duration))
    yield catalogue.OLDEST_HANDLER, Reading(labels, oldest_handler_s(runs, listener, now_mono_ms))
    yield catalogue.FAILED_RUNS, Reading(labels, counters.failed_runs)
    yield catalogue.ENVELOPE_ERRORS, Reading(labels, counters.envelope_errors)
    yield catalogue.QUEUED, Reading(labels, listener.queued)
    yield catalogue.HEADS, Reading(labels, sum(len(lane.heads) for lane in copied(listener.lanes)))
    pairs = {lane.parked for lane in copied(listener.lanes) if lane.parked is not None}
    yield catalogue.PARKED_KEYS, Reading(labels, sum(len(each.parking) for each in pairs))
    yield catalogue.PARKED_RECORDS, Reading(labels, counters.parked)
    yield catalogue.PAUSED, Reading(labels, listener.paused is not None)
    yield catalogue.IGNORED_METADATA, Reading(labels, counters.ignored_metadata)
    yield from _of_crashes(listener, labels)
    yield catalogue.BRAKE, Reading(labels, listener.brake.is_on)
    for state in catalogue.BREAKER_STATES:
        yield catalogue.BREAKER, Reading((*labels, state), listener.breaker.state == state)
    yield catalogue.OUTAGES, Reading(labels, counters.outages)
    yield catalogue.HELD_FAILURES, Reading(labels, counters.held)
    yield catalogue.OUTAGE_RECORDS, Reading(labels, sum(len(lane.held) for lane in copied(listener.lanes)))


def _of_crashes(listener: ListenerState, labels: tuple[str, ...]) -> Found:
    watches = [lane.watch for lane in copied(listener.lanes) if lane.watch is not None]
    cautious = [watch for watch in watches if watch.crashes]
    yield catalogue.UNCLEAN_ENDS, Reading(labels, listener.counters.unclean_ends)
    yield catalogue.CAUTIOUS_PARTITIONS, Reading(labels, len(cautious))
    yield catalogue.CRASH_SUSPECTS, Reading(labels, sum(watch.suspects for watch in cautious))


def _of_writes(listener: ListenerState, labels: tuple[str, ...]) -> Found:
    counters = listener.counters
    for tier in listener.plan.tiers:
        yield catalogue.RETRIES, Reading((*labels, tier.topic), counters.retried[tier.topic])
    yield catalogue.DEAD_LETTER_WRITE_FAILURES, Reading(labels, counters.write_failures["dead-letter"])
    yield catalogue.RETRY_WRITE_FAILURES, Reading(labels, counters.write_failures["retry"])
    yield (
        catalogue.UNCONFIRMED_WRITES,
        Reading(labels, sum(lane.writes.count for lane in copied(listener.lanes))),
    )


def _of_topics(
    listener: ListenerState, labels: tuple[str, ...], bounds: Mapping[TopicPartition, Bounds]
) -> Found:
    plan, counters = listener.plan, listener.counters
    tiers = [tier.topic for tier in (*plan.tiers, *plan.drained)]
    by_topic: dict[str, list[Lane]] = {topic: [] for topic in (plan.source, *tiers)}
    for lane in copied(listener.lanes):
        by_topic[lane.key.topic].append(lane)
    for topic, lanes in by_topic.items():
        yield catalogue.ASSIGNED_PARTITIONS, Reading((*labels, topic), len(lanes))
        yield catalogue.PAUSED_PARTITIONS, Reading((*labels, topic), sum(lane.is_paused for lane in lanes))
        if (behind := lag(lanes, bounds)) is not None:
            metric = catalogue.SOURCE_LAG if topic == plan.source else catalogue.TIER_LAG
            yield metric, Reading((*labels, topic), behind)
    for tier in tiers:
        held_bytes = sum(lane.window.held_bytes + lane.reposts.held_bytes for lane in by_topic[tier])
        yield catalogue.HELD_RECORDS, Reading((*labels, tier), held_records(by_topic[tier]))
        yield catalogue.HELD_BYTES, Reading((*labels, tier), held_bytes)
        yield catalogue.RETRY_LATENESS, Reading((*labels, tier), _spread(counters.lateness[tier]))


def _of_letters(listener: ListenerState, labels: tuple[str, ...], look: Look) -> Found:
    plan = listener.plan
    if plan.letters_of:
        return
    yield catalogue.LISTENER_INFO, Reading((*labels, plan.source, plan.dlq, plan.criticality), 1)
    depth = look.depths.get(plan.dlq)
    if depth is None:
        return
    labels = (*labels, plan.dlq)
    for reason, count in depth.unresolved.items():
        yield catalogue.UNRESOLVED, Reading((*labels, reason), count)
    age_ms = 0.0 if depth.oldest_ms is None else max(0.0, look.now_wall_ms - depth.oldest_ms)
    yield catalogue.OLDEST_UNRESOLVED, Reading(labels, age_ms / 1000)
    if depth.oldest_ms is not None and depth.retention_ms is not None:
        yield catalogue.RETENTION_LEFT, Reading(labels, (depth.retention_ms - age_ms) / 1000)


def _by_other_names(engine: Engine, look: Look) -> Found:
    for listener in engine.listeners:
        dlq = listener.plan.dlq
        if listener.plan.letters_of:
            continue
        yield catalogue.DLQ_MESSAGES, Reading((dlq,), sum(listener.counters.dead.values()))
        if dlq in look.depths:
            yield catalogue.DLQ_SIZE, Reading((dlq,), sum(look.depths[dlq].unresolved.values()))
