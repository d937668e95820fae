"""Listeners as values: as the decorator collected them, and as they are once all of it was checked and resolved."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from redrive.core.emitting import Emitting
from redrive.core.envelope import Envelope
from redrive.core.failure import Failures
from redrive.core.plan import Delivery
from redrive.core.policy import Criticality, Duration, GiveUp, Order, RetryPolicy
from redrive.core.record import RawRecord, Record

#: Where a group begins that has committed nothing for a source topic.
Start = Literal["earliest", "latest"]
#: Makes what handlers find as `record.resources`; entered once, before the first record.
Lifespan = Callable[[], AbstractAsyncContextManager[Any]]
#: Says True when what a listener's handler calls is well.
HealthCheck = Callable[[], bool] | Callable[[], Awaitable[bool]]


class HealthFunction(NamedTuple):
    """The same, checked; awaited when `is_async`."""

    call: Callable[[], Any]
    is_async: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """
    One use of `@app.listener`, as it was written: nothing is checked or resolved yet, so anything may be wrong with it.
    Or one of `@app.on_dead_letter`: `topic` is the source then, and what it can't say is as `letters.py` has it.

    `where`: file and line of the declaration. `local_names`: what the handler's annotations may name besides its
    module's globals, taken from the function or class in which it was declared.
    """

    handler: Any
    topic: str
    name: str | None
    retry: RetryPolicy
    order: Order
    concurrency: int
    time_limit: Duration | None
    give_up: GiveUp
    criticality: Criticality
    failures: Failures
    start: Start
    id_header: str = ""
    health: HealthCheck | None = None
    where: str
    local_names: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """
    One listener, checked and ready to run.

    `handler` is called with the value, with the value and the record, or with the record, as `takes_value` and
    `takes_record` say; what it returns is awaited when `is_async`. `decode` turns a record's value into what the handler
    takes, and raises whatever its library raises when it can't: such a record is poison (`decoding.undecodable` says why).
    `view` makes what the handler is given as the record, of the raw one, its envelope, the attempt, the resources, and where
    it emits.
    `topic`: the source; for a handler of dead letters that of the records which died. `health`: what is asked before a probe.
    """

    name: str
    topic: str
    handler: Callable[..., Any]
    is_async: bool
    takes_value: bool
    takes_record: bool
    decode: Callable[[bytes | None], Any]
    policy: RetryPolicy
    failures: Failures
    order: Order
    concurrency: int
    time_limit_ms: int | None
    give_up: GiveUp
    criticality: Criticality
    start: Start
    where: str
    view: Callable[[RawRecord, Envelope | None, int, Any, Emitting | None], Any] = Record
    id_header: str = ""
    health: HealthFunction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedApp:
    """
    An app, checked and ready to run. `accepts_groups`: other groups whose stamped records are ours too. `on_dead_letter`:
    what handles its dead letters, in a group of its own. `dialects`: in which headers are written; `delivery`: of what is
    written for records. Empty: the setting's.
    """

    group: str
    listeners: tuple[Listener, ...]
    accepts_groups: tuple[str, ...] = ()
    lifespan: Lifespan | None = None
    on_dead_letter: tuple[Listener, ...] = ()
    dialects: tuple[str, ...] = ()
    delivery: Delivery | None = None


class Serving(Protocol):
    """An app that runs."""

    async def stopped(self) -> None:
        """Wait until it has ended by itself. Raises what made going on impossible."""
        ...
