"""Waiting for Kafka at the start, on a clock that is moved by hand."""

import threading

import pytest

from redrive.core.connection import Cause, Trouble
from redrive.core.topic_plan import wanted_topics
from redrive.core.topology import Naming, name_topics
from redrive.errors import PortError, TopologyError
from redrive.runtime.checks import await_kafka, require_topics
from redrive.sim.clock import VirtualClock

REFUSED = Trouble(Cause.REFUSED, "nothing listens at kafka:9092.")
UNRESOLVED = Trouble(Cause.UNRESOLVED, "the name of kafka:9092 is unknown.")
PARTLY = Trouble(Cause.ADVERTISED, "one broker is away.", prevents_start=False)


class _Wait:
    """One wait for a Kafka that answers as the script says, its last word again and again; asking takes 3 s."""

    def __init__(self, *script):
        self._script = list(script)
        self.clock = VirtualClock()
        self.told = []

    def run(self, *, start_timeout_ms=60_000, stop=None):
        return await_kafka(
            self._ask, self.clock, start_timeout_ms=start_timeout_ms, tell=self._tell, stop=stop
        )

    def _ask(self):
        answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        if answer is not None:
            self.clock.advance(3_000)
        return answer

    def _tell(self, text):
        self.told.append((self.clock.mono_ms() / 1000, text))


def test_nothing_is_told_when_kafka_answers_at_once():
    wait = _Wait(None)

    assert (wait.run(), wait.told, wait.clock.mono_ms()) == (True, [], 0)


def test_the_cause_is_told_at_once_and_then_every_ten_seconds():
    wait = _Wait(*[REFUSED] * 7, None)

    assert wait.run()
    assert wait.told == [
        (3.0, "nothing listens at kafka:9092. Trying for another 57s."),
        (15.0, "nothing listens at kafka:9092. Trying for another 45s."),
        (27.0, "nothing listens at kafka:9092. Trying for another 33s."),
    ]


def test_another_cause_is_told_at_once():
    wait = _Wait(UNRESOLVED, REFUSED, None)

    assert wait.run()
    assert [at_s for at_s, _ in wait.told] == [3.0, 7.0]


def test_the_start_is_given_up_with_the_cause_after_the_start_timeout():
    wait = _Wait(REFUSED)

    with pytest.raises(PortError) as raised:
        wait.run(start_timeout_ms=10_000)

    assert str(raised.value) == "nothing listens at kafka:9092. Given up after 10s (start_timeout)."
    assert raised.value.retriable
    assert 10_000 <= wait.clock.mono_ms() <= 14_000


def test_a_part_of_the_cluster_away_is_told_and_no_reason_to_wait():
    wait = _Wait(PARTLY)

    assert (wait.run(), wait.told) == (True, [(3.0, "one broker is away.")])


def test_a_stop_ends_the_wait():
    stop = threading.Event()
    stop.set()

    assert _Wait(REFUSED).run(stop=stop) is False


def test_missing_topics_end_the_start_with_the_command_that_creates_them():
    wanted = wanted_topics([name_topics("charge", "orders", [5000], group="payments", naming=Naming())])

    require_topics(wanted, [topic.name for topic in wanted], target="service:app")
    with pytest.raises(TopologyError, match="Create them: redrive topics apply service:app"):
        require_topics(wanted, ["orders"], target="service:app")
