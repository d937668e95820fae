"""Delivery exactly-once on a real broker: processes are killed, stand still, take each other's id; nothing is written twice."""

import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from redrive import App, Record, RetryPolicy
from tests.faults import running
from tests.plain_kafka import (
    Given,
    committed,
    count_all,
    create_topics,
    create_topics_of,
    is_all_committed,
    read_all,
    send,
    unique,
)
from tests.services.launch import ObedientService
from tests.services.obedient import Order
from tests.waiting import until

#: Settings with which a killed member's partitions come back soon, by group protocol.
PROTOCOLS = {
    "consumer": {"group_protocol": "consumer"},
    "classic": {"membership": "static"},
}


class Shop:
    """A service whose handler emits to `mails` for each order that succeeds, with several processes."""

    def __init__(
        self, bootstrap: str, folder: Path, *, partitions: int, emits_to: tuple[str, ...] = ()
    ) -> None:
        self.bootstrap, self.partitions = bootstrap, partitions
        self.mails = unique("mails")
        self.orders: list[Order] = []
        self.service = ObedientService(bootstrap, folder, tiers=("300ms",), emits_to=(self.mails, *emits_to))
        self.service.create_topics(partitions)
        create_topics(bootstrap, [self.mails])
        self.tier, self.dlq = f"{self.service.source}.retry.300ms", f"{self.service.source}.dlq"

    def process(self, name: str, **settings: str):
        return self.service.process(delivery="exactly-once", instance_id=name, **settings)

    def mailed(self) -> Counter[str]:
        """How often each order was mailed, as who reads only what is committed sees it."""
        return Counter((record.value or b"").decode() for record in read_all(self.bootstrap, self.mails))

    def written(self, topic: str) -> Counter[str]:
        """The same of what waits or lies in one of redrive's topics, by the order's id."""
        return Counter(record.own["id"] for record in read_all(self.bootstrap, topic))

    def is_through(self) -> bool:
        """Whether the group has committed all of the source, and of the tier all records that are there."""
        if not is_all_committed(self.bootstrap, self.service.shape.group, [self.service.source]):
            return False
        at = committed(self.bootstrap, self.service.shape.group, self.tier)
        return all(
            record.offset < at.get(record.partition, 0) for record in read_all(self.bootstrap, self.tier)
        )

    def ids(self, *, wanted=lambda _: True) -> set[str]:
        return {
            f"{self.service.source}/{partition}/{number}"
            for partition in range(self.partitions)
            for number in range(len(self.orders))
            if wanted(self.orders[number])
        }

    def send(self, orders: list[Order]) -> None:
        self.orders += orders
        self.service.send_to_each(self.partitions, *orders)

    def check(self) -> None:
        """Each failure has one retry, each bug one dead letter, each success one mail."""
        once = self.ids(wanted=lambda order: not order.bug)
        assert self.mailed() == Counter(once)
        assert self.written(self.tier) == Counter(self.ids(wanted=lambda order: order.fails))
        assert self.written(self.dlq) == Counter(self.ids(wanted=lambda order: order.bug))


@pytest.mark.chaos
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_of_three_processes_some_are_killed_again_and_again_and_nothing_is_written_twice(
    kafka, tmp_path, protocol
):
    shop, settings = Shop(kafka.bootstrap, tmp_path, partitions=4), PROTOCOLS[protocol]
    orders = [
        Order(takes_s=0.002, fails=int(number % 10 == 0), bug=number % 50 == 1) for number in range(400)
    ]
    shop.send(orders)
    processes = {name: shop.process(name, **settings) for name in ("a", "b", "c")}
    ledger = shop.service.ledger
    try:
        for process in processes.values():
            process.start()
        for round_, name in enumerate(["a", "b", "a"], 1):
            until(lambda round_=round_: ledger.count() > 400 * round_, "they are at work", within_s=60)
            processes[name].kill()
            processes[name].start(awaits="")
        until(shop.is_through, "all is committed", within_s=120)
        processes["c"].terminate()
        processes["b"].terminate()
        until(shop.is_through, "and stays so")
    finally:
        for process in processes.values():
            process.end()

    shop.check()
    assert ledger.early() == []


@pytest.mark.parametrize("name", ["the same", "another"])
def test_a_process_killed_in_an_open_transaction_leaves_nothing_and_the_next_one_goes_on(
    kafka, tmp_path, name
):
    nowhere = unique("nowhere")
    shop = Shop(kafka.bootstrap, tmp_path, partitions=1, emits_to=(nowhere,))
    shop.send([Order(), Order(fails=1), Order(bug=True)])
    # What isn't there holds the transaction open for a second and a half, until it is aborted.
    with shop.process("the same") as first:
        until(lambda: count_all(kafka.bootstrap, shop.mails) > 0, "the mail is written, not committed")
        first.kill()
    assert shop.mailed() == Counter()
    create_topics(kafka.bootstrap, [nowhere])
    with shop.process(name):
        until(lambda: shop.mailed().total() == 2, "both are mailed", within_s=60)
        until(shop.is_through, "all is committed", within_s=60)

    shop.check()
    there = Counter((record.value or b"").decode() for record in read_all(kafka.bootstrap, nowhere))
    assert there == shop.mailed()


def test_a_process_that_stood_still_until_others_had_its_partitions_writes_nothing_of_them(kafka, tmp_path):
    shop = Shop(kafka.bootstrap, tmp_path, partitions=2)
    orders = [Order(takes_s=0.005, fails=int(number % 5 == 0)) for number in range(300)]
    shop.send(orders)
    with shop.process("a", group_protocol="consumer") as first:
        until(lambda: shop.service.ledger.count() > 50, "it is at work")
        first.signal(signal.SIGSTOP)
        with shop.process("b", group_protocol="consumer"):
            until(shop.is_through, "the other one has done it all", within_s=60)
            first.signal(signal.SIGCONT)
            until(lambda: "lost" in first.said(), "it hears of it", within_s=60)
            until(shop.is_through, "and all stays committed")

    shop.check()


def test_of_two_processes_with_one_id_the_elder_ends_and_says_why(kafka, tmp_path):
    shop = Shop(kafka.bootstrap, tmp_path, partitions=2)
    with shop.process("one", group_protocol="consumer") as elder:
        shop.send([Order()])
        # It has its id then: of two that start at once the one that asks last would be the younger.
        until(shop.is_through, "the elder writes", within_s=60)
        with shop.process("one", group_protocol="consumer"):
            shop.send([Order(fails=int(number % 5 == 0)) for number in range(100)])
            # It learns of it at a transaction: the hundred may be through before the younger has the id.
            until(lambda: (shop.send([Order()]), elder.exit_code)[1] is not None, "its end", within_s=60)
            code = elder.wait(1)
            until(shop.is_through, "the younger does all", within_s=60)

    assert code != 0
    assert "instance_id" in elder.said()
    shop.check()


def test_t_tx_1_what_is_too_large_to_be_emitted_takes_nothing_down_but_its_own_record(kafka, group):
    orders, mails, bills = unique("orders"), unique("mails"), unique("bills")
    app = App(group, delivery="exactly-once", settings={"bootstrap_servers": kafka.bootstrap})

    @app.listener(orders, retry=RetryPolicy("300ms"))
    def handle(value: bytes, record: Record) -> None:
        record.emit(bills, value)
        record.emit(mails, value * (30_000 if value == b"L" else 1))

    create_topics_of(kafka.bootstrap, app)
    create_topics(kafka.bootstrap, [mails], **{"max.message.bytes": "20000"})
    create_topics(kafka.bootstrap, [bills])
    send(kafka.bootstrap, orders, [Given(value) for value in (b"1", b"L", b"2")])
    with running(app):
        until(lambda: is_all_committed(kafka.bootstrap, group, [orders]), "all is committed")

    letters = read_all(kafka.bootstrap, f"{orders}.dlq")
    assert [(letter.value, letter.own["failure-type"]) for letter in letters] == [
        (b"L", "redrive.EmittedTooLarge")
    ]
    assert [record.value for record in read_all(kafka.bootstrap, mails)] == [b"1", b"2"]
    assert [record.value for record in read_all(kafka.bootstrap, bills)] == [b"1", b"2"]


def test_order_by_key_and_retries_in_the_lane_go_with_exactly_once(kafka, group):
    orders, mails = unique("orders"), unique("mails")
    app = App(
        group,
        delivery="exactly-once",
        settings={"bootstrap_servers": kafka.bootstrap, "commit_interval": "100ms"},
    )

    @app.listener(orders, retry=RetryPolicy("100ms", "300ms", blocking="key"), order="key", concurrency=20)
    async def handle(value: bytes, record: Record) -> None:
        number = msgspec.json.decode(value)
        if number % 7 == 0 and record.attempt < 3:
            raise ConnectionError
        record.emit(mails, value, key=record.key)

    create_topics_of(kafka.bootstrap, app, 2)
    create_topics(kafka.bootstrap, [mails])
    send(kafka.bootstrap, orders, [Given(b"%d" % number, b"%d" % (number % 10)) for number in range(200)])
    with running(app):
        until(lambda: is_all_committed(kafka.bootstrap, group, [orders]), "all is committed", within_s=60)

    mailed = [(record.key, int(record.value or b"")) for record in read_all(kafka.bootstrap, mails)]
    assert sorted(number for _, number in mailed) == list(range(200))
    for key in range(10):
        of_key = [number for its_key, number in mailed if its_key == b"%d" % key]
        assert of_key == sorted(of_key)
