"""
What an outage of the downstream does to a listener's records, on the simulated cluster: whole apps, minutes in moments.

"At full rate" means that there is always a record to handle. Of `RECORDS`, some hundreds are handled before the downstream
goes away.
"""

import asyncio
from collections import defaultdict
from dataclasses import replace
from functools import partial

import pytest

from redrive import App, Failures, Record, RetryPolicy
from redrive.core.breaker import ENOUGH_ATTEMPTS, PROBE_MOST_MS, TOKENS_MOST
from redrive.core.settings import Settings
from redrive.core.units import parse_duration_ms
from tests.sim.fleet import Fleet

SETTINGS = Settings(bootstrap_servers="sim:9092")
RECORDS = 2_000
KEYS = 200
LADDER = RetryPolicy("5s", "30s", "10m")


class Down(Exception):
    pass


class Service:
    """
    An app whose handler takes `takes_ms`, or `away_takes_ms` to fail while its downstream is away. `odd`: of how many
    records one is refused for good, at any time.
    """

    def __init__(
        self,
        redrive_harness,
        *,
        takes_ms=20.0,
        away_takes_ms=None,
        is_async=True,
        odd=0,
        partitions=4,
        settings=SETTINGS,
        fails=Down,
        **options,
    ):
        self.takes_ms, self.away_takes_ms, self.odd, self.fails = takes_ms, away_takes_ms, odd, fails
        #: From when to when the downstream is away, by the clock.
        self.began_ms = self.ended_ms = float("inf")
        #: When, which number, which attempt, and whether it went well.
        self.calls = []
        app = App("shop")
        options.setdefault("retry", LADDER)
        options.setdefault("concurrency", 20 if is_async else 4)

        async def handle(number: int, record: Record) -> None:
            began_away = self.is_away
            await asyncio.sleep(self._takes_ms() / 1000)
            self._answer(number, record, began_away)

        def handle_at_once(number: int, record: Record) -> None:
            self.clock.pass_time(self._takes_ms() / 10)
            self._answer(number, record, self.is_away)

        app.listener("orders", name="orders", **options)(handle if is_async else handle_at_once)
        self.harness = redrive_harness(app, partitions=partitions, settings=settings)
        self.clock = self.harness.clock

    def _takes_ms(self):
        return self.away_takes_ms if self.is_away and self.away_takes_ms else self.takes_ms

    def _answer(self, number, record, is_away):
        is_odd = bool(self.odd) and number % self.odd == 0
        went_well = not (is_away or is_odd)
        self.calls.append((self.clock.mono_ms(), number, record.attempt, went_well))
        if is_odd:
            raise TypeError
        if is_away:
            raise self.fails

    def send(self, count=RECORDS, first=0):
        for number in range(first, first + count):
            key = b"%d" % (number % KEYS)
            self.harness.cluster.append("orders", b"%d" % number, key=key, partition=number % KEYS % 4)
        return self

    def outage(self, *, after="500ms", lasts="5m"):
        """Let an outage come and go; all that was handled or tried before is left out of what is told then."""
        self.began_ms = self.clock.mono_ms() + parse_duration_ms(after)
        self.ended_ms = self.began_ms + parse_duration_ms(lasts)
        self.harness.advance(after)
        self.harness.advance(lasts)
        return self

    @property
    def is_away(self):
        return self.began_ms <= self.clock.mono_ms() < self.ended_ms

    @property
    def in_vain(self):
        """Runs that failed."""
        return sum(not went_well for _, _, _, went_well in self.calls)

    @property
    def counters(self):
        return self.harness.workers.running[0].groups[0].engine.listeners[0].counters

    @property
    def breaker(self):
        return self.harness.workers.running[0].groups[0].engine.listeners[0].breaker

    @property
    def climbed(self):
        """Retries written to the ladder."""
        return sum(
            log.end
            for name, topic in self.harness.cluster.topics.items()
            if ".retry." in name
            for log in topic.partitions
        )

    def told(self, event):
        return [report.fields for report in self.harness.reports if report.event == event]

    def handled(self):
        return [number for _, number, _, went_well in self.calls if went_well]

    def check_end(self, count=RECORDS):
        """All were handled, each once; nothing died."""
        assert sorted(self.handled()) == list(range(count))
        assert self.harness.dead_letters == []


@pytest.fixture
def new(redrive_harness):
    """Makes services whose harness is closed in the end."""
    return partial(Service, redrive_harness)


MODES = {
    "by partition, plain": {"is_async": False},
    "by partition, coroutines": {},
    "by key": {"order": "key"},
    "without order": {"order": "none"},
    "by key, plain, blocking": {
        "order": "key",
        "is_async": False,
        "retry": RetryPolicy("5s", "1m", blocking="key"),
    },
    "by key, blocking": {"order": "key", "retry": RetryPolicy("5s", "1m", blocking="key")},
    "by partition, blocking, declared": {
        "retry": RetryPolicy("5s", "1m", blocking="partition"),
        "failures": Failures(outage=Down),
    },
}


@pytest.mark.parametrize("mode", MODES)
def test_t_dlq_4_an_outage_of_five_minutes_leaves_no_dead_letter_and_the_ladder_nearly_untouched(new, mode):
    service = new(**MODES[mode]).send().outage()
    assert 50 < len(service.handled()) < RECORDS / 2
    # What a run brought in which the first ones still came through is judged as a whole.
    # The first runs are long, for nobody knows yet how long handlers take, and are looked into each 200 ms.
    assert service.climbed < 2 * ENOUGH_ATTEMPTS
    # What it took to open it, what was in flight, and then one probe after another.
    assert service.in_vain < 4 * ENOUGH_ATTEMPTS

    service.harness.advance(f"{int(PROBE_MOST_MS)}ms")
    again = next(at for at, _, _, went_well in service.calls if went_well and at > service.ended_ms)
    assert again - service.ended_ms <= PROBE_MOST_MS + 100
    service.harness.advance("15m")
    service.check_end()
    assert max(attempt for _, _, attempt, _ in service.calls) <= 2
    assert (len(service.told("outage")), len(service.told("outage-over"))) == (1, 1)
    assert service.breaker.is_closed


@pytest.mark.parametrize("mode", ["by key, plain, blocking", "by key, blocking"])
def test_an_outage_changes_no_order_where_order_is_kept(new, mode):
    service = new(**MODES[mode]).send().outage()
    service.harness.advance("15m")
    service.check_end()
    by_key = defaultdict(list)
    for number in service.handled():
        by_key[number % KEYS].append(number)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


@pytest.mark.parametrize("order", ["partition", "key"])
def test_timeouts_that_take_thirty_seconds_are_an_outage_too(new, order):
    service = new(order=order, away_takes_ms=30_000.0, fails=TimeoutError).send().outage(lasts="10m")
    assert service.in_vain < 2 * ENOUGH_ATTEMPTS
    service.harness.advance("30m")
    service.check_end()


@pytest.mark.parametrize("order", ["partition", "key"])
def test_what_is_in_flight_when_it_begins_is_held_too(new, order):
    """A thousand handlers are at work, and all of them fail within a moment."""
    service = new(order=order, concurrency=1_000, takes_ms=500.0)
    service.send().outage(after="700ms")
    # Before it opens, what brings a hundred; and the rest of the runs that were settled together with these.
    assert service.climbed < 2 * ENOUGH_ATTEMPTS
    service.harness.advance("15m")
    service.check_end()


@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_what_succeeded_before_in_the_same_long_run_hides_no_outage(new, order):
    """A handler that takes no time: a run has hundreds of records, and the outage begins in the midst of one."""
    service = new(order=order, is_async=False, takes_ms=1.0).send().outage(after="15ms")
    assert 100 < len(service.handled()) < RECORDS
    assert service.climbed <= ENOUGH_ATTEMPTS
    service.harness.advance("15m")
    service.check_end()


def test_a_declared_outage_leaves_the_ladder_untouched(new):
    service = new(failures=Failures(outage=Down)).send().outage()
    service.harness.advance("15m")
    service.check_end()
    assert service.climbed == 0


@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_t_ret_1_one_record_of_twenty_that_fails_for_good_for_ten_minutes_never_holds_the_others(new, order):
    service = new(order=order, odd=20, retry=RetryPolicy("5s"))
    for first in range(0, 4_800, 40):
        service.send(40, first=first)
        service.harness.advance("5s")
    service.harness.advance("10s")
    assert service.told("outage") == service.told("brake-on") == []
    assert len(service.handled()) == 4_800 - 240
    assert len(service.harness.dead_letters) == 240


def test_records_that_fail_for_good_in_an_outage_die_by_tokens_only(new):
    """Half of what is tried meanwhile looks permanent."""
    service = new(odd=2).send()
    service.harness.advance("200ms")
    before = len(service.harness.dead_letters)
    service.outage(after="1ms")
    assert len(service.harness.dead_letters) - before < 2 * ENOUGH_ATTEMPTS + TOKENS_MOST


def test_a_crash_in_an_outage_loses_and_multiplies_nothing(new):
    service = new(order="key").send().outage(lasts="40s")
    for _ in range(4):
        service.harness.crash()
        service.outage(after="1ms", lasts="40s")
    service.harness.advance("20m")
    assert set(service.handled()) == set(range(RECORDS))
    assert service.harness.dead_letters == []
    # Each process needs so many to see it; and those that may have killed it run one by one, second attempts too, which
    # say nothing of the downstream.
    assert service.climbed < 5 * 3 * ENOUGH_ATTEMPTS


def test_a_record_that_is_refused_for_its_own_sake_does_not_hold_the_others(redrive_harness):
    """To its handler it looks like an outage, as a 403 for one customer does."""
    refused = []

    class Refused(Exception):
        pass

    app = App("shop")

    @app.listener("orders", retry=RetryPolicy("5s", "30s"), failures=Failures(outage=Refused))
    def handle(number: int) -> None:
        if number == 7:
            refused.append(number)
            raise Refused

    harness = redrive_harness(app, settings=SETTINGS)
    for number in range(20):
        harness.send("orders", number)
    harness.advance("2m")
    assert sorted(run.value for run in harness.handled) == [n for n in range(20) if n != 7]
    assert [letter.reason for letter in harness.dead_letters] == ["exhausted"]
    assert len(refused) <= 3 + 2


def test_a_partition_goes_on_after_a_declared_outage_though_its_first_record_keeps_failing_and_is_the_only_one_to_try(
    redrive_harness,
):
    app, is_away = App("shop"), [True]

    @app.listener("orders", retry=RetryPolicy("5s", blocking="partition"), failures=Failures(outage=Down))
    def handle(number: int) -> None:
        if is_away[0]:
            raise Down
        if number == 0:
            raise ConnectionError

    harness = redrive_harness(app, partitions=1, settings=SETTINGS)
    for number in range(3):
        harness.send("orders", number)
    harness.advance("30m")
    assert harness.handled == harness.dead_letters == []
    is_away[0] = False
    harness.advance("15m")
    assert [letter.value for letter in harness.dead_letters] == [b"0"]
    assert [run.value for run in harness.handled] == [1, 2]


def test_a_record_that_comes_through_may_be_the_one_by_which_an_outage_is_told(redrive_harness):
    """Twenty failures in a moment are too few; with it they are twenty of twenty-one in ten seconds."""
    app = App("shop")

    @app.listener("orders", retry=RetryPolicy("1m"), concurrency=4)
    async def handle(number: int) -> None:
        if number < 20:
            raise Down

    harness = redrive_harness(app, partitions=1, settings=SETTINGS)
    for number in range(20):
        harness.send("orders", number)
    harness.advance("11s")
    harness.send("orders", 20)
    harness.advance("1s")
    [report] = [report for report in harness.reports if report.event == "outage"]
    assert report.fields["why"] == "nearly all of its last attempts failed"


def test_a_declared_outage_lasts_as_long_as_now_and_then_an_exception_tells_of_it(redrive_harness):
    app, runs = App("shop"), []

    @app.listener("orders", retry=RetryPolicy("5s", blocking="partition"), failures=Failures(outage=Down))
    def handle(number: int) -> None:
        runs.append(number)
        raise ConnectionError if len(runs) % 7 else Down

    harness = redrive_harness(app, partitions=1, settings=SETTINGS)
    runs.extend([0] * 6)
    harness.send("orders", 0)
    harness.advance("3h")
    assert len(runs) > 150
    assert (harness.dead_letters, [r for r in harness.reports if r.event == "outage-over"]) == ([], [])


def test_what_fails_anew_as_it_was_declared_after_an_outage_that_nothing_told_of_any_more_is_one_again(
    redrive_harness,
):
    """No other record came through: so it can't be its own fault."""
    app, fails_by = App("shop"), [Down]

    @app.listener(
        "orders",
        retry=RetryPolicy("5s", max_attempts=3, blocking="partition"),
        failures=Failures(outage=Down),
    )
    def handle(number: int) -> None:
        raise fails_by[0]

    harness = redrive_harness(app, partitions=1, settings=SETTINGS)
    harness.send("orders", 0)
    harness.advance("1m")
    fails_by[0] = ConnectionError
    while not any(report.event == "outage-over" for report in harness.reports):
        harness.advance("1s")
    fails_by[0] = Down
    harness.advance("1h")
    assert harness.dead_letters == []


def test_three_records_that_never_succeed_die_as_their_policy_says(redrive_harness):
    app = App("shop")

    @app.listener("orders", retry=RetryPolicy("1s", max_attempts=50))
    def handle(number: int) -> None:
        raise Down

    harness = redrive_harness(app, settings=SETTINGS)
    for number in range(3):
        harness.send("orders", number)
    harness.advance("2m")
    assert len(harness.dead_letters) == 3
    assert [report for report in harness.reports if report.event == "outage"] == []


def test_without_the_breaker_failures_climb_the_ladder(new):
    service = new(settings=replace(SETTINGS, breaker=False)).send(1_500).outage(lasts="10s")
    assert service.climbed > 5 * ENOUGH_ATTEMPTS
    assert service.told("outage") == []


def test_a_health_function_is_asked_before_each_probe_and_no_record_is_tried_until_it_says_yes(new):
    is_well, asked = [False], []

    async def health() -> bool:
        asked.append(service.clock.mono_ms())
        await asyncio.sleep(0.1)
        return is_well[0]

    service = new(health=health).send().outage(lasts="10s")
    service.ended_ms = float("inf")
    calls = len(service.calls)
    service.harness.advance("3m")
    assert len(service.calls) == calls
    assert len(asked) < 12
    assert len(service.told("unhealthy")) == 1
    # What it says is no more than a sign: the record tells.
    is_well[0] = True
    service.harness.advance("2m")
    assert len(service.calls) in {calls + 1, calls + 2}
    assert not service.breaker.is_closed
    service.ended_ms = service.clock.mono_ms()
    service.harness.advance("20m")
    service.check_end()


def test_members_that_come_and_go_in_an_outage_lose_nothing_and_climb_little():
    """One process, then three, then one again, each with a breaker of its own."""
    app, handled, away = App("shop"), set[int](), [False]

    @app.listener("orders", retry=LADDER, order="key", concurrency=4)
    async def handle(number: int) -> None:
        await asyncio.sleep(0.02)
        if away[0]:
            raise Down
        handled.add(number)

    fleet = Fleet(partitions=3, is_async=True, app=app, breaker=True)
    fleet.start()
    fleet.advance(0)
    for number in range(RECORDS):
        fleet.cluster.append("orders", b"%d" % number, key=b"%d" % (number % KEYS))
    fleet.advance(500)
    away[0] = True
    fleet.advance(30_000)
    fleet.start()
    fleet.start()
    fleet.advance(120_000)
    fleet.kill(0)
    fleet.advance(60_000)
    fleet.stop(0)
    fleet.advance(60_000)
    before, away[0] = len(handled), False
    fleet.advance(PROBE_MOST_MS + 100)
    assert len(handled) > before
    fleet.advance(15 * 60_000)
    assert handled == set(range(RECORDS))
    logs = {name: sum(log.end for log in topic.partitions) for name, topic in fleet.cluster.topics.items()}
    assert logs["orders.dlq"] == 0
    assert sum(end for name, end in logs.items() if ".retry." in name) < 5 * 2 * ENOUGH_ATTEMPTS
    fleet.close()
