"""An app under test: what a newcomer sees of it, and how little it costs."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import pytest

from redrive import App, Backoff, DeadLetterNow, Failures, Record, RetryLater, RetryPolicy, Skip
from redrive.errors import ListenerError, RedriveError, TopologyError
from redrive.testing import Harness


@dataclass
class Order:
    id: int


class Down(Exception):
    pass


def _failing_app(**options) -> App:
    """Its handler never succeeds."""
    app = App("shop")

    @app.listener("orders", **options)
    def charge(order: Order) -> None:
        raise Down("no gateway")

    return app


def test_what_is_sent_is_handled_at_once(redrive_harness):
    app = App("shop")

    @app.listener("orders")
    def charge(order: Order) -> None: ...

    harness = redrive_harness(app)
    harness.send("orders", {"id": 7})

    assert [(run.listener, run.value, run.attempt) for run in harness.handled] == [("charge", Order(7), 1)]
    assert harness.handled[0].record.position == ("orders", 0, 0)


def test_a_ladder_of_ten_minutes_takes_no_time(redrive_harness):
    began = time.perf_counter()
    harness = redrive_harness(_failing_app(retry=RetryPolicy("5s", "30s", "10m")))
    sent_ms = harness.clock.wall_ms()

    harness.send("orders", {"id": 7}, key="k", headers={"trace": "abc"})
    harness.advance("11m")

    assert [run.attempt for run in harness.failed] == [1, 2, 3, 4]
    assert [round((run.at_ms - sent_ms) / 1000, 1) for run in harness.failed] == [0, 5, 35, 635]
    [letter] = harness.dead_letters
    assert (letter.reason, letter.failure_type, letter.failure_message) == (
        "exhausted",
        f"{__name__}.Down",
        "no gateway",
    )
    assert (letter.key, letter.json, letter.headers) == (b"k", {"id": 7}, (("trace", b"abc"),))
    assert letter.envelope.attempt == 4
    assert time.perf_counter() - began < 2


def test_a_record_waits_on_its_tier_until_it_is_due(redrive_harness):
    harness = redrive_harness(_failing_app(retry=RetryPolicy("5s", "30s")))
    harness.send("orders", {"id": 7})
    harness.advance("4s")

    [waiting] = harness.waiting
    assert (waiting.topic, waiting.attempt, waiting.in_ms) == ("orders.retry.5s", 1, 1000)
    harness.advance("999ms")
    assert len(harness.failed) == 1
    harness.advance("1ms")
    assert len(harness.failed) == 2
    assert [waiting.topic for waiting in harness.waiting] == ["orders.retry.30s"]


def test_a_record_that_succeeds_later_leaves_nothing_behind(redrive_harness):
    app, runs = App("shop"), []

    @app.listener("orders", retry=RetryPolicy("1m"))
    def charge(order: Order, record: Record) -> None:
        runs.append(record.attempt)
        if record.attempt == 1:
            raise Down

    harness = redrive_harness(app)
    harness.send("orders", {"id": 7})
    harness.advance("1m")

    assert (runs, harness.waiting, harness.dead_letters) == ([1, 2], [], [])
    assert [run.attempt for run in harness.handled] == [2]


def test_every_kind_of_value_can_be_sent(redrive_harness):
    app, seen = App("shop"), []

    class Payout(msgspec.Struct):
        amount: int

    @app.listener("raw")
    def raw(value: bytes | None) -> None:
        seen.append(value)

    harness = redrive_harness(app)
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", amount=(int, ...))
    for value in (b"\xff", "ä", None, {"a": 1}, [1], Order(1), Payout(2), model(amount=3)):
        harness.send("raw", value)

    assert seen == [
        b"\xff",
        "ä".encode(),
        None,
        b'{"a":1}',
        b"[1]",
        b'{"id":1}',
        b'{"amount":2}',
        b'{"amount":3}',
    ]


def test_a_coroutine_that_sleeps_an_hour_takes_no_time(redrive_harness):
    began = time.perf_counter()
    app = App("shop")

    @app.listener("orders", concurrency=3)
    async def charge(order: Order) -> None:
        await asyncio.sleep(3600)

    harness = redrive_harness(app, partitions=3)
    for number in range(3):
        harness.send("orders", {"id": number}, partition=number)
    assert harness.handled == []
    harness.advance("59m59s")
    assert harness.handled == []
    harness.advance("1s")
    assert sorted(run.value.id for run in harness.handled) == [0, 1, 2]
    assert time.perf_counter() - began < 2


def test_a_time_limit_ends_a_run_by_the_virtual_clock(redrive_harness):
    app = App("shop")

    @app.listener("orders", retry=RetryPolicy(), time_limit="30s")
    async def charge(order: Order) -> None:
        await asyncio.sleep(31)

    harness = redrive_harness(app)
    harness.send("orders", {"id": 1})
    harness.advance("30s")
    assert [letter.failure_type for letter in harness.dead_letters] == ["TimeoutError"]


def test_work_in_a_thread_is_waited_for(redrive_harness):
    app = App("shop")

    @app.listener("orders", time_limit="1s")
    async def charge(order: Order) -> None:
        await asyncio.to_thread(time.sleep, 0.02)

    harness = redrive_harness(app)
    harness.send("orders", {"id": 1})
    assert len(harness.handled) == 1


def test_handlers_find_what_the_lifespan_made(redrive_harness):
    happened = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[dict]:
        await asyncio.sleep(1)
        happened.append("begin")
        yield {"bank": "open"}
        happened.append("end")

    app = App("shop", lifespan=lifespan)

    @app.listener("orders")
    def charge(order: Order, record: Record) -> None:
        happened.append(record.resources["bank"])

    harness = redrive_harness(app)
    harness.send("orders", {"id": 1})
    assert happened == ["begin", "open"]
    harness.close()
    assert happened == ["begin", "open", "end"]


def test_a_lifespan_that_fails_fails_the_test():
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise Down("no vault")
        yield

    app = App("shop", lifespan=lifespan)
    app.listener("orders", name="charge")(lambda value: None)
    with pytest.raises(Down, match="no vault"):
        Harness(app)


def test_signals_and_poison_do_what_they_say(redrive_harness):
    app = App("shop")

    @app.listener("orders", retry=RetryPolicy("5s"))
    def charge(order: Order) -> None:
        raise {1: Skip("old"), 2: DeadLetterNow("stolen"), 3: RetryLater("7m")}[order.id]

    harness = redrive_harness(app)
    for number in (1, 2, 3):
        harness.send("orders", {"id": number})
    harness.send("orders", b"no json")

    assert [letter.reason for letter in harness.dead_letters] == ["asked", "poison"]
    assert [waiting.in_ms for waiting in harness.waiting] == [420_000]


def test_tries_in_place_come_when_their_pauses_are_over(redrive_harness):
    harness = redrive_harness(
        _failing_app(retry=RetryPolicy(immediate=Backoff(retries=2, wait="500ms"))),
    )
    harness.send("orders", {"id": 1})
    harness.advance("2s")
    began_ms = harness.failed[0].at_ms
    assert [run.at_ms - began_ms for run in harness.failed] == [0, 500, 1000]


def test_an_outage_is_probed_until_it_is_over(redrive_harness):
    app, is_down = App("shop"), [True]

    @app.listener("orders", failures=Failures(outage=Down))
    def charge(order: Order) -> None:
        if is_down[0]:
            raise Down

    harness = redrive_harness(app)
    harness.send("orders", {"id": 1})
    harness.send("orders", {"id": 2})
    harness.advance("10m")
    assert (harness.handled, harness.dead_letters) == ([], [])
    assert 10 < len(harness.failed) < 20
    is_down[0] = False
    harness.advance("1m")
    assert [run.value.id for run in harness.handled] == [1, 2]


def test_the_brake_slows_a_release_that_fails_everything(redrive_harness):
    harness = redrive_harness(_failing_app(retry=RetryPolicy()))
    for number in range(500):
        harness.cluster.append("orders", b'{"id":%d}' % number)
    harness.advance("10s")
    assert len(harness.dead_letters) <= 110
    assert "brake-on" in [report.event for report in harness.reports]


def test_dead_letters_are_replayed_and_handled(redrive_harness):
    app, is_broken = App("shop"), [True]

    @app.listener("orders", retry=RetryPolicy("5s"))
    def charge(order: Order) -> None:
        if is_broken[0]:
            raise TypeError("a bug")

    harness = redrive_harness(app)
    for number in range(3):
        harness.send("orders", {"id": number})
    is_broken[0] = False

    report = harness.replay(harness.dead_letters[1])
    assert (report.done, report.selected) == (1, 1)
    assert [run.value.id for run in harness.handled] == [1]
    assert harness.handled[0].record.is_replay
    assert len(harness.dead_letters) == 2

    harness.replay()
    assert [run.value.id for run in harness.handled] == [1, 0, 2]
    assert harness.dead_letters == []


def test_after_a_crash_only_what_was_not_committed_runs_again(redrive_harness):
    app = App("shop")

    @app.listener("orders")
    async def charge(order: Order) -> None:
        if order.id == 3 and len(harness.handled) == 2:
            await asyncio.sleep(60)

    harness = redrive_harness(app)
    harness.send("orders", {"id": 1})
    harness.advance("2s")
    harness.send("orders", {"id": 2})
    harness.send("orders", {"id": 3})
    harness.crash()

    harness.advance("1m")
    assert [run.value.id for run in harness.handled] == [1, 2, 2, 3]


def test_a_restart_repeats_nothing_and_waits_on(redrive_harness):
    harness = redrive_harness(_failing_app(retry=RetryPolicy("5s")))
    harness.send("orders", {"id": 1})
    harness.restart()
    assert len(harness.failed) == 1
    harness.advance("5s")
    assert [run.attempt for run in harness.failed] == [1, 2]


def test_a_restart_lets_handlers_finish(redrive_harness):
    app = App("shop")

    @app.listener("orders")
    async def charge(order: Order) -> None:
        await asyncio.sleep(5)

    harness = redrive_harness(app)
    harness.send("orders", {"id": 1})
    harness.restart()
    assert len(harness.handled) == 1
    harness.advance("1m")
    assert len(harness.handled) == 1


def test_writes_that_are_refused_are_repeated(redrive_harness):
    harness = redrive_harness(_failing_app(retry=RetryPolicy()))
    harness.cluster.faults.refuse_writes("orders.dlq", 3)
    harness.send("orders", {"id": 1})
    assert harness.dead_letters == []
    harness.advance("10s")
    assert len(harness.dead_letters) == 1
    assert [report.event for report in harness.reports].count("write-refused") == 3


def test_a_broker_that_is_away_loses_nothing(redrive_harness):
    harness = redrive_harness(_failing_app(retry=RetryPolicy("1s")))
    harness.send("orders", {"id": 1})
    harness.cluster.is_down = True
    harness.advance("20s")
    harness.cluster.is_down = False
    harness.advance("2s")
    assert [letter.reason for letter in harness.dead_letters] == ["exhausted"]


def test_a_handler_may_send(redrive_harness):
    app = App("shop")

    @app.listener("orders")
    def charge(order: Order) -> None:
        harness.send("receipts", {"id": order.id})

    @app.listener("receipts")
    def file(order: Order) -> None: ...

    harness = redrive_harness(app)
    harness.send("orders", {"id": 1})
    assert [run.listener for run in harness.handled] == ["charge", "file"]


def test_an_app_that_feeds_itself_is_told():
    app = App("shop")

    @app.listener("orders")
    def charge(order: Order) -> None:
        harness.send("orders", {"id": 1})

    harness = Harness(app)
    with pytest.raises(RuntimeError, match="doesn't come to rest"):
        harness.send("orders", {"id": 1})
    harness.close()


def test_an_app_without_listeners_is_refused():
    with pytest.raises(ListenerError, match="listener"):
        Harness(App("shop"))


def test_an_unknown_topic_is_told_with_those_there_are(redrive_harness):
    harness = redrive_harness(_failing_app())
    with pytest.raises(TopologyError, match=r"no topic orderz; there are: orders, orders\.dlq"):
        harness.send("orderz", {})


def test_a_closed_harness_says_so():
    harness = Harness(_failing_app())
    harness.close()
    harness.close()
    with pytest.raises(RedriveError, match="closed"):
        harness.send("orders", {"id": 1})


def test_a_bare_number_is_no_duration(redrive_harness):
    with pytest.raises((TypeError, ValueError), match="duration"):
        redrive_harness(_failing_app()).advance(10)


def test_a_harness_works_inside_a_running_loop():
    async def test() -> int:
        app = App("shop")

        @app.listener("orders")
        async def charge(order: Order) -> None:
            await asyncio.sleep(60)

        with Harness(app) as harness:
            harness.send("orders", {"id": 1})
            harness.advance("1m")
            await asyncio.sleep(0)
            return len(harness.handled)

    assert asyncio.run(test()) == 1


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_things_gives_the_same_result(seed, redrive_harness):
    harness = redrive_harness(_failing_app(retry=RetryPolicy("5s", "30s")), partitions=4, seed=seed)
    for number in range(20):
        harness.send("orders", {"id": number}, key=str(number))
    harness.advance("1m")
    assert sorted(letter.json["id"] for letter in harness.dead_letters) == list(range(20))
    assert len(harness.failed) == 60


def test_the_next_release_finds_what_the_one_before_left(redrive_harness):
    before = redrive_harness(_failing_app(retry=RetryPolicy("5s", "1h")))
    sent_ms = before.clock.wall_ms()
    before.send("orders", {"id": 1})
    before.advance("1m")
    assert [waiting.topic for waiting in before.waiting] == ["orders.retry.1h"]
    before.close()

    app = App("shop")
    app.listener("orders", name="mended", retry=RetryPolicy("5s"))(lambda order: None)
    after = redrive_harness(app, cluster=before.cluster)
    assert [waiting.topic for waiting in after.waiting] == ["orders.retry.1h"]
    after.advance("2h")
    assert [(run.attempt, run.at_ms) for run in after.handled] == [(3, sent_ms + 3_605_000)]
    assert (after.waiting, after.dead_letters) == ([], [])


def test_two_groups_on_one_source_keep_their_retries_and_replays_to_themselves(redrive_harness):
    shop = redrive_harness(_failing_app(retry=RetryPolicy("5s")))
    other = App("stock")
    other.listener("orders", name="reserve", retry=RetryPolicy("5s"))(lambda order: None)
    stock = redrive_harness(other, cluster=shop.cluster)
    shop.send("orders", {"id": 1})
    shop.advance("5s")
    shop.replay()
    stock.advance("1m")

    assert [run.attempt for run in shop.failed] == [1, 2, 1]
    assert [(run.attempt, run.value) for run in stock.handled] == [(1, {"id": 1})]
    assert stock.waiting == []


def test_records_that_retention_deleted_are_told_and_the_rest_is_handled(redrive_harness):
    app = App("shop")
    app.listener("orders", name="charge")(lambda order: None)
    harness = redrive_harness(app)
    harness.send("orders", {"id": 0})
    harness.advance("2s")
    harness.cluster.is_down = True
    for number in range(1, 6):
        harness.cluster.append("orders", b'{"id":%d}' % number)
    log = harness.cluster.topics["orders"].partitions[0]
    log.delete_before(4)
    harness.cluster.is_down = False
    harness.advance("1s")

    assert [run.value["id"] for run in harness.handled] == [0, 4, 5]
    [lost] = [report.fields for report in harness.reports if report.event == "records-lost"]
    assert (lost["topic"], lost["offset"], lost["lost"]) == ("orders", 1, 3)


def test_a_partition_that_appears_later_is_read_from_its_beginning(redrive_harness):
    app = App("shop")
    app.listener("orders", name="charge", start="latest")(lambda order: None)
    harness = redrive_harness(app)
    harness.send("orders", {"id": 0})
    harness.advance("2s")
    for topic in harness.cluster.topics.values():
        topic.grow(2)
    harness.send("orders", {"id": 1}, partition=1)
    assert [run.value["id"] for run in harness.handled] == [0, 1]


@pytest.mark.parametrize("partitions", [0, -1, 1.5])
def test_a_topic_without_a_whole_partition_is_refused(partitions):
    with pytest.raises(ValueError, match=rf"Harness\(partitions={partitions}\): a whole number, at least 1"):
        Harness(_failing_app(), partitions=partitions)


@pytest.mark.parametrize(
    ("app", "told"),
    [
        (None, r"Harness\(None\) takes an App, or a function"),
        (lambda: None, "is to make an App, but gave None"),
    ],
)
def test_what_is_no_app_is_refused(app, told):
    with pytest.raises(TypeError, match=told):
        Harness(app)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"headers": {"a": 1}}, "headers: a: 1 can't be sent"),
        ({"headers": {1: "a"}}, r"\(1, 'a'\) is no header"),
        ({"headers": ["ab"]}, "'ab' is no header"),
        ({"key": 7}, "key: 7 can't be sent"),
    ],
)
def test_what_no_producer_can_send_is_refused(redrive_harness, options, told):
    harness = redrive_harness(_failing_app())
    with pytest.raises(TypeError, match=told):
        harness.send("orders", {"id": 7}, **options)
    assert harness.failed == []
