"""What a person says selects exactly what they mean of what waits."""

import pytest

from redrive.core.record import TopicPartition
from redrive.deadletters.letters import Position
from redrive.errors import ReplayRefused
from redrive.retries.selection import Selection
from tests.retries.waiting_room import TIER, Room


def _room():
    """Five records: offsets 0 to 4, each different."""
    room = Room()
    for number, (failure_type, key) in enumerate(
        [("TimeoutError", b"a"), ("KeyError", b"a"), ("TimeoutError", b"b"), ("KeyError", None), ("", b"c")]
    ):
        room.wait(
            key=key,
            failure_type=failure_type,
            event_id=f"orders/0/{number}",
            in_ms=30_000 - number * 1_000,
            first_failed_ms=int(room.clock.wall_ms()) - number * 60_000,
        )
    return room


def _offsets(plan):
    return [offset for target in plan.targets for first, end in target.ranges for offset in range(first, end)]


@pytest.mark.parametrize(
    ("selected", "offsets"),
    [
        ({"everything": True}, [0, 1, 2, 3, 4]),
        ({"types": {"KeyError"}}, [1, 3]),
        ({"types": {"KeyError", "TimeoutError"}, "keys": {b"a"}}, [0, 1]),
        ({"keys": {b"c"}}, [4]),
        ({"event_ids": {"orders/0/2"}}, [2]),
        ({"at": {Position(TIER, 0, 1), Position(TIER, 0, 4)}}, [1, 4]),
        ({"older_than_ms": 120_000}, [3, 4]),
        ({"limit": 2}, [3, 4]),
        ({"limit": 1, "types": {"TimeoutError"}}, [2]),
        ({"groups": {"billing"}}, []),
    ],
)
def test_each_option_narrows_and_they_add_up(selected, offsets):
    assert _offsets(_room().plan(Selection(**selected))) == offsets


def test_a_plan_tells_how_many_more_there_are_and_what_is_not_there():
    room = _room()
    plan = room.plan(Selection(limit=2))
    assert (plan.count, plan.beyond_limit, plan.seen) == (2, 3, 5)
    plan = room.plan(Selection(at=frozenset([Position(TIER, 0, 0), Position(TIER, 0, 99)])))
    assert (plan.count, plan.missing) == (1, (f"{TIER}/0/99",))


def test_offsets_next_to_each_other_are_one_range():
    [target] = _room().plan().targets
    assert (target.partition, target.ranges) == (TopicPartition(TIER, 0), ((0, 5),))


@pytest.mark.parametrize(
    ("selected", "what"),
    [
        ({}, "say which records"),
        ({"everything": True, "limit": 3}, "contradicts"),
        ({"everything": True, "event_ids": {"x"}}, "contradicts"),
    ],
)
def test_a_selection_that_means_nothing_is_refused(selected, what):
    with pytest.raises(ReplayRefused, match=what):
        _room().plan(Selection(**selected))


def test_more_scattered_records_than_workers_keep_in_mind_are_refused():
    key_errors = Selection(types=frozenset(["KeyError"]))
    assert _room().plan(key_errors, ranges_most=2).count == 2
    with pytest.raises(ReplayRefused, match="--limit 1"):
        _room().plan(key_errors, ranges_most=1)
