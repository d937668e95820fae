"""A process is live while its pump moves, and ready while it can take part; what its records do changes neither."""

import msgspec

from redrive.core.commands import Refusal
from redrive.core.health import LIVE_MS, Health, Signs, judge
from redrive.core.record import TopicPartition
from tests.sim.engine_world import World, plan_of

P0, T0 = TopicPartition("orders", 0), TopicPartition("orders.retry.5s", 0)


def healthy(**changes):
    return msgspec.structs.replace(
        Signs(now_mono_ms=100_000, stepped_mono_ms=99_990, has_joined=True), **changes
    )


def judged(world=None, **changes):
    return judge((world or World(plan_of("5s"))).engine, healthy(**changes))


def test_a_process_that_joined_without_getting_partitions_is_live_and_ready():
    health = judged()
    assert (health.is_live, health.is_ready, health.why) == (True, True, ())


def test_a_process_that_has_not_joined_is_live_and_not_ready():
    health = judged(has_joined=False)
    assert (health.is_live, health.is_ready, health.why) == (
        True,
        False,
        ("it has not joined its group yet",),
    )


def test_a_process_that_ends_takes_part_no_more():
    assert judged(is_stopping=True).why == ("it is shutting down",)


def test_a_process_that_cannot_write_is_not_ready():
    health = judged(producer_problem="fenced")
    assert (health.is_live, health.is_ready, health.why) == (True, False, ("it can't write: fenced",))


def test_a_pump_that_stands_still_is_given_a_minute():
    assert judged(stepped_mono_ms=100_000 - LIVE_MS + 1).is_live
    health = judged(stepped_mono_ms=100_000 - LIVE_MS)
    assert (health.is_live, health.is_ready) == (False, False)
    assert health.why == ("the pump has not moved for 60 s",)


def test_a_brake_leaves_a_process_ready_so_that_the_mended_version_gets_through():
    world = World(plan_of())
    world.assign(P0)
    world.append("orders", count=100)
    world.fetch(P0)
    for _ in range(150):
        world.work(outcomes=["permanent"])
    health = judged(world)
    assert health.listeners[0].brake_on
    assert health.is_ready


def test_an_outage_leaves_a_process_ready():
    world = World(plan_of())
    world.assign(P0)
    world.append("orders")
    world.fetch(P0)
    world.work(outcomes=["outage"])
    health = judged(world)
    assert (health.listeners[0].breaker, health.listeners[0].held_in_outage) == ("open", 1)
    assert health.is_ready


def test_what_waits_is_told_and_leaves_a_process_ready():
    world = World(plan_of("5s"))
    world.assign(P0, T0)
    world.append("orders.retry.5s", count=3)
    world.append("orders", count=2)
    world.fetch(T0)
    world.fetch(P0)
    world.work(outcomes=["permanent", "permanent", "ok"])
    world.answer(0, Refusal("unavailable", "no"), written=False)
    listener = judged(world).listeners[0]
    assert (listener.partitions, listener.held, listener.unconfirmed, listener.refused) == (2, 3, 2, 1)
    assert judged(world).is_ready


def test_the_consumers_last_problem_is_a_detail():
    health = judged(last_problem="unreachable: no broker answers")
    assert (health.last_problem, health.is_ready) == ("unreachable: no broker answers", True)


def test_it_can_be_sent_and_read_back():
    health = judged()
    assert msgspec.json.decode(msgspec.json.encode(health), type=Health) == health
