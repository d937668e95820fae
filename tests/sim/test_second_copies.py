"""A crash may leave two copies of a failed record on its tier: only one of them runs, while both are seen together."""

from typing import Any

import msgspec

from redrive.core.dialects import mark_of, write_headers
from redrive.core.envelope import Envelope
from redrive.core.record import TopicPartition
from redrive.core.waiting import MARKS_KEPT
from tests.sim.engine_world import World, plan_of

TIER = TopicPartition("orders.retry.5s", 0)
FAILED = Envelope(
    group="shop",
    attempt=1,
    event_id="orders/0/7",
    source_topic="orders",
    source_partition=0,
    source_offset=7,
    source_timestamp_ms=1_700_000_000_000,
    first_failed_ms=1_700_000_000_100,
    last_failed_ms=1_700_000_000_100,
    failure_kind="transient",
    failure_type="TimeoutError",
    failure_message="no answer",
)


def _world() -> World:
    world = World(plan_of("5s"), partitions=1)
    world.assign(*(TopicPartition(topic, 0) for topic in world.plan.topics))
    return world


def _append(world: World, due_in_ms: int = 5_000, **changes: Any) -> None:
    due_ms = int(world.clock.wall_ms()) + due_in_ms
    envelope = msgspec.structs.replace(FAILED, due_ms=due_ms, **changes)
    world.append(TIER.topic, headers=write_headers(envelope))


def _started(world: World) -> list[int]:
    """Which offsets of the tier run in the next six seconds."""
    started: list[int] = []
    for _ in range(60):
        world.pass_time(100)
        for run in world.engine.runs:
            started += [record.offset() for record in run.records]
        world.work(outcomes=["ok"] * 10)
    return started


def _duplicates(world: World) -> int:
    return world.engine.listeners[0].counters.duplicates


def test_a_second_copy_of_what_waits_already_never_runs_and_is_counted_and_passed():
    world = _world()
    _append(world)
    _append(world, due_in_ms=5_700, last_failed_ms=1_700_000_000_800)  # the record ran, and failed, once more
    world.fetch(TIER)
    assert (_started(world), _duplicates(world)) == ([0], 1)
    world.settle()
    assert world.committed[TIER][0] == 2


def test_a_second_copy_is_found_in_a_later_fetch_too():
    world = _world()
    _append(world)
    world.fetch(TIER)
    _append(world)
    world.fetch(TIER)
    assert (_started(world), _duplicates(world)) == ([0], 1)


def test_other_attempts_records_and_replays_are_no_second_copies():
    world = _world()
    _append(world)
    for changes in (
        {"attempt": 2},
        {"source_offset": 8},
        {"source_partition": 1},
        {"source_timestamp_ms": 1_700_000_000_001},  # the topic was made anew
        {"replay_id": "one", "replays": 1},
        {"replay_id": "other", "replays": 1},
    ):
        _append(world, **changes)
    world.fetch(TIER)
    assert (_started(world), _duplicates(world)) == (list(range(7)), 0)


def test_a_copy_that_comes_when_the_first_may_be_at_work_runs():
    # The first may be written again unchanged while its own offset is open: what it left behind must not be lost.
    world = _world()
    _append(world)
    world.fetch(TIER)
    world.pass_time(5_000)
    _append(world)
    world.fetch(TIER)
    assert (_started(world), _duplicates(world)) == ([0, 1], 0)


def test_after_the_wall_clock_stepped_back_nothing_that_ran_counts_as_waiting():
    world = _world()
    _append(world)
    world.fetch(TIER)
    assert _started(world) == [0]
    world.clock.step_wall(-3_600_000)
    _append(world)
    world.fetch(TIER)
    assert (_started(world), _duplicates(world)) == ([1], 0)


def test_a_copy_in_the_first_owners_hands_is_none_for_the_next_owner():
    world = _world()
    _append(world)
    world.fetch(TIER)
    world.restart()
    world.assign(TIER)
    _append(world)
    world.fetch(TIER)
    assert (_started(world), _duplicates(world)) == ([0], 1)


def test_marks_of_what_is_gone_are_let_go():
    world = _world()
    for round_ in range(4):
        for number in range(MARKS_KEPT):
            _append(world, source_offset=round_ * MARKS_KEPT + number)
            world.fetch(TIER)
        world.pass_time(6_000)
        while world.engine.runs:
            world.work(outcomes=["ok"] * 1000)
    _append(world)
    world.fetch(TIER)
    assert [len(marks) for lane, marks in world.engine._waiting._marks.items() if lane.key == TIER] == [1]


def test_headers_that_tell_no_place_have_no_mark():
    whole = write_headers(msgspec.structs.replace(FAILED, due_ms=1_700_000_005_000))
    assert mark_of(whole) == mark_of([("theirs", b"1"), *whole]) is not None
    for headers in (
        None,
        [],
        whole[:-1],
        [*whole, ("redrive-dialects", b"spring")],
        write_headers(FAILED),
        write_headers(msgspec.structs.replace(FAILED, source_offset=None, due_ms=1)),
        [(name, None) for name, _ in whole[:-7]],
    ):
        assert mark_of(headers) is None
