"""`@app.on_dead_letter`: who is called for which letters, and that nothing it does harms anybody."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from redrive import App, DeadLetter, DeadLetterNow, RetryPolicy
from redrive.core.record import TopicPartition
from redrive.core.topology import Naming
from redrive.deadletters.letters import Position
from redrive.errors import ListenerError


@dataclass
class Order:
    id: int


class Unauthorised(Exception):
    """An outage, to a listener."""

    status_code = 401


def fail(order: Order) -> None:
    raise DeadLetterNow(f"order {order.id}")


def shop(on_dead_letter=None, *, handler=fail, group="shop", lifespan=None, **options) -> App:
    """An app whose orders all become dead letters at once."""
    app = App(group, lifespan=lifespan)
    app.listener("orders", retry=RetryPolicy(), name="charge")(handler)
    if on_dead_letter is not None:
        app.on_dead_letter("orders", name="triage", **options)(on_dead_letter)
    return app


def told(harness, event):
    return [report.fields for report in harness.reports if report.event == event]


def test_a_letter_tells_what_became_of_its_record_and_why(redrive_harness):
    letters = []

    def triage(letter: DeadLetter) -> None:
        letters.append(letter)

    harness = redrive_harness(shop(triage))
    now_ms = int(harness.clock.wall_ms())
    harness.send("orders", {"id": 7}, key="k", headers=[("trace", "a"), ("trace", None)])

    [letter] = letters
    assert (letter.position, letter.source) == (Position("orders.dlq", 0, 0), Position("orders", 0, 0))
    assert (letter.reason, letter.listener, letter.group) == ("asked", "charge", "shop")
    assert (letter.failure_type, letter.failure_message) == ("redrive.errors.DeadLetterNow", "order 7")
    assert (letter.attempts, letter.replays, letter.event_id) == (1, 0, "orders/0/0")
    assert (letter.key, letter.value, letter.json) == (b"k", b'{"id":7}', {"id": 7})
    assert letter.headers == (("trace", b"a"), ("trace", None))
    assert (letter.first_failed_ms, letter.last_failed_ms, letter.timestamp_ms) == (now_ms, now_ms, now_ms)
    assert letter.fingerprint
    assert "in fail" in letter.failure_stack
    assert "7" not in repr(letter), "what a record holds is not for logs"


def of_letter(letter: DeadLetter) -> None: ...
def of_letter_unsaid(letter): ...
async def of_letter_async(letter: DeadLetter) -> None: ...
def of_value(order: Order) -> None: ...
async def of_value_async(order: Order) -> None: ...
def of_both(order: Order, letter: DeadLetter) -> None: ...
def of_both_swapped(letter: DeadLetter, order: Order) -> None: ...
async def of_both_async(order: Order, letter: DeadLetter) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [
        of_letter,
        of_letter_unsaid,
        of_letter_async,
        of_value,
        of_value_async,
        of_both,
        of_both_swapped,
        of_both_async,
    ],
)
def test_every_shape_of_handler_is_called(redrive_harness, handler):
    harness = redrive_harness(shop(handler))
    harness.send("orders", {"id": 7})

    [run] = harness.letter_runs
    assert (run.handler, run.letter.json, run.error) == ("triage", {"id": 7}, None)
    assert run.value == (b'{"id":7}' if handler.__name__.startswith("of_letter") else Order(7))


def test_it_sees_what_the_lifespan_yielded_and_a_coroutine_waits_by_the_same_clock(redrive_harness):
    @asynccontextmanager
    async def lifespan():
        yield "the pool"

    async def triage(letter: DeadLetter) -> None:
        await asyncio.sleep(60)

    harness = redrive_harness(shop(triage, lifespan=lifespan))
    harness.send("orders", {"id": 7})
    harness.advance("59s")
    assert harness.letter_runs == []
    harness.advance("1s")
    assert [run.letter.resources for run in harness.letter_runs] == ["the pool"]


def test_letters_of_another_group_and_of_strangers_are_passed_by(redrive_harness):
    harness = redrive_harness(shop(of_letter))
    other = redrive_harness(shop(of_letter, group="audit"), cluster=harness.cluster)

    other.send("orders", {"id": 7})
    harness.cluster.append("orders.dlq", b"a stranger's")
    harness.cluster.append(
        "orders.dlq", b"hostile", headers=[("redrive-group", b"\xff"), ("redrive-group", None)]
    )
    for each in (harness, other):
        each.advance("1s")

    assert len(harness.cluster.records("orders.dlq")) == 4, "one of each group, and the strangers'"
    for each, group in ((harness, "shop"), (other, "audit")):
        assert [run.letter.group for run in each.letter_runs] == [group]
        offsets = harness.cluster.group(f"{group}.on-dead-letter").offsets
        assert offsets[TopicPartition("orders.dlq", 0)].offset == 4


def test_letters_of_an_accepted_group_are_ours(redrive_harness):
    old = redrive_harness(shop(group="old"))
    app = App("new", accepts_groups=["old"])
    app.listener("orders", retry=RetryPolicy(), start="latest")(of_value)
    app.on_dead_letter("orders")(of_letter)
    new = redrive_harness(app, cluster=old.cluster)

    old.send("orders", {"id": 7})
    new.advance("1s")

    assert [run.letter.group for run in new.letter_runs] == ["old"]


@pytest.mark.parametrize(("options", "handled"), [({}, [9]), ({"start": "earliest"}, [7, 8, 9])])
def test_letters_that_were_there_before_are_left_alone_unless_asked_for(redrive_harness, options, handled):
    before = redrive_harness(shop())
    for number in (7, 8):
        before.send("orders", {"id": number})
    before.close()

    harness = redrive_harness(shop(of_letter, **options), cluster=before.cluster)
    harness.send("orders", {"id": 9})

    assert [run.letter.json["id"] for run in harness.letter_runs] == handled


def test_a_letter_made_while_nothing_handles_them_is_handled_later(redrive_harness):
    first = redrive_harness(shop(of_letter))
    first.close()  # without having handled anything
    between = redrive_harness(shop(), cluster=first.cluster)
    between.send("orders", {"id": 7})
    between.close()

    second = redrive_harness(shop(of_letter), cluster=first.cluster)

    assert [run.letter.json["id"] for run in second.letter_runs] == [7]


def test_after_a_crash_only_the_last_second_comes_again(redrive_harness):
    harness = redrive_harness(shop(of_letter))
    harness.send("orders", {"id": 7})
    harness.advance("1s")
    harness.send("orders", {"id": 8})
    harness.crash()
    harness.advance("1s")
    harness.crash()

    assert [run.letter.json["id"] for run in harness.letter_runs if run.letter.source.offset == 0] == [7]
    assert {run.letter.json["id"] for run in harness.letter_runs} == {7, 8}


def test_a_failing_handler_is_tried_four_times_a_second_apart_and_the_letter_is_passed_by(redrive_harness):
    def triage(letter: DeadLetter) -> None:
        if letter.json["id"] == 7:
            raise ConnectionError("the pager is away")

    harness = redrive_harness(shop(triage))
    sent_ms = harness.clock.wall_ms()
    harness.send("orders", {"id": 7})
    harness.send("orders", {"id": 8})
    harness.advance("10s")

    runs = [
        (run.letter.json["id"], round(run.at_ms - sent_ms), type(run.error)) for run in harness.letter_runs
    ]
    assert runs == [
        *((7, wait_ms, ConnectionError) for wait_ms in (0, 1000, 2000, 3000)),
        (8, 3000, type(None)),
    ]
    assert [letter.json["id"] for letter in harness.dead_letters] == [7, 8], (
        "both are open, none was made of them"
    )
    [passed_by] = told(harness, "letter-passed-by")
    assert (passed_by["listener"], passed_by["reason"], passed_by["type"]) == (
        "triage",
        "exhausted",
        "ConnectionError",
    )
    assert (passed_by["source"], passed_by["partition"], passed_by["offset"]) == ("orders.dlq", 0, 0)


@pytest.mark.parametrize(
    ("error", "runs", "reason"),
    [
        (Unauthorised(), 4, "exhausted"),
        (ExceptionGroup("tasks", [Unauthorised(), OSError()]), 4, "exhausted"),
        (TypeError("a bug"), 1, "permanent"),
        (DeadLetterNow("no"), 1, "asked"),
        (SystemExit(1), 4, "exhausted"),
    ],
)
def test_nothing_that_it_raises_holds_it_up_or_makes_a_letter(redrive_harness, error, runs, reason):
    def triage(letter: DeadLetter) -> None:
        if letter.json["id"] == 7:
            raise error

    harness = redrive_harness(shop(triage))
    harness.send("orders", {"id": 7})
    harness.send("orders", {"id": 8})
    harness.advance("10s")

    assert [run.letter.json["id"] for run in harness.letter_runs] == [7] * runs + [8]
    assert [fields["reason"] for fields in told(harness, "letter-passed-by")] == [reason]
    assert told(harness, "outage") == []
    assert len(harness.dead_letters) == 2


def test_thousands_that_fail_are_not_slowed_down_by_a_brake(redrive_harness):
    def triage(letter: DeadLetter) -> None:
        raise TypeError

    before = redrive_harness(shop())
    for number in range(150):
        before.send("orders", {"id": number})
        before.advance("1s")
    before.close()
    harness = redrive_harness(shop(triage, start="earliest"), cluster=before.cluster)

    assert len(harness.letter_runs) == 150
    assert told(harness, "brake-on") == []


def test_a_value_that_is_none_is_passed_by_with_a_word_of_it(redrive_harness):
    harness = redrive_harness(shop(of_value))
    harness.send("orders", b"no order")
    harness.send("orders", {"id": 8})

    assert [run.value for run in harness.letter_runs] == [Order(8)]
    assert [fields["reason"] for fields in told(harness, "letter-passed-by")] == ["poison"]


def test_a_listener_goes_on_while_a_letter_is_being_handled(redrive_harness):
    async def triage(letter: DeadLetter) -> None:
        await asyncio.sleep(3600)

    def handler(order: Order) -> None:
        if order.id == 7:
            raise DeadLetterNow("7")

    harness = redrive_harness(shop(triage, handler=handler))
    harness.send("orders", {"id": 7})
    harness.send("orders", {"id": 8})

    assert [run.value for run in harness.handled] == [Order(8)]


def test_partitions_move_without_a_letter_being_lost_or_handled_twice(redrive_harness):
    one = redrive_harness(shop(of_letter), partitions=4)
    for number in range(8):
        one.send("orders", {"id": number}, partition=number % 4)
    other = redrive_harness(shop(of_letter), cluster=one.cluster)
    for _ in range(5):
        for each in (one, other):
            each.advance("1s")
    for number in range(8, 16):
        one.send("orders", {"id": number}, partition=number % 4)
    for _ in range(5):
        for each in (one, other):
            each.advance("1s")

    by_process = [[run.letter.json["id"] for run in each.letter_runs] for each in (one, other)]
    assert sorted([*by_process[0], *by_process[1]]) == list(range(16))
    assert by_process[1], "the other one had its share"


def test_a_broker_that_is_away_for_a_minute_delays_it(redrive_harness):
    harness = redrive_harness(shop(of_letter))
    harness.send("orders", {"id": 7})
    harness.cluster.is_down = True
    harness.send("orders", {"id": 8})
    harness.advance("1m")
    harness.cluster.is_down = False
    harness.advance("5s")

    assert [run.letter.json["id"] for run in harness.letter_runs] == [7, 8]


def test_a_replayed_record_that_dies_again_is_a_new_letter(redrive_harness):
    harness = redrive_harness(shop(of_letter))
    harness.send("orders", {"id": 7})
    harness.replay()

    assert [(run.letter.replays, run.letter.event_id) for run in harness.letter_runs] == [
        (0, "orders/0/0"),
        (1, "orders/0/0"),
    ]


# -- what is refused -------------------------------------------------------------------------------------------------


def problems_of(app: App) -> list[str]:
    with pytest.raises(ListenerError) as refused:
        app.resolve()
    return [problem.what for problem in refused.value.problems]


def test_a_source_without_a_listener_is_told():
    app = shop()
    app.on_dead_letter("ordres")(of_letter)
    assert problems_of(app) == [
        (
            "on_dead_letter 'of_letter': the app has no listener for 'ordres', so nothing of it dies here; it has listeners for "
            "'orders'"
        )
    ]


def test_two_for_one_source_and_a_name_taken_twice_are_told():
    app = shop(of_letter)
    app.on_dead_letter("orders", name="charge")(of_value)
    first, second = problems_of(app)
    assert first.startswith("on_dead_letter 'charge': the one at ")
    assert second.startswith("on_dead_letter 'charge': dead letters of 'orders' are handled by 'triage' at ")


def takes_nothing() -> None: ...
def takes_more(order: Order, more: int) -> None: ...


@pytest.mark.parametrize(
    ("handler", "options", "what"),
    [
        (
            takes_nothing,
            {},
            (
                "handler 'takes_nothing' takes no parameter; it must take the value, and may take the letter: (value, letter: "
                "DeadLetter)"
            ),
        ),
        (
            takes_more,
            {},
            (
                "handler 'takes_more' (order, more): the second parameter is the letter, but 'more' is annotated int; annotate it "
                "DeadLetter (redrive.DeadLetter), or give it a default"
            ),
        ),
        (of_letter, {"concurrency": 0}, "on_dead_letter 'triage': concurrency=0: a whole number of handlers"),
        (of_letter, {"start": "now"}, "on_dead_letter 'triage': start='now' is none of"),
        (
            of_letter,
            {"time_limit": "5s"},
            "on_dead_letter 'triage': time_limit='5s', but the handler is a plain function",
        ),
    ],
)
def test_what_cannot_be_is_told_in_the_words_of_dead_letters(handler, options, what):
    [told] = problems_of(shop(handler, **options))
    assert told.startswith(what)


def test_records_and_letters_are_not_mixed_up():
    from redrive import Record

    def of_record(record: Record) -> None: ...

    assert problems_of(shop(of_record)) == [
        "handler 'of_record' (record) takes a Record, but what a handler of dead letters gets is (letter: DeadLetter)"
    ]
    assert problems_of(shop(handler=of_letter)) == [
        "handler 'of_letter' (letter) takes a DeadLetter, which only handlers under @app.on_dead_letter get"
    ]


def test_without_its_topic_the_decorator_says_so():
    app = shop()
    with pytest.raises(ListenerError, match=r'write @app.on_dead_letter\("topic"\)'):
        app.on_dead_letter(of_letter)  # type: ignore[arg-type]


def test_the_decorator_returns_the_function():
    assert App("shop").on_dead_letter("orders")(of_letter) is of_letter


def test_dead_letter_topics_named_by_the_group_are_found(redrive_harness):
    from redrive import Settings

    settings = Settings(dlq_topic="{topic}.{group}.dlq")
    assert settings.naming == Naming.of(dlq="{topic}.{group}.dlq")
    harness = redrive_harness(shop(of_letter), settings=settings)
    harness.send("orders", {"id": 7})
    assert [str(run.letter.position) for run in harness.letter_runs] == ["orders.shop.dlq/0/0"]
