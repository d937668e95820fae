"""What users write, and both type checkers must accept. Never run."""

import functools
import random
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict, assert_type

import msgspec
from pydantic import BaseModel

from redrive import (
    App,
    Backoff,
    DeadLetter,
    DeadLetterNow,
    Failures,
    Kind,
    LastFailure,
    Record,
    RetryLater,
    RetryPolicy,
    Settings,
    Skip,
)
from redrive.testing import Begun, Explored, FailedRun, Handled, Harness, NewRecord, World, explore


class Order(msgspec.Struct):
    total: int


class Payout(BaseModel):
    account: str


@dataclass
class Refund:
    amount: int


class Address(TypedDict):
    street: str


@asynccontextmanager
async def resources() -> AsyncGenerator[dict[str, str], None]:
    yield {"bank": "open"}


app = App(
    "payments",
    settings={"bootstrap_servers": "localhost:9092", "kafka": {"security.protocol": "SSL"}},
    lifespan=resources,
    accepts_groups=["billing"],
)
App("payments")
App("payments", settings=Settings(bootstrap_servers="localhost:9092"), accepts_groups=("billing",))


@app.listener("orders")
def of_struct(order: Order) -> None: ...


def is_up() -> bool:
    return True


async def is_reachable() -> bool:
    return True


@app.listener("health", name="plain", health=is_up)
@app.listener("healths", name="awaited", health=is_reachable)
def of_what_can_be_asked(order: bytes) -> None: ...


@app.listener("payouts", retry=RetryPolicy("1m", "10m"), concurrency=200, time_limit="30s")
async def of_model(payout: Payout, record: Record) -> None:
    assert_type(record.attempt, int)
    assert_type(record.key, bytes | None)
    assert_type(record.last_failure, LastFailure | None)
    await record.resources.bank.pay(payout)


@app.listener(
    "refunds", name="refunds", give_up="skip", start="latest", order="partition", criticality="money"
)
def of_dataclass(refund: Refund, record: Record) -> int:
    return refund.amount + record.offset


@app.listener(
    "transfers",
    retry=RetryPolicy("1m", "10m", blocking="key", after_dead_letter="block", park=True, hold_at_most="2m"),
    order="key",
    concurrency=200,
)
async def in_order_of_its_key(payout: Payout) -> None: ...


@app.listener("ledger", retry=RetryPolicy("1s", blocking="partition", hold_at_most=timedelta(minutes=1)))
def in_order(value: bytes) -> None: ...


@app.listener("bookings", give_up="stop")
def stopping_at_what_fails(value: bytes) -> None: ...


@app.listener("clicks", order="none", concurrency=64)
def in_no_order(value: bytes) -> None: ...


@app.listener("addresses", time_limit=timedelta(seconds=30))
async def of_typed_dict(address: Address) -> bool:
    return bool(address["street"])


@app.listener("audit")
def of_record(record: Record) -> None: ...


@app.listener("audit-2")
async def of_record_async(record: Record) -> None: ...


@app.listener("raw")
def of_bytes(value: bytes | None) -> None: ...


@app.listener("any")
def of_any(value: Any) -> None: ...


@app.listener("union")
def of_union(value: Order | list[int] | None, record: Record) -> None: ...


@app.listener("defaults")
def with_defaults(order: Order, record: Record, factor: int = 2, *, note: str = "") -> None: ...


class Service:
    def handle(self, order: Order) -> None: ...

    async def __call__(self, order: Order, record: Record) -> None: ...


def with_factor(factor: int, order: Order) -> None: ...


app.listener("methods")(Service().handle)
app.listener("objects")(Service())
app.listener("partials")(functools.partial(with_factor, 2))


# The decorator returns what it was given: names of parameters and types of results included.
async def call(record: Record) -> None:
    of_struct(order=Order(total=1))
    assert_type(of_dataclass(refund=Refund(1), record=record), int)
    assert_type(await of_typed_dict({"street": "Main"}), bool)


class CardDeclined(Exception): ...


class VaultSealed(Exception): ...


def by_code(error: BaseException) -> Kind | None:
    return Kind.PERMANENT if isinstance(error, CardDeclined) else None


@app.listener(
    "everything",
    retry=RetryPolicy(
        "5s",
        timedelta(minutes=1),
        immediate=Backoff(retries=2, wait="100ms"),
        max_attempts=10,
        max_age="1d",
        jitter=0.2,
    ),
    failures=Failures(
        permanent=CardDeclined,
        outage=(VaultSealed, ConnectionError),
        rules=[by_code],
        unknown="permanent",
    ),
)
def steering(order: Order) -> None:
    if order.total == 1:
        raise RetryLater("7m", reason="busy")
    if order.total == 2:
        raise RetryLater(after=timedelta(minutes=7))
    if order.total == 3:
        raise DeadLetterNow("no such account")
    raise Skip("a test order")


@app.on_dead_letter("orders")
def of_letter(letter: DeadLetter) -> None:
    assert_type(letter.value, bytes | None)
    assert_type(letter.attempts, int)
    assert_type(letter.reason, str)
    assert_type(letter.first_failed_ms, int | None)
    if letter.source is not None:
        assert_type(letter.source.offset, int)
    assert_type(letter.position.partition, int)


@app.on_dead_letter("payouts", name="page", concurrency=5, time_limit="30s", start="earliest")
async def of_letter_async(payout: Payout, letter: DeadLetter) -> bool:
    await letter.resources.pager.page(payout.account)
    return True


@app.on_dead_letter("refunds")
def of_its_value(refund: Refund) -> None: ...


async def call_letter_handlers(letter: DeadLetter) -> None:
    of_letter(letter=letter)
    assert_type(await of_letter_async(payout=Payout(account="a"), letter=letter), bool)


async def host() -> None:
    async with app.serving() as serving:
        await serving.stopped()


class Bank:
    def __init__(self) -> None:
        self.paid: list[int] = []


def with_bank(bank: Bank) -> App:
    return App("payments")


def alone() -> App:
    return App("payments")


def orders(chance: random.Random) -> Iterator[NewRecord]:
    yield NewRecord("orders", {"total": chance.randrange(10)}, key="customer-7", headers={"trace": "abc"})


def holds(world: World[Bank]) -> bool:
    assert_type(world.outside, Bank)
    assert_type(world.sent, list[NewRecord])
    return world.is_over or world.harness.dead_letters == []


def holds_alone(world: World[None]) -> None:
    assert_type(world.outside, None)


def explores() -> None:
    explored = explore(
        with_bank, outside=Bank, send=orders, invariant=holds, worlds=10, seed=3, faults=["crash", "clock"]
    )
    assert_type(explored, Explored)
    explore(
        alone, send=[NewRecord("orders", 1)], invariant=holds_alone, settings=Settings(), topics=["mails"]
    )
    explore(with_bank, outside=Bank, send=orders, invariant=lambda world: world.outside.paid == [])


def tests(redrive_harness: Callable[..., Harness]) -> None:
    with Harness(alone) as harness, Harness(app, partitions=4):
        harness.rebalance(to=3)
        harness.break_topic("orders.dlq", "not authorised")
        harness.mend_topic("orders.dlq")
        harness.workers.cut_off(1)
        assert_type(harness.history, list[Begun | Handled | FailedRun])
