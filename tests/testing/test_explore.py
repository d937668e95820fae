"""Worlds in which users' handlers run through faults: mistakes are found and told, and what is right passes."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, get_args

import pytest

from redrive import App, Record, RetryPolicy, Settings, Skip
from redrive.errors import ListenerError, TopologyError
from redrive.testing import Fault, NewRecord, World, explore
from tests.testing.wrong import (
    MISTAKES,
    Order,
    Outside,
    both,
    no_order_is_paid_twice,
    orders,
    pays_with_a_key,
    pays_with_a_key_and_awaits,
    pays_without_a_key,
    relies_on_keys_that_are_kept_for_a_minute,
    remembers_in_memory,
)


def _story(**options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        explore(**options)
    return str(caught.value)


def _story_of(name: str, **options: Any) -> str:
    mistake = MISTAKES[name]
    return _story(
        app_factory=mistake.make_app,
        outside=Outside,
        send=orders,
        invariant=mistake.invariant,
        faults=mistake.faults,
        **mistake.options,
        **options,
    )


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_and_its_story_names_the_step(name):
    story = _story_of(name)
    assert any(said in story for said in MISTAKES[name].told), story


@pytest.mark.parametrize("name", [name for name in MISTAKES if MISTAKES[name].faults])
def test_a_mistake_does_no_harm_where_nothing_goes_wrong(name):
    mistake = MISTAKES[name]
    explore(
        mistake.make_app,
        outside=Outside,
        send=orders,
        invariant=mistake.invariant,
        steps=0,
        worlds=10,
        **mistake.options,
    )


def test_there_is_a_mistake_for_every_fault():
    assert {fault for mistake in MISTAKES.values() for fault in mistake.faults} == set(get_args(Fault))


@pytest.mark.parametrize(
    "make_app",
    [
        pytest.param(pays_with_a_key, id="plain"),
        pytest.param(pays_with_a_key_and_awaits, id="coroutine"),
        pytest.param(partial(pays_with_a_key_and_awaits, order="key", concurrency=3), id="by key"),
        pytest.param(partial(pays_with_a_key_and_awaits, order="none", concurrency=3), id="in no order"),
        pytest.param(partial(pays_with_a_key, delivery="exactly-once"), id="exactly-once"),
    ],
)
def test_a_right_service_passes_all_worlds(make_app):
    explored = explore(make_app, outside=Outside, send=orders, invariant=both, worlds=30)
    assert (explored.worlds, explored.sent) == (30, 300)
    assert explored.handled > 150
    assert min(explored.faults[fault] for fault in get_args(Fault) if fault != "transactions") > 0


@pytest.mark.parametrize(
    ("make_app", "faults"),
    [
        (remembers_in_memory, ["writes", "acknowledgements", "brokers", "clock", "commits"]),
        (relies_on_keys_that_are_kept_for_a_minute, ["crash"]),
    ],
)
def test_a_mistake_that_a_fault_does_not_touch_passes_without_others(make_app, faults):
    explore(
        make_app, outside=Outside, send=orders, invariant=no_order_is_paid_twice, faults=faults, worlds=30
    )


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy("5s", "30s", blocking="key"),
        RetryPolicy("5s", "30s", blocking="key", park=True, hold_at_most="10s"),
        RetryPolicy("5s", "30s", blocking="key", after_dead_letter="block"),
        RetryPolicy("5s", "30s", blocking="key", after_dead_letter="divert"),
    ],
    ids=["held", "parked", "block", "divert"],
)
def test_blocked_keys_keep_their_order_in_all_worlds(policy):
    def make_app(outside: Outside) -> App:
        app = App("shop")

        @app.listener("orders", order="key", retry=policy, concurrency=3)
        async def pay(order: Order) -> None:
            await asyncio.sleep(order.takes_s)
            outside.answer(order)

        return app

    explored = explore(make_app, outside=Outside, send=orders, worlds=20)
    assert explored.failed > 40


def test_skipped_records_have_come_to_their_end():
    def make_app() -> App:
        app = App("shop")

        @app.listener("orders", retry=RetryPolicy("5s"), give_up="skip")
        def pay(order: Order) -> None:
            raise Skip("old") if order.id % 2 else ConnectionError

        return app

    assert explore(make_app, send=orders, worlds=10).failed > 90


def test_handlers_find_what_their_process_made_and_dead_letters_are_handled_too():
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[list[int]]:
        yield []

    def make_app() -> App:
        app = App("shop", lifespan=lifespan)

        @app.listener("orders", retry=RetryPolicy())
        def pay(order: Order, record: Record) -> None:
            record.resources.append(order.id)
            if order.id % 2:
                raise ConnectionError

        app.on_dead_letter("orders", name="tell")(lambda letter: None)
        return app

    def even_ones_are_handled_and_odd_ones_told(world: World[None]) -> bool:
        handled = {run.value.id for run in world.harness.handled}
        told = {run.letter.json["id"] for run in world.harness.letter_runs}
        return not world.is_over or (handled, told) == ({0, 2, 4, 6, 8}, {1, 3, 5, 7, 9})

    explore(make_app, send=orders, invariant=even_ones_are_handled_and_odd_ones_told, worlds=20)


def test_a_handler_that_never_ends_is_told_as_a_record_that_is_lost():
    def make_app() -> App:
        app = App("shop")

        @app.listener("orders")
        async def pay(order: Order) -> None:
            await asyncio.Event().wait()

        return app

    story = _story(app_factory=make_app, send=[NewRecord("orders", {"id": 1})], steps=0, workers=1)
    assert "neither handled nor a dead letter" in story
    assert "pay begins orders/" in story


def test_a_handler_that_takes_a_day_has_the_time():
    def make_app() -> App:
        app = App("shop")

        @app.listener("orders", retry=RetryPolicy("2d"))
        async def pay(order: Order, record: Record) -> None:
            await asyncio.sleep(86_400)
            if record.attempt == 1:
                raise ConnectionError

        return app

    assert explore(make_app, send=[NewRecord("orders", Order(1))], worlds=5).handled >= 5


def test_a_list_is_what_is_sent_in_every_world():
    seen: list[Any] = []

    def look(world: World[None]) -> None:
        if world.is_over:
            seen.append([sent.value for sent in world.sent])

    app = App("shop")
    app.listener("orders", name="pay")(lambda order: None)
    explore(lambda: app, send=[NewRecord("orders", 1), NewRecord("orders", 2)], invariant=look, worlds=3)
    assert seen == [[1, 2]] * 3


def test_the_invariant_is_asked_after_each_step_and_at_the_end():
    asked: list[bool] = []

    def note(world: World[None]) -> None:
        asked.append(world.is_over)

    app = App("shop")
    app.listener("orders", name="pay")(lambda order: None)
    explore(
        lambda: app,
        send=[NewRecord("orders", 1)],
        invariant=note,
        worlds=1,
        workers=1,
        steps=5,
        faults=["clock"],
    )
    assert len(asked) >= 7
    assert [asked[-1], any(asked[:-1])] == [True, False]


def test_what_an_invariant_raises_is_told():
    def fail(world: World[None]) -> None:
        raise LookupError("no such order")

    app = App("shop")
    app.listener("orders", name="pay")(lambda order: None)
    with pytest.raises(AssertionError, match=r"LookupError\('no such order'\)") as caught:
        explore(lambda: app, send=[], invariant=fail)
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_story_has_no_step_that_does_not_matter():
    story = _story_of("crash")
    steps = re.findall(r"^ *\d+\. (.*)$", story, re.MULTILINE)
    assert [step.partition(" is ")[0].partition("/")[0] for step in steps] == ["orders", "process 0"]


def test_the_same_seed_tells_the_same_story():
    story = _story_of("crash")
    [seed] = re.findall(r"seed=(\d+), worlds=1", story)
    assert _story_of("crash", seed=int(seed), worlds=1) == story


def test_a_story_does_not_hang_on_the_process_that_tells_it():
    code = "from tests.testing.test_explore import _story_of; print(_story_of('rebalance'))"
    told = [
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]


def test_a_world_that_does_not_come_again_is_told_as_such():
    calls: list[int] = []

    def make_app() -> App:
        app = App("shop")

        @app.listener("orders")
        def pay(order: Order) -> None:
            calls.append(1)

        return app

    story = _story(
        app_factory=make_app, send=orders, invariant=lambda world: len(calls) != 1, workers=1, steps=0
    )
    assert "played once more it was another world" in story


def _counting() -> App:
    app = App("shop")

    @app.listener("orders")
    def count(number: int) -> None: ...

    return app


def _stopping() -> App:
    app = App("shop")
    app.listener("orders", name="pay", give_up="stop")(lambda order: None)
    return app


def test_a_listener_that_stops_its_process_is_refused():
    with pytest.raises(ListenerError, match="give_up='stop' a world has no end"):
        explore(_stopping, send=[])


@pytest.mark.parametrize("option", ["worlds", "workers", "partitions"])
def test_none_at_all_is_refused(option):
    with pytest.raises(ValueError, match=f"{option}=0"):
        explore(pays_without_a_key, outside=Outside, send=[], **{option: 0})


def test_an_unknown_fault_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"\['fire'\].*'crash', 'rebalance'"):
        explore(pays_without_a_key, outside=Outside, send=[], faults=["fire"])


async def _says_nothing(world: World[None]) -> bool:
    return False


def _yields(world: World[None]) -> Iterator[bool]:
    yield False


async def _yields_and_awaits(world: World[None]) -> AsyncIterator[bool]:
    yield False


@pytest.mark.parametrize(
    ("invariant", "given"),
    [
        (_says_nothing, "coroutine"),
        (lambda world: asyncio.sleep(0, result=False), "coroutine"),
        (_yields, "generator"),
        (_yields_and_awaits, "async_generator"),
    ],
)
def test_an_invariant_that_is_never_run_is_refused(invariant, given):
    with pytest.raises(
        ValueError, match=rf"invariant=…\) gives a {given}, which is never run: write a plain function"
    ):
        explore(_counting, send=[NewRecord("orders", 1)], invariant=invariant)


def test_an_iterator_is_what_is_sent_in_every_world():
    explored = explore(_counting, send=(NewRecord("orders", number) for number in range(4)), worlds=3)
    assert explored.sent == 12


def test_what_is_no_record_is_refused():
    with pytest.raises(TypeError, match=r"gives \{'id': 1\}: write NewRecord"):
        explore(_counting, send=[{"id": 1}])


@pytest.mark.parametrize(
    ("send", "why"),
    [
        (
            [NewRecord("orders", "{")],
            "3 records.*orders/./0 is a dead letter, poison: redrive.errors.DecodeError: Expected",
        ),
        ([], "0 records, so nothing was checked: send gives none"),
    ],
)
def test_worlds_in_which_no_handler_ran_fail(send, why):
    with pytest.raises(AssertionError, match=f"no handler ran in any of 3 worlds with {why}"):
        explore(_counting, send=send, worlds=3)


@pytest.mark.parametrize(
    ("app_factory", "told"),
    [(_counting(), "takes a function that makes the app"), (lambda: None, "gave None")],
)
def test_what_makes_no_app_is_refused(app_factory, told):
    with pytest.raises(TypeError, match=told):
        explore(app_factory, send=[NewRecord("orders", 1)])


def test_a_record_for_a_topic_that_is_not_there_is_no_finding():
    with pytest.raises(TopologyError, match="no topic orderz"):
        explore(pays_with_a_key, outside=Outside, send=[NewRecord("orderz", {})])


def test_transactions_fail_only_where_there_are_some():
    options: dict[str, Any] = {"outside": Outside, "send": orders, "worlds": 10}
    plain = explore(pays_with_a_key, **options)
    exact = explore(pays_with_a_key, settings=Settings(delivery="exactly-once", breaker=False), **options)
    assert (plain.faults["transactions"], exact.faults["transactions"] > 0) == (0, True)
