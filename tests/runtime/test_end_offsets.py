"""End offsets are asked rarely, in the background, and forgotten rather than told wrong."""

import threading

from redrive.core.readings import Bounds
from redrive.core.record import TopicPartition
from redrive.runtime.clock import SystemClock
from redrive.runtime.end_offsets import FORGET_MS, LOOK_MS, REFRESH_MS, EndOffsets
from tests.sim.engine_world import World, plan_of

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Counting:
    """A cluster that counts the questions about end offsets."""

    def __init__(self, cluster):
        self._cluster = cluster
        self.asked = 0
        self.has_asked = threading.Event()

    def offsets(self, keys, which):
        self.asked += which == "latest"
        self.has_asked.set()
        return self._cluster.offsets(keys, which)


def looking(world):
    cluster = Counting(world.cluster.admin())
    return EndOffsets(lambda: [world.engine], cluster, world.clock), cluster


def test_nothing_is_asked_while_nothing_is_assigned():
    world = World(plan_of())
    ends, cluster = looking(world)
    ends.look()
    assert (ends.bounds, cluster.asked) == ({}, 0)


def test_new_partitions_are_asked_for_at_the_next_look():
    world = World(plan_of())
    world.append("orders", count=3)
    ends, cluster = looking(world)
    world.assign(P0)
    ends.look()
    assert ends.bounds == {P0: Bounds(0, 3)}
    world.assign(P1)
    ends.look()
    assert (ends.bounds, cluster.asked) == ({P0: Bounds(0, 3), P1: Bounds(0, 0)}, 2)


def test_known_ones_are_asked_again_after_half_a_minute():
    world = World(plan_of())
    world.assign(P0)
    ends, cluster = looking(world)
    ends.look()
    world.append("orders", count=2)
    world.clock.advance(REFRESH_MS - 1)
    ends.look()
    assert (ends.bounds, cluster.asked) == ({P0: Bounds(0, 0)}, 1)
    world.clock.advance(1)
    ends.look()
    assert (ends.bounds, cluster.asked) == ({P0: Bounds(0, 2)}, 2)


def test_where_a_partition_begins_is_asked_only_until_its_first_record_came():
    world = World(plan_of())
    world.append("orders", count=9)
    world.cluster.partition(P0).delete_before(4)
    world.assign(P0)
    ends, _ = looking(world)
    ends.look()
    assert ends.bounds == {P0: Bounds(4, 9)}
    world.fetch(P0)
    world.clock.advance(REFRESH_MS)
    ends.look()
    assert ends.bounds == {P0: Bounds(0, 9)}


def test_a_partition_that_does_not_exist_is_not_asked_for_each_second():
    world = World(plan_of())
    world.assign(P0)
    world.cluster.delete_topic("orders")
    ends, cluster = looking(world)
    ends.look()
    ends.look()
    assert (ends.bounds, cluster.asked) == ({}, 1)


def test_partitions_that_went_away_are_forgotten_with_the_next_answer():
    world = World(plan_of())
    world.assign(P0, P1)
    ends, _ = looking(world)
    ends.look()
    world.let_go(P1, last_commit="none")
    world.clock.advance(REFRESH_MS)
    ends.look()
    assert set(ends.bounds) == {P0}


def test_without_a_broker_old_ends_are_kept_for_a_while_and_then_forgotten():
    world = World(plan_of())
    world.assign(P0)
    ends, _ = looking(world)
    ends.look()
    world.cluster.is_down = True
    world.clock.advance(FORGET_MS)
    ends.look()
    assert set(ends.bounds) == {P0}
    world.clock.advance(1)
    ends.look()
    assert ends.bounds == {}


def test_its_thread_looks_by_itself_and_ends_when_it_is_closed():
    world = World(plan_of())
    world.assign(P0)
    cluster = Counting(world.cluster.admin())
    ends = EndOffsets(lambda: [world.engine], cluster, SystemClock())
    ends.start()
    assert cluster.has_asked.wait(10)
    ends.close()
    thread = next((one for one in threading.enumerate() if one.name == "redrive-end-offsets"), None)
    if thread is not None:
        thread.join(10 * LOOK_MS / 1000)
    assert ends.bounds == {}
