"""While handlers have all they can hold, the pump waits for their results and not for records."""

import json

import pytest

from redrive import RetryPolicy
from redrive.core.settings import Settings
from tests.runtime.at_work import Process, app_of, new_cluster


class Polls:
    """The consumer, with what each poll was asked: how long it may wait, and for how many records at most."""

    def __init__(self, port):
        self._port = port
        self.asked = []

    def poll(self, timeout_s, most):
        self.asked.append((timeout_s, most))
        return self._port.poll(timeout_s, most)

    def __getattr__(self, name):
        return getattr(self._port, name)


class Shop:
    """Record 0 fails and the others are in line; from `fill` on handlers hold on to what they have, and nothing is answered."""

    def __init__(self, delivery, **options):
        self.cluster = new_cluster()

        def handle(number: int) -> None:
            if not number:
                raise TimeoutError

        settings = Settings(bootstrap_servers="sim:9092", delivery=delivery)
        app = app_of(handle, **options)
        self.process = Process(app, self.cluster, source=self._watched, settings=settings)

    def _watched(self, port):
        self.polls = Polls(port)
        return self.polls

    def send(self, *numbers):
        for number in numbers:
            self.cluster.append("orders", json.dumps(number).encode(), key=b"%d" % number)

    def fill(self):
        for _ in range(
            30
        ):  # it learns that they take no time, so that it isn't worth while to pause the consumer
            self.send(1)
            self.process.run(10)
        self.process.run(6_000)  # all of that is committed
        faults = self.cluster.faults
        faults.commits_are_held = faults.transactions_are_held = True
        self.send(0)
        self.process.run(200)
        self.process.handlers.held = True
        self.send(*range(2, 50_000))
        for _ in range(1_000):
            if not self.process.engine.wants_records():
                break
            self.process.pump.step()
        self.polls.asked.clear()
        return self

    def single(self):
        """How long polls for a single record waited: each such record is a run of its own."""
        return {timeout_s for timeout_s, most in self.polls.asked if most == 1}


@pytest.mark.parametrize("order", ["partition", "key"])
def test_a_transaction_on_its_way_is_not_waited_for_by_polling(order):
    shop = Shop("exactly-once", order=order, concurrency=4, retry=RetryPolicy("5s")).fill()
    assert shop.process.engine.transacting.is_out
    shop.process.steps(100)
    assert shop.single() == set()


def test_a_commit_that_a_record_waits_for_is_looked_after_without_waiting():
    shop = Shop(
        "at-least-once", order="key", concurrency=4, retry=RetryPolicy("100ms", blocking="key")
    ).fill()
    assert shop.process.engine.commits.awaited_in_ms(shop.process.clock.mono_ms()) <= 0
    shop.process.steps(100)
    assert shop.single() == {0.0}
