"""A person gets past a record that is stuck, pauses a listener, and what stops at a record: in the engine alone."""

import pytest

from redrive.core.commands import Refusal
from redrive.core.notices import read_end
from redrive.core.record import TopicPartition
from tests.sim.engine_world import World, plan_of, post, say

ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("refunds", 0)
TIER = TopicPartition("orders.retry.30s", 0)
AWAY = Refusal("unavailable", "no broker")


def orders(count=5, **options):
    world = World(plan_of("30s", **options), partitions=1)
    world.append("orders", count=count)
    return world


def fetched(count=5, **options):
    world = orders(count, **options)
    world.assign(ORDERS, TIER)
    world.fetch(ORDERS)
    return world


def runs(world):
    """The offsets that workers have been given."""
    return [record.offset() for run in world.engine.runs for record in run.records]


def ends(world):
    """What was written down: offsets, and as what."""
    state = world.cluster.records("orders.dlq.state")
    found = [read_end(record.key(), record.value()) for record in state]
    return [(key.topic, offset, end.state, end.who) for key, offset, end in found]


def dropped(world):
    return world.engine.listeners[0].counters.dropped["skipped-by-operator"]


def finish(world):
    """All that is out ends well, and is committed."""
    for _ in range(5):
        for slot in list(world.slots):
            world.work(*slot, outcomes=["ok"] * 20)
        while world.writes:
            world.answer()
        world.pass_time(1_000)
        while world.commits:
            world.answer_commit()


# -- skip ------------------------------------------------------------------------------------------------------------


def test_a_record_that_is_skipped_before_it_is_fetched_never_runs():
    """So a process that stopped at a record starts behind it."""
    world = orders()
    post(world, "skip", ORDERS, (0, 1))
    world.assign(ORDERS)
    world.fetch(ORDERS)
    assert runs(world) == [1, 2, 3, 4]
    finish(world)
    assert ends(world) == [("orders", 0, "skipped", "ann")]
    assert (world.committed[ORDERS][0], dropped(world)) == (5, 1)


def test_those_before_it_run_and_those_behind_it_too():
    world = orders()
    post(world, "skip", ORDERS, (2, 3))
    world.assign(ORDERS)
    world.fetch(ORDERS)
    assert runs(world) == [0, 1]
    finish(world)
    assert world.engine.listeners[0].counters.handled == 4
    assert (ends(world), world.committed[ORDERS][0]) == ([("orders", 2, "skipped", "ann")], 5)


def test_several_in_a_row_are_skipped():
    world = orders(6)
    post(world, "skip", ORDERS, (0, 2), (3, 6))
    world.assign(ORDERS)
    world.fetch(ORDERS)
    finish(world)
    assert [offset for _, offset, _, _ in ends(world)] == [0, 1, 3, 4, 5]
    assert (world.engine.listeners[0].counters.handled, world.committed[ORDERS][0]) == (1, 6)


def test_a_skipped_record_passes_only_when_that_was_written_down():
    world = fetched(3, give_up="stop")
    post(world, "skip", ORDERS, (0, 1))
    world.work(outcomes=["permanent"])
    world.answer(refusal=AWAY, written=False)
    world.pass_time(1_000)
    world.work(outcomes=["ok"] * 3)
    while world.commits:
        world.answer_commit()
    assert world.engine.lanes[ORDERS].offsets.frontier == 0
    assert world.committed.get(ORDERS, (0,))[0] == 0
    finish(world)
    assert world.committed[ORDERS][0] == 3


def test_what_a_handler_is_at_runs_on_and_if_it_ends_well_nothing_was_skipped():
    world = fetched(3)
    post(world, "skip", ORDERS, (0, 1))
    assert (world.engine.lanes[ORDERS].offsets.frontier, world.writes) == (0, [])
    finish(world)
    assert (ends(world), dropped(world), world.committed[ORDERS][0]) == ([], 0, 3)


@pytest.mark.parametrize("outcome", ["transient", "permanent", "poison", "retry-later", "dead-letter"])
def test_what_a_handler_is_at_is_skipped_when_it_fails_instead_of_tried_again_or_put_aside(outcome):
    world = fetched(3)
    post(world, "skip", ORDERS, (0, 1))
    world.work(outcomes=[outcome])
    finish(world)
    assert ends(world) == [("orders", 0, "skipped", "ann")]
    assert world.cluster.records("orders.dlq") == world.cluster.records(TIER.topic) == []
    assert (world.committed[ORDERS][0], dropped(world)) == (3, 1)


def test_a_record_that_waits_on_a_tier_is_skipped_there():
    world = fetched(2)
    world.work(outcomes=["transient", "ok", "ok"])
    world.answer()
    world.fetch(TIER)
    post(world, "skip", TIER, (0, 1))
    finish(world)
    world.pass_time(60_000)
    assert (ends(world), runs(world)) == ([(TIER.topic, 0, "skipped", "ann")], [])
    assert (world.committed[TIER][0], dropped(world)) == (1, 1)


def test_a_record_that_meets_an_outage_is_skipped_at_once_and_those_behind_it_are_tried():
    world = fetched(3)
    world.work(outcomes=["outage"])
    post(world, "skip", ORDERS, (0, 1))
    while world.writes:
        world.answer()
    assert ends(world) == [("orders", 0, "skipped", "ann")]
    world.pass_time(1_000)
    assert runs(world) == [1]


def test_of_a_paused_listener_a_record_is_skipped_too():
    world = orders()
    say(world, "pause", "orders")
    world.assign(ORDERS)
    world.fetch(ORDERS)
    post(world, "skip", ORDERS, (0, 1))
    while world.writes:
        world.answer()
    assert (ends(world), runs(world)) == ([("orders", 0, "skipped", "ann")], [])


def test_a_notice_that_is_read_twice_skips_once():
    world = fetched(2)
    world.work(outcomes=["outage"])
    post(world, "skip", ORDERS, (0, 1))
    world._notify(world.posted)
    finish(world)
    assert (len(ends(world)), dropped(world)) == (1, 1)


def test_after_a_crash_the_next_owner_skips_it():
    world = fetched(3, give_up="stop")
    world.work(outcomes=["permanent"])
    world.restart()
    post(world, "skip", ORDERS, (0, 1))
    world.assign(ORDERS)
    world.fetch(ORDERS)
    assert runs(world) == [1, 2]
    finish(world)
    assert (ends(world), world.committed[ORDERS][0]) == ([("orders", 0, "skipped", "ann")], 3)


def test_the_log_tells_what_was_skipped_by_whom_and_why():
    world = fetched(2)
    world.work(outcomes=["outage"])
    post(world, "skip", ORDERS, (0, 1))
    fields = next(report.fields for report in world.reports if report.event == "record-skipped")
    told = {
        name: fields[name] for name in ("listener", "topic", "partition", "offset", "who", "why", "state")
    }
    assert told == {
        "listener": "orders", "topic": "orders", "partition": 0, "offset": 0, "who": "ann", "why": "no reason given",
        "state": "orders.dlq.state",
    }  # fmt: skip


# -- skip where records wait in lanes by key -------------------------------------------------------------------------


def by_key(count=4, *, fetch=True, **options):
    world = World(plan_of("30s", order="key", blocking="key", **options), partitions=1)
    for key in (b"a", b"b"):
        for _ in range(count):
            world.cluster.append("orders", b"{}", key=key, partition=0)
    world.assign(ORDERS)
    if fetch:
        world.fetch(ORDERS)
    return world


def fail_first(world):
    """The first record of key `a` fails, and waits in front of its lane for half a minute."""
    world.work(outcomes=["transient"])
    while world.engine.runs:
        world.work(outcomes=["ok"] * 10)
    assert list(world.engine.lanes[ORDERS].heads.copy()) == [0]


def test_a_head_that_waits_is_skipped_and_those_behind_it_run_at_once():
    world = by_key()
    fail_first(world)
    post(world, "skip", ORDERS, (0, 1))
    assert runs(world) == [1, 2, 3]
    finish(world)
    assert ends(world) == [("orders", 0, "skipped", "ann")]
    assert (world.committed[ORDERS][0], len(world.engine.lanes[ORDERS].heads)) == (8, 0)


def test_a_head_that_was_restored_after_a_crash_is_skipped_when_it_is_fetched():
    world = by_key()
    fail_first(world)
    world.pass_time(1_000)
    world.answer_commit()
    world.restart()
    post(world, "skip", ORDERS, (0, 1))
    world.assign(ORDERS)
    world.fetch(ORDERS)
    assert runs(world) == [1, 2, 3]
    finish(world)
    assert (ends(world), world.committed[ORDERS][0]) == ([("orders", 0, "skipped", "ann")], 8)


def test_a_record_that_waits_behind_a_head_is_skipped_and_the_head_is_not():
    world = by_key()
    fail_first(world)
    post(world, "skip", ORDERS, (2, 3))
    world.answer()
    assert ends(world) == [("orders", 2, "skipped", "ann")]
    world.settle()
    assert (world.engine.listeners[0].counters.handled, world.committed[ORDERS][0]) == (7, 8)


def test_the_only_record_of_a_key_is_skipped():
    world = by_key(1)
    fail_first(world)
    post(world, "skip", ORDERS, (0, 1))
    finish(world)
    world.cluster.append("orders", b"{}", key=b"a", partition=0)
    world.settle()
    assert (len(ends(world)), world.committed[ORDERS][0]) == (1, 3)


def test_one_that_runs_and_fails_is_skipped_instead_of_held():
    world = by_key(1)
    post(world, "skip", ORDERS, (0, 1))
    world.work(outcomes=["transient"])
    finish(world)
    assert (ends(world), len(world.engine.lanes[ORDERS].heads)) == ([("orders", 0, "skipped", "ann")], 0)


# -- pause -----------------------------------------------------------------------------------------------------------


def test_a_paused_listener_starts_nothing_and_fetches_nothing_more():
    world = orders()
    say(world, "pause", "orders")
    world.assign(ORDERS)
    world.fetch(ORDERS)
    world.pass_time(60_000)
    assert (runs(world), world.paused) == ([], {ORDERS})


def test_what_runs_when_it_is_paused_may_end_and_is_committed():
    world = fetched(3)
    say(world, "pause", "orders")
    finish(world)
    assert (world.committed[ORDERS][0], runs(world)) == (3, [])


def test_resumed_it_goes_on_where_it_was():
    world = orders(10)
    say(world, "pause", "orders")
    world.assign(ORDERS)
    world.fetch(ORDERS, 4)
    world.pass_time(60_000)
    say(world, "resume", "orders")
    world.pass_time(200)
    world.settle()
    assert world.engine.listeners[0].counters.handled == 10


def test_a_retry_whose_due_comes_meanwhile_waits_and_runs_when_it_is_resumed():
    world = fetched(1)
    world.work(outcomes=["transient", "ok"])
    world.answer()
    world.fetch(TIER)
    say(world, "pause", "orders")
    world.pass_time(3_600_000)
    assert runs(world) == []
    say(world, "resume", "orders")
    assert runs(world) == [0]


def test_the_other_listeners_go_on():
    world = World(plan_of("30s"), plan_of("30s", name="refunds"), partitions=1)
    world.append("orders", count=3)
    world.append("refunds", count=3)
    say(world, "pause", "orders")
    world.assign(ORDERS, OTHER)
    world.fetch(ORDERS)
    world.fetch(OTHER)
    assert {run.lane.key for run in world.engine.runs} == {OTHER}
    assert world.engine.wants_records()


def test_what_is_said_twice_is_told_once():
    world = orders()
    for action in ("resume", "pause", "pause", "resume", "resume"):
        say(world, action, "orders")
    assert [report.event for report in world.reports] == ["listener-paused", "listener-resumed"]


def test_a_listener_of_another_name_is_not_paused():
    world = fetched(1)
    say(world, "pause", "payments")
    assert runs(world) == [0]


# -- stop ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["permanent", "poison", "dead-letter"])
def test_no_commit_ever_passes_the_record_at_which_a_listener_stopped(outcome):
    world = fetched(5, give_up="stop")
    world.work(outcomes=["ok", "ok", outcome])
    finish(world)
    world.revoke(ORDERS)
    world.let_go(ORDERS)
    assert (world.committed[ORDERS][0], world.cluster.records("orders.dlq")) == (2, [])


def test_nothing_behind_it_runs():
    world = fetched(50, give_up="stop")
    world.work(outcomes=["ok", "permanent"])
    world.append("orders", count=50)
    world.fetch(ORDERS)
    finish(world)
    assert (world.engine.listeners[0].counters.handled, runs(world)) == (1, [])


def test_with_others_at_work_on_other_partitions_these_may_end_and_are_committed():
    world = World(plan_of(give_up="stop", concurrency=2))
    one, other = TopicPartition("orders", 0), TopicPartition("orders", 1)
    world.append("orders", 0, 3)
    world.append("orders", 1, 3)
    world.assign(one, other)
    world.fetch(one)
    world.fetch(other)
    world.work(slot=1, outcomes=["ok"])
    world.work(slot=0, outcomes=["permanent"])
    world.revoke(one, other)
    world.work(slot=1, outcomes=["ok", "ok"])
    world.let_go(one, other)
    assert world.committed[other][0] == 2
    assert world.committed.get(one, (0,))[0] == 0


def test_what_can_be_tried_again_is():
    world = fetched(2, give_up="stop")
    world.work(outcomes=["transient", "ok", "ok"])
    assert [write.topic for write in world.writes] == [TIER.topic]
    assert world.engine.listeners[0].stopped is None


def test_at_its_last_attempt_on_a_tier_it_stays_on_that_tier():
    world = fetched(1, give_up="stop")
    world.work(outcomes=["transient", "ok"])
    world.answer()
    world.fetch(TIER)
    world.pass_time(30_000)
    world.work(outcomes=["transient"])
    finish(world)
    assert world.committed.get(TIER, (0,))[0] == 0
    assert world.engine.listeners[0].stopped.record == "orders.retry.30s/0/0"


def test_a_head_at_its_last_attempt_stops_its_listener_and_what_is_behind_it_stays_behind_it():
    world = by_key(give_up="stop")
    fail_first(world)
    world.pass_time(1_000)
    world.answer_commit()
    world.pass_time(30_000)
    world.work(outcomes=["transient"])
    finish(world)
    world.revoke(ORDERS)
    world.let_go(ORDERS)
    assert (world.committed[ORDERS][0], runs(world)) == (0, [])
    world.restart()
    world.assign(ORDERS)
    world.fetch(ORDERS)
    world.pass_time(60_000)
    assert 0 in runs(world)


def test_the_log_tells_where_and_why_it_stopped():
    world = fetched(2, give_up="stop")
    world.work(outcomes=["permanent"])
    [report] = [each for each in world.reports if each.event == "listener-stopped"]
    fields = {
        name: report.fields[name] for name in ("source", "partition", "offset", "reason", "attempt", "type")
    }
    assert fields == {
        "source": "orders", "partition": 0, "offset": 0, "reason": "permanent", "attempt": 1, "type": "SomeError",
    }  # fmt: skip
