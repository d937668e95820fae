"""Whether a process does its work, and what an operator may want to know of it: one value for probes and pages."""

import msgspec

from redrive.core.breaker import State
from redrive.core.engine import Engine
from redrive.core.listener_state import ListenerState
from redrive.core.readings import copied, held_records, oldest_handler_s

#: The pump may lawfully stand still while the broker is away and a rebalance comes: 22 s for a last commit (tried), 5 s
#: for the question where to begin, 10 s for end offsets. Less than twice that would have it killed for the broker's
#: fault; the group itself gives up a member that doesn't poll only after five minutes.
LIVE_MS = 60_000.0


class ListenerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """
    One listener. `held`: records in memory that wait for their due. `held_in_outage`: those that failed while the breaker
    was not closed, and run again when it is. `unconfirmed`: retry copies and dead letters that
    no broker has confirmed yet, `refused` of them wait to be sent again. None of this makes a process unready.
    """

    name: str
    paused: bool
    brake_on: bool
    breaker: State
    partitions: int
    held: int
    held_in_outage: int
    unconfirmed: int
    refused: int
    oldest_handler_s: float


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """
    The state of a process at one moment.

    `is_live`: its pump moves; if not, only a restart helps. `is_ready`: it belongs to its group and can write. A brake,
    an open breaker or records that wait leave it ready: else the rollout of the mended version would never get through.
    `why` says what is missing, empty when nothing is. `last_problem`: the consumer's last, however old.
    """

    is_live: bool
    is_ready: bool
    why: tuple[str, ...]
    step_age_s: float
    last_problem: str
    listeners: tuple[ListenerHealth, ...]


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What a process shows besides its engine. `producer_problem`: why it can't write, empty when it can."""

    now_mono_ms: float
    stepped_mono_ms: float
    has_joined: bool
    is_stopping: bool = False
    producer_problem: str = ""
    last_problem: str = ""


def judge(engine: Engine, signs: Signs) -> Health:
    """May be called by any thread; the pump is neither waited for nor held up."""
    age_ms = max(0.0, signs.now_mono_ms - signs.stepped_mono_ms)
    is_live = age_ms < LIVE_MS
    missing = {
        f"the pump has not moved for {age_ms / 1000:.0f} s": not is_live,
        "it has not joined its group yet": not signs.has_joined,
        "it is shutting down": signs.is_stopping,
        f"it can't write: {signs.producer_problem}": bool(signs.producer_problem),
    }
    why = tuple(text for text, is_so in missing.items() if is_so)
    return Health(
        is_live=is_live,
        is_ready=not why,
        why=why,
        step_age_s=round(age_ms / 1000, 3),
        last_problem=signs.last_problem,
        listeners=tuple(_of_listener(engine, listener, signs.now_mono_ms) for listener in engine.listeners),
    )


def _of_listener(engine: Engine, listener: ListenerState, now_mono_ms: float) -> ListenerHealth:
    lanes = copied(listener.lanes)
    return ListenerHealth(
        name=listener.plan.name,
        paused=listener.paused is not None,
        brake_on=listener.brake.is_on,
        breaker=listener.breaker.state,
        partitions=len(lanes),
        held=held_records(lanes),
        held_in_outage=sum(len(lane.held) for lane in lanes),
        unconfirmed=sum(lane.writes.count for lane in lanes),
        refused=sum(lane.writes.waiting for lane in lanes),
        oldest_handler_s=round(oldest_handler_s(copied(engine.runs), listener, now_mono_ms), 3),
    )
