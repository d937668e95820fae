"""From a declared function to its calls: what it is given, and what a value that it can't take leaves behind."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pydantic
import pytest

from redrive import App, Kind, Record, Settings
from redrive.core.commands import Run
from redrive.core.lane import Lane
from redrive.core.listener_state import ListenerState
from redrive.core.offsets import OffsetMap
from redrive.core.record import TopicPartition
from redrive.runtime.handlers import Invoker
from redrive.runtime.planning import plan_group
from redrive.sim.clock import VirtualClock
from redrive.sim.records import SimRecord


def run_over(app: App, *values: bytes | None) -> Run:
    """Hands records with these values to the app's only listener."""
    resolved = app.resolve()
    plan = plan_group(resolved, Settings(), ())
    lane = Lane(TopicPartition("orders", 0), ListenerState(0, plan.listeners[0], 2000), None, OffsetMap(0))
    records = [SimRecord("orders", 0, at, None, value, (), 0) for at, value in enumerate(values)]
    run = Run(lane, 0, [*records], len(records), budget=1000)
    invoker = Invoker(resolved.listeners[0], VirtualClock(), threading.Event())
    if resolved.listeners[0].is_async:
        asyncio.run(invoker.run_async(run))
    else:
        invoker.run(run)
    return run


class Order(msgspec.Struct):
    total: int
    colour: Literal["red"] = "red"


class Payout(pydantic.BaseModel):
    kind: Literal["payout"]


seen: list[Any] = []


def of_value(order: Order) -> None:
    seen.append(order)


def of_both(order: Order, record: Record) -> None:
    seen.append((order, record.offset))


def of_record(record: Record) -> None:
    seen.append((record.value, record.offset))


def of_record_first(record: Record, order: Order) -> None:
    seen.append((order, record.offset))


async def async_of_value(order: Order) -> None:
    seen.append(order)


async def async_of_both(order: Order, record: Record) -> None:
    seen.append((order, record.offset))


async def async_of_record(record: Record) -> None:
    seen.append((record.value, record.offset))


@pytest.mark.parametrize(
    ("handler", "expected"),
    [
        (of_value, [Order(1), Order(2)]),
        (of_both, [(Order(1), 0), (Order(2), 1)]),
        (of_record, [(b'{"total":1}', 0), (b'{"total":2}', 1)]),
        (of_record_first, [(Order(1), 0), (Order(2), 1)]),
        (async_of_value, [Order(1), Order(2)]),
        (async_of_both, [(Order(1), 0), (Order(2), 1)]),
        (async_of_record, [(b'{"total":1}', 0), (b'{"total":2}', 1)]),
    ],
)
def test_every_shape_of_handler_gets_what_it_takes(handler: Callable[..., Any], expected: list[Any]) -> None:
    seen.clear()
    app = App("payments")
    app.listener("orders")(handler)

    run = run_over(app, b'{"total":1}', b'{"total":2}')

    assert (seen, run.failures) == (expected, [])


def test_null_and_undecodable_values_reach_a_handler_of_the_record_alone() -> None:
    seen.clear()
    app = App("payments")
    app.listener("orders")(of_record)

    run = run_over(app, None, b"", b"\xff")

    assert (seen, run.failures) == ([(None, 0), (b"", 1), (b"\xff", 2)], [])


def of_struct(order: Order) -> None: ...
def of_model(payout: Payout) -> None: ...
async def of_text(text: str) -> None: ...


@pytest.mark.parametrize(
    ("handler", "value", "message"),
    [
        (of_struct, b'{"total": 1, "colour": "secret"}', "Invalid enum value - at `$.colour`"),
        (of_struct, b"secret", "JSON is malformed: invalid character (byte 0)"),
        (of_model, b'{"kind": "secret"}', "Input should be 'payout' - at `$.kind`"),
        (of_text, b"secret\xff", "not UTF-8 (byte 6)"),
        (of_text, None, "null value (a tombstone); to handle them, let the handler's annotation allow None"),
    ],
)
def test_poison_never_quotes_the_value(
    handler: Callable[..., Any], value: bytes | None, message: str
) -> None:
    app = App("payments")
    app.listener("orders")(handler)

    (failed,) = run_over(app, value).failures

    assert failed.failure.kind is Kind.POISON
    assert failed.failure.type == "redrive.errors.DecodeError"
    assert failed.failure.message == message
    assert "secret" not in repr(failed.failure)
