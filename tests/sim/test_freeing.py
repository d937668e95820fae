"""A replay and the dead letter that it frees: told together, and freed however the replay ends."""

import pytest

from redrive.core.emitting import Emission, Emitted, Emitting
from redrive.core.schedule import NEVER_MS
from tests.sim.engine_world import post
from tests.sim.test_aftermath import P0, REPLAY, blocked_world


def test_a_handled_replay_and_the_hole_that_it_frees_are_in_one_commit():
    """Also in one that is sent early for one of the two partitions: else a crash leaves a hole that nothing frees."""
    world = blocked_world("100ms")
    world.cluster.append("orders.replay", b"{}", key=b"b", partition=0)
    world.assign(P0, REPLAY)
    world.fetch(P0)
    world.fetch(REPLAY)
    world.pass_time(1)
    world.truth.handled(world.engine.lanes[P0], 0)  # by its replay
    world.work(0, 0, ["ok", "transient"])
    world.pass_time(60)
    assert [set(commit.offsets) for commit in world.commits] == [{P0, REPLAY}]


@pytest.mark.parametrize("is_going", [P0, REPLAY])
def test_the_last_commit_of_a_partition_tells_of_the_one_that_is_freed_by_it_too(is_going):
    world = blocked_world()
    world.assign(P0, REPLAY)
    world.fetch(P0)
    world.fetch(REPLAY)
    world.pass_time(1)
    world.truth.handled(world.engine.lanes[P0], 0)
    world.work(0, 0, ["ok"])
    world.let_go(is_going)
    assert (world.committed[P0][0], world.committed[REPLAY][0]) == (1, 1)


def test_a_key_goes_on_when_a_person_skips_the_replay_of_its_letter():
    world = blocked_world("100ms")
    world.cluster.append("orders", b"{}", key=b"a", partition=0)
    world.assign(P0, REPLAY)
    world.fetch(P0)
    world.fetch(REPLAY)
    world.pass_time(1)
    world.work(0, 0, ["transient"])
    world.truth.handled(world.engine.lanes[P0], 0)  # as far as anybody wants it
    post(world, "skip", REPLAY, (0, 1))
    world.answer()
    world.pass_time(1)
    assert [(run.lane.key, run.records[0].offset()) for run in world.engine.runs] == [(P0, 1)]


def test_what_a_replay_emits_doesnt_end_it_when_the_source_has_gone_meanwhile():
    world = blocked_world()
    world.cluster.create_topic("receipts", 1)
    world.assign(P0, REPLAY)
    world.fetch(P0)
    world.fetch(REPLAY)
    world.pass_time(1)
    [run] = world.engine.runs
    run.emitting = Emitting()
    run.emitting.add(Emitted(run.records[0], 1), Emission("receipts", b"paid", None, [], 0))
    world.work(0, 0, ["ok"])
    world.let_go(P0)
    world.answer()
    world.pass_time(5_000)
    world.answer_commit()
    assert (world.engine.lanes[REPLAY].offsets.frontier, list(world.engine.runs)) == (0, [])
    world.assign(P0)
    world.fetch(P0)
    world.pass_time(1)
    assert [run.lane.key for run in world.engine.runs] == [REPLAY]


def test_replays_whose_source_is_elsewhere_keep_nobody_busy():
    world = blocked_world()
    world.assign(REPLAY)
    world.fetch(REPLAY)
    world.pass_time(1)
    assert world.engine.next_wake_ms == NEVER_MS
    world.assign(P0)
    world.fetch(P0)
    world.pass_time(1)
    assert [run.lane.key for run in world.engine.runs] == [REPLAY]
    world.let_go(P0)
    world.pass_time(1)
    assert world.engine.next_wake_ms == NEVER_MS
