"""Slots outlive whatever their handlers do to the task they run in, and end in bounded time when they are closed."""

import asyncio
import threading

import pytest

from redrive import RetryPolicy
from redrive.core.commands import Run
from redrive.core.failure import Kind
from redrive.core.lane import Lane
from redrive.core.listener_state import ListenerState
from redrive.core.offsets import OffsetMap
from redrive.core.policy import Backoff
from redrive.core.record import TopicPartition
from redrive.runtime.clock import SystemClock
from redrive.runtime.executors import Executors
from redrive.runtime.handlers import Invoker
from redrive.sim.records import SimRecord
from tests.runtime.at_work import app_of
from tests.sim.engine_world import plan_of
from tests.waiting import until

pytestmark = pytest.mark.realtime
CLOSE_S = 0.2


@pytest.fixture
def loop():
    """An event loop at work in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


@pytest.fixture
def slot_of(loop):
    """Makes slots, whose coroutine handlers run on the loop, and closes them in the end."""
    slots = []

    def make(handle, **options):
        slots.append(Slot(handle, loop, **options))
        return slots[-1]

    yield make
    for slot in slots:
        slot.executors.close(CLOSE_S)


class Slot:
    """One slot of a listener. `handle` is called with whole numbers."""

    def __init__(self, handle, loop, **options):
        options.setdefault("retry", RetryPolicy("5s"))
        self.done = []
        self._invoker = Invoker(
            app_of(self._noted(handle), **options).resolve().listeners[0], SystemClock(), threading.Event()
        )
        self.executors = Executors([self._invoker], loop)
        self._lane = Lane(TopicPartition("orders", 0), ListenerState(0, plan_of(), 2_000), None, OffsetMap(0))

    def _noted(self, handle):
        async def awaited(number: int) -> None:
            await handle(number)
            self.done.append(number)

        def called(number: int) -> None:
            handle(number)
            self.done.append(number)

        return awaited if asyncio.iscoroutinefunction(handle) else called

    def submit(self, *numbers):
        records = [SimRecord("orders", 0, number, None, b"%d" % number, (), 0) for number in numbers]
        self.executors.submit(Run(self._lane, 0, records, numbers[-1] + 1, 1_000))

    def submit_what_is_no_run(self):
        """As a bug of ours would."""
        run = Run(self._lane, 0, [], 0, 1)
        run.records = None
        self.executors.submit(run)

    def result(self):
        (result,) = until(lambda: self.executors.results(0.05), "a result", within_s=5)
        return result

    def run(self, *numbers):
        """Let it handle these in one run. Gives the numbers and kinds of what failed."""
        self.submit(*numbers)
        result = self.result()
        assert (result.done, result.halt) == (len(numbers), "")
        return [(failed.record.offset(), failed.failure.kind) for failed in result.run.failures]


def cancel_oneself():
    asyncio.current_task().cancel()


# -- handlers that cancel their own task -----------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{}, {"time_limit": "1m"}])
def test_a_handler_that_cancels_its_own_task_and_waits_has_failed_and_its_slot_lives_on(slot_of, limit):
    async def handle(number):
        if number % 2:
            cancel_oneself()
            await asyncio.sleep(0)

    slot = slot_of(handle, **limit)

    assert slot.run(0, 1, 2, 3) == [(1, Kind.TRANSIENT), (3, Kind.TRANSIENT)]
    assert slot.run(4, 5) == [(5, Kind.TRANSIENT)]
    assert slot.run(6) == []
    assert slot.done == [0, 2, 4, 6]
    assert slot.executors.close(CLOSE_S)


@pytest.mark.parametrize("limit", [{}, {"time_limit": "1m"}])
def test_a_handler_that_cancels_its_own_task_and_returns_was_handled_and_its_slot_lives_on(slot_of, limit):
    async def handle(number):
        cancel_oneself()

    slot = slot_of(handle, **limit)
    for number in range(20):
        assert slot.run(number) == []
    assert slot.done == list(range(20))
    assert slot.executors.close(CLOSE_S)


def test_each_record_of_a_run_is_counted_once_though_a_cancellation_meets_the_one_behind_it(slot_of):
    async def handle(number):
        if number == 1:
            cancel_oneself()
        else:
            await asyncio.sleep(0)

    slot = slot_of(handle)
    failed = slot.run(*range(4))
    assert sorted([*slot.done, *(number for number, _ in failed)]) == [0, 1, 2, 3]
    assert len(failed) <= 1
    assert slot.run(4) == []


def test_a_timeout_made_at_home_that_fires_late_meets_no_more_than_one_record(slot_of):
    async def handle(number):
        if number == 0:
            asyncio.get_running_loop().call_later(0.02, asyncio.current_task().cancel)
        else:
            await asyncio.sleep(0.01)

    slot = slot_of(handle)
    assert len(slot.run(*range(8))) == 1
    assert slot.run(8, 9) == []


def test_a_cancellation_between_two_runs_does_not_end_the_slot(loop, slot_of):
    tasks = []

    async def handle(number):
        tasks.append(asyncio.current_task())

    slot = slot_of(handle)
    slot.run(0)
    loop.call_soon_threadsafe(tasks[0].cancel)

    assert slot.run(1) == []
    assert slot.executors.close(CLOSE_S)


def test_a_timer_of_a_handler_that_fires_when_it_has_failed_long_ago_does_not_end_the_slot(slot_of):
    async def handle(number):
        asyncio.get_running_loop().call_later(0.005, asyncio.current_task().cancel)
        raise TimeoutError

    slot = slot_of(handle, retry=RetryPolicy("5s"))
    assert slot.run(7) == [(7, Kind.TRANSIENT)]
    assert slot.run(8) == [(8, Kind.TRANSIENT)]


def test_a_handler_that_raises_cancelled_error_by_itself_has_failed(slot_of):
    async def handle(number):
        raise asyncio.CancelledError

    slot = slot_of(handle, retry=RetryPolicy("5s"))
    assert slot.run(7) == [(7, Kind.TRANSIENT)]
    assert slot.run(8) == [(8, Kind.TRANSIENT)]


def test_a_handler_that_cancels_itself_has_failed(slot_of):
    async def handle(number):
        cancel_oneself()
        await asyncio.sleep(0)

    slot = slot_of(handle, retry=RetryPolicy("5s"))
    assert slot.run(7) == [(7, Kind.TRANSIENT)]
    assert slot.run(8) == [(8, Kind.TRANSIENT)]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_record_to_be_tried_again_in_place_is_handed_back_with_those_behind_it(slot_of, is_async):
    def handle(number):
        if number == 7:
            raise TimeoutError

    async def handle_awaited(number):
        handle(number)

    slot = slot_of(
        handle_awaited if is_async else handle, retry=RetryPolicy("5s", immediate=Backoff(2, "1s"))
    )
    slot.submit(1, 7, 2)
    result = slot.result()
    assert (result.done, result.halt, result.run.failures) == (1, "again", [])
    assert (result.run.again.failed.attempt, result.run.again.wait_ms) == (1, 1_000)


def test_what_waits_by_timeouts_of_its_own_is_left_alone(slot_of):
    async def handle(number):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.005)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.005):
                await asyncio.Event().wait()

    slot = slot_of(handle, time_limit="1m")
    assert slot.run(0, 1) == []


# -- the end ---------------------------------------------------------------------------------------------------------


class Stuck:
    """A coroutine handler that waits for what never comes. `ended`: how it was ended."""

    def __init__(self, *, endures=0):
        self.begun, self.ended = threading.Event(), []
        self._endures = endures

    async def __call__(self, number: int) -> None:
        self.begun.set()
        for _ in range(self._endures + 1):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as error:
                self.ended.append(error)
        raise asyncio.CancelledError

    async def handle(self, number: int) -> None:
        await self(number)


def test_closing_cancels_a_handler_that_does_not_end(slot_of):
    stuck = Stuck()
    slot = slot_of(stuck.handle)
    slot.submit(1)
    stuck.begun.wait(5)

    assert not slot.executors.close(CLOSE_S)

    until(lambda: stuck.ended, "the handler's end")
    assert slot.executors.results(0.1) == []


def test_closing_ends_in_bounded_time_though_the_handler_refuses_to_be_cancelled(slot_of):
    stuck = Stuck(endures=1)
    slot = slot_of(stuck.handle)
    slot.submit(1)
    stuck.begun.wait(5)
    assert not slot.executors.close(CLOSE_S)


def test_closing_waits_for_a_slot_whose_task_has_not_begun_yet(loop, slot_of):
    stuck, release = Stuck(), threading.Event()
    slot = slot_of(stuck.handle)
    loop.call_soon_threadsafe(release.wait, 5)  # somebody blocks the loop
    slot.submit(1)
    threading.Timer(0.05, release.set).start()

    assert not slot.executors.close(CLOSE_S)

    until(lambda: stuck.ended, "the handler's end")


def test_closing_while_a_handler_blocks_the_loop_ends_in_bounded_time(slot_of):
    release, begun = threading.Event(), threading.Event()

    async def handle(number):
        begun.set()
        release.wait(5)

    slot = slot_of(handle)
    slot.submit(1)
    begun.wait(5)
    assert not slot.executors.close(CLOSE_S)
    release.set()


def test_closing_after_the_loop_was_closed_does_nothing(loop, slot_of):
    async def handle(number):
        pass

    slot = slot_of(handle)
    slot.run(1)
    slot.executors.close(CLOSE_S)
    loop.call_soon_threadsafe(loop.stop)
    until(lambda: not loop.is_running(), "the loop's end")
    loop.close()

    assert slot.executors.close(CLOSE_S)
    slot.submit(2)
    assert slot.executors.results(0.01) == []


def test_closing_idle_slots_waits_for_nothing(slot_of):
    async def handle(number):
        pass

    slot = slot_of(handle)
    slot.run(1)
    assert slot.executors.close(30)


def test_closing_leaves_a_thread_that_does_not_end_behind(slot_of):
    release, begun = threading.Event(), threading.Event()

    def handle(number):
        begun.set()
        release.wait(5)

    slot = slot_of(handle)
    slot.submit(1)
    begun.wait(5)
    assert not slot.executors.close(CLOSE_S)
    release.set()
    assert slot.executors.close(5)


@pytest.mark.parametrize("is_async", [False, True])
def test_what_breaks_outside_of_handlers_is_told_and_not_swallowed(slot_of, is_async):
    async def awaited(number):
        pass

    def called(number):
        pass

    slot = slot_of(awaited) if is_async else slot_of(called)
    slot.submit_what_is_no_run()
    with pytest.raises(TypeError):
        until(lambda: slot.executors.results(0.05), "the error", within_s=5)
