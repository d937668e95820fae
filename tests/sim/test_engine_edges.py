"""Corners of the engine that random walks come to rarely, each by itself."""

import msgspec
import pytest

from redrive.core.commands import Refusal
from redrive.core.dialects import read_envelope
from redrive.core.metadata import decode_metadata
from redrive.core.plan import Tier
from redrive.core.policy import Backoff
from redrive.core.record import TopicPartition
from tests.sim.engine_world import World, identity, plan_of

AWAY = Refusal("unavailable", "no broker")
SOURCE = ("redrive-source-topic", b"orders")
ORDERS = TopicPartition("orders", 0)


def _working_on(world: World, count: int = 1) -> World:
    world.assign(*(TopicPartition(topic, 0) for topic in world.plan.topics))
    world.append("orders", 0, count)
    world.fetch(ORDERS)
    return world


def _envelopes(world: World, topic: str) -> list:
    return [
        read_envelope(record.headers())[0] for record in world.cluster.partition(TopicPartition(topic, 0))
    ]


def test_a_dead_letter_topic_that_is_away_for_a_day_costs_nothing_but_the_wait():
    world = _working_on(World(plan_of(), partitions=1))
    world.work(outcomes=["permanent", "ok"])
    for _ in range(3000):  # at most half a minute apart
        world.answer(0, AWAY, written=False)
        world.pass_time(30_000)

    world.answer(0)

    assert len(_envelopes(world, "orders.dlq")) == 1
    world.settle()


def test_retry_later_without_a_ladder_is_a_dead_letter_though_immediate_retries_are_left():
    world = _working_on(World(plan_of(immediate=Backoff(2)), partitions=1))

    world.work(outcomes=["retry-later", "ok"])
    world.answer(0)

    assert [envelope.reason for envelope in _envelopes(world, "orders.dlq")] == ["exhausted"]


def test_what_a_former_ladder_still_holds_is_a_dead_letter_when_it_fails_and_there_is_no_ladder_any_more():
    plan = plan_of(immediate=Backoff(2))
    former = Tier("orders.retry.5s", 5000)
    world = World(_with_drained(plan, former), partitions=1)
    world.assign(TopicPartition(former.topic, 0))
    world.append(former.topic, headers=[("redrive-group", b"shop"), ("redrive-attempt", b"1"), SOURCE])
    world.fetch(TopicPartition(former.topic, 0))
    world.pass_time(5_001)

    world.work(outcomes=["transient", "ok"])
    world.answer(0)

    assert [(one.reason, one.attempt) for one in _envelopes(world, "orders.dlq")] == [("exhausted", 2)]


def test_jitter_spreads_the_dues_of_records_that_failed_together_over_all_of_it():
    world = _working_on(World(plan_of("10s", jitter=1.0, breaker=False), partitions=1), count=100)
    failed_ms = world.clock.wall_ms()
    for _ in range(100):
        world.work(outcomes=["transient"])
    while world.writes:
        world.answer()

    waits_ms = [envelope.due_ms - failed_ms for envelope in _envelopes(world, "orders.retry.10s")]
    tenths = [sum(10_000 + 1000 * at <= wait < 11_000 + 1000 * at for wait in waits_ms) for at in range(10)]
    assert sum(tenths) == 100
    assert min(tenths) >= 2


def test_a_hundred_handlers_run_at_once_from_the_start_though_all_of_them_may_fail():
    world = World(plan_of(concurrency=100), partitions=100)
    keys = [TopicPartition("orders", number) for number in range(100)]
    world.assign(*keys)
    for key in keys:
        world.append("orders", key.partition)
        world.fetch(key)

    assert len(world.engine.runs) == 100


def test_what_a_run_has_finished_is_committed_though_it_never_ends():
    world = _working_on(World(plan_of(), partitions=1), count=5)
    world.is_seen_at_work = True
    world.work(outcomes=["ok", "ok", "ok"])  # at the fourth record the worker hangs

    world.engine.harvest(world.clock.now())
    world.revoke(ORDERS)
    world.let_go(ORDERS)

    assert world.committed[ORDERS][0] == 3


def _with_drained(plan, tier):
    return msgspec.structs.replace(plan, drained=(*plan.drained, tier))


def test_a_record_due_in_six_days_is_posted_on_until_then_and_runs_once_in_time():
    world = _working_on(World(plan_of("5s", "1h"), partitions=1))
    world.retry_after_ms = 6 * 24 * 3_600_000
    world.work(outcomes=["retry-later", "ok"])
    due_ms = world.clock.wall_ms() + world.retry_after_ms
    tiers = [TopicPartition(tier.topic, 0) for tier in world.plan.listeners[0].tiers]

    while not world.engine.runs:
        assert world.clock.wall_ms() <= due_ms
        while world.writes:
            world.answer()
        for tier in tiers:
            world.fetch(tier)
        if not world.engine.runs and not world.writes:
            world.pass_time(max(1.0, world.engine.next_wake_ms - world.clock.wall_ms()))

    assert world.clock.wall_ms() == due_ms
    assert [run.records[0].topic() for run in world.engine.runs] == ["orders.retry.1h"]
    hops = [envelope.hops for envelope in _envelopes(world, "orders.retry.1h")]
    assert hops == list(range(len(hops)))
    assert len(hops) == 6 * 24 - 1
    assert _envelopes(world, "orders.retry.1h")[-1].attempt == 1
    world.settle()


def test_a_due_that_cannot_be_true_counts_as_none():
    world = World(plan_of("5s"), partitions=1)
    tier = TopicPartition("orders.retry.5s", 0)
    world.assign(tier)
    written_ms = world.clock.wall_ms()
    for due in (b"99999999999999999999", b"253402300799999", b"-5", b"soon"):
        world.append(tier.topic, headers=[("redrive-group", b"shop"), ("redrive-due-ms", due)])
    world.fetch(tier)

    assert world.engine.next_wake_ms == written_ms + 5000
    world.pass_time(5000)
    assert [len(run.records) for run in world.engine.runs] == [4]


def test_the_clock_stepping_back_an_hour_starts_nothing_early_and_stops_nothing_else():
    world = _working_on(World(plan_of("5s"), partitions=1))
    world.work(outcomes=["transient", "ok"])
    world.answer()
    tier = TopicPartition("orders.retry.5s", 0)
    world.fetch(tier)

    world.clock.step_wall(-3_600_000)
    world.append("orders")
    world.fetch(ORDERS)
    world.work(outcomes=["transient", "ok"])  # this one is due by the new time
    world.answer()
    world.fetch(tier)
    world.pass_time(5_001)
    assert [envelope.source_offset for envelope in _running(world)] == [1]
    world.work(outcomes=["ok", "ok"])
    assert _running(world) == []
    world.clock.step_wall(3_600_000)
    world.pass_time(0)
    assert [envelope.source_offset for envelope in _running(world)] == [0]
    world.settle()


def _running(world: World) -> list:
    return [read_envelope(record.headers())[0] for run in world.engine.runs for record in run.records]


def test_nothing_of_a_run_is_claimed_while_the_result_of_the_one_before_it_is_still_on_its_way():
    world = _working_on(World(plan_of(), partitions=1), count=40)
    first, second = sorted(world.engine.runs, key=lambda run: run.records[0].offset())
    for run in (first, second):  # both are through but for the last record, and nobody has looked yet
        run.iterator = iter(run.records)
        for _ in run.records:
            next(run.iterator)
    next(first.iterator, None)

    world.engine.harvest(world.clock.now())

    assert world.engine.lanes[ORDERS].offsets.frontier < second.records[0].offset()


def test_a_record_whose_successor_is_refused_is_not_committed_and_those_behind_it_are_in_the_map():
    world = _working_on(World(plan_of("5s"), partitions=1), count=3)
    world.work(outcomes=["ok", "transient", "ok", "ok"])

    world.answer(0, AWAY, written=False)
    world.revoke(ORDERS)
    world.let_go(ORDERS)

    offset, metadata = world.committed[ORDERS]
    assert (offset, decode_metadata(metadata, 1, identity("orders")).ranges) == (1, ((2, 3),))


def test_each_tier_of_the_ladder_runs_before_a_record_becomes_a_dead_letter():
    world = _working_on(World(plan_of("5s", "30s", "10m"), partitions=1))
    ran_on = []
    for tier in ("orders.retry.5s", "orders.retry.30s", "orders.retry.10m", "orders.dlq"):
        ran_on.append(next(iter(world.engine.runs)).records[0].topic())
        world.work(outcomes=["transient", "ok"])
        assert [produce.topic for produce in world.writes] == [tier]
        world.answer()
        world.fetch(TopicPartition(tier, 0))
        world.open_ledgers()
        world.pass_time(600_001)

    assert ran_on == ["orders", "orders.retry.5s", "orders.retry.30s", "orders.retry.10m"]
    assert [letter.attempt for letter in _envelopes(world, "orders.dlq")] == [4]
    [letter] = world.cluster.partition(TopicPartition("orders.dlq", 0))
    assert [value for name, value in letter.headers() if name == "redrive-attempt"] == [b"4"]


@pytest.mark.parametrize(
    ("partitions", "first", "count"), [(1, 4, 8), (2, 7, 11)], ids=["no room", "room that others leave"]
)
def test_what_comes_for_a_partition_that_was_paused_a_moment_ago_runs_too_and_once(partitions, first, count):
    world = World(plan_of("5s"), partitions=partitions, window_bytes=4_000 if partitions == 1 else 18_600)
    tier, other = (TopicPartition("orders.retry.5s", number) for number in (0, 1))
    world.assign(*[tier, other][:partitions])
    for _ in range(count):
        world.append(tier.topic, headers=[("redrive-group", b"shop")])
    records = list(world.cluster.partition(tier))
    # One poll gives several batches of a partition: the pause that the first one causes comes too late for the others.
    for batch in (records[:first], records[first:]):
        world.engine.fetched(tier, batch, world.clock.now())
    world.positions[tier] = count
    world.pass_time(0)
    assert tier in world.paused
    world.open_ledgers()

    world.pass_time(5_001)
    ran = []
    for _ in range(8):
        ran += [record.offset() for run in world.engine.runs for record in run.records]
        world.work(outcomes=["ok"] * count)
        world.fetch(tier)
        world.pass_time(1)
    assert ran == list(range(count))


def test_a_commit_tells_what_running_runs_have_finished_up_to_its_moment():
    world = World(plan_of(), partitions=1)
    world.assign(ORDERS)
    world.append("orders", count=10)
    world.fetch(ORDERS)
    interval_ms = world.plan.commit_interval_ms
    world.answer_commit()  # opens the ledger
    world.pass_time(interval_ms - 50)
    world.work(0, 0, ["ok"] * 4)
    world.pass_time(50)
    assert [commit.offsets[ORDERS][0] for commit in world.commits] == [4]
