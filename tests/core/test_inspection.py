"""What a process is at, as a person sees it who wants to know why nothing moves."""

import msgspec

from redrive.core.commands import Refusal
from redrive.core.inspection import MOST_TOLD, StuckSeen, inspect
from redrive.core.pausing import Pausing
from redrive.core.record import TopicPartition
from redrive.core.translator import PLAIN
from tests.sim.engine_world import World, plan_of

ORDERS, TIER = TopicPartition("orders", 0), TopicPartition("orders.retry.5s", 0)


def world_with(records, *plans, **options):
    world = World(*(plans or (plan_of("5s"),)), **options)
    world.append("orders", count=records)
    world.assign(ORDERS, *(TopicPartition(tier.topic, 0) for tier in world.plan.listeners[0].tiers))
    world.fetch(ORDERS)
    return world


def seen(world):
    return inspect("shop", world.engine, PLAIN, world.clock.now())


def partition_of(world, key=ORDERS):
    return next(one for one in seen(world).partitions if (one.topic, one.partition) == key)


def test_an_idle_partition_has_nothing_at_its_front():
    world = world_with(2)
    world.work(outcomes=["ok", "ok", "ok"])
    world.work(outcomes=["ok"])
    found = partition_of(world)
    assert (found.frontier, found.finished_above, found.open, found.front) == (2, 0, 0, None)


def test_a_handler_at_work_is_told_with_its_record_and_since_when():
    world = world_with(5)
    world.work(outcomes=["ok", "ok"])
    world.clock.advance(42_000)
    [run] = seen(world).listeners[0].runs
    assert (run.topic, run.partition, run.offset, run.running_s, run.left) == ("orders", 0, 2, 42.0, 2)
    assert partition_of(world).front == StuckSeen(
        topic="orders", partition=0, offset=2, state="a handler is at it", age_s=42.0
    )


def test_a_record_that_waits_on_a_tier_is_told_with_attempt_due_age_and_why():
    world = world_with(1)
    world.work(outcomes=["transient", "ok"])
    failed_ms = world.clock.wall_ms()
    world.answer()
    world.fetch(TIER)
    world.clock.advance(2_000)
    found = partition_of(world, TIER)
    assert (found.held, found.open) == (1, 1)
    assert found.front == StuckSeen(
        topic="orders.retry.5s",
        partition=0,
        offset=0,
        state="waits for its due",
        attempt=1,
        due_ms=int(failed_ms) + 5_000,
        age_s=2.0,
        why="SomeError",
    )


def test_a_dead_letter_that_nobody_takes_is_stuck_and_holds_the_frontier():
    world = world_with(3)
    world.work(outcomes=["permanent", "ok", "ok", "ok"])
    world.answer(refusal=Refusal("unavailable", "orders.dlq is away"), written=False)
    world.clock.advance(7_000)
    listener, found = seen(world).listeners[0], partition_of(world)
    stuck = StuckSeen(
        topic="orders",
        partition=0,
        offset=0,
        state="its copy for orders.dlq is refused (try 1)",
        attempt=1,
        age_s=7.0,
        why="SomeError",
    )
    assert (listener.stuck, listener.stuck_count) == ((stuck,), 1)
    assert (found.front, found.frontier, found.finished_above, found.unconfirmed) == (stuck, 0, 2, 1)


def test_a_head_that_waits_in_front_of_its_lane_is_told_with_attempt_due_age_and_why():
    world = world_with(3, plan_of("30s", order="key", blocking="key"))
    world.work(outcomes=["transient"])
    failed_ms = int(world.clock.wall_ms())
    world.clock.advance(4_000)
    head = StuckSeen(
        topic="orders",
        partition=0,
        offset=0,
        state="waits in front of its lane",
        attempt=1,
        due_ms=failed_ms + 30_000,
        age_s=4.0,
        why="SomeError",
    )
    listener = seen(world).listeners[0]
    assert (listener.stuck, listener.stuck_count, partition_of(world).front) == ((head,), 1, head)


def test_a_head_that_runs_again_is_told_with_the_attempts_that_it_had():
    world = world_with(3, plan_of("30s", order="key", blocking="key"))
    world.work(outcomes=["transient"])
    world.pass_time(1_000)
    world.answer_commit()
    world.work(outcomes=["ok"] * 3)
    world.pass_time(30_000)
    world._worker(0, 0)
    world.clock.advance(9_000)
    front = partition_of(world).front
    assert (front.offset, front.state, front.attempt, front.age_s) == (0, "a handler is at it", 1, 9.0)


def test_how_old_the_last_commit_is_is_told():
    world = world_with(2)
    world.work(outcomes=["ok"] * 3)
    world.pass_time(1_000)
    world.answer_commit()
    world.clock.advance(3_000)
    found = partition_of(world)
    assert (found.committed, found.committed_age_s) == (2, 3.0)


def test_a_record_at_which_its_listener_stopped_is_told():
    world = world_with(2, plan_of(give_up="stop"))
    world.work(outcomes=["permanent"])
    assert partition_of(world).front.state == "its listener stopped at it"


def test_of_thousands_that_are_stuck_the_first_are_told_and_how_many_there_are():
    world = world_with(3 * MOST_TOLD, plan_of("5s", brake=False, breaker=False))
    for _ in range(50):
        world.fetch(ORDERS)
        world.work(outcomes=["transient"] * 100)
    while world.writes:
        world.answer(refusal=Refusal("unavailable", "away"), written=False)
    listener = seen(world).listeners[0]
    assert (len(listener.stuck), listener.stuck_count) == (MOST_TOLD, 3 * MOST_TOLD)


def test_an_outage_tells_when_a_record_is_tried_again():
    world = world_with(2)
    world.work(outcomes=["outage"])
    listener = seen(world).listeners[0]
    assert (listener.breaker, listener.held_in_outage, listener.outage_wait_s) == ("open", 1, 1.0)
    assert partition_of(world).front.state == "failed in an outage, to run again"


def test_who_paused_a_listener_is_told():
    world = world_with(0)
    pausing = Pausing("pause", "shop", "orders", "ann@host", 1_000, "bank is down")
    world.engine.notices.post([pausing], world.clock.now())
    paused = seen(world).listeners[0].paused
    assert (paused.who, paused.why, paused.since_ms) == ("ann@host", "bank is down", 1_000)


def test_nothing_of_what_a_record_holds_is_told():
    world = World(plan_of("5s"))
    secret = b"4111-1111-1111-1111"
    world.cluster.append(
        "orders", b'{"card": "%s"}' % secret, key=secret, partition=0, headers=[("card", secret)]
    )
    world.failure_message = f"no such card: {secret.decode()}"
    world.assign(ORDERS, TIER)
    world.fetch(ORDERS)
    told = [msgspec.json.encode(seen(world))]
    world.work(outcomes=["transient", "ok"])
    told.append(msgspec.json.encode(seen(world)))
    world.answer()
    world.fetch(TIER)
    told.append(msgspec.json.encode(seen(world)))
    assert b"waits for its due" in told[-1]
    assert not any(secret in each for each in told)


def test_a_partition_that_was_given_up_is_told_no_more():
    world = world_with(3)
    world.let_go(ORDERS)
    assert all(one.topic != "orders" for one in seen(world).partitions)
    assert seen(world).listeners[0].partitions == 1
