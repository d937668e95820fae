"""How much is kept in memory ahead of the handlers: some seconds of work, and not more megabytes than one can spare."""

import gc
import weakref

import pytest

from redrive.core.lane import Lane
from redrive.core.listener_state import BACKLOG_BYTES, ListenerState
from redrive.core.offsets import OffsetMap
from redrive.core.record import TopicPartition
from redrive.sim.records import SimRecord
from tests.sim.engine_world import World, plan_of

P0 = TopicPartition("orders", 0)
MEGABYTE = 1_000_000


class Sized:
    """As much of a record as is weighed."""

    def __init__(self, size):
        self._size = size

    def __len__(self):
        return self._size

    def key(self):
        return None

    def headers(self):
        return None


class Mortal(SimRecord):
    """A record whose end can be seen."""

    __slots__ = ("__weakref__",)


def listener_of(concurrency=1):
    return ListenerState(0, plan_of(concurrency=concurrency), 1_000)


# -- by memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 1_000, 50_000, MEGABYTE, 8 * MEGABYTE])
def test_what_may_wait_is_bounded_in_bytes_whatever_the_size_of_records(size):
    listener = listener_of()
    listener.weighed([Sized(size)])
    assert listener.backlog * size <= max(BACKLOG_BYTES, 2 * size)
    assert 2 <= listener.backlog <= 2_000


@pytest.mark.parametrize("concurrency", [1, 8, 50])
@pytest.mark.parametrize("size", [1, 1_000, 50_000, MEGABYTE])
def test_what_is_with_the_handlers_is_bounded_in_bytes_too(size, concurrency):
    listener = listener_of(concurrency)
    listener.weighed([Sized(size)])
    listener.measured(0.001, 1)
    assert listener.run_records * size * 8 * concurrency <= max(BACKLOG_BYTES, 8 * concurrency * size)


def test_small_records_make_runs_of_twenty_milliseconds_however_many_handlers_there_are():
    listener = listener_of(100)
    listener.weighed([Sized(200)])
    listener.measured(0.002, 1)
    assert listener.run_records == 10


def test_records_that_became_larger_count_at_once_and_smaller_ones_by_and_by():
    listener = listener_of()
    listener.weighed([Sized(100)] * 10)
    small = listener.backlog
    listener.weighed([Sized(MEGABYTE)])
    assert listener.backlog <= 17
    for _ in range(100):
        listener.weighed([Sized(100)] * 10)
    assert listener.backlog == small


def test_among_many_small_records_some_large_ones_count():
    listener = listener_of()
    listener.weighed([Sized(MEGABYTE if number % 2 else 10) for number in range(40)])
    assert listener.mean_bytes == pytest.approx(MEGABYTE / 2, rel=0.01)


def test_what_came_in_beyond_all_bounds_for_another_listeners_sake_is_told():
    listener = listener_of()
    listener.weighed([Sized(MEGABYTE)])
    listener.queued = 60
    assert not listener.overflows(Lane(P0, listener, None, OffsetMap(0)))
    listener.queued = 70
    assert listener.overflows(Lane(P0, listener, None, OffsetMap(0)))


def test_nothing_of_a_run_is_kept_once_all_runs_of_its_partition_are_home():
    world = World(plan_of(), partitions=1)
    world.assign(P0)
    records = [Mortal("orders", 0, offset, None, b"{}", (), 0) for offset in range(5)]
    alive = [weakref.ref(record) for record in records]
    world.append("orders", 0, 5)  # the truth of them
    world.engine.fetched(P0, records, world.clock.now())
    world._perform()
    world.open_ledgers()
    del records

    world.work(outcomes=["ok"] * 6)
    gc.collect()

    assert world.engine.lanes[P0].last_run is None
    assert [ref() for ref in alive] == [None] * 5


def test_nothing_of_records_that_moved_on_is_kept_once_their_successors_are_confirmed():
    world = World(plan_of("5s"), partitions=1)
    world.assign(P0)
    records = [Mortal("orders", 0, offset, None, b"{}", (), 0) for offset in range(3)]
    alive = [weakref.ref(record) for record in records]
    world.append("orders", 0, 3)
    world.engine.fetched(P0, records, world.clock.now())
    world._perform()
    world.open_ledgers()
    del records

    world.work(outcomes=["transient", "permanent", "ok", "ok"])
    while world.writes:
        world.answer()
    gc.collect()

    assert [ref() for ref in alive] == [None] * 3


# -- by pace ---------------------------------------------------------------------------------------------------------


def test_a_run_lasts_about_twenty_milliseconds():
    listener = listener_of()
    listener.measured(0.002, 1)
    assert listener.run_records == 10
    listener.measured(10, 1)
    assert listener.run_records == 1


def test_slow_handlers_have_some_seconds_of_work_waiting_and_no_more():
    listener = listener_of(concurrency=4)
    listener.measured(1.0, 1)
    assert listener.backlog == 40


def test_handlers_that_became_slower_count_at_once_and_quicker_ones_by_and_by():
    listener = listener_of()
    listener.measured(5.0, 1)
    assert listener.backlog == 2
    for _ in range(60):
        listener.measured(0.0001, 1)
    assert listener.backlog == 2_000
