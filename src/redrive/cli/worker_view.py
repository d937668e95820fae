"""What `redrive worker` says: tables and lines for people, values for programs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from redrive.cli.dlq_view import when
from redrive.cli.output import Output
from redrive.core.inspection import ListenerSeen, PartitionSeen, StuckSeen, WorkersSeen, WorkerState
from redrive.core.pausing import Pausing
from redrive.core.units import format_duration
from redrive.deadletters.letters import Position
from redrive.retries.job import Outcome
from redrive.workers.skipping import Skippable

_NOTHING = "-"


class Asked(NamedTuple):
    """What processes are at, and of those that don't answer why."""

    seen: WorkersSeen
    unanswered: tuple[str, ...] = ()


def show_list(output: Output, asked: Asked) -> None:
    """The answer of `ls`."""
    seen = asked.seen
    output.table(
        ["worker", "process", "ready", "partitions", "at work", "longest", "held", "stuck", "listeners"],
        [_row(worker) for worker in seen.workers],
    )
    _tell_rest(output, asked)


def show_dump(output: Output, asked: Asked, listener: str | None) -> None:
    """The answer of `dump`; of one `listener` where a person named it."""
    seen = asked.seen
    if listener is not None:
        seen = msgspec.structs.replace(
            seen, workers=tuple(_only(worker, listener) for worker in seen.workers)
        )
    for worker in seen.workers:
        output.line(f"worker {worker.worker}: {_process(worker)}, redrive {worker.version}, {_ready(worker)}")
        for each in worker.listeners:
            _show_listener(output, each, worker.now_ms)
        _show_partitions(output, worker)
        output.line()
    _tell_rest(output, Asked(seen, asked.unanswered))


def show_said(output: Output, said: Pausing, before: Pausing | None) -> None:
    """The answer of `pause` and `resume`."""
    if before is not None:
        output.line(
            f"{said.listener} was paused by {before.who} at {when(before.when_ms)}: {_why(before.why)}"
        )
    elif said.action == "resume":
        output.line(f"{said.listener} was not paused")
    what = "is paused until it is resumed" if said.action == "pause" else "goes on"
    output.line(f"{said.listener} {what}, in all processes of {said.group}; they see it within two seconds")
    output.result(
        {**msgspec.to_builtins(said), "before": None if before is None else msgspec.to_builtins(before)}
    )


def show_skippable(output: Output, found: Skippable, now_ms: float) -> None:
    """What is about to be skipped."""
    record = found.record
    age = _age(max(0.0, now_ms - record.timestamp()[1]) / 1000)
    output.line(
        f"skip: {record.topic()}/{record.partition()}/{record.offset()}, {len(record)} bytes, {age} old, of listener "
        f"{found.listener.name}; it will not be handled, and there will be no dead letter of it"
    )


def show_answer(
    output: Output, position: Position, outcome: Outcome, workers: WorkersSeen | None
) -> Mapping[str, Any]:
    """What became of a record to be skipped, also for programs."""
    if outcome.failed:
        output.line(f"{position}: could not be asked for: {outcome.why}")
        return {"answer": "failed", "why": outcome.why}
    if outcome.discarded:
        output.line(f"{position}: skipped")
        return {"answer": "skipped"}
    if outcome.ran:
        output.line(
            f"{position}: came too late: the group has finished it meanwhile, see what its handler did"
        )
        return {"answer": "finished"}
    for worker in workers.workers if workers is not None else ():
        for listener in worker.listeners:
            for run in listener.runs:
                if (run.topic, run.partition, run.offset) == (
                    position.topic,
                    position.partition,
                    position.offset,
                ):
                    output.line(
                        f"{position}: running for {_age(run.running_s)} in worker {worker.worker}, {_process(worker)}. A "
                        "handler isn't stopped: it is skipped when it fails, or by whoever starts next"
                    )
                    return {
                        "answer": "running",
                        "worker": worker.worker,
                        "pid": worker.pid,
                        "host": worker.host,
                    }
    output.line(
        f"{position}: not skipped yet: a handler is at it, or no process has its partition. What was asked for stays: it is "
        "skipped when it fails, or when a process starts"
    )
    return {"answer": "waiting"}


def _row(worker: WorkerState) -> tuple[object, ...]:
    runs = [run for listener in worker.listeners for run in listener.runs]
    return (
        worker.worker,
        _process(worker),
        "yes" if worker.is_ready else "no: " + "; ".join(worker.why),
        len(worker.partitions),
        len(runs),
        _age(max((run.running_s for run in runs if run.running_s is not None), default=None)),
        sum(listener.held for listener in worker.listeners),
        sum(listener.stuck_count for listener in worker.listeners),
        ", ".join(f"{listener.name}{_state(listener)}" for listener in worker.listeners),
    )


def _state(listener: ListenerSeen) -> str:
    told = {
        "paused": listener.paused is not None,
        "brake on": listener.brake_on,
        _outage(listener): listener.breaker != "closed",
    }
    found = [text for text, is_so in told.items() if is_so]
    return f" ({', '.join(found)})" if found else ""


def _outage(listener: ListenerSeen) -> str:
    tried = (
        "a record is being tried"
        if listener.outage_wait_s is None
        else f"next try in {_age(listener.outage_wait_s)}"
    )
    return f"outage, {listener.held_in_outage} held, {tried}"


def _show_listener(output: Output, listener: ListenerSeen, now_ms: float) -> None:
    output.line(
        f"\n  {listener.name} on {listener.topic}{_state(listener)}: {len(listener.runs)} at work in {listener.slots} slots, "
        f"{listener.queued} queued, {listener.held} waiting, {listener.stuck_count} stuck"
    )
    if (paused := listener.paused) is not None:
        output.line(f"  paused by {paused.who} at {when(paused.since_ms)}: {_why(paused.why)}")
    if listener.outage_wait_s is not None:
        output.line(f"  outage: a record is tried again in {_age(listener.outage_wait_s)}")
    if listener.runs:
        output.table(
            ["at work", "for", "behind it", "slot"],
            [
                (
                    f"{run.topic}/{run.partition}/{_NOTHING if run.offset is None else run.offset}",
                    _age(run.running_s),
                    run.left,
                    run.slot,
                )
                for run in listener.runs
            ],
        )
    if listener.stuck:
        output.table(
            ["stuck", "attempts", "age", "due", "state", "why"],
            [_stuck(each, now_ms) for each in listener.stuck],
        )
    if listener.stuck_count > len(listener.stuck):
        output.line(f"  and {listener.stuck_count - len(listener.stuck)} more")


def _show_partitions(output: Output, worker: WorkerState) -> None:
    if worker.partitions:
        output.line()
        output.table(
            [
                "partition",
                "frontier",
                "finished above",
                "open",
                "held",
                "unconfirmed",
                "paused",
                "committed",
                "at its front",
            ],
            [_partition(each, worker.now_ms) for each in worker.partitions],
        )


def _partition(each: PartitionSeen, now_ms: float) -> tuple[object, ...]:
    return (
        f"{each.topic}/{each.partition}",
        _NOTHING if each.frontier is None else each.frontier,
        each.finished_above,
        each.open,
        each.held,
        each.unconfirmed,
        "yes" if each.is_paused else "no",
        _NOTHING if each.committed is None else each.committed,
        _NOTHING if each.front is None else _front(each.front, now_ms),
    )


def _front(front: StuckSeen, now_ms: float) -> str:
    _, attempts, age, due, state, why = _stuck(front, now_ms)
    told = {"attempts": attempts, "age": age, "due": due, "": why}
    return ", ".join(
        [
            f"{front.offset}: {state}",
            *(f"{name} {text}".strip() for name, text in told.items() if text != _NOTHING),
        ]
    )


def _stuck(each: StuckSeen, now_ms: float) -> tuple[str, ...]:
    return (
        f"{each.topic}/{each.partition}/{each.offset}",
        _NOTHING if each.attempt is None else str(each.attempt),
        _age(each.age_s),
        _NOTHING if each.due_ms is None else _due(each.due_ms - now_ms),
        each.state,
        each.why or _NOTHING,
    )


def _only(worker: WorkerState, listener: str) -> WorkerState:
    return msgspec.structs.replace(
        worker,
        listeners=tuple(each for each in worker.listeners if each.name == listener),
        partitions=tuple(each for each in worker.partitions if each.listener == listener),
    )


def _tell_rest(output: Output, asked: Asked) -> None:
    for number in asked.seen.silent:
        output.note(f"worker {number} didn't answer: it is starting, ending, or hangs")
    for why in asked.unanswered:
        output.note(why)
    output.result({**msgspec.to_builtins(asked.seen), "unanswered": asked.unanswered})


def _process(worker: WorkerState) -> str:
    return f"pid {worker.pid} on {worker.host}"


def _ready(worker: WorkerState) -> str:
    return "ready" if worker.is_ready else f"not ready: {'; '.join(worker.why)}"


def _why(text: str) -> str:
    return text or "no reason given"


def _due(in_ms: float) -> str:
    return f"in {_age(in_ms / 1000)}" if in_ms > 0 else f"{_age(-in_ms / 1000)} ago"


def _age(seconds: float | None) -> str:
    """In whole seconds from a minute on: nobody wants milliseconds of an hour."""
    if seconds is None:
        return _NOTHING
    return format_duration(int(seconds * 1000) if seconds < 60 else int(seconds) * 1000)
