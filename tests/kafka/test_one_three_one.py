"""
One member, then three, then one again, all coming and leaving in order, while records arrive: what each way to run promises.

Nobody is killed, so nothing may happen twice either.
"""

import asyncio
import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
import pytest
from confluent_kafka import Producer

from redrive import App, Record, RetryPolicy
from tests.chaos.key_order import BEGAN, FAILED, HANDLED, Letter, Sent, Step, Verdict, judge
from tests.faults import running
from tests.plain_kafka import Seen, committed, create_topics_of, read_all, unique
from tests.waiting import until

PARTITIONS = 6
KEYS = 60
MOST_ATTEMPTS = 3
PROTOCOLS = ("consumer", "classic")
DELIVERIES = ("at-least-once", "exactly-once")
TIERS = ("200ms", "400ms")
WAYS = {
    "no order": {"order": "none", "retry": RetryPolicy(*TIERS)},
    "order by key": {"order": "key", "retry": RetryPolicy(*TIERS)},
    "blocking key": {"order": "key", "retry": RetryPolicy(*TIERS, blocking="key")},
    "blocking partition": {"order": "partition", "retry": RetryPolicy(*TIERS, blocking="partition")},
}
ON_THE_LOOP = {"order by key", "blocking key"}


class Work(msgspec.Struct):
    """`fails`: so many first attempts fail."""

    fails: int


@dataclass
class Listener:
    """One way to run: what was sent to its source, what its handlers did, and what was written for that."""

    source: str
    steps: list[Step] = field(default_factory=list)
    sent: list[Seen] = field(default_factory=list)
    retries: list[Seen] = field(default_factory=list)
    letters: list[Seen] = field(default_factory=list)

    def failures(self) -> dict[str, int]:
        """How many runs of each record fail."""
        return {
            f"{self.source}/{seen.partition}/{seen.offset}": msgspec.json.decode(seen.value, type=Work).fails
            for seen in self.sent
        }

    def judged(self, line: Callable[[Seen], object]) -> Verdict:
        """Whether each record of a line waited for those before it, though they failed."""
        fails = self.failures()
        sent = [
            Sent(name, str(line(seen)), MOST_ATTEMPTS if fails[name] == MOST_ATTEMPTS else 0)
            for name, seen in zip(fails, self.sent, strict=True)
        ]
        return judge(sent, self.steps, letters=[Letter(one.own["id"]) for one in self.letters])

    def judged_without_retries(self) -> Verdict:
        """Whether first attempts of a key came in their order: what fails lets those behind it go."""
        fails = self.failures()
        sent = [
            Sent(name, str(seen.key), int(fails[name] > 0))
            for name, seen in zip(fails, self.sent, strict=True)
        ]
        firsts = [step for step in self.steps if step.attempt == 1]
        return judge(sent, firsts, letters=[Letter(name) for name in fails if fails[name]])


class Group:
    """Members of one app with a listener for each way to run."""

    def __init__(self, bootstrap: str, protocol: str, delivery: str) -> None:
        self.listeners = {way: Listener(unique(way.replace(" ", "-"))) for way in WAYS}
        self._bootstrap, self._protocol, self._delivery = bootstrap, protocol, delivery
        self._name = unique("group")
        create_topics_of(bootstrap, self._app(0), PARTITIONS)

    def run(self) -> None:
        """One, three, one."""
        with self._fed(), running(self._app(1)):
            self._await_work({1})
            with running(self._app(2)), running(self._app(3)):
                self._await_work({1, 2, 3})
            self._await_work({1})
            self._stop_feeding.set()
            until(self._is_through, "all is committed", within_s=60)
        for listener in self.listeners.values():
            listener.sent = self._all(listener.source)
            listener.letters = self._all(f"{listener.source}.dlq")
        for way in ("no order", "order by key"):
            listener = self.listeners[way]
            listener.retries = [one for tier in TIERS for one in self._all(f"{listener.source}.retry.{tier}")]

    def _app(self, member: int) -> App:
        settings = {
            "bootstrap_servers": self._bootstrap,
            "commit_interval": "200ms",
            "group_protocol": self._protocol,
            "instance_id": f"member-{member}" if self._delivery == "exactly-once" else "",
        }
        app = App(self._name, delivery=self._delivery, settings=settings)
        for way, listener in self.listeners.items():
            handler = _coroutine if way in ON_THE_LOOP else _function
            app.listener(listener.source, name=way.replace(" ", "-"), concurrency=4, **WAYS[way])(
                handler(listener.steps, member)
            )
        return app

    @contextlib.contextmanager
    def _fed(self) -> Iterator[None]:
        self._stop_feeding = threading.Event()
        feeder = threading.Thread(target=self._feed)
        feeder.start()
        try:
            yield
        finally:
            self._stop_feeding.set()
            feeder.join()

    def _feed(self) -> None:
        """A hundred a second for each listener; five in a hundred fail once or twice, one in a hundred for good."""
        dice = random.Random(5)
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "linger.ms": 2, "enable.idempotence": True}
        )
        while not self._stop_feeding.wait(0.02):
            for listener in 2 * list(self.listeners.values()):
                roll = dice.random()
                fails = MOST_ATTEMPTS if roll < 0.01 else dice.randint(1, 2) if roll < 0.06 else 0
                value = msgspec.json.encode(Work(fails))
                producer.produce(listener.source, value, b"key-%d" % dice.randrange(KEYS))
            producer.poll(0)
        assert producer.flush(30) == 0

    def _await_work(self, members: set[int]) -> None:
        """Until each of them has begun some more runs of each listener."""
        before = {way: len(listener.steps) for way, listener in self.listeners.items()}

        def are_at_work() -> bool:
            return all(
                members <= {step.pid for step in listener.steps[before[way] + 60 :]}
                for way, listener in self.listeners.items()
            )

        until(are_at_work, f"members {members} at work", within_s=60)

    def _is_through(self) -> bool:
        for way, listener in self.listeners.items():
            tiers = [] if "blocking" in way else [f"{listener.source}.retry.{tier}" for tier in TIERS]
            for topic in (listener.source, *tiers):
                at = committed(self._bootstrap, self._name, topic)
                # Not the ends of their logs: behind the last record there may be a transaction's marker.
                if any(at.get(seen.partition, 0) <= seen.offset for seen in self._all(topic)):
                    return False
        return True

    def _all(self, topic: str) -> list[Seen]:
        return read_all(self._bootstrap, topic)


def _function(steps, member):
    def handle(work: Work, record: Record) -> None:
        _note(steps, member, record, BEGAN)
        time.sleep(0.002)
        _end(steps, member, work, record)

    return handle


def _coroutine(steps, member):
    async def handle(work: Work, record: Record) -> None:
        _note(steps, member, record, BEGAN)
        await asyncio.sleep(0.002)
        _end(steps, member, work, record)

    return handle


def _note(steps: list[Step], member: int, record: Record, what: str) -> None:
    steps.append(
        Step(record.event_id, record.attempt, what, member, time.time() * 1000, record.due_ms or 0.0)
    )


def _end(steps: list[Step], member: int, work: Work, record: Record) -> None:
    if record.attempt <= work.fails:
        _note(steps, member, record, FAILED)
        raise ConnectionError
    _note(steps, member, record, HANDLED)


@pytest.fixture(scope="module")
def of(kafka) -> Callable[[str, str], dict[str, Listener]]:
    """The listeners of a group that went through it, by protocol and delivery; each group does so once."""
    done: dict[tuple[str, str], dict[str, Listener]] = {}

    def listeners(protocol: str, delivery: str) -> dict[str, Listener]:
        if (protocol, delivery) not in done:
            group = Group(kafka.bootstrap, protocol, delivery)
            group.run()
            done[protocol, delivery] = group.listeners
        return done[protocol, delivery]

    return listeners


@pytest.fixture(params=itertools.product(PROTOCOLS, DELIVERIES), ids="-".join)
def listeners(of, request) -> dict[str, Listener]:
    return of(*request.param)


@pytest.mark.parametrize("way", WAYS)
def test_each_attempt_of_each_record_runs_once_and_none_is_left_out(listeners, way):
    listener = listeners[way]
    runs = Counter((step.record, step.attempt) for step in listener.steps if step.what == BEGAN)
    wanted = {
        (name, attempt): 1
        for name, fails in listener.failures().items()
        for attempt in range(1, min(fails + 1, MOST_ATTEMPTS) + 1)
    }
    assert runs == wanted
    assert {step.pid for step in listener.steps} == {1, 2, 3}


@pytest.mark.parametrize("way", WAYS)
def test_no_attempt_is_early(listeners, way):
    dues = [step for step in listeners[way].steps if step.what == BEGAN and step.due_ms]
    assert [step for step in dues if step.at_ms < step.due_ms] == []
    assert dues != []


@pytest.mark.parametrize("way", WAYS)
def test_a_record_that_fails_for_good_is_one_dead_letter_and_no_other_is(listeners, way):
    listener = listeners[way]
    wanted = sorted(name for name, fails in listener.failures().items() if fails == MOST_ATTEMPTS)
    assert sorted(letter.own["id"] for letter in listener.letters) == wanted


@pytest.mark.parametrize("way", ["no order", "order by key"])
def test_each_failure_with_an_attempt_left_is_written_to_a_tier_once(listeners, way):
    listener = listeners[way]
    written = Counter((seen.own["id"], int(seen.own["attempt"])) for seen in listener.retries)
    wanted = {
        (name, attempt): 1
        for name, fails in listener.failures().items()
        for attempt in range(1, min(fails, MOST_ATTEMPTS - 1) + 1)
    }
    assert written == wanted


def test_first_attempts_of_a_key_keep_their_order(listeners):
    verdict = listeners["order by key"].judged_without_retries()
    assert verdict.found == {}
    assert verdict.counts["runs"] > 100


def test_a_key_waits_for_its_failing_record(listeners):
    verdict = listeners["blocking key"].judged(lambda seen: seen.key)
    assert verdict.found == {}
    assert verdict.counts["retries"] > 5


def test_a_partition_waits_for_its_failing_record(listeners):
    verdict = listeners["blocking partition"].judged(lambda seen: seen.partition)
    assert verdict.found == {}
    assert verdict.counts["retries"] > 5
