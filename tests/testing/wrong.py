"""Services as people write them, each with a mistake that one sort of fault brings to light; and what must hold of them."""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from redrive import App, Record, RetryPolicy
from redrive.testing import NewRecord, World


class Order(msgspec.Struct, frozen=True):
    """How often its payment is refused before it is taken, and how long it takes."""

    id: int
    refusals: int = 0
    takes_s: float = 0.0


class Away(Exception):
    """What fails for a time."""


class Outside:
    """A bank and whatever else outlives processes."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.calls: dict[int, int] = {}
        self.keys: dict[str, float] = {}
        self.balances: dict[bytes | None, int] = {}
        self.latest: dict[bytes | None, tuple[int, int]] = {}
        self.reserved_s: dict[int, float] = {}
        self.late: list[int] = []

    def answer(self, order: Order) -> None:
        """Fails as often as the order says."""
        self.calls[order.id] = self.calls.get(order.id, 0) + 1
        if self.calls[order.id] <= order.refusals:
            raise Away

    def pay(self, order: Order, key: str | None = None, *, at_s: float = 0.0, kept_s: float = 1e9) -> None:
        """Takes the money; with a key only once, as long as keys are kept."""
        if key is not None and key in self.keys and at_s - self.keys[key] < kept_s:
            return
        if key is not None:
            self.keys[key] = at_s
        self.paid.append(order.id)


def orders(chance: random.Random) -> Iterator[NewRecord]:
    """Ten orders of three customers."""
    for number in range(10):
        order = Order(number, chance.choice((0, 0, 0, 1, 5)), chance.choice((0.0, 0.0, 3.0)))
        yield NewRecord("orders", order, key=f"customer-{chance.randrange(3)}")


def no_order_is_paid_twice(world: World[Outside]) -> bool:
    return len(world.outside.paid) == len(set(world.outside.paid))


def every_order_is_paid_or_dead(world: World[Outside]) -> None:
    if world.is_over:
        dead = {letter.json["id"] for letter in world.harness.dead_letters}
        assert {sent.value.id for sent in world.sent} == {*world.outside.paid, *dead}


def both(world: World[Outside]) -> None:
    assert no_order_is_paid_twice(world)
    every_order_is_paid_or_dead(world)


def _app(handler: Callable[..., Any], **options: Any) -> App:
    app = App("shop", delivery=options.pop("delivery", None))
    app.listener("orders", name="pay", retry=RetryPolicy("5s", "30s"), **options)(handler)
    return app


# -- right ones ------------------------------------------------------------------------------------------------------


def pays_with_a_key(outside: Outside, **options: Any) -> App:
    def pay(order: Order, record: Record) -> None:
        outside.answer(order)
        outside.pay(order, record.event_id)

    return _app(pay, **options)


def pays_with_a_key_and_awaits(outside: Outside, **options: Any) -> App:
    async def pay(order: Order, record: Record) -> None:
        outside.answer(order)
        await asyncio.sleep(order.takes_s)
        outside.pay(order, record.event_id)

    return _app(pay, **options)


# -- wrong ones ------------------------------------------------------------------------------------------------------


def pays_without_a_key(outside: Outside, **options: Any) -> App:
    def pay(order: Order) -> None:
        outside.pay(order)

    return _app(pay, **options)


def pays_for_long_without_a_key(outside: Outside) -> App:
    async def pay(order: Order) -> None:
        await asyncio.sleep(order.takes_s)
        outside.pay(order)

    return _app(pay)


def remembers_in_memory(outside: Outside) -> App:
    seen: set[int] = set()

    def pay(order: Order) -> None:
        if order.id not in seen:
            seen.add(order.id)
            outside.pay(order)

    return _app(pay)


def swallows_errors(outside: Outside) -> App:
    def pay(order: Order, record: Record) -> None:
        try:
            outside.answer(order)
            outside.pay(order, record.event_id)
        except Away:
            pass

    return _app(pay)


def takes_the_first_attempt_for_the_first_run(outside: Outside) -> App:
    def pay(order: Order, record: Record) -> None:
        if record.attempt > 1 and order.id in outside.paid:
            return
        outside.pay(order)
        outside.answer(order)

    return _app(pay)


def caches_balances(outside: Outside) -> App:
    known: dict[bytes | None, int] = {}

    def book(order: Order, record: Record) -> None:
        known.setdefault(record.key, outside.balances.get(record.key, 0))
        if record.event_id not in outside.keys:
            outside.keys[record.event_id] = 0.0
            known[record.key] += 1
            outside.balances[record.key] = known[record.key]

    return _app(book)


def relies_on_keys_that_are_kept_for_a_minute(outside: Outside) -> App:
    async def pay(order: Order, record: Record) -> None:
        outside.pay(order, record.event_id, at_s=asyncio.get_running_loop().time(), kept_s=60.0)

    return _app(pay)


def reserves_for_ten_seconds(outside: Outside) -> App:
    async def book(order: Order) -> None:
        now_s = asyncio.get_running_loop().time()
        await asyncio.sleep(order.takes_s)
        if order.id not in outside.reserved_s:
            outside.reserved_s[order.id] = now_s
            raise Away
        if now_s - outside.reserved_s[order.id] > 10:
            outside.late.append(order.id)

    return _app(book, order="none", concurrency=20)


def mails(outside: Outside) -> App:
    def mail(order: Order, record: Record) -> None:
        record.emit("mails", str(order.id), partition=0)

    return _app(mail)


def goes_by_timestamps(outside: Outside) -> App:
    def move(order: Order, record: Record) -> None:
        stored_ms, _ = outside.latest.get(record.key, (0, 0))
        if record.timestamp_ms >= stored_ms:
            outside.latest[record.key] = record.timestamp_ms, order.id

    return _app(move)


# -- what they are held to -------------------------------------------------------------------------------------------


def every_booking_counts(world: World[Outside]) -> bool:
    return sum(world.outside.balances.values()) == len(world.outside.keys)


def no_reservation_is_late(world: World[Outside]) -> bool:
    return world.outside.late == []


def _mailed(world: World[Outside]) -> list[int]:
    return [int(record.value() or b"") for record in world.harness.cluster.records("mails")]


def mails_are_in_order(world: World[Outside]) -> bool:
    mailed = list(dict.fromkeys(_mailed(world)))
    return mailed == sorted(mailed)


def no_mail_comes_twice(world: World[Outside]) -> bool:
    return len(_mailed(world)) == len(set(_mailed(world)))


def the_last_address_counts(world: World[Outside]) -> bool:
    last = {str(sent.key).encode(): sent.value.id for sent in world.sent}
    return not world.is_over or {key: order for key, (_, order) in world.outside.latest.items()} == last


class Mistake(NamedTuple):
    """A service, what must hold of it, the faults that show that it doesn't, and what its story says of them."""

    make_app: Callable[[Outside], App]
    invariant: Callable[[World[Outside]], object]
    faults: tuple[str, ...]
    told: tuple[str, ...]
    options: dict[str, Any] = {}


MISTAKES = {
    "crash": Mistake(pays_without_a_key, no_order_is_paid_twice, ("crash",), ("is killed",)),
    "memory": Mistake(remembers_in_memory, no_order_is_paid_twice, ("crash",), ("is killed",)),
    "attempts": Mistake(
        takes_the_first_attempt_for_the_first_run, no_order_is_paid_twice, ("crash",), ("is killed",)
    ),
    "rebalance": Mistake(
        caches_balances, every_booking_counts, ("rebalance",), ("joins", "leaves", "gives up")
    ),
    "cut-off": Mistake(
        pays_for_long_without_a_key, no_order_is_paid_twice, ("cut-off",), ("hear nothing", "heard of again")
    ),
    "brokers": Mistake(
        reserves_for_ten_seconds, no_reservation_is_late, ("brokers",), ("no broker answers",)
    ),
    "writes": Mistake(
        mails, mails_are_in_order, ("writes",), ("refuse",), {"topics": ["mails"], "partitions": 1}
    ),
    "acknowledgements": Mistake(
        mails, no_mail_comes_twice, ("acknowledgements",), ("nobody hears of it",), {"topics": ["mails"]}
    ),
    "commits": Mistake(
        relies_on_keys_that_are_kept_for_a_minute, no_order_is_paid_twice, ("commits", "crash"), ("commits",)
    ),
    "transactions": Mistake(
        lambda outside: pays_without_a_key(outside, delivery="exactly-once"),
        no_order_is_paid_twice,
        ("transactions",),
        ("transaction",),
    ),
    "clock": Mistake(goes_by_timestamps, the_last_address_counts, ("clock",), ("the wall clock steps back",)),
    "swallowed errors": Mistake(swallows_errors, every_order_is_paid_or_dead, (), ("pay handles orders/",)),
}
