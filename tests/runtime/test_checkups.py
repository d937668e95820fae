"""Health functions are asked without anyone waiting; what isn't True in time means that all is not well, and is told once."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from redrive.core.commands import Report
from redrive.runtime.checkups import NO_SAY_MS, PATIENCE_MS, Checkups, Ways, health_function, ways_of
from redrive.sim.clock import VirtualClock
from tests.waiting import until


class Asked:
    """One listener's health function, asked as the pump does."""

    def __init__(self, function: Callable[[], Any], ways: Ways) -> None:
        self.clock = VirtualClock()
        self.reports: list[Report] = []
        self.checkups = Checkups(
            {3: ("charge", health_function(function))},
            ways=ways,
            clock=self.clock,
            report=self.reports.append,
        )

    def answer(self) -> bool:
        self.checkups.ask(3)
        ((listener, is_well),) = until(self.checkups.answers, "an answer")
        assert listener == 3
        return is_well

    @property
    def told(self) -> list[str]:
        return [report.fields["why"] for report in self.reports]


@contextmanager
def running_loop() -> Iterator[Ways]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield ways_of(loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def ways() -> Iterator[Ways]:
    with running_loop() as found:
        yield found


def raises() -> bool:
    raise ConnectionError("the bank is away")


def awaited(function: Callable[[], Any]) -> Callable[[], Any]:
    async def health() -> Any:
        await asyncio.sleep(0)
        return function()

    return health


ANSWERS: list[tuple[Callable[[], Any], bool, list[str]]] = [
    (lambda: True, True, []),
    (lambda: False, False, ["it said False"]),
    (lambda: None, False, ["it returned NoneType instead of True or False"]),
    (lambda: 1, False, ["it returned int instead of True or False"]),
    (raises, False, ["ConnectionError"]),
]


@pytest.mark.parametrize(("function", "is_well", "told"), ANSWERS)
@pytest.mark.parametrize("wrap", [lambda plain: plain, awaited], ids=["plain", "coroutine"])
def test_only_true_means_that_all_is_well(
    function: Callable[[], Any], is_well: bool, told: list[str], wrap: Callable[[Any], Any], ways: Ways
) -> None:
    asked = Asked(wrap(function), ways)

    assert (asked.answer(), asked.told) == (is_well, told)


def test_a_plain_function_that_returns_a_coroutine_is_told_so(ways: Ways) -> None:
    def is_up() -> object:
        return awaited(lambda: True)()

    asked = Asked(is_up, ways)

    assert not asked.answer()
    assert asked.told == ["it returned a coroutine that nobody awaits; declare it with `async def`"]


def test_what_is_wrong_is_told_once_until_all_is_well_again(ways: Ways) -> None:
    answers = iter([False, False, True, False])
    asked = Asked(lambda: next(answers), ways)

    assert [asked.answer() for _ in range(4)] == [False, False, True, False]
    assert asked.told == ["it said False", "it said False"]


def test_nobody_waits_for_a_function_that_hangs_and_after_five_minutes_it_has_no_say(ways: Ways) -> None:
    may_end, calls = threading.Event(), list[int]()

    def hangs() -> bool:
        calls.append(1)
        return may_end.wait(30)

    asked = Asked(hangs, ways)
    asked.checkups.ask(3)
    assert asked.checkups.answers() == []
    asked.clock.advance(PATIENCE_MS)
    assert asked.checkups.answers() == [(3, False)]
    asked.checkups.ask(3)
    asked.clock.advance(PATIENCE_MS)
    assert asked.checkups.answers() == [(3, False)]
    assert (asked.told, calls) == (["no answer within 10 s"], [1])
    asked.checkups.ask(3)
    asked.clock.advance(NO_SAY_MS)
    assert asked.checkups.answers() == [(3, True)]
    may_end.set()
    until(asked.answer, "an answer of the function that has ended")


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one() -> None:
    started: list[Callable[[], None]] = []
    asked = Asked(lambda: True, Ways(started.append, started.append))
    asked.checkups.ask(3)
    asked.clock.advance(PATIENCE_MS)
    assert asked.checkups.answers() == [(3, False)]
    started[0]()
    asked.checkups.ask(3)
    assert asked.checkups.answers() == []
    started[1]()
    assert asked.checkups.answers() == [(3, True)]


def takes_one(record: object) -> bool:
    return bool(record)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (True, "can't be called"),
        (dict, "is a class"),
        (takes_one, "must be callable without arguments"),
    ],
)
def test_what_can_not_be_asked_is_refused(given: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        health_function(given)
