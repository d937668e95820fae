"""A bad release does not empty the topic into the dead-letter topic, whatever ladder it has to climb before."""

from dataclasses import replace

import pytest

from redrive import RetryLater, RetryPolicy
from redrive.core.policy import Backoff
from redrive.core.record import TopicPartition
from tests.runtime.at_work import SETTINGS, Process, app_of, append, new_cluster
from tests.sim.engine_world import World, plan_of

WITHOUT_BREAKER = replace(SETTINGS, breaker=False)


class Release:
    """A service that fails as `fails` says, each record in `takes_ms`; `died` is how many it has given up."""

    def __init__(self, fails, *, partitions=4, takes_ms=1.0, **options):
        self.cluster = new_cluster(partitions=partitions)
        self.runs = 0

        def handle(number: int) -> None:
            self.cluster.clock.pass_time(takes_ms)
            self.runs += 1
            fails(number)

        # What fails as transient is the breaker's, while it is there.
        self.process = Process(app_of(handle, **options), self.cluster, settings=WITHOUT_BREAKER)

    def append(self, count, first=0):
        for number in range(first, first + count):
            append(self.cluster, number, partition=number % len(self.cluster.topics["orders"].partitions))

    @property
    def died(self):
        counters = self.process.counters()
        dropped = sum(count for reason, count in counters.dropped.items() if reason != "skip")
        assert sum(counters.dead.values()) == len(self.cluster.records("orders.dlq"))
        return sum(counters.dead.values()) + dropped

    def bounded(self, seconds, *, most=100):
        """Run for so long; at no time may more have died than `most` and one a second."""
        for second in range(1, seconds + 1):
            self.process.run(1_000)
            assert self.died <= most + second, f"after {second} s"
        return self


def always(error):
    def fail(_):
        raise error("a bad release")

    return fail


def later(_):
    raise RetryLater("2s")


LADDERS = {
    "no ladder": RetryPolicy(),
    "one tier": RetryPolicy("5s"),
    "three tiers": RetryPolicy("1s", "2s", "5s"),
    "a tier that is repeated": RetryPolicy("1s", max_attempts=5),
    "with tries in place": RetryPolicy("2s", immediate=Backoff(2, "10ms")),
    "with jitter": RetryPolicy("2s", jitter=1.0),
}


@pytest.mark.parametrize("give_up", ["dead-letter", "skip"])
@pytest.mark.parametrize("ladder", LADDERS)
def test_when_all_records_fail_the_brake_comes_on_before_a_hundred_have_died(ladder, give_up):
    release = Release(always(TimeoutError), retry=LADDERS[ladder], give_up=give_up)
    release.append(4_000)

    release.bounded(60)

    assert release.process.engine.listeners[0].brake.is_on
    assert [fields["cause"] for fields in release.process.told("brake-on")] == ["TimeoutError"]
    assert release.died >= 50


@pytest.mark.parametrize("fails", [always(TypeError), later, always(SystemExit)])
def test_whatever_the_reason_that_they_die_of(fails):
    release = Release(fails, retry=RetryPolicy("2s"))
    release.append(4_000)
    release.bounded(60)
    assert release.process.told("brake-on")


@pytest.mark.parametrize("ladder", ["no ladder", "one tier"])
def test_however_quickly_they_die(ladder):
    def fail(number):
        if number >= 3_000:  # until then runs have grown to hundreds of records
            raise TypeError

    release = Release(fail, retry=LADDERS[ladder], takes_ms=0.001, partitions=1)
    release.append(20_000)
    release.bounded(20, most=3_100)
    assert release.process.told("brake-on")


def test_however_many_handlers_run_at_once():
    release = Release(always(TimeoutError), retry=RetryPolicy("2s"), partitions=50, concurrency=50)
    release.append(5_000)
    release.bounded(40)
    assert release.process.told("brake-on")


def test_the_fixed_version_handles_what_the_bad_one_left():
    def fail(_):
        if not release.is_fixed:
            raise TimeoutError

    release = Release(fail, retry=RetryPolicy("2s"))
    release.is_fixed = False
    release.append(1_000)
    release.bounded(60)
    died = release.died

    release.is_fixed = True
    release.process.run(180_000)

    assert release.process.told("brake-off")
    assert release.process.is_all_committed()
    assert (release.died, release.process.counters().handled) == (died, 1_000 - died)


@pytest.mark.parametrize("ladder", ["no ladder", "one tier", "three tiers"])
def test_a_listener_of_whose_records_thirty_in_a_hundred_die_goes_on_at_its_pace(ladder):
    def fail(number):
        if number % 10 < 3:
            raise TimeoutError

    release = Release(fail, retry=LADDERS[ladder])
    for second in range(30):  # a steady load, half of what it can do
        release.append(200, first=200 * second)
        release.process.run(1_000)
    release.process.run(15_000)

    assert release.process.told("brake-on") == []
    assert release.died == 1_800
    assert release.process.is_all_committed()


def test_records_that_are_tried_again_do_not_count_until_their_end_is_known():
    def fail(number):
        if number not in seen:
            seen.add(number)
            raise TimeoutError

    seen = set()
    release = Release(fail, retry=RetryPolicy("2s"))
    release.append(2_000)
    release.process.run(30_000)
    assert (release.process.told("brake-on"), release.died) == ([], 0)
    assert release.process.counters().handled == 2_000


# -- one a second ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 8])
def test_with_the_brake_on_one_record_a_second_really_starts(partitions):
    release = Release(always(TypeError), partitions=partitions)
    release.append(500)
    release.process.run(5_000)
    assert release.process.engine.listeners[0].brake.is_on
    before = release.runs

    release.process.run(30_000)

    assert 26 <= release.runs - before <= 31


def test_also_where_the_ladder_has_records_that_are_due():
    release = Release(always(TimeoutError), retry=RetryPolicy("1s", "2s"))
    release.append(2_000)
    release.process.run(20_000)
    assert release.process.engine.listeners[0].brake.is_on
    before = release.runs

    release.process.run(30_000)

    assert 26 <= release.runs - before <= 31


def test_partitions_in_which_nothing_is_left_to_run_do_not_use_up_the_second():
    world = World(plan_of(), partitions=9)
    full, *cut = [TopicPartition("orders", number) for number in range(9)]
    world.assign(full, *cut)
    world.append("orders", 0, 100)
    world.fetch(full)
    for _ in range(60):
        world.work(outcomes=["permanent"])
    assert world.engine.listeners[0].brake.is_on
    for key in cut:  # each has an offset to pass and no record to run, as also after compaction
        world.append("orders", key.partition)
        world.cluster.partition(key).delete_before(1)
        world.engine.lanes[key].offsets.begin(0)
        world.engine.log_was_cut(key, 1)

    for second in range(5):
        world.pass_time(1_000)
        assert len(world.engine.runs) == 1, f"in second {second}"
        world.work(outcomes=["permanent", "permanent"])
