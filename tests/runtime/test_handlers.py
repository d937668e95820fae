"""Whatever a handler, a decoder or a signal raises, in whichever way: the record fails, the next one runs, nothing else ends."""

import asyncio
import sys
import threading
from typing import Any

import msgspec
import pytest

from redrive import DeadLetterNow, Record, RetryLater, RetryPolicy, Skip
from redrive.core.breaker import ENOUGH_IN_A_ROW
from redrive.core.commands import Run
from redrive.core.failure import Kind
from redrive.core.lane import Lane
from redrive.core.listener_state import ListenerState
from redrive.core.offsets import OffsetMap
from redrive.core.record import TopicPartition
from redrive.errors import DecodeError
from redrive.runtime.handlers import Invoker
from redrive.sim.clock import VirtualClock
from redrive.sim.records import SimRecord
from tests.runtime.at_work import app_of
from tests.sim.engine_world import plan_of

SHAPES = [
    "value",
    "value and record",
    "on a tier",
    "awaited",
    "awaited with the record",
    "awaited within a limit",
]


def _raises(*_: object) -> Any:
    raise RuntimeError("asked the exception's own code")


def _ends(*_: object) -> Any:
    raise SystemExit("asked the exception's own code")


class Mute(Exception):
    """Can't be told in words, and ends the process when asked."""

    __str__ = __repr__ = _ends


class Liar(Exception):
    """Won't say what it is."""

    __class__ = property(_raises)  # type: ignore[assignment]


class Trap(Exception):
    """Nothing of it can be looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise KeyboardInterrupt(name)


class MuteDecodeError(DecodeError):
    __str__ = __repr__ = _ends


class MuteUnicodeError(UnicodeDecodeError):
    __str__ = _ends
    start = property(_raises)  # type: ignore[assignment]


class MuteMsgspecError(msgspec.ValidationError):
    __str__ = _ends


class LyingSignal(DeadLetterNow):
    __class__ = property(_raises)  # type: ignore[assignment]


RAISED = {
    "SystemExit": lambda: SystemExit(1),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "StopIteration": StopIteration,
    "mute": Mute,
    "a liar": Liar,
    "a trap": Trap,
    "a mute DecodeError": lambda: MuteDecodeError("no"),
    "a mute UnicodeDecodeError": lambda: MuteUnicodeError("utf-8", b"x", 0, 1, "no"),
    "a mute ValidationError": lambda: MuteMsgspecError("no"),
    "a group of the worst": lambda: BaseExceptionGroup("g", [SystemExit(1), Mute(), Trap()]),
}


class Order(msgspec.Struct):
    """Its check raises what a test wants for a number."""

    number: int
    raises: "dict[int, Any] | None" = None

    def __post_init__(self) -> None:
        if self.number in CHECKS:
            error = CHECKS[self.number]()
            raise error


CHECKS: dict[int, Any] = {}


@pytest.fixture
def checks():
    yield CHECKS
    CHECKS.clear()


def handled_as(shape, act, count, *, run=None, **options):
    """The numbers of the records for which `act` returned, and their run (by default a new one) with its result."""
    done = []

    def value_only(order: Order) -> None:
        act(order.number)
        done.append(order.number)

    def with_record(order: Order, record: Record) -> None:
        value_only(order)

    async def awaited(order: Order) -> None:
        value_only(order)

    async def awaited_with_record(order: Order, record: Record) -> None:
        value_only(order)

    handlers = {
        "value and record": with_record,
        "awaited": awaited,
        "awaited with the record": awaited_with_record,
    }
    if "limit" in shape:
        handlers[shape], options = awaited, {**options, "time_limit": "1m"}
    app = app_of(handlers.get(shape, value_only), **options)
    run = run or run_of(count, of_tier=shape == "on a tier")
    invoker = Invoker(app.resolve().listeners[0], VirtualClock(), threading.Event())
    try:
        result = asyncio.run(invoker.run_async(run)) if "awaited" in shape else invoker.run(run)
    except BaseException as error:
        escaped = type(error).__name__
    else:
        return done, run, result
    pytest.fail(f"{escaped} would have ended the process")


def run_of(count, *, of_tier=False, headers=(), first=0, breaker=True):
    listener = ListenerState(0, plan_of(breaker=breaker), 2_000)
    lane = Lane(TopicPartition("orders", 0), listener, None, OffsetMap(0))
    records = [
        SimRecord("orders", 0, offset, None, b'{"number": %d}' % offset, headers, 0)
        for offset in range(first, first + count)
    ]
    run = Run(lane, 0, records, first + count, 1_000)
    if of_tier:
        run.wakes_ms = [0] * count
    return run


def nothing(_):
    return None


# -- decoding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_record_whose_check_raises_is_poison_and_the_next_one_runs(shape, raised, checks):
    checks[1] = RAISED[raised]
    done, run, result = handled_as(shape, nothing, 4)

    assert (done, result.done, result.halt) == ([0, 2, 3], 4, "")
    assert [(failed.record.offset(), failed.failure.kind) for failed in run.failures] == [(1, Kind.POISON)]
    assert isinstance(run.failures[0].failure.message, str)


# -- handlers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raised", RAISED)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_record_whose_handler_raises_has_failed_and_the_next_one_runs(shape, raised):
    def act(number):
        if number == 1:
            error = RAISED[raised]()
            raise error

    done, run, result = handled_as(shape, act, 4)

    assert (done, result.done, result.halt) == ([0, 2, 3], 4, "")
    assert [(failed.record.offset(), failed.signal) for failed in run.failures] == [(1, "")]


def _fails_unless(*good):
    def act(number):
        if number not in good:
            raise ConnectionError

    return act


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_ends_with_the_failure_that_makes_twenty_in_a_row_so_that_the_breaker_hears_of_them(shape):
    _, run, result = handled_as(shape, _fails_unless(), 1_000)

    assert (result.done, result.halt, len(run.failures)) == (ENOUGH_IN_A_ROW, "row", ENOUGH_IN_A_ROW)
    assert run.gate.is_shut
    assert run.row(result.done) == ENOUGH_IN_A_ROW


@pytest.mark.parametrize("shape", SHAPES)
def test_a_success_in_between_begins_the_row_anew(shape):
    _, run, result = handled_as(shape, _fails_unless(18, 36), 54)

    assert (result.done, result.halt, len(run.failures)) == (54, "", 52)
    assert run.row(54) == 17


def test_a_run_after_twenty_in_a_row_tells_its_first_failure_and_one_that_succeeds_ends_that():
    app = app_of(failing_below(70))
    invoker = Invoker(app.resolve().listeners[0], VirtualClock(), threading.Event())
    assert [invoker.run(run_of(60)).done for _ in range(3)] == [ENOUGH_IN_A_ROW, 1, 1]
    assert invoker.run(run_of(10, first=70)).halt == ""
    assert invoker.run(run_of(60)).done == ENOUGH_IN_A_ROW


def failing_below(first_good):
    def handle(order: Order) -> None:
        if order.number < first_good:
            raise ConnectionError

    return handle


def test_without_a_breaker_a_run_goes_on_however_many_fail():
    _, run, result = handled_as("value", _fails_unless(), 200, run=run_of(200, breaker=False))
    assert (result.done, result.halt, len(run.failures)) == (200, "", 200)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_handler_that_raises_cancelled_error_by_itself_has_failed_transiently(shape):
    def act(number):
        raise asyncio.CancelledError

    _, run, result = handled_as(shape, act, 3, retry=RetryPolicy("5s"))
    assert (result.done, [failed.failure.kind for failed in run.failures]) == (3, [Kind.TRANSIENT] * 3)


# -- signals ---------------------------------------------------------------------------------------------------------


class Wordless:
    """No text, and no way to make one of it."""

    __str__ = __repr__ = __format__ = _ends
    __class__ = property(_raises)  # type: ignore[assignment]


SIGNALS = {
    "skip": Skip,
    "dead-letter": DeadLetterNow,
    "retry-later": lambda reason: RetryLater("7m", reason),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("is_grouped", [False, True])
@pytest.mark.parametrize("signal", SIGNALS)
def test_a_signal_whose_reason_has_no_words_is_done_all_the_same(shape, signal, is_grouped):
    def act(number):
        if number == 1:
            raised = SIGNALS[signal](Wordless())
            raise ExceptionGroup("of a task group", [raised]) if is_grouped else raised

    done, run, result = handled_as(shape, act, 3, retry=RetryPolicy("5s"))

    assert (done, result.done) == ([0, 2], 3)
    assert [failed.signal for failed in run.failures] == [signal]
    assert run.failures[0].failure.retry_after_ms == (420_000 if signal == "retry-later" else None)


@pytest.mark.parametrize("after", ["soon", "-5s", "", "1e9d"])
def test_a_wait_that_cannot_be_read_leaves_it_to_the_ladder(after):
    def act(number):
        raise RetryLater(after, Wordless())

    _, run, _ = handled_as("value", act, 1, retry=RetryPolicy("5s"))
    (failed,) = run.failures
    assert (failed.signal, failed.failure.kind, failed.failure.retry_after_ms) == (
        "retry-later",
        Kind.TRANSIENT,
        None,
    )


def test_a_signal_that_will_not_say_what_it_is_is_done_by_its_type():
    def act(number):
        raise LyingSignal("no")

    _, run, result = handled_as("value", act, 2)
    assert (result.done, [failed.signal for failed in run.failures]) == (2, ["dead-letter"] * 2)


def test_what_a_signal_says_goes_along():
    def act(number):
        raise DeadLetterNow("the card was stolen")

    _, run, _ = handled_as("value", act, 1)
    assert (run.failures[0].failure.message, run.failures[0].failure.rule) == (
        "the card was stolen",
        "redrive.errors.DeadLetterNow",
    )


# -- runs that are cut -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_that_is_cut_ends_after_the_record_it_is_at_and_tells_how_far_it_came(shape, at):
    run = run_of(4, of_tier=shape == "on a tier")

    def act(number):
        if number == at:
            run.cut()

    done, _, result = handled_as(shape, act, 4, run=run)

    assert (done, result.done, result.halt) == (list(range(at + 1)), at + 1, "cut")
    assert (len(run.records), run.taken()) == (4, 0)


class GateThatCuts:
    """Has its run cut in the very moment in which the worker has seen that it is open."""

    def __init__(self, run):
        self._run = run
        self._is_shut = False

    @property
    def is_shut(self):
        was_shut = self._is_shut
        if not was_shut:
            self._run.cut()
        return was_shut

    @is_shut.setter
    def is_shut(self, value):
        self._is_shut = value


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_that_is_cut_while_its_worker_begins_runs_nothing(shape):
    run = run_of(4, of_tier=shape == "on a tier")
    run.gate = GateThatCuts(run)

    done, _, result = handled_as(shape, nothing, 4, run=run)

    assert (done, result.done, result.halt) == ([], 0, "cut")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_that_was_cut_before_it_began_runs_nothing(shape):
    run = run_of(4, of_tier=shape == "on a tier")
    run.cut()

    done, _, result = handled_as(shape, nothing, 4, run=run)

    assert (done, result.done, result.halt) == ([], 0, "cut")


def _noting(done, *, is_awaited):
    def note(order: Order) -> None:
        done.append(order.number)

    async def note_awaited(order: Order) -> None:
        done.append(order.number)

    return app_of(note_awaited if is_awaited else note).resolve().listeners[0]


def _raced(looks, *, is_awaited):
    """A run that a worker has while this thread looks into it so often and then cuts it; what ran, and the result."""
    run, done, results = run_of(200), [], []
    invoker = Invoker(_noting(done, is_awaited=is_awaited), VirtualClock(), threading.Event())

    def work():
        results.append(asyncio.run(invoker.run_async(run)) if is_awaited else invoker.run(run))

    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(looks):
        records, taken = run.records, run.taken()
        assert taken - 1 <= len(done)
        assert len(records) in {0, 200}
    run.cut()
    worker.join()
    return run, done, results[0]


@pytest.fixture
def hasty_threads():
    """Threads take turns at nearly every instruction."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("hasty_threads")
@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_run_that_another_thread_looks_into_and_cuts_at_any_moment_tells_what_ran(is_awaited):
    for looks in range(0, 400, 2):
        run, done, result = _raced(looks, is_awaited=is_awaited)

        assert done == list(range(result.done))
        assert (result.halt, len(run.records)) in {("cut", 200), ("", 0)}
        assert result.halt == "cut" or result.done == 200


# -- what headers say --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_a_header_that_cannot_be_read_counts_once_for_each_run_of_a_record_that_fails(shape):
    run = run_of(3, of_tier=True, headers=(("redrive-attempt", b"many"), ("redrive-source-topic", b"orders")))

    def act(number):
        raise TimeoutError

    handled_as(shape, act, 3, run=run)

    assert run.unreadable == 3
