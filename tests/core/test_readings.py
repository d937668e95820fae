"""The metrics' values are those of the engine at the moment of the reading."""

import msgspec

from redrive.core import catalogue
from redrive.core.catalogue import ALIASES, METRICS
from redrive.core.commands import Refusal
from redrive.core.readings import Bounds, Depth, Look, Spread, read
from redrive.core.record import TopicPartition
from tests.sim.engine_world import World, plan_of

SOURCE, TIER, DLQ = "orders", "orders.retry.5s", "orders.dlq"
P0, P1, T0 = TopicPartition(SOURCE, 0), TopicPartition(SOURCE, 1), TopicPartition(TIER, 0)
LISTENER = ("shop", "orders")
NOW_MS = 1_700_000_000_000
#: Three letters, the oldest an hour old, in a topic that keeps them for a day.
DEPTH = Depth(
    unresolved={"poison": 1, "permanent": 2, "asked": 0},
    oldest_ms=NOW_MS - 3_600_000,
    retention_ms=86_400_000,
)


def values(world, metric, bounds=None, stepped_ms=0.0, loop_stalls=0, depth=None, with_aliases=False):
    """The series of a metric, by the labels after group and listener."""
    now_ms = world.clock.mono_ms()
    look = Look(
        group="shop",
        version="1.2.3",
        now_wall_ms=NOW_MS,
        now_mono_ms=now_ms,
        stepped_mono_ms=stepped_ms,
        bounds=bounds or {},
        loop_stalls=loop_stalls,
        depths={DLQ: depth} if depth else {},
    )
    return dict(read([(world.engine, look)], with_aliases=with_aliases)[metric])


def count(world, metric, *labels):
    return values(world, metric)[LISTENER + labels]


def states(world):
    return {labels[-1]: value for labels, value in values(world, catalogue.BREAKER).items()}


def started(*delays, **options):
    world = World(plan_of(*delays or ("5s", "30s"), **options))
    world.assign(P0, P1, T0)
    return world


def outcomes(world):
    found = values(world, catalogue.RECORDS)
    return {labels[-1]: value for labels, value in found.items() if value}


def test_every_metric_is_read_and_no_other():
    world = started()
    bounds = {key: Bounds(0, 0) for key in (P0, P1, T0)}
    look = Look(
        group="shop",
        version="1",
        now_wall_ms=0,
        now_mono_ms=0,
        stepped_mono_ms=0,
        bounds=bounds,
        depths={DLQ: DEPTH},
    )
    found = read([(world.engine, look)], with_aliases=True)
    assert set(found) == {*METRICS, *ALIASES}
    assert [metric.name for metric, readings in found.items() if not readings] == []


def test_each_series_has_a_value_for_each_label():
    look = Look(
        group="shop",
        version="1",
        now_wall_ms=0,
        now_mono_ms=0,
        stepped_mono_ms=0,
        bounds={P0: Bounds(0, 0)},
        depths={DLQ: DEPTH},
    )
    for metric, readings in read([(started().engine, look)], with_aliases=True).items():
        assert {len(labels) for labels, _ in readings} <= {len(metric.labels)}
        assert len({labels for labels, _ in readings}) == len(readings)


def test_before_anything_happens_all_counters_are_there_at_zero():
    world = World(plan_of("5s", "30s"))
    assert set(values(world, catalogue.RECORDS).items()) == {
        ((*LISTENER, SOURCE, one), 0) for one in catalogue.OUTCOMES
    }
    assert set(values(world, catalogue.RETRIES).items()) == {
        ((*LISTENER, f"orders.retry.{tier}"), 0) for tier in ("5s", "30s")
    }
    assert sum(values(world, catalogue.DEAD_LETTERS).values()) == 0
    assert {labels[-1] for labels in values(world, catalogue.DEAD_LETTERS)} >= {
        "poison",
        "exhausted",
        "too-large",
    }
    assert values(world, catalogue.COMMITS) == {("shop", "confirmed"): 0, ("shop", "refused"): 0}
    assert count(world, catalogue.BRAKE) == 0
    assert states(world) == {"closed": 1, "half-open": 0, "open": 0}


def test_records_are_counted_by_what_became_of_them():
    world = started()
    world.append(SOURCE, count=5)
    world.fetch(P0)
    world.work(outcomes=["ok", "transient", "poison", "skip", "permanent", "ok"])
    assert outcomes(world) == {"handled": 1, "retried": 1, "dead-lettered": 2, "skipped": 1}
    assert count(world, catalogue.RETRIES, TIER) == 1
    assert count(world, catalogue.DEAD_LETTERS, SOURCE, "poison") == 1
    assert count(world, catalogue.DEAD_LETTERS, SOURCE, "permanent") == 1
    assert count(world, catalogue.FAILED_RUNS) == 4


def test_a_listener_that_gives_up_by_skipping_counts_what_it_dropped():
    world = started(give_up="skip")
    world.append(SOURCE, count=1)
    world.fetch(P0)
    world.work(outcomes=["permanent", "ok"])
    assert outcomes(world) == {"given-up": 1}


def test_what_a_handler_gives_up_on_is_no_record_that_it_skipped():
    world = started(give_up="skip")
    world.append(SOURCE, count=2)
    world.fetch(P0)
    world.work(outcomes=["dead-letter", "skip", "ok"])
    assert outcomes(world) == {"given-up": 1, "skipped": 1}
    assert [report.event for report in world.reports] == ["record-given-up"]


def test_another_groups_record_on_a_shared_tier_is_passed_by():
    world = started()
    world.append(TIER, headers=[("redrive-group", b"another")])
    world.fetch(T0)
    assert outcomes(world) == {"passed-by": 1}


def test_held_records_are_counted_until_they_run():
    world = started()
    world.append(TIER, count=3)
    world.fetch(T0)
    assert count(world, catalogue.HELD_RECORDS, TIER) == 3
    assert count(world, catalogue.HELD_BYTES, TIER) > 3 * 1000
    world.pass_time(6_000)
    assert count(world, catalogue.HELD_RECORDS, TIER) == 0


def test_lateness_is_counted_by_tier():
    world = started()
    world.append(TIER, count=2)
    world.fetch(T0)
    world.pass_time(5_000)
    world.work(outcomes=["ok", "ok", "ok"])
    spread = count(world, catalogue.RETRY_LATENESS, TIER)
    assert isinstance(spread, Spread)
    assert count(world, catalogue.RETRY_LATENESS, "orders.retry.30s").counts == (0,) * len(spread.counts)


def test_unconfirmed_writes_and_refusals_are_told_until_the_write_is_through():
    world = started()
    world.append(SOURCE, count=2)
    world.fetch(P0)
    world.work(outcomes=["permanent", "transient", "ok"])
    assert count(world, catalogue.UNCONFIRMED_WRITES) == 2
    world.answer(0, Refusal("unavailable", "no"), written=False)
    world.answer(0, Refusal("unavailable", "no"), written=False)
    assert count(world, catalogue.DEAD_LETTER_WRITE_FAILURES) == 1
    assert count(world, catalogue.RETRY_WRITE_FAILURES) == 1
    assert count(world, catalogue.UNCONFIRMED_WRITES) == 2
    world.pass_time(31_000)
    world.answer()
    world.answer()
    assert count(world, catalogue.UNCONFIRMED_WRITES) == 0


def test_an_outage_shows_while_it_lasts():
    world = started()
    world.append(SOURCE)
    world.fetch(P0)
    world.work(outcomes=["outage"])
    assert (states(world), count(world, catalogue.OUTAGES)) == ({"closed": 0, "half-open": 0, "open": 1}, 1)
    assert (count(world, catalogue.HELD_FAILURES), count(world, catalogue.OUTAGE_RECORDS)) == (1, 1)
    world.pass_time(2_000)
    assert states(world) == {"closed": 0, "half-open": 1, "open": 0}
    world.work(outcomes=["ok", "ok"])
    assert (states(world), count(world, catalogue.OUTAGES)) == ({"closed": 1, "half-open": 0, "open": 0}, 1)
    assert (count(world, catalogue.HELD_FAILURES), count(world, catalogue.OUTAGE_RECORDS)) == (1, 0)


def test_the_brake_shows_while_it_is_on():
    world = started()
    world.append(SOURCE, count=200)
    world.fetch(P0, most=200)
    for _ in range(300):
        world.work(outcomes=["permanent"])
    assert count(world, catalogue.BRAKE) == 1


def test_a_handler_at_the_first_record_of_its_run_is_as_old_as_the_run():
    world = started()
    world.append(SOURCE, count=2)
    world.fetch(P0)
    assert count(world, catalogue.OLDEST_HANDLER) == 0
    (run,) = world.engine.runs
    run.started_mono_ms = world.clock.mono_ms()
    world.pass_time(700)
    assert count(world, catalogue.OLDEST_HANDLER) == 0.7


def test_a_long_run_of_quick_records_is_no_old_handler():
    world = started()
    world.append(SOURCE, count=16)
    world.fetch(P0)
    for _ in range(10):
        world.work(outcomes=["ok"])
        world.pass_time(500)
    assert count(world, catalogue.OLDEST_HANDLER) <= 0.5
    world.pass_time(200)  # the engine looks
    world.pass_time(60_000)
    assert 60 <= count(world, catalogue.OLDEST_HANDLER) <= 60.7


def test_the_oldest_handler_is_told_for_each_listener_by_itself():
    world = World(plan_of("5s"), plan_of("1s", name="payouts"))
    world.assign(P0, TopicPartition("payouts", 0))
    world.append("payouts")
    world.fetch(TopicPartition("payouts", 0))
    world.work(listener=1, outcomes=[])
    (run,) = world.engine.runs
    run.started_mono_ms = world.clock.mono_ms()
    world.pass_time(3_000)
    assert values(world, catalogue.OLDEST_HANDLER) == {("shop", "orders"): 0, ("shop", "payouts"): 3}


def test_lag_is_what_is_not_finished_wherever_it_is():
    world = started()
    world.append(SOURCE, count=10)
    bounds = {P0: Bounds(0, 10), P1: Bounds(0, 0)}
    assert values(world, catalogue.SOURCE_LAG, bounds) == {(*LISTENER, SOURCE): 10}
    world.fetch(P0, most=4)
    assert values(world, catalogue.SOURCE_LAG, bounds) == {(*LISTENER, SOURCE): 10}
    world.work(outcomes=["ok", "ok", "transient", "ok", "ok"])
    # three are finished, the failed one isn't before its retry was written
    assert values(world, catalogue.SOURCE_LAG, bounds) == {(*LISTENER, SOURCE): 7}
    world.answer()
    assert values(world, catalogue.SOURCE_LAG, bounds) == {(*LISTENER, SOURCE): 6}


def test_the_lag_of_a_tier_is_what_waits_in_it():
    world = started()
    world.append(TIER, count=5)
    world.fetch(T0, most=2)
    assert values(world, catalogue.TIER_LAG, {T0: Bounds(0, 5)}) == {(*LISTENER, TIER): 5}


def test_an_old_end_offset_does_not_hide_what_was_fetched_since():
    world = started()
    world.append(SOURCE, count=10)
    world.fetch(P0)
    assert values(world, catalogue.SOURCE_LAG, {P0: Bounds(0, 3), P1: Bounds(0, 0)}) == {
        (*LISTENER, SOURCE): 10
    }


def test_a_partition_that_retention_emptied_has_no_lag():
    world = started()
    assert values(world, catalogue.SOURCE_LAG, {P0: Bounds(50, 50), P1: Bounds(7, 9)}) == {
        (*LISTENER, SOURCE): 2
    }


def test_lag_is_missing_rather_than_wrong_while_an_end_is_not_known():
    world = started()
    assert values(world, catalogue.SOURCE_LAG, {P0: Bounds(0, 10)}) == {}


def test_lag_vanishes_with_the_partitions():
    world = started()
    bounds = {P0: Bounds(0, 4), P1: Bounds(0, 3)}
    world.let_go(P1, last_commit="none")
    assert values(world, catalogue.SOURCE_LAG, bounds) == {(*LISTENER, SOURCE): 4}
    world.let_go(P0, last_commit="none")
    assert values(world, catalogue.SOURCE_LAG, bounds) == {}
    assert count(world, catalogue.ASSIGNED_PARTITIONS, SOURCE) == 0


def test_assigned_and_paused_partitions_are_counted_by_topic():
    world = World(plan_of("5s"), window_bytes=4_000)
    world.assign(P0, P1, T0)
    world.append(TIER, count=10)
    world.fetch(T0)
    assert count(world, catalogue.ASSIGNED_PARTITIONS, SOURCE) == 2
    assert count(world, catalogue.ASSIGNED_PARTITIONS, TIER) == 1
    assert count(world, catalogue.PAUSED_PARTITIONS, SOURCE) == 0
    assert count(world, catalogue.PAUSED_PARTITIONS, TIER) == 1


def test_heads_are_counted_and_what_waits_for_a_handler_until_it_is_handled():
    world = World(plan_of("30s", order="key", blocking="key"))
    world.assign(P0)
    world.append(SOURCE, count=3)
    world.fetch(P0)
    world.work(outcomes=["transient"])
    assert (count(world, catalogue.HEADS), count(world, catalogue.QUEUED)) == (1, 1)
    world.pass_time(1_000)
    world.answer_commit()
    world.work(outcomes=["ok"] * 3)
    world.pass_time(30_000)
    world.work(outcomes=["ok"] * 3)
    assert (count(world, catalogue.HEADS), count(world, catalogue.QUEUED)) == (0, 0)


def test_commits_are_counted_by_answer():
    world = started()
    for refused in ([], [P0], []):
        world.append(SOURCE)
        world.fetch(P0)
        world.work(outcomes=["ok", "ok"])
        world.pass_time(2_000)
        world.answer_commit(*refused)
    # One more is confirmed before the first record starts: it opens the partition's ledger.
    assert values(world, catalogue.COMMITS) == {("shop", "confirmed"): 3, ("shop", "refused"): 1}


def test_the_process_tells_of_its_pump_its_loop_and_its_version():
    world = started()
    world.pass_time(4_500)
    assert values(world, catalogue.PUMP_STEP_AGE, stepped_ms=3_000) == {("shop",): 1.5}
    assert values(world, catalogue.LOOP_STALLS, loop_stalls=2) == {("shop",): 2}
    assert values(world, catalogue.BUILD_INFO) == {("1.2.3",): 1}


def test_unresolved_letters_are_told_by_reason_with_the_age_and_the_time_left_of_the_oldest():
    world = started()
    assert values(world, catalogue.UNRESOLVED, depth=DEPTH) == {
        (*LISTENER, DLQ, "poison"): 1, (*LISTENER, DLQ, "permanent"): 2, (*LISTENER, DLQ, "asked"): 0,
    }  # fmt: skip
    assert values(world, catalogue.OLDEST_UNRESOLVED, depth=DEPTH) == {(*LISTENER, DLQ): 3_600}
    assert values(world, catalogue.RETENTION_LEFT, depth=DEPTH) == {(*LISTENER, DLQ): 82_800}


def test_without_unresolved_letters_the_age_is_zero_and_no_time_is_left_to_tell():
    nothing = Depth(unresolved={"poison": 0}, oldest_ms=None, retention_ms=86_400_000)
    world = started()
    assert values(world, catalogue.OLDEST_UNRESOLVED, depth=nothing) == {(*LISTENER, DLQ): 0}
    assert values(world, catalogue.RETENTION_LEFT, depth=nothing) == {}


def test_where_retention_is_unlimited_no_time_is_left_to_tell():
    for_ever = Depth(unresolved={"poison": 1}, oldest_ms=NOW_MS, retention_ms=None)
    assert values(started(), catalogue.RETENTION_LEFT, depth=for_ever) == {}


def test_a_letter_of_a_clock_that_is_ahead_is_not_of_the_future():
    ahead = Depth(unresolved={"poison": 1}, oldest_ms=NOW_MS + 5_000, retention_ms=10_000)
    assert values(started(), catalogue.OLDEST_UNRESOLVED, depth=ahead) == {(*LISTENER, DLQ): 0}


def test_what_is_not_known_is_missing():
    world = started()
    for metric in (catalogue.UNRESOLVED, catalogue.OLDEST_UNRESOLVED, catalogue.RETENTION_LEFT):
        assert values(world, metric) == {}
    assert values(world, catalogue.DLQ_SIZE, with_aliases=True) == {}


def test_a_listener_tells_its_topics_and_how_much_its_letters_matter():
    assert values(started(), catalogue.LISTENER_INFO) == {(*LISTENER, SOURCE, DLQ, "normal"): 1}


def test_other_names_tell_the_same_by_dead_letter_topic():
    world = started()
    world.append(SOURCE, count=2)
    world.fetch(P0)
    world.work(outcomes=["permanent", "poison", "ok"])
    assert values(world, catalogue.DLQ_MESSAGES, with_aliases=True) == {(DLQ,): 2}
    assert values(world, catalogue.DLQ_SIZE, depth=DEPTH, with_aliases=True) == {(DLQ,): 3}


def test_a_listener_to_dead_letters_tells_of_none_of_its_own():
    world = World(msgspec.structs.replace(plan_of("5s"), letters_of=("payments",)))
    for metric in (catalogue.LISTENER_INFO, catalogue.UNRESOLVED, catalogue.DLQ_SIZE, catalogue.DLQ_MESSAGES):
        assert values(world, metric, depth=DEPTH, with_aliases=True) == {}
