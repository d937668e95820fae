"""`record.emit`: what a handler writes is there when it has returned, and only then; with its record, or not at all."""

import asyncio
from typing import Any

import pytest

from redrive import App, Backoff, Record, RetryPolicy
from redrive.core.dialects import read_envelope
from redrive.core.record import TopicPartition
from redrive.testing import Harness

SOURCE = TopicPartition("orders", 0)


@pytest.fixture(params=["at-least-once", "exactly-once"])
def delivery(request):
    return request.param


class Shop:
    """An app whose handler does what a test says with each record, on a cluster that has the topics it emits to."""

    def __init__(self, delivery: Any, handle: Any, **options: Any) -> None:
        app = App("shop", delivery=delivery)
        options = {"retry": RetryPolicy("5s"), **options}
        app.listener("orders", **options)(handle)
        self.harness = Harness(app)
        self.cluster = self.harness.cluster
        self.cluster.create_topic("mails", configs={"max.message.bytes": "20000"})
        self.cluster.create_topic("invoices")

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value() for record in self.cluster.records(topic)]

    def committed(self) -> int | None:
        found = self.cluster.group("shop").offsets.get(SOURCE)
        return found.offset if found else None


@pytest.fixture
def open_shop():
    opened: list[Shop] = []

    def open_one(*args: Any, **options: Any) -> Shop:
        opened.append(Shop(*args, **options))
        return opened[-1]

    yield open_one
    for shop in opened:
        shop.harness.close()


def mail(value: bytes, record: Record) -> None:
    record.emit("mails", value)


def test_what_a_handler_emits_is_written_when_it_has_returned(open_shop, delivery):
    def handle(value: bytes, record: Record) -> None:
        record.emit("mails", "wrapped", key="k", headers=[("kind", "mail"), ("none", None)])
        record.emit("invoices", None, key=b"\xff")

    shop = open_shop(delivery, handle)
    shop.harness.send("orders", b"one")
    shop.harness.advance("2s")

    (mailed,), (invoice,) = shop.cluster.records("mails"), shop.cluster.records("invoices")
    assert (mailed.key(), mailed.value(), mailed.headers()) == (
        b"k",
        b"wrapped",
        [("kind", b"mail"), ("none", None)],
    )
    assert (invoice.key(), invoice.value()) == (b"\xff", None)
    assert shop.committed() == 1


def test_a_coroutine_and_a_handler_of_the_record_alone_emit_too(open_shop, delivery):
    async def handle(record: Record) -> None:
        await asyncio.sleep(0.01)
        record.emit("mails", record.value)

    shop = open_shop(delivery, handle)
    shop.harness.send("orders", b"one")
    shop.harness.advance("2s")

    assert shop.values("mails") == [b"one"]


def test_of_a_run_that_fails_nothing_is_written_and_of_the_one_that_succeeds_all(open_shop, delivery):
    def handle(value: bytes, record: Record) -> None:
        record.emit("mails", b"attempt %d" % record.attempt)
        if record.attempt == 1:
            raise ConnectionError

    shop = open_shop(delivery, handle)
    shop.harness.send("orders", b"one")
    shop.harness.advance("1s")
    assert shop.values("mails") == []
    shop.harness.advance("10s")
    assert shop.values("mails") == [b"attempt 2"]


@pytest.mark.parametrize(
    "policy",
    [RetryPolicy("1s", "2s", blocking="key"), RetryPolicy(immediate=Backoff(retries=2, wait="100ms"))],
    ids=["blocking", "immediate"],
)
def test_of_tries_in_place_only_the_last_is_written(open_shop, delivery, policy):
    def handle(value: bytes, record: Record) -> None:
        record.emit("mails", b"attempt %d" % record.attempt)
        if record.attempt < 3:
            raise ConnectionError

    shop = open_shop(delivery, handle, retry=policy, order="key")
    for value in (b"one", b"two"):
        shop.harness.send("orders", value, key=b"k")
    shop.harness.advance("10s")
    assert shop.values("mails") == [b"attempt 3", b"attempt 3"]
    assert shop.committed() == 2


@pytest.mark.parametrize("order", ["partition", "key"])
def test_a_record_is_not_passed_before_what_it_emits_is_there_and_others_go_on(open_shop, delivery, order):
    def handle(value: bytes, record: Record) -> None:
        if value == b"mails":
            record.emit("mails", value)

    shop = open_shop(delivery, handle, order=order)
    shop.cluster.faults.refuse_writes("mails", 3)
    for key, value in enumerate([b"one", b"mails", b"two"]):
        shop.harness.send("orders", value, key=b"%d" % key)
    shop.harness.advance("1500ms")
    assert (shop.values("mails"), shop.committed()) == ([], 1)
    assert len(shop.harness.handled) == 3
    shop.harness.advance("1m")
    assert (shop.values("mails"), shop.committed()) == ([b"mails"], 3)


def test_the_emitter_of_what_is_too_large_becomes_a_dead_letter_and_others_go_on(open_shop, delivery):
    def handle(value: bytes, record: Record) -> None:
        record.emit("invoices", value)
        record.emit("mails", value * (30_000 if value == b"L" else 1))

    shop = open_shop(delivery, handle)
    for value in (b"1", b"L", b"2"):
        shop.harness.send("orders", value)
    shop.harness.advance("1m")

    (letter,) = shop.harness.dead_letters
    assert (letter.value, letter.reason) == (b"L", "permanent")
    assert shop.values("mails") == [b"1", b"2"]
    assert shop.committed() == 3
    if delivery == "exactly-once":  # all that a record emits, or nothing
        assert shop.values("invoices") == [b"1", b"2"]


@pytest.mark.parametrize("after", ["block", "divert"])
def test_nothing_is_said_to_wait_for_the_letter_of_an_emitter_whose_key_has_gone_on(
    open_shop, delivery, after
):
    def handle(value: bytes, record: Record) -> None:
        record.emit("mails", value * (30_000 if value == b"L" else 1))

    policy = RetryPolicy("5s", blocking="key", after_dead_letter=after)
    shop = open_shop(delivery, handle, retry=policy, order="key")
    for value in (b"1", b"L", b"2"):
        shop.harness.send("orders", value, key=b"the same")
    shop.harness.advance("1m")
    shop.harness.restart()
    shop.harness.send("orders", b"3", key=b"the same")
    shop.harness.advance("1s")

    assert shop.values("mails") == [b"1", b"2", b"3"]
    (written,) = shop.cluster.records("orders.dlq")
    events = [report.event for report in shop.harness.reports]
    assert (read_envelope(written.headers())[0].holds, "lane-blocked" in events) == ("", False)


def test_what_is_emitted_after_the_handler_has_ended_is_refused(open_shop, delivery):
    kept = []

    def handle(value: bytes, record: Record) -> None:
        kept.append(record)

    shop = open_shop(delivery, handle)
    shop.harness.send("orders", b"one")
    with pytest.raises(RuntimeError, match="after the handler had ended"):
        kept[0].emit("mails", b"late")


def test_what_is_neither_bytes_nor_text_is_refused_by_its_type(open_shop):

    def handle(value: bytes, record: Record) -> None:
        record.emit("mails", {"a": 1})

    shop = open_shop(None, handle)
    shop.harness.send("orders", b"one")
    (letter,) = shop.harness.dead_letters
    assert "not dict" in str(shop.harness.failed[0].error)
    assert letter.value == b"one"


def test_t_tx_2_all_that_one_record_emits_is_seen_at_once_or_not_at_all(open_shop):
    def handle(value: bytes, record: Record) -> None:
        record.emit("mails", value)
        record.emit("invoices", value)

    shop = open_shop("exactly-once", handle)
    shop.cluster.faults.transactions_are_held = True
    shop.harness.send("orders", b"one")
    shop.harness.advance("1s")
    assert (shop.values("mails"), shop.values("invoices"), shop.committed()) == ([], [], None)
    shop.cluster.faults.transactions_are_held = False
    shop.harness.advance("1s")
    assert (shop.values("mails"), shop.values("invoices"), shop.committed()) == ([b"one"], [b"one"], 1)


def test_a_crash_leaves_nothing_twice_of_what_was_emitted(open_shop):
    shop = open_shop("exactly-once", mail)
    for number in range(50):
        if number % 10 == 5:
            shop.cluster.faults.transactions_are_held = True
        shop.harness.send("orders", b"%d" % number)
        shop.harness.advance("3ms")
        if number % 10 == 7:
            shop.harness.crash()
            shop.cluster.faults.transactions_are_held = False
    shop.harness.advance("1m")
    assert shop.values("mails") == [b"%d" % number for number in range(50)]
