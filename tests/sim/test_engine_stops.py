"""What a stop in the middle of things must not do."""

from redrive.core.record import TopicPartition
from tests.sim.engine_world import World, plan_of

ORDERS = TopicPartition("orders", 0)


def _working_on(count: int) -> World:
    world = World(plan_of("5s"), partitions=1)
    world.assign(*(TopicPartition(topic, 0) for topic in world.plan.topics))
    world.append("orders", 0, count)
    world.fetch(ORDERS)
    return world


def test_records_of_a_run_that_was_cut_are_not_finished_while_its_worker_is_at_one():
    world = _working_on(10)
    world.work(outcomes=["ok", "ok"])
    world.revoke(ORDERS)
    world.pass_time(1_000)
    world.check()
    assert world.engine.lanes[ORDERS].offsets.frontier <= 2


def test_what_an_outage_gave_back_is_not_counted_any_more_when_its_partition_goes():
    world = _working_on(17)  # one more than the first run takes
    world.work(outcomes=["outage"])
    world.revoke(ORDERS)
    assert world.engine.listeners[0].queued == 0
    world.let_go(ORDERS)
    assert world.engine.listeners[0].is_hungry()


def test_a_failure_that_is_not_settled_yet_is_not_counted_as_handled_less():
    world = _working_on(10)
    world.is_seen_at_work = False
    world.work(outcomes=["transient", "transient"])
    world.pass_time(1_000)
    assert world.engine.listeners[0].counters.handled == 0
    world.work(outcomes=["ok"] * 9)
    assert world.engine.listeners[0].counters.handled == 8
