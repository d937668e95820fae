"""Whatever a handler raises, in whatever way: the record becomes one dead letter, and the next record runs."""

import asyncio
import threading

import pytest

from redrive import App, RetryPolicy
from tests.faults import running
from tests.plain_kafka import Given, create_topics_of, is_all_committed, read_all, send, unique
from tests.waiting import until


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("it holds a lock")
        self.lock = threading.Lock()


class Unspeakable(Exception):
    """Says nothing about itself, and raises what would end the process when asked."""

    def __str__(self) -> str:
        raise SystemExit("str")

    __repr__ = __str__

    def __getattribute__(self, name: str) -> object:
        raise KeyboardInterrupt(name)


def _raise_cyclic() -> None:
    first, second = OSError("first"), OSError("second")
    first.__cause__, second.__cause__ = second, first
    first.__context__, second.__context__ = second, first
    raise first


def _recurse() -> None:
    _recurse()


def _raise_group_of_itself() -> None:
    inner: list[Exception] = [ValueError("a"), ConnectionError("b")]
    for _ in range(50):
        inner = [ExceptionGroup("deep", inner)]
    raise ExceptionGroup("outer", inner)


def _raising(error: BaseException | type[BaseException]):
    def act() -> None:
        raise error

    return act


#: What a record with this value makes the handler do, and the reason of its dead letter.
ODD = {
    b"SystemExit": (_raising(SystemExit(0)), "exhausted"),
    b"KeyboardInterrupt": (_raising(KeyboardInterrupt), "exhausted"),
    b"CancelledError": (_raising(asyncio.CancelledError), "exhausted"),
    b"GeneratorExit": (_raising(GeneratorExit), "exhausted"),
    b"StopIteration": (_raising(StopIteration), "permanent"),
    b"MemoryError": (_raising(MemoryError), "exhausted"),
    b"unpicklable": (_raising(Unpicklable()), "exhausted"),
    b"unspeakable": (_raising(Unspeakable()), "exhausted"),
    b"cyclic": (_raise_cyclic, "exhausted"),
    b"endless recursion": (_recurse, "permanent"),
    b"a group": (_raising(ExceptionGroup("g", [TypeError("a"), ConnectionError("b")])), "exhausted"),
    b"a permanent group": (_raising(ExceptionGroup("g", [TypeError("a"), KeyError("b")])), "permanent"),
    b"a base group": (_raising(BaseExceptionGroup("g", [KeyboardInterrupt(), TypeError("b")])), "exhausted"),
    b"a deep group": (_raise_group_of_itself, "exhausted"),
    b"lone surrogates": (_raising(ValueError("\ud800\udfff\x00\x1b[31m")), "permanent"),
    b"ten megabytes": (_raising(ValueError("x" * 10_000_000)), "permanent"),
}


async def _cancel_oneself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


async def _cancel_oneself_and_return() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def _fail_in_a_task_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(60))
        group.create_task(_fail())


async def _fail() -> None:
    raise LookupError("in a task")


async def _take_too_long() -> None:
    async with asyncio.timeout(0.01):
        await asyncio.sleep(60)


async def _exceed_the_limit() -> None:
    await asyncio.sleep(60)


#: The same for coroutines only. An empty reason: handled.
ODD_AWAITED = {
    b"cancels itself": (_cancel_oneself, "exhausted"),
    b"cancels itself and returns": (_cancel_oneself_and_return, ""),
    b"a task group": (_fail_in_a_task_group, "permanent"),
    b"a timeout": (_take_too_long, "exhausted"),
    b"beyond time_limit": (_exceed_the_limit, "exhausted"),
}


@pytest.fixture(scope="module")
def outcome(kafka):
    """Dead letters by value, and what was handled, by kind of handler."""
    app = App(unique("odd"), settings={"bootstrap_servers": kafka.bootstrap, "brake": False})
    sources = {"function": unique("functions"), "coroutine": unique("coroutines")}
    handled: dict[str, list[bytes]] = {"function": [], "coroutine": []}

    @app.listener(sources["function"], retry=RetryPolicy())
    def function(value: bytes) -> None:
        if value in ODD:
            ODD[value][0]()
        handled["function"].append(value)

    @app.listener(sources["coroutine"], retry=RetryPolicy(), time_limit="300ms")
    async def coroutine(value: bytes) -> None:
        if value in ODD_AWAITED:
            await ODD_AWAITED[value][0]()
        elif value in ODD:
            ODD[value][0]()
        handled["coroutine"].append(value)

    create_topics_of(kafka.bootstrap, app)
    for source in sources.values():
        send(
            kafka.bootstrap,
            source,
            [Given(one) for odd in (*ODD, *ODD_AWAITED) for one in (odd, b"behind " + odd)],
        )
    with running(app):
        until(lambda: is_all_committed(kafka.bootstrap, app.group, [*sources.values()]), "all committed")
    return handled, {
        name: {
            seen.value: [each.own["reason"] for each in letters if each.value == seen.value]
            for seen in letters
        }
        for name, source in sources.items()
        for letters in [read_all(kafka.bootstrap, f"{source}.dlq")]
    }


@pytest.mark.parametrize("handler", ["function", "coroutine"])
@pytest.mark.parametrize("odd", ODD, ids=lambda value: value.decode())
def test_each_is_one_dead_letter(outcome, handler, odd):
    _, letters = outcome

    assert letters[handler].get(odd) == [ODD[odd][1]]


@pytest.mark.parametrize("odd", ODD_AWAITED, ids=lambda value: value.decode())
def test_so_is_what_only_a_coroutine_can_do(outcome, odd):
    handled, letters = outcome
    reason = ODD_AWAITED[odd][1]

    assert letters["coroutine"].get(odd, []) == ([reason] if reason else [])
    assert (odd in handled["coroutine"]) == (not reason)


def test_the_records_behind_them_are_handled_once_each_in_their_order(outcome):
    handled, _ = outcome
    behind = [b"behind " + odd for odd in (*ODD, *ODD_AWAITED)]

    assert [[one for one in handled[name] if one.startswith(b"behind")] for name in handled] == [
        behind,
        behind,
    ]
