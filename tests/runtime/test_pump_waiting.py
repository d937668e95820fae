"""While there is nothing to do the pump waits: in an outage, with the brake on, with writes refused, for dues far ahead."""

import pytest

from redrive import Failures, Record, RetryLater, RetryPolicy
from redrive.core.record import TopicPartition
from tests.runtime.at_work import Process, app_of, append, new_cluster
from tests.sim.engine_world import World, plan_of

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


class VaultSealed(Exception):
    pass


class Shop:
    """A service whose downstream is away while `is_away`; `starts_ms` are the times of all its runs since it began."""

    def __init__(self, *, partitions=1, fails=None, **options):
        self.cluster = new_cluster(partitions=partitions)
        self.is_away, self.starts_ms, self.handled = False, [], []

        def handle(number: int, record: Record) -> None:
            self.starts_ms.append(self.cluster.clock.mono_ms())
            self.cluster.clock.pass_time(1)
            if self.is_away:
                raise VaultSealed
            if fails is not None:
                fails(number, record)
            self.handled.append(number)

        self.process = Process(app_of(handle, failures=Failures(outage=VaultSealed), **options), self.cluster)

    def append(self, *numbers, partition=0):
        append(self.cluster, *numbers, partition=partition)

    def far(self, ms, by_ms):
        """A long time passes, in leaps."""
        end_ms = self.cluster.clock.mono_ms() + ms
        while self.cluster.clock.mono_ms() < end_ms:
            self.process.steps(3)
            self.cluster.clock.advance(by_ms)
        self.process.run(1_000)


def steps_in(process, ms):
    """How many steps the pump makes in so much time."""
    end_ms, steps = process.clock.mono_ms() + ms, 0
    while process.clock.mono_ms() < end_ms:
        process.pump.step()
        steps += 1
        assert steps < 5 * ms, "it spins"
    return steps


# -- no spin ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 3])
def test_in_an_outage_with_records_in_memory_the_pump_comes_to_rest(partitions):
    shop = Shop(partitions=partitions)
    shop.is_away = True
    for number in range(partitions):
        shop.append(*range(100), partition=number)
    assert steps_in(shop.process, 2_000) < 2_000
    assert steps_in(shop.process, MINUTE_MS) < 1_500

    shop.is_away = False
    shop.process.run(2 * MINUTE_MS)
    assert len(shop.handled) == 100 * partitions


def test_with_the_brake_on_and_records_in_memory_the_pump_comes_to_rest():
    def fail(number, record):
        raise TypeError

    shop = Shop(fails=fail)
    shop.append(*range(500))
    shop.process.run(2_000)
    assert shop.process.engine.listeners[0].brake.is_on
    assert steps_in(shop.process, MINUTE_MS) < 6_000


def test_while_so_many_writes_are_refused_that_nothing_may_start_the_pump_comes_to_rest():
    def fail(number, record):
        raise TimeoutError

    shop = Shop(fails=fail, retry=RetryPolicy("1h"))
    shop.cluster.faults.refuse_writes("orders.retry.1h", 10**6)
    megabyte = b" " * 1_000_000 + b"7"
    for _ in range(150):
        shop.cluster.append("orders", megabyte, partition=0)
    shop.process.run(40_000)
    started = len(shop.starts_ms)
    assert 17 <= started < 60
    assert shop.process.engine.lanes[P0].queue

    assert steps_in(shop.process, 10_000) < 6_000
    assert len(shop.starts_ms) == started


def test_while_no_broker_answers_and_writes_are_out_the_pump_comes_to_rest():
    def fail(number, record):
        raise TimeoutError

    shop = Shop(fails=fail, retry=RetryPolicy("5s"))
    shop.append(*range(10))
    shop.process.steps(5)
    shop.cluster.is_down = True
    assert steps_in(shop.process, 10_000) < 12_000


def test_an_idle_pump_makes_ten_steps_a_second():
    shop = Shop()
    shop.process.run(2_000)
    assert steps_in(shop.process, 10_000) <= 110


def test_a_pump_that_holds_records_until_their_due_wakes_for_them_and_not_before():
    def fail(number, record):
        if record.attempt == 1:
            raise TimeoutError

    shop = Shop(fails=fail, retry=RetryPolicy("30s"))
    shop.append(1)
    shop.process.run(2_000)
    assert steps_in(shop.process, 25_000) <= 275
    shop.process.run(10_000)
    first_ms, second_ms = shop.starts_ms
    assert 30_000 <= second_ms - first_ms <= 30_010


# -- outages ---------------------------------------------------------------------------------------------------------


def test_one_record_is_tried_again_after_growing_pauses_up_to_a_minute():
    shop = Shop()
    shop.is_away = True
    shop.append(*range(20))
    shop.process.run(5 * MINUTE_MS)
    pauses_s = [
        round((after - before) / 1000)
        for before, after in zip(shop.starts_ms, shop.starts_ms[1:], strict=False)
    ]
    assert pauses_s == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert shop.process.counters().outages == 1


def test_a_record_that_is_handled_ends_the_outage_and_all_goes_on():
    shop = Shop()
    shop.is_away = True
    shop.append(*range(200))
    shop.process.run(6_000)
    shop.is_away = False
    shop.process.run(6_000)
    assert shop.handled == list(range(200))
    assert len(shop.process.told("outage-over")) == 1
    assert shop.process.is_all_committed()


def test_a_record_that_fails_in_another_way_ends_it_too_since_the_downstream_answered():
    def fail(number, record):
        raise TypeError

    shop = Shop(fails=fail)
    shop.is_away = True
    shop.append(1, 2)
    shop.process.run(500)
    shop.is_away = False
    shop.process.run(3_000)
    assert len(shop.process.told("outage-over")) == 1
    assert len(shop.cluster.records("orders.dlq")) == 2


def test_a_probe_that_a_revoke_stopped_before_it_ran_does_not_end_the_outage():
    world = World(plan_of(), partitions=2)
    world.assign(P0, P1)
    world.append("orders", 0, 5)
    world.fetch(P0)
    world.work(outcomes=["outage"])
    world.append("orders", 1, 5)
    world.fetch(P1)
    world.pass_time(1_000)
    assert [(run.lane.key, len(run.records)) for run in world.engine.runs] == [(P0, 1)]

    world.revoke(P0)
    world.work(outcomes=["ok"])
    world.let_go(P0)

    listener = world.engine.listeners[0]
    assert not listener.breaker.is_closed
    assert [report.event for report in world.reports] == ["outage"]

    world.pass_time(1_000)
    assert [(run.lane.key, len(run.records)) for run in world.engine.runs] == [(P1, 1)]
    world.work(outcomes=["outage"])
    assert listener.breaker.pause_ms == 2_000
    world.pass_time(2_000)
    world.work(outcomes=["ok", "ok"])
    assert listener.breaker.is_closed
    assert [report.event for report in world.reports] == ["outage", "outage-lasts", "outage-over"]


def test_a_probe_that_a_revoke_cut_while_it_was_handled_ends_the_outage_when_it_went_well():
    world = World(plan_of(), partitions=2)
    world.assign(P0, P1)
    world.append("orders", 0, 5)
    world.fetch(P0)
    world.work(outcomes=["outage", "ok"])
    world.pass_time(1_000)
    worker = world._worker(0, 0)  # it has taken up its record
    world.revoke(P0)
    assert worker.run.lane.key == P0
    world.work(outcomes=["ok"])
    assert world.engine.listeners[0].breaker.is_closed


def test_where_no_probe_comes_back_since_its_partition_was_lost_another_partition_tries():
    world = World(plan_of(), partitions=2)
    world.assign(P0, P1)
    world.append("orders", 0, 5)
    world.fetch(P0)
    world.work(outcomes=["outage", "ok"])
    world.pass_time(1_000)
    world.let_go(P0, last_commit="none")
    world.work(outcomes=["ok"])
    world.append("orders", 1, 3)
    world.fetch(P1)
    world.pass_time(1_000)
    assert [run.lane.key for run in world.engine.runs] == [P1]


# -- dues far ahead --------------------------------------------------------------------------------------------------


def test_a_replayed_record_that_is_due_in_ten_minutes_is_written_again_once_a_minute_at_most():
    shop = Shop()
    due_ms = int(shop.cluster.clock.wall_ms()) + 10 * MINUTE_MS
    headers = [("redrive-group", b"shop"), ("redrive-due-ms", b"%d" % due_ms)]
    shop.cluster.append("orders.replay", b"7", partition=0, headers=headers)

    shop.process.run(9 * MINUTE_MS)
    assert (shop.handled, len(shop.cluster.records("orders.replay")) <= 10) == ([], True)
    shop.process.run(2 * MINUTE_MS)

    assert shop.handled == [7]
    assert 0 <= shop.starts_ms[0] - 10 * MINUTE_MS <= 10
    assert shop.process.is_all_committed()


def test_retry_later_on_a_short_tier_is_written_again_once_a_minute_at_most():
    def fail(number, record):
        if record.attempt == 1:
            raise RetryLater("10m")

    shop = Shop(fails=fail, retry=RetryPolicy("1s"))
    shop.append(7)
    shop.process.run(11 * MINUTE_MS)
    assert shop.handled == [7]
    assert 10 * MINUTE_MS <= shop.starts_ms[1] - shop.starts_ms[0] <= 10 * MINUTE_MS + 10
    assert len(shop.cluster.records("orders.retry.1s")) <= 11


@pytest.mark.parametrize(
    ("policy", "at_least_d"), [(RetryPolicy("8d"), 8), (RetryPolicy("5d", jitter=1.0), 5)]
)
def test_a_ladder_of_many_days_is_climbed(policy, at_least_d):
    def fail(number, record):
        if record.attempt == 1:
            raise TimeoutError

    shop = Shop(fails=fail, retry=policy)
    shop.append(*range(5))
    shop.process.run(2_000)
    assert len(shop.cluster.records("orders.dlq")) == 0

    shop.far(11 * DAY_MS, by_ms=10 * MINUTE_MS)

    assert sorted(shop.handled) == list(range(5))
    assert min(shop.starts_ms[5:]) >= at_least_d * DAY_MS


def test_retry_later_of_six_days_runs_once_then_and_is_written_no_more_often_than_its_tier_is_long():
    def fail(number, record):
        if record.attempt == 1:
            raise RetryLater("6d")

    shop = Shop(fails=fail, retry=RetryPolicy("1h"))
    shop.append(7)
    shop.far(7 * DAY_MS, by_ms=5 * MINUTE_MS)
    assert shop.handled == [7]
    assert shop.starts_ms[1] - shop.starts_ms[0] >= 6 * DAY_MS
    assert len(shop.cluster.records("orders.retry.1h")) <= 6 * 24


def test_retry_later_of_eight_days_is_a_dead_letter_that_says_expired():
    def fail(number, record):
        raise RetryLater("8d")

    shop = Shop(fails=fail, retry=RetryPolicy("1h"))
    shop.append(7)
    shop.process.run(2_000)
    assert {name: bytes(value) for name, value in shop.cluster.records("orders.dlq")[0].headers()}[
        "redrive-reason"
    ] == b"expired"
