"""What a process keeps in memory goes by what is in hand, and not by how long it runs or how often partitions come and go."""

from collections import Counter

import pytest

from redrive import App, RetryPolicy
from tests.bounds.counting import grown, objects_of
from tests.sim.fleet import Fleet

#: What the simulated cluster keeps of each record for ever is its own.
OURS = ("redrive.core", "redrive.runtime")


class Shop:
    """Processes of a service of whose records some fail once, some twice, and one in fifty for good."""

    def __init__(self, **options):
        app = App("shop")
        left = Counter()
        delivery = options.pop("delivery", "at-least-once")

        @app.listener("orders", retry=RetryPolicy("30s", "5m"), **options)
        def handle(number: int) -> None:
            left[number % 50] += 1
            if number % 50 == 7 or (number % 10 == 3 and left[number % 50] % 2):
                raise TimeoutError

        self.fleet = Fleet(app=app, partitions=3, delivery=delivery)
        self.fleet.start()
        self.sent = 0

    def minute(self):
        self.sent += 1
        self.fleet.cluster.append("orders", b"%d" % self.sent, key=b"%d" % (self.sent % 5))
        self.fleet.advance(60_000)

    def ours(self):
        """How many objects of our own classes there are, by class; the test's own notes are let go."""
        for process in self.fleet.processes:
            process.reports.clear()
        self.fleet.everyone = list(self.fleet.processes)
        return objects_of(*OURS)


@pytest.fixture
def new():
    made = []

    def make(**options):
        made.append(Shop(**options))
        return made[-1]

    yield make
    for each in made:
        each.fleet.close()


@pytest.mark.parametrize(
    "options",
    [{}, {"order": "key", "concurrency": 4}, {"delivery": "exactly-once"}],
    ids=["by partition", "by key", "exactly once"],
)
def test_after_a_day_of_commits_there_are_as_many_objects_as_after_an_hour(new, options):
    shop, counts = new(**options), []
    for minute in range(24 * 60):
        shop.minute()
        if minute in (59, 24 * 60 - 1):
            shop.fleet.advance(3_600_000)
            counts.append(shop.ours())
    assert grown(*counts) == {}


@pytest.mark.parametrize("order", ["partition", "key"])
def test_after_two_hundred_rebalances_there_are_as_many_objects_as_after_twenty(new, order):
    shop, counts = new(order=order), []
    for turn in range(100):
        shop.fleet.start()
        shop.minute()
        shop.fleet.stop(1)
        shop.minute()
        if turn in (9, 99):
            shop.fleet.advance(3_600_000)
            counts.append(shop.ours())
    assert grown(*counts) == {}
