"""A Spring Boot service with `@RetryableTopic` and redrive take over each other's retry topics, on a real broker."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from redrive import App, Record, RetryPolicy
from tests.faults import running
from tests.interop.spring_shop import NoSpring, SpringShop, build
from tests.plain_kafka import Given, Seen, committed, create_topics, read_all, send, unique
from tests.waiting import until

#: Maven may have to fetch all that Spring is made of, and the records wait for eighteen seconds.
pytestmark = pytest.mark.timeout(400)

#: Long enough for the other side to be there before a record is due.
DELAY_MS = 6_000
#: What Spring's service tells as the attempt of a dead letter.
DEAD = 0


class Ran(NamedTuple):
    """A run of redrive's handler."""

    value: str
    now_ms: int
    record: Record


class Move:
    """A source whose service is moved: how both sides are set up for it, and what redrive's handler has run."""

    def __init__(
        self, bootstrap: str, source: str, group: str, policy: RetryPolicy, tiers: list[str], **names: str
    ):
        self.bootstrap, self.source, self.group, self.tiers = bootstrap, source, group, tiers
        self.runs: list[Ran] = []
        settings = {"bootstrap_servers": bootstrap, "topic_style": "spring", **names}
        self.app = App(group, settings=settings, dialects=["redrive", "spring"])
        self.app.listener(source, retry=policy, name="charge")(self._charge)
        create_topics(bootstrap, [source, *tiers, f"{source}-dlt"], 2)
        create_topics(bootstrap, [f"{source}-dlt-state"], 2, **{"cleanup.policy": "compact"})

    def _charge(self, value: str, record: Record) -> None:
        self.runs.append(Ran(value, int(time.time() * 1000), record))
        if str(record.attempt) in value.split()[2:]:
            raise ConnectionError(f"run {record.attempt} fails")

    def send(self, value: str) -> None:
        send(self.bootstrap, self.source, [Given(value.encode(), value.encode())])

    def waiting(self, value: str, *, tier: int = 0, copy: int = 1) -> Seen:
        """The copy of a record on a tier, or a later one, as soon as it is there."""
        topic = self.tiers[tier]

        def copies() -> list[Seen]:
            found = [seen for seen in read_all(self.bootstrap, topic) if seen.value == value.encode()]
            return found if len(found) >= copy else []

        return until(copies, f"copy {copy} of {value!r} on {topic}")[copy - 1]

    def second_copy(self) -> Seen:
        """Of the record that has failed on both sides: on the next tier, or once more on the only one."""
        has_ladder = len(self.tiers) > 1
        return self.waiting("o-1 fails 1 2", tier=int(has_ladder), copy=1 if has_ladder else 2)

    def ran(self, value: str, attempt: int) -> Ran:
        return until(
            lambda: next(
                (run for run in self.runs if run.value == value and run.record.attempt == attempt), None
            ),
            f"redrive's run {attempt} of {value!r}",
        )

    def to_redrive(self) -> None:
        """Spring's groups have committed on the retry topics, redrive's goes on there."""
        for tier in self.tiers:
            self._hand_over(tier, f"{self.group}{tier.removeprefix(self.source)}", self.group)

    def to_spring(self) -> None:
        for tier in self.tiers:
            self._hand_over(tier, self.group, f"{self.group}{tier.removeprefix(self.source)}")

    def _hand_over(self, topic: str, from_group: str, to_group: str) -> None:
        """What `kafka-consumer-groups --reset-offsets` does with the one's offsets for the other."""
        at = committed(self.bootstrap, from_group, topic)
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in at.items()]
        if not wanted:
            return
        client = Consumer({"bootstrap.servers": self.bootstrap, "group.id": to_group})
        answers = client.commit(offsets=wanted, asynchronous=False)
        client.close()
        assert [each.error for each in answers] == [None] * len(wanted)


def due_of(seen: Seen) -> int:
    """When a copy is due, by Spring's header."""
    written = [value for name, value in seen.foreign if name == "retry_topic-backoff-timestamp"]
    return int.from_bytes(written[-1] or b"", "big", signed=True)


@pytest.fixture(scope="module")
def spring() -> None:
    """Skipped where Spring can't be had; with CI set that is a failure."""
    try:
        build()
    except NoSpring as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI must run the interop tests: {error}")
        pytest.skip(f"NOT TESTED WITH SPRING: {error}")


@pytest.fixture
def moves(kafka) -> list[Move]:
    """A ladder with a topic for each delay; and one topic for all retries, as Spring has it for a fixed delay."""
    orders, refunds, group = unique("orders"), unique("refunds"), unique("shop")
    return [
        Move(
            kafka.bootstrap,
            orders,
            group,
            RetryPolicy("6s", "12s"),
            [f"{orders}-retry-{DELAY_MS}", f"{orders}-retry-{2 * DELAY_MS}"],
        ),
        Move(
            kafka.bootstrap,
            refunds,
            f"{group}-fixed",
            RetryPolicy("6s", max_attempts=3),
            [f"{refunds}-retry"],
            retry_topic="{topic}-retry",
        ),
    ]


@pytest.fixture
def shop(spring, kafka, moves) -> Iterator[SpringShop]:
    orders, refunds = moves
    shop = SpringShop(
        kafka.bootstrap, topic=orders.source, fixed=refunds.source, group=orders.group, delay_ms=DELAY_MS
    )
    yield shop
    shop.close()


def spring_ran(shop: SpringShop, move: Move, value: str, attempt: int):
    return until(
        lambda: next(
            (
                run
                for run in shop.runs
                if run.value == value and run.attempt == attempt and run.topic.startswith(move.source)
            ),
            None,
        ),
        f"Spring's run {attempt} of {value!r}",
    )


def test_records_that_wait_are_handled_by_the_other_side_at_their_due_with_their_attempts_kept(shop, moves):
    shop.start()
    for move in moves:
        move.send("o-0 fails 1")
    for move in moves:
        spring_ran(shop, move, "o-0 fails 1", 2)
        move.send("o-1 fails 1 2")
    dues = {move: due_of(move.waiting("o-1 fails 1 2")) for move in moves}
    shop.stop()

    for move in moves:
        move.to_redrive()
    with ExitStack() as apps:
        for move in moves:
            apps.enter_context(running(move.app))
        for move, due_ms in dues.items():
            first = move.ran("o-1 fails 1 2", 2)
            assert (first.record.due_ms, first.now_ms >= due_ms) == (due_ms, True)
            assert first.record.topic == move.source
            assert first.record.last_failure.message.endswith("run 1 fails")
            move.send("r-1 fails 1 2 3")
        dues = {move: (due_of(move.second_copy()), due_of(move.waiting("r-1 fails 1 2 3"))) for move in moves}
    for move in moves:
        assert [run.value for run in move.runs] == ["o-1 fails 1 2", "r-1 fails 1 2 3"], (
            "nothing that Spring had handled"
        )
        move.to_spring()

    told = len(shop.runs)
    shop.start()
    for move, (old_ms, new_ms) in dues.items():
        for value, attempt, due_ms in (("o-1 fails 1 2", 3, old_ms), ("r-1 fails 1 2 3", 2, new_ms)):
            run = spring_ran(shop, move, value, attempt)
            assert (run.due_ms, run.now_ms >= due_ms) == (due_ms, True)
    for move in moves:
        spring_ran(shop, move, "r-1 fails 1 2 3", DEAD)
    shop.stop()
    for move in moves:
        ran = [(run.value[:3], run.attempt) for run in shop.runs[told:] if run.topic.startswith(move.source)]
        assert sorted(ran) == [("o-1", 3), ("r-1", DEAD), ("r-1", 2), ("r-1", 3)], (
            "three runs in all, then dead"
        )
