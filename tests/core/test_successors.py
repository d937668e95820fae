"""What a successor says, where it goes, and what is done when it is refused."""

import msgspec
import pytest

from redrive.core.commands import Produce, Refusal
from redrive.core.dialects import foreign_headers, read_envelope, write_headers
from redrive.core.envelope import Envelope
from redrive.core.record import TopicPartition
from redrive.core.successors import RESEND_FIRST_MS, RESEND_MOST_MS
from tests.sim.engine_world import World, plan_of

AWAY, TOO_LARGE = Refusal("unavailable", "no broker"), Refusal("too-large", "too large")
HEADERS = [
    ("trace", b"1"),
    ("trace", b"\xff"),
    ("null", None),
    ("redrive-attempt", b"99"),
    ("redrive-group", b"x"),
]


def _world(*delays: str, partitions: int = 2, **plan) -> World:
    world = World(plan_of(*delays, **plan), partitions=partitions)
    world.assign(
        *(TopicPartition(topic, number) for topic in world.plan.topics for number in range(partitions))
    )
    return world


def _fail(world: World, outcome: str = "transient", topic: str = "orders", partition: int = 1) -> Produce:
    """One record of that topic is fetched and fails; gives the write of its successor."""
    world.fetch(TopicPartition(topic, partition))
    world.pass_time(0)
    world.work(outcomes=[outcome])
    world.work(outcomes=["ok"])  # the run ends
    return world.writes[-1]


def _failing(world: World, outcome: str = "transient", *, headers=HEADERS) -> Produce:
    world.append("orders", 1, headers=headers)
    return _fail(world, outcome)


def _said(produce: Produce) -> Envelope:
    return read_envelope(produce.headers)[0]


def test_a_retry_says_when_how_often_and_why():
    world = _world("5s", "30s")
    now_ms = int(world.clock.wall_ms())
    produce = _failing(world)

    assert (produce.topic, produce.partition, produce.key, produce.value) == (
        "orders.retry.5s",
        1,
        b"0",
        b"{}",
    )
    assert _said(produce) == Envelope(
        group="shop",
        attempt=1,
        due_ms=now_ms + 5_000,
        event_id="orders/1/0",
        source_topic="orders",
        source_partition=1,
        source_offset=0,
        source_timestamp_ms=now_ms,
        first_failed_ms=now_ms,
        last_failed_ms=now_ms,
        failure_kind="transient",
        failure_type="SomeError",
        failure_message="it failed",
    )


def test_foreign_headers_go_on_as_they_came_and_ours_are_written_anew():
    produce = _failing(_world("5s"))
    assert foreign_headers(produce.headers) == HEADERS[:3]
    names = [name for name, _ in produce.headers if name.startswith("redrive-")]
    assert len(names) == len(set(names))


def test_attempts_count_on_from_tier_to_tier_and_the_source_stays():
    world = _world("5s", "30s")
    first_ms = int(world.clock.wall_ms())
    _failing(world)
    world.answer()
    world.fetch(TopicPartition("orders.retry.5s", 1))
    world.pass_time(5_000)
    produce = _fail(world, topic="orders.retry.5s")

    said = _said(produce)
    assert (produce.topic, said.attempt, said.due_ms) == ("orders.retry.30s", 2, first_ms + 35_000)
    assert (said.event_id, said.first_failed_ms, said.last_failed_ms) == (
        "orders/1/0",
        first_ms,
        first_ms + 5_000,
    )
    assert foreign_headers(produce.headers) == HEADERS[:3]


def test_a_dead_letter_says_where_a_replay_goes_and_has_no_due():
    produce = _failing(_world("5s"), "permanent")
    said = _said(produce)
    assert (produce.topic, said.reason, said.due_ms, said.listener, said.replay_topic) == (
        "orders.dlq",
        "permanent",
        None,
        "orders",
        "orders.retry.5s",
    )


def test_a_forged_header_on_the_source_changes_nothing_but_a_replay_keeps_its_identity():
    world = _world("5s")
    said = _said(_failing(world))
    assert (said.attempt, said.group) == (1, "shop")

    replayed = [("redrive-id", b"orders/0/9"), ("redrive-replay-id", b"job-1"), ("redrive-replays", b"2")]
    said = _said(_failing(world, headers=[*replayed, ("redrive-attempt", b"3")]))
    assert (said.event_id, said.replay_id, said.replays, said.attempt) == ("orders/0/9", "job-1", 2, 1)


@pytest.mark.parametrize(("counts", "partition"), [({"orders.dlq": 1}, -1), ({"orders.dlq": 2}, 1), ({}, -1)])
def test_a_partition_keeps_its_number_where_the_counts_agree(counts, partition):
    world = World(plan_of(), partitions=2)
    world.cluster.topics["orders.dlq"].partitions[counts.get("orders.dlq", 3) :] = []
    if not counts:
        world.cluster.topics["orders.dlq"].grow(3)
    world.restart()
    world.assign(TopicPartition("orders", 1))
    assert _failing(world, "permanent").partition == partition


def test_a_refused_write_is_repeated_with_growing_pauses_and_its_offset_waits():
    world = _world("5s")
    _failing(world)
    pauses = []
    for _ in range(9):
        world.answer(refusal=AWAY, written=False)
        waited = 0
        while not world.writes:
            world.pass_time(250)
            waited += 250
        pauses.append(waited)

    assert pauses == [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]
    assert (RESEND_FIRST_MS, RESEND_MOST_MS) == (500, 30_000)
    lane = world.engine.lanes[TopicPartition("orders", 1)]
    assert (lane.offsets.frontier, lane.writes.count, lane.listener.counters.write_failures["retry"]) == (
        0,
        1,
        9,
    )
    world.answer()
    assert (lane.offsets.frontier, lane.writes.count) == (1, 0)


def test_other_records_of_the_partition_go_on_meanwhile():
    world = _world("5s")
    _failing(world)
    world.answer(refusal=AWAY, written=False)
    world.append("orders", 1, 5)
    world.fetch(TopicPartition("orders", 1))
    world.work(outcomes=["ok"] * 6)
    offsets = world.engine.lanes[TopicPartition("orders", 1)].offsets
    assert (offsets.frontier, offsets.finished_above_frontier()) == (0, ((1, 6),))


def test_what_was_too_large_in_company_is_sent_alone_before_it_is_judged():
    world = _world("5s")
    before = _failing(world)
    world.answer(refusal=TOO_LARGE, written=False)
    [again] = world.writes
    assert (before.alone, again.alone) == (False, True)
    assert again.headers == before.headers


def _refused_as_too_large(world: World) -> list[Produce]:
    """All that is tried for a record that no topic takes."""
    tried = []
    while world.writes:
        tried.append(world.writes[0])
        world.answer(refusal=TOO_LARGE, written=False)
    return tried


def test_a_dead_letter_gives_up_texts_first_then_its_value_and_is_never_given_up_itself():
    world = _world()
    world.failure_message = "m" * 2_000
    _failing(world, "permanent")
    tried = _refused_as_too_large(world)

    sizes = [sum(len(name) + len(value or b"") for name, value in produce.headers) for produce in tried]
    assert sizes == sorted(sizes, reverse=True)
    messages = [len(_said(produce).failure_message) for produce in tried]
    assert messages[0] == 1024
    assert messages[-1] == 0
    assert [produce.value for produce in tried[:-1]] == [b"{}"] * (len(tried) - 1)
    last = tried[-1]
    assert (last.value, last.key, foreign_headers(last.headers)) == (None, b"0", [])
    said = _said(last)
    assert (said.reason, said.source_topic, said.source_partition, said.source_offset) == (
        "permanent",
        "orders",
        1,
        0,
    )
    assert [report.event for report in world.reports].count("dead-letter-cut") == 1
    # Refused even so, it waits like any other, and its offset with it.
    lane = world.engine.lanes[TopicPartition("orders", 1)]
    assert (lane.offsets.frontier, lane.writes.count, lane.writes.waiting) == (0, 1, 1)
    world.pass_time(60_000)
    world.answer()
    assert lane.offsets.frontier == 1


def test_a_retry_that_no_tier_takes_becomes_a_dead_letter():
    world = _world("5s")
    _failing(world)
    tried = []
    while (produce := world.writes[0]).topic == "orders.retry.5s":
        tried.append(produce)
        world.answer(refusal=TOO_LARGE, written=False)

    said = _said(produce)
    assert (produce.topic, said.reason, said.due_ms, said.replay_topic) == (
        "orders.dlq",
        "too-large",
        None,
        "orders.retry.5s",
    )
    assert world.engine.listeners[0].counters.dead["too-large"] == 1
    world.answer()
    assert world.engine.lanes[TopicPartition("orders", 1)].offsets.frontier == 1


def test_a_record_that_waits_longer_than_its_tier_is_posted_on_unchanged_but_for_the_hop():
    world = _world("5s", "2m")
    world.retry_after_ms = 600_000
    now_ms = int(world.clock.wall_ms())
    first = _failing(world, "retry-later")
    assert (first.topic, _said(first).due_ms) == ("orders.retry.2m", now_ms + 600_000)
    world.answer()
    key = TopicPartition("orders.retry.2m", 1)
    hops = []
    while world.clock.wall_ms() < now_ms + 600_000:
        world.fetch(key)
        world.pass_time(10_000)
        if world.writes:
            hops.append(world.writes[0])
            world.answer()

    said = [_said(produce) for produce in hops]
    assert [each.hops for each in said] == list(range(1, len(said) + 1))
    assert 2 <= len(said) <= 5
    for each in said:
        assert msgspec.structs.replace(each, hops=0) == _said(first)
    assert foreign_headers(hops[-1].headers) == HEADERS[:3]
    assert [(run.lane.key, len(run.records)) for run in world.engine.runs] == [(key, 1)]


def test_an_answer_for_a_partition_that_is_gone_is_only_accounted_for():
    world = _world("5s")
    key = TopicPartition("orders", 1)
    _failing(world)
    lane = world.engine.lanes[key]
    world.let_go(key, last_commit="none")
    world.answer(refusal=AWAY, written=False)
    assert (lane.writes.count, lane.writes.size_bytes, world.writes) == (0, 0, [])
    world.pass_time(60_000)
    assert world.writes == []


def test_a_count_of_hops_that_somebody_forged_stays_one_that_every_dialect_can_say():
    most = 2**31 - 1
    world = _world("5s")
    due_ms = int(world.clock.wall_ms()) + 86_400_000
    said = Envelope(group="shop", source_topic="orders", due_ms=due_ms, hops=most)
    world.append("orders.retry.5s", 1, headers=write_headers(said))
    world.fetch(TopicPartition("orders.retry.5s", 1))
    world.pass_time(60_000)

    assert [_said(produce).hops for produce in world.writes] == [most]
