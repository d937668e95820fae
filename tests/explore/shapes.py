"""What worlds are made of, as values that are drawn from a seed: the shape of their app, and the records' tasks."""

import random
from typing import Literal

import msgspec

from redrive.core.plan import Delivery
from redrive.core.policy import AfterDeadLetter, Blocking, Order

SOURCES = ("orders", "bills")
DELAYS = ("2s", "9s")
#: Where keys are parked the second wait is longer, so that more happens while they are.
PARKING_DELAYS = ("2s", "40s")

#: How a run fails: for a while, for good, or in one of the ways that handlers ask for; or it kills its process.
How = Literal["away", "bug", "later", "letter", "skip", "kill"]
_HOW_TOLD: dict[How, str] = {
    "away": "what they call is away",
    "bug": "a bug",
    "later": "they ask to run later",
    "letter": "they ask for a dead letter",
    "skip": "they ask to be dropped",
    "kill": "the last of them kills its process",
}


class Task(msgspec.Struct, frozen=True):
    """
    A record's value: how many runs of it fail, in which way, and how long each run takes. One that kills does so at the last
    of them. `stubborn`: how many replays of it fail, too.
    """

    fails: int = 0
    takes_s: float = 0.0
    how: How = "away"
    stubborn: int = 0

    def __str__(self) -> str:
        told = [
            f"their first {self.fails} runs fail ({_HOW_TOLD[self.how]})" if self.fails else "they succeed"
        ]
        told += [f"a run takes {self.takes_s:g} s"] * (self.takes_s > 0)
        told += [f"{self.stubborn} replays of each fail, too"] * (self.fails > 0 and self.stubborn > 0)
        return ", ".join(told)

    @property
    def is_passing(self) -> bool:
        """Whether its failures look as if they might pass."""
        return self.how in ("away", "kill")


class ListenerShape(msgspec.Struct, frozen=True):
    """What one listener is like."""

    order: Order = "partition"
    blocking: Blocking | None = None
    after: AfterDeadLetter = "release"
    parks: bool = False
    #: Keys that have to wait for longer are parked.
    hold_at_most: str = DELAYS[0]
    concurrency: int = 1
    is_async: bool = False
    tries_in_place: int = 0
    has_health: bool = False
    emits: bool = False

    def __str__(self) -> str:
        told = [
            f"order {self.order}",
            f"{'async' if self.is_async else 'plain'} handlers, {self.concurrency} at once",
        ]
        if self.blocking:
            told.append(f"failing records block their {self.blocking}")
            told.append(f"after a dead letter: {self.after}")
        told += [f"keys are parked after {self.hold_at_most}"] * self.parks
        told += [f"{self.tries_in_place} more tries in place"] * (self.tries_in_place > 0)
        told += ["a health function"] * self.has_health + ["handlers emit"] * self.emits
        return ", ".join(told)

    @property
    def most_attempts(self) -> int:
        return 1 + self.tries_in_place + len(DELAYS)

    @property
    def holds_letters(self) -> bool:
        """Whether records wait for dead letters."""
        return self.after != "release"

    def dies(self, task: Task | None) -> bool:
        """Whether such a record ends as a dead letter, when nothing but itself fails. None: garbage."""
        if task is None:
            return True
        if task.how in ("bug", "letter", "kill"):
            return task.fails > 0
        return task.how != "skip" and task.fails >= self.most_attempts


class Shape(msgspec.Struct, frozen=True):
    """What a world is like."""

    partitions: int = 1
    keys: int = 3
    listeners: tuple[ListenerShape, ...] = (ListenerShape(),)
    delivery: Delivery = "at-least-once"
    #: What the broker takes with an offset, in UTF-16 units.
    metadata_units: int = 4095
    #: Whether outages are concluded from failures; and whether handlers say that one is.
    breaker: bool = False
    declares_outages: bool = False

    def __str__(self) -> str:
        told = [f"{self.partitions} partitions a source", f"{self.keys} keys", self.delivery]
        told += [f"{self.metadata_units} units of metadata a commit"]
        told += ["outages are concluded from failures"] * self.breaker
        told += ["handlers say that there is an outage"] * self.declares_outages
        lines = [f"{source}: {listener}" for source, listener in zip(SOURCES, self.listeners, strict=False)]
        return "\n  ".join([", ".join(told), *lines])

    @property
    def is_exact(self) -> bool:
        return self.delivery == "exactly-once"

    def listener_of(self, source: str) -> ListenerShape:
        return self.listeners[SOURCES.index(source)]

    def read_topics(self) -> list[str]:
        """Of which its app commits offsets."""
        topics = [topic for topic in self.written_topics() if not topic.endswith(".dlq")]
        for source, listener in zip(SOURCES, self.listeners, strict=False):
            topics += [source, *([f"{source}.replay"] if listener.holds_letters else ())]
        return topics

    def written_topics(self) -> list[str]:
        """Where its app writes what becomes of failing records."""
        topics: list[str] = []
        for source, listener in zip(SOURCES, self.listeners, strict=False):
            tiers = [] if listener.blocking else [f"{source}.retry.{delay}" for delay in DELAYS]
            topics += [*tiers, f"{source}.dlq", *([f"{source}.parked"] if listener.parks else ())]
        return topics


def draw_shape(chance: random.Random) -> Shape:
    """A shape that an app may have."""
    delivery: Delivery = "exactly-once" if chance.random() < 0.25 else "at-least-once"
    breaker = chance.random() < 0.3
    return Shape(
        partitions=chance.choice((1, 1, 2, 3)),
        keys=chance.choice((1, 2, 4)),
        listeners=tuple(_draw_listener(chance, delivery) for _ in range(chance.choice((1, 1, 1, 2)))),
        delivery=delivery,
        metadata_units=chance.choice((4095, 4095, 511)),
        breaker=breaker,
        declares_outages=chance.random() < (0.7 if breaker else 0.3),
    )


def _draw_listener(chance: random.Random, delivery: Delivery) -> ListenerShape:
    order: Order = chance.choice(("partition", "partition", "key", "key", "key", "none"))
    blocking = order if order != "none" and chance.random() < 0.65 else None
    after: AfterDeadLetter = "release"
    if blocking is not None and chance.random() < 0.5:
        after = chance.choice(("block", "divert")) if blocking == "key" else "block"
    can_park = blocking == "key" and after == "release" and delivery == "at-least-once"
    return ListenerShape(
        order=order,
        blocking=blocking,
        after=after,
        parks=can_park and chance.random() < 0.85,
        hold_at_most=chance.choice(("1s", DELAYS[0])),
        concurrency=chance.choice((1, 2, 5)),
        is_async=chance.random() < 0.6,
        tries_in_place=chance.choice((0, 0, 0, 1)),
        has_health=chance.random() < 0.3,
        emits=chance.random() < (0.5 if delivery == "exactly-once" else 0.1),
    )
