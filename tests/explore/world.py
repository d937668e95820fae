"""One world: a shape, a script of steps, and what became of it."""

import random
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tests.explore.ledger import DLQ, SOURCE, Broken, Ledger
from tests.explore.shop import Shape, Shop, Task, draw_shape
from tests.explore.steps import KINDS, Step
from tests.explore.steps import draw as draw_plain
from tests.sim.fleet import Fleet

#: A wall clock that was set back is set further on than that before a world ends.
_BACK_MOST_MS = 7_200_000.0
STEPS = 30


class Sent(msgspec.Struct, frozen=True):
    """What a step sends: so many records of a key, to a partition."""

    task: Task | None
    key: int = 0
    count: int = 1


class World:
    """It is played once. Raises Broken, by the step or the end that shows it."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shop = Shop(shape)
        self.shape = shape
        self.fleet = Fleet(app=self.shop.app, partitions=shape.partitions, seed=seed, delivery=shape.delivery)
        self.shop.clock = self.fleet.clock
        self.fleet.cluster.group("shop").metadata_units = shape.metadata_units
        self.ledger = Ledger(shape, self.shop, self.fleet)
        self.fleet.start()
        self.fleet.advance(0)

    def play(self, step: Step) -> None:
        """Let it happen, and check."""
        if step.kind == "send":
            self._send(msgspec.json.decode(step.text, type=Sent))
        else:
            kind = KINDS[step.kind]
            self.ledger.disturbed |= kind.disturbs
            self.ledger.kills += step.kind == "kill"
            self.ledger.posted_on |= step.kind == "clock" and step.number < -1_000
            kind.play(self.fleet, step)
        self.ledger.check()

    def end(self) -> None:
        """No more faults: all that was sent must come to its end."""
        self.fleet.clock.step_wall(_BACK_MOST_MS)
        self.fleet.calm_down(self.ledger.is_done)
        self.ledger.check()
        self.ledger.check_end()

    def close(self) -> None:
        self.fleet.close()

    def _send(self, sent: Sent) -> None:
        value = b"\xff" if sent.task is None else msgspec.json.encode(sent.task)
        for _ in range(sent.count):
            record = self.fleet.cluster.append(SOURCE, value, key=b"key-%d" % sent.key)
            partition = record.partition()
            line = f"{partition}" if self.shape.order == "partition" else f"{partition} {sent.key}"
            self.ledger.note_sent(f"{SOURCE}/{partition}/{record.offset()}", line, sent.task)


def draw_steps(shape: Shape, chance: random.Random, count: int = STEPS) -> list[Step]:
    """A script for a world of that shape."""
    topics = [DLQ] if shape.blocking else [f"{SOURCE}.retry.5s", f"{SOURCE}.retry.30s", DLQ]
    return [
        _draw_sending(shape, chance) if chance.random() < 0.4 else draw_plain(chance, topics)
        for _ in range(count)
    ]


def _draw_sending(shape: Shape, chance: random.Random) -> Step:
    key = chance.randrange(shape.keys)
    if chance.random() < 0.1:
        return Step("send", text=msgspec.json.encode(Sent(None, key)).decode())
    fails = chance.choice((0, 0, 0, 1, 2, shape.most_attempts - 1, shape.most_attempts))
    takes_s = chance.choice((0.0, 0.01, 3.0, 20.0)) if shape.is_async else 0.0
    task = Task(fails, takes_s, is_bug=chance.random() < 0.15)
    return Step("send", text=msgspec.json.encode(Sent(task, key, chance.choice((1, 1, 3, 12)))).decode())


class Story(NamedTuple):
    """A world that went wrong."""

    seed: int
    shape: Shape
    steps: tuple[Step, ...]
    promise: str
    told: str

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.told}", f"  {self.shape}"]
        lines += [f"  {number:3}. {told(step)}" for number, step in enumerate(self.steps, 1)]
        return "\n".join(lines)


def told(step: Step) -> str:
    """A step in words."""
    if step.kind != "send":
        return str(step)
    sent = msgspec.json.decode(step.text, type=Sent)
    what = "garbage" if sent.task is None else f"{sent.task}"
    return f"{sent.count} of key {sent.key}: {what}"


def script_of(seed: int) -> tuple[Shape, list[Step]]:
    """What a seed stands for."""
    chance = random.Random(seed)
    shape = draw_shape(chance)
    return shape, draw_steps(shape, chance)


def play(seed: int, shape: Shape, steps: Sequence[Step]) -> Story | None:
    """Play a world. None: every promise was kept."""
    world = World(shape, seed)
    try:
        for step in steps:
            world.play(step)
        world.end()
    except Broken as broken:
        return Story(seed, shape, tuple(steps), broken.promise, str(broken))
    except Exception as error:  # what it raises is a finding, too
        return Story(seed, shape, tuple(steps), f"raised {type(error).__name__}", repr(error))
    finally:
        world.close()
    return None
