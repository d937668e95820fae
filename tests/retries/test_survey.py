"""What waits is counted from where the group stands, for whom it is, and by when it is due."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.lag import due_of
from redrive.core.metadata import encode_metadata, identity_of
from redrive.core.plan import Tier
from redrive.core.record import TopicPartition
from redrive.core.translator import PLAIN
from redrive.core.waiting import WaitingRoom
from redrive.deadletters.topics import Names
from redrive.errors import TopologyError
from redrive.retries.survey import OTHERS, TYPES_MOST, Row
from redrive.retries.tiers import Scope, find_tiers
from redrive.runtime.ports import Committed
from tests.retries.waiting_room import TIER, Room, Shop
from tests.sim.engine_world import World, plan_of


def _commit(room, group, offset, ranges=()):
    key = TopicPartition(TIER, 0)
    identity = identity_of("sim", room.cluster.topics[TIER].topic_id)
    metadata = encode_metadata(offset, ranges, identity)
    room.cluster.group(group).offsets[key] = Committed(offset, metadata)


def test_a_row_tells_how_many_wait_until_when_and_why():
    room = Room()
    room.cluster.group("shop").offsets[TopicPartition(TIER, 0)] = Committed(0)
    now_ms = int(room.clock.wall_ms())
    room.wait(2, in_ms=5_000)
    room.wait(3, in_ms=20_000, failure_type="ConnectionError")
    room.clock.advance(6_000)

    assert room.rows() == [
        Row(
            TIER,
            "shop",
            30_000,
            waiting=5,
            overdue=2,
            next_due_ms=now_ms + 5_000,
            last_due_ms=now_ms + 20_000,
            oldest_ms=now_ms,
            types={"ConnectionError": 3, "TimeoutError": 2},
        )
    ]


def test_what_the_group_has_finished_is_left_out_also_above_its_committed_offset():
    room = Room()
    room.wait(10)
    _commit(room, "shop", 3, ranges=((4, 6), (8, 9)))
    [row] = room.rows()
    assert row.waiting == 4  # 3, 6, 7, 9


def test_records_of_another_group_are_its_own_and_those_of_nobody_are_everybodys():
    room = Room()
    room.wait(2)
    room.wait(3, group="billing")
    room.wait(1, headers=[])
    _commit(room, "shop", 0)
    _commit(room, "billing", 4)

    rows = {row.group: (row.waiting, row.is_read) for row in room.rows(Scope())}
    assert rows == {"shop": (3, True), "billing": (2, True)}
    assert [(row.group, row.waiting) for row in room.rows()] == [("shop", 3)]


def test_records_of_a_group_that_has_never_committed_are_told_as_read_by_nobody():
    room = Room()
    room.wait(2, group="gone")
    rows = room.rows(Scope())
    assert [(row.group, row.waiting, row.is_read) for row in rows] == [("gone", 2, False)]


def test_a_group_that_works_on_the_source_reads_the_tier_too_though_nothing_there_ended_yet():
    room = Room()
    room.wait(1)
    room.cluster.group("shop").offsets[TopicPartition("orders", 0)] = Committed(5)
    assert [(row.waiting, row.is_read) for row in room.rows(Scope())] == [(1, True)]
    assert [(row.waiting, row.is_read) for row in room.rows()] == [(1, True)]


def test_a_renamed_groups_records_count_for_the_one_that_takes_them_over():
    room = Room()
    room.wait(2, group="shop-v1")
    assert [(row.group, row.waiting) for row in room.rows(room.scope(stamps={"shop-v1": "shop"}))] == [
        ("shop", 2)
    ]


def test_types_beyond_a_hundred_are_counted_together():
    room = Room()
    for number in range(TYPES_MOST + 7):
        room.wait(failure_type=f"Error{number}")
    [row] = room.rows()
    assert (len(row.types), row.types[OTHERS]) == (TYPES_MOST + 1, 7)


def test_an_empty_tier_has_a_row_of_its_own():
    [row] = Room().rows()
    assert (row.waiting, row.overdue, row.next_due_ms) == (0, 0, None)


def test_other_topics_are_no_tiers_and_only_sources_that_are_meant_count():
    room = Room()
    room.cluster.create_topic("payouts.retry.5s")
    room.cluster.create_topic("orders.replay")
    assert [tier.topic for tier in room.tiers()] == ["orders.replay", TIER, "payouts.retry.5s"]
    assert [tier.topic for tier in room.tiers(scope=room.scope(sources=frozenset(["payouts"])))] == [
        "payouts.retry.5s"
    ]


@pytest.mark.parametrize(
    ("topic", "what"),
    [
        ("nowhere.retry.5s", "doesn't exist"),
        ("orders.dlq", "it is a dlq topic"),
        ("orders", "it is not named like one"),
    ],
)
def test_a_topic_that_is_no_tier_is_refused_in_words(topic, what):
    with pytest.raises(TopologyError, match=what):
        find_tiers(Room().desk.cluster, Names(), [topic])


def test_a_working_service_leaves_nothing_waiting():
    room = Room()
    room.wait(5)
    Shop(room).run(31_000)
    [row] = room.rows()
    assert row.waiting == 0


@given(
    said_ms=st.none() | st.integers(0, 2_000_000_000_000),
    delay_ms=st.sampled_from([0, 1_000, 30_000, 86_400_000]),
)
def test_the_due_is_the_one_that_a_worker_goes_by(said_ms, delay_ms):
    world = World(plan_of("30s"), partitions=1)
    headers = [] if said_ms is None else [("redrive-due-ms", b"%d" % said_ms)]
    world.append(TIER, headers=headers)
    world.assign(TopicPartition(TIER, 0))
    lane = world.engine.lanes[TopicPartition(TIER, 0)]
    [record] = world.cluster.records(TIER)
    room = WaitingRoom(["shop"], 1 << 20, PLAIN)
    room.hold(lane, Tier(TIER, delay_ms), [record], 1, world.clock.now())

    due_ms = due_of(said_ms, record.timestamp()[1], delay_ms)
    if len(lane.window):  # what waits for days is looked at sooner, to be posted on
        assert lane.window.next_wake_ms() == due_ms
    else:
        assert lane.reposts.next_wake_ms() < due_ms
