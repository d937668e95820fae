"""Lanes by key in the engine: who waits for whom, what is told before it runs again, and what a crash finds."""

from redrive.core.metadata import HEADS_MOST
from redrive.core.policy import Backoff
from redrive.core.record import TopicPartition
from tests.sim.engine_world import World, plan_of

P0 = TopicPartition("orders", 0)


def world_of(*keys, concurrency=2, delays=("1s", "5s"), **policy):
    """A process whose one partition holds records of these keys, fetched."""
    policy.setdefault("order", "key")
    world = World(plan_of(*delays, concurrency=concurrency, **policy), partitions=1)
    world.assign(P0)
    put(world, *keys)
    return world


def put(world, *keys):
    for key in keys:
        world.cluster.append("orders", b"{}", key=key, partition=0)
    world.fetch(P0, 1_000)


def out(world):
    """Offsets that workers have, a run each."""
    return sorted([record.offset() for record in run.records[: run.count]] for run in world.engine.runs)


def fail(world, offset):
    """The record runs and fails, in whatever slot it is."""
    work(world, offset, "transient")


def work(world, offset, outcome="ok"):
    (run,) = (run for run in world.engine.runs if any(record.offset() == offset for record in run.records))
    outcomes = ["ok"] * [record.offset() for record in run.records].index(offset)
    world.work(0, run.slot, [*outcomes, outcome, "ok"][: len(outcomes) + 1])


def commit(world):
    world.pass_time(1_000)
    while world.commits:
        world.answer_commit()
    world.pass_time(0)


def finish_all(world):
    for _ in range(20):
        for run in list(world.engine.runs):
            world.work(0, run.slot, ["ok"] * 50)


BLOCKING = {"blocking": "key"}


def test_t_ord_1_records_of_a_key_behind_a_failing_one_wait_and_other_keys_go_on():
    world = world_of(b"a", b"b", b"a", b"b", **BLOCKING)
    fail(world, 0)
    finish_all(world)
    lane = world.engine.lanes[P0]
    assert (lane.offsets.frontier, lane.offsets.finished_above_frontier()) == (0, ((1, 2), (3, 4)))
    assert lane.keys.waiting == 2


def test_the_failing_record_runs_again_when_its_due_came_and_a_commit_told_of_it():
    world = world_of(b"a", b"a", concurrency=1, **BLOCKING)
    fail(world, 0)
    world.pass_time(999)
    assert out(world) == []
    world.pass_time(1)
    assert out(world) == [], "its due is there, its attempt was not told"
    world.answer_commit()
    world.pass_time(0)
    assert out(world) == [[0, 1]]
    finish_all(world)
    assert world.engine.lanes[P0].offsets.frontier == 2


def test_a_commit_that_a_record_waits_for_is_sent_before_its_due():
    world = world_of(b"a", delays=("200ms",), **BLOCKING)
    commit(world)
    fail(world, 0)
    world.pass_time(149)
    assert world.commits == []
    world.pass_time(1)
    assert len(world.commits) == 1


def test_after_a_crash_the_record_has_the_attempt_and_the_due_that_were_told():
    world = world_of(b"a", b"a", b"b", delays=("10s", "20s"), **BLOCKING)
    fail(world, 0)
    finish_all(world)
    commit(world)
    world.restart()
    world.assign(P0)
    world.fetch(P0)
    world.pass_time(8_900)
    assert out(world) == []
    world.pass_time(200)
    assert out(world) == [[0, 1]]
    fail(world, 0)
    assert world.engine.lanes[P0].heads.get(0).attempt == 2


def test_what_failed_and_was_not_told_before_a_crash_is_as_if_it_had_not_run():
    world = world_of(b"a", **BLOCKING)
    commit(world)
    fail(world, 0)
    world.restart()
    world.assign(P0)
    world.fetch(P0)
    fail(world, 0)
    assert world.engine.lanes[P0].heads.get(0).attempt == 1


def test_a_revoke_tells_what_waits_and_the_next_owner_goes_on_with_it():
    world = world_of(b"a", b"b", **BLOCKING)
    fail(world, 0)
    finish_all(world)
    world.revoke(P0)
    world.let_go(P0)
    world.assign(P0)
    world.fetch(P0)
    commit(world)
    fail(world, 0)
    assert world.engine.lanes[P0].heads.get(0).attempt == 2


def test_a_dead_letter_lets_the_records_behind_it_go_on():
    world = world_of(b"a", b"a", concurrency=1, delays=("1s",), **BLOCKING)
    fail(world, 0)
    commit(world)
    fail(world, 0)
    assert [write.topic for write in world.writes] == ["orders.dlq"]
    assert out(world) == [[1]]
    world.answer()
    finish_all(world)
    lane = world.engine.lanes[P0]
    assert (lane.offsets.frontier, len(lane.heads)) == (2, 0)


def test_with_a_blocking_partition_all_records_behind_the_failing_one_wait():
    world = world_of(b"a", b"b", b"c", order="partition", blocking="partition", concurrency=3)
    assert out(world) == [[0, 1]]
    work(world, 1, "transient")
    assert out(world) == []
    commit(world)
    work(world, 1)
    assert out(world) == [[2]]


def test_what_stands_behind_a_record_that_takes_long_is_given_to_others():
    world = world_of(*[b"%d" % number for number in range(8)], concurrency=2)
    assert out(world) == [[0, 1, 2, 3, 4], [5, 6, 7]]
    work(world, 0)
    work(world, 6)
    work(world, 7)
    assert out(world) == [[0, 1, 2, 3, 4]]
    world.pass_time(100)
    world.pass_time(200)
    world.pass_time(200)
    assert out(world) == [[0, 1], [2, 3]]
    assert world.engine.lanes[P0].keys.waiting == 1
    lane = world.engine.lanes[P0]
    finish_all(world)
    assert (lane.offsets.frontier, lane.keys.waiting, len(lane.keys)) == (8, 0, 0)


def test_a_try_in_place_leaves_its_slot_to_others_meanwhile():
    plan = plan_of("5s", immediate=Backoff(2, "500ms"))
    world = World(plan, partitions=2)
    p1 = TopicPartition("orders", 1)
    world.assign(P0, p1)
    world.append("orders", 0)
    world.fetch(P0)
    world.append("orders", 1)
    world.fetch(p1)
    world.work(outcomes=["transient"])
    assert [run.lane.key for run in world.engine.runs] == [p1]
    world.work(outcomes=["ok"])
    world.pass_time(499)
    assert out(world) == []
    world.pass_time(1)
    assert [run.lane.key for run in world.engine.runs] == [P0]
    world.work(outcomes=["transient"])
    world.pass_time(500)
    world.work(outcomes=["transient"])
    assert [write.topic for write in world.writes] == ["orders.retry.5s"]


def test_records_without_a_key_wait_for_nobody():
    world = world_of(None, None, None, **BLOCKING)
    fail(world, 0)
    finish_all(world)
    assert world.engine.lanes[P0].offsets.finished_above_frontier() == ((1, 3),)


def test_a_key_on_two_partitions_is_two_lanes():
    world = World(plan_of("1s", order="key", blocking="key", concurrency=2), partitions=2)
    p1 = TopicPartition("orders", 1)
    world.assign(P0, p1)
    for key in (P0, p1):
        world.cluster.append("orders", b"{}", key=b"a", partition=key.partition)
        world.fetch(key)
    fail(world, 0) if len(out(world)) == 1 else world.work(
        0, next(iter(world.engine.runs)).slot, ["transient"]
    )
    finish_all(world)
    assert sorted(world.engine.lanes[key].offsets.frontier for key in (P0, p1)) == [0, 1]


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_when_as_many_wait_as_a_commit_can_tell_the_partition_starts_no_others_until_one_is_through():
    count = HEADS_MOST + 50
    keys = [b"%d" % number for number in range(count)]
    world = world_of(*keys, delays=("1m", "2m"), breaker=False, **BLOCKING)
    while world.engine.runs:
        run = next(iter(world.engine.runs))
        world.work(0, run.slot, ["transient"])
    lane = world.engine.lanes[P0]
    assert (len(lane.heads), len(lane.heads.told()), lane.keys.waiting) == (HEADS_MOST, HEADS_MOST, count)
    world.pass_time(60_000)
    world.answer_commit()
    world.pass_time(0)
    world.record_s = 0.01
    assert out(world), "those that waited run again"
    finish_all(world)
    commit(world)
    finish_all(world)
    assert (len(lane.heads), lane.offsets.frontier) == (0, count)


def test_a_key_that_has_piled_up_all_memory_pauses_its_partition_and_half_of_it_resumes_it():
    world = World(plan_of("1s", order="key", concurrency=2), partitions=1)
    world.assign(P0)
    big = b"x" * 1_000_000
    for _ in range(300):
        world.cluster.append("orders", big, key=b"hot", partition=0)
    while P0 not in world.paused and world.positions[P0] < 300:
        world.fetch(P0, 10)
    lane = world.engine.lanes[P0]
    fetched = lane.keys.waiting
    assert P0 in world.paused
    assert 120 < fetched < 150
    while P0 in world.paused:
        world.work(0, next(iter(world.engine.runs)).slot, ["ok"] * 50)
        world.pass_time(250)
    assert lane.keys.waiting <= fetched / 2 + 1


def test_while_one_key_is_busy_records_of_others_behind_a_hundred_thousand_of_it_are_fetched():
    world = World(plan_of("1s", order="key", concurrency=2), partitions=1)
    world.assign(P0)
    for _ in range(100_000):
        world.cluster.append("orders", b"{}", key=b"hot", partition=0)
    world.cluster.append("orders", b"{}", key=b"cold", partition=0)
    world.record_s = 1.0
    while P0 not in world.paused and world.engine.wants_records() and world.positions[P0] < 100_001:
        world.fetch(P0, 2_000)
    assert world.positions[P0] == 100_001
    assert [record.key() for run in world.engine.runs for record in run.records][-1] == b"cold"


def test_what_a_commit_has_told_runs_though_another_partition_is_refused():
    p1 = TopicPartition("orders", 1)
    world = World(plan_of("1s", blocking="key", order="key"), partitions=2)
    world.assign(P0, p1)
    for number in (0, 1):
        world.cluster.append("orders", b"{}", key=b"a", partition=number)
    world.fetch(p1)
    world.work(0, 0, ["ok"])
    world.fetch(P0)
    world.work(0, 0, ["transient"])
    for _ in range(5):
        world.pass_time(1_000)
        if world.commits:
            world.answer_commit(p1)
    assert [run.lane.key for run in world.engine.runs] == [P0]


def test_where_brokers_take_little_metadata_heads_wait_for_each_other_and_all_run():
    limit = 511
    delays = [f"{seconds}s" for seconds in range(20, 28)]
    plan = plan_of(*delays, blocking="key", order="key", brake=False, breaker=False)
    world = World(plan, partitions=1)
    world.assign(P0)
    for number in range(160):
        world.cluster.append("orders", b"{}", key=b"k%d" % number, partition=0)
    for _ in range(2):
        world.fetch(P0)
    for step in range(2_600):
        world.work(0, 0, ["transient" if step < 700 else "ok"])
        world.pass_time(97 + step * 7919 % 61)
        if not world.commits:
            continue
        commit = world.commits[0]
        if too_long := [key for key, (_, text) in commit.offsets.items() if len(text) > limit]:
            world.commits.pop(0)
            world.engine.commits.answered(commit.snapshot, too_long, world.clock.now(), is_too_large=True)
        else:
            world.answer_commit()
    assert world.engine.lanes[P0].offsets.open_count == 0
