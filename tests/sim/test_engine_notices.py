"""Records that wait are hurried or discarded by notices: as soon as they are seen, once, and across crashes."""

from redrive.core.commands import Refusal
from redrive.core.notices import read_end
from redrive.core.record import TopicPartition
from tests.sim.engine_world import World, plan_of, post

TIER = TopicPartition("orders.retry.30s", 0)
AWAY = Refusal("unavailable", "no broker")
TOO_LARGE = Refusal("too-large", "too large")


def _waiting(count, *, due_in_ms=30_000, **world):
    """A world in which so many records wait in a tier."""
    world = World(plan_of("30s"), partitions=1, **world)
    due_ms = int(world.clock.wall_ms()) + due_in_ms
    headers = [("redrive-group", b"shop"), ("redrive-due-ms", b"%d" % due_ms), ("redrive-attempt", b"1")]
    world.append(TIER.topic, 0, count, headers=[*headers, ("redrive-source-topic", b"orders")])
    world.assign(TIER)
    world.fetch(TIER)
    return world


def _runs(world):
    """The offsets that workers have been given."""
    return [record.offset() for run in world.engine.runs for record in run.records]


def _ends(world):
    """The offsets that were written down as discarded."""
    state = world.cluster.records("orders.dlq.state")
    return [read_end(record.key(), record.value())[1] for record in state]


def test_a_hurried_record_runs_at_once_and_those_around_it_at_their_due():
    world = _waiting(5)
    post(world, "hurry", TIER, (1, 2), (3, 4))
    assert _runs(world) == [1, 3]

    world.work(outcomes=["ok"] * 3)
    world.pass_time(29_999)
    assert _runs(world) == []
    world.pass_time(1)
    assert _runs(world) == [0, 2, 4]


def test_a_hurried_record_keeps_its_attempts():
    world = _waiting(1)
    post(world, "hurry", TIER, (0, 1))
    world.work(outcomes=["transient"])
    assert [(write.topic, dict(write.headers)["redrive-attempt"]) for write in world.writes] == [
        ("orders.dlq", b"2")
    ]


def test_a_discarded_record_never_runs_and_passes_only_after_its_end_was_written_down():
    world = _waiting(3)
    post(world, "discard", TIER, (1, 2))
    lane = world.engine.lanes[TIER]
    world.pass_time(30_000)
    world.work(outcomes=["ok"] * 3)
    assert (lane.offsets.frontier, lane.offsets.finished_above_frontier()) == (1, ((2, 3),))

    world.answer(0, AWAY, written=False)
    assert lane.offsets.frontier == 1
    world.pass_time(1_000)
    world.answer(0)

    assert (lane.offsets.frontier, _ends(world)) == (3, [1])
    assert world.engine.listeners[0].counters.dropped["discarded"] == 1


def test_an_end_that_is_refused_as_too_large_makes_no_dead_letter():
    world = _waiting(1)
    post(world, "discard", TIER, (0, 1))
    for _ in range(20):
        world.answer(0, TOO_LARGE, written=False)
        world.pass_time(60_000)
    assert [write.topic for write in world.writes] == ["orders.dlq.state"]


def test_a_process_that_dies_before_the_end_was_written_down_leaves_it_to_the_next():
    world = _waiting(2)
    post(world, "discard", TIER, (0, 1))

    world.restart()
    world.assign(TIER)
    world.fetch(TIER)
    world.pass_time(30_000)

    assert (_runs(world), [write.topic for write in world.writes]) == ([1], ["orders.dlq.state"])
    world.settle()
    assert _ends(world) == [0]


def test_a_record_that_is_with_a_worker_already_is_run_and_not_called_discarded():
    world = _waiting(2)
    world.pass_time(30_000)
    post(world, "discard", TIER, (0, 2))
    world.work(outcomes=["ok"] * 3)
    world.settle()
    assert (world.engine.listeners[0].counters.handled, _ends(world)) == (2, [])


def test_what_a_run_gives_back_is_discarded_then():
    """A run that an outage ends gives back the records behind it; a notice came meanwhile."""
    world = _waiting(3)
    world.pass_time(30_000)
    post(world, "discard", TIER, (1, 3))
    world.work(outcomes=["outage"])
    while world.writes:
        world.answer()
    assert _ends(world) == [1, 2]


def test_a_record_that_is_fetched_only_later_is_discarded_then():
    world = _waiting(40, window_bytes=8_000)
    post(world, "discard", TIER, (0, 40))
    for _ in range(40):
        while world.writes:
            world.answer()
        world.pass_time(1_000)
        world.fetch(TIER, 5)
    assert sorted(_ends(world)) == list(range(40))
    assert world.engine.listeners[0].counters.handled == 0


def test_a_record_that_would_be_posted_on_for_days_is_hurried_too():
    world = _waiting(1, due_in_ms=3 * 86_400_000)
    post(world, "hurry", TIER, (0, 1))
    assert _runs(world) == [0]


def test_a_notice_that_is_read_twice_changes_nothing():
    world = _waiting(2)
    post(world, "discard", TIER, (0, 1))
    world._notify(world.posted)
    assert len(world.writes) == 1


def test_the_log_tells_how_many_who_and_why():
    world = _waiting(5)
    post(world, "discard", TIER, (0, 2), (4, 5))
    [report] = world.reports
    told = {name: report.fields[name] for name in ("count", "tier", "partition", "who", "why", "state")}
    assert (report.event, told) == (
        "retries-discarded",
        {
            "count": 3,
            "tier": TIER.topic,
            "partition": 0,
            "who": "ann",
            "why": "no reason given",
            "state": "orders.dlq.state",
        },
    )
