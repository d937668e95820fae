"""
What happens in a world, step by step, as values: they can be drawn from a seed, played, left out, and told.

Steps name processes by their place among those that move, so a script stays one when steps of it are left out.
"""

import random
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from redrive.testing.faults import duration
from tests.explore.shapes import SOURCES, ListenerShape, Shape, Task
from tests.sim.fleet import Fleet

if TYPE_CHECKING:
    from tests.explore.world import World

#: No more processes than this are alive at once.
PROCESSES_MOST = 3
#: So many records come in to each source where such are to come in all the time.
_TRAFFIC = 8


class Step(NamedTuple):
    """One thing that happens. `number` and `text` as its kind has them."""

    kind: str
    number: float = 0
    text: str = ""

    def __str__(self) -> str:
        if self.kind == "send":
            return str(msgspec.json.decode(self.text, type=Sent))
        kind = KINDS[self.kind]
        told = kind.told_none if kind.told_none and not self.number else kind.told
        return told.format(number=self.number, text=self.text, time=duration(self.number))


class Sent(msgspec.Struct, frozen=True):
    """What a step sends: so many records of a key, -1 for none, to a source. Without a task they are garbage."""

    task: Task | None
    key: int = 0
    count: int = 1
    source: str = SOURCES[0]

    def __str__(self) -> str:
        what = "garbage" if self.task is None else f"{self.task}"
        whose = "without a key" if self.key < 0 else f"of key {self.key}"
        return f"{self.count} {whose} are sent to {self.source}: {what}"


class Kind(NamedTuple):
    """
    What a step does and how it is told. `weight`: how often it is drawn, where it `fits`. `disturbs`: whether records may run
    more than once for it; `is_unclean`: whether a process ends by it in a way that its successor takes for a crash. `topics`:
    of which it names one; `told_none`: how it is told with the number 0, where that is another thing.
    """

    play: Callable[["World", Step], None]
    numbers: tuple[float, ...]
    told: str
    weight: float = 1
    disturbs: bool = True
    is_unclean: bool = False
    topics: Callable[[Shape], list[str]] | None = None
    fits: Callable[[Shape], bool] = lambda _: True
    told_none: str = ""


def _to_one(change: Callable[[Fleet, int], None]) -> Callable[["World", Step], None]:
    def play(world: "World", step: Step) -> None:
        if world.fleet.processes:
            change(world.fleet, int(step.number) % len(world.fleet.processes))

    return play


def _soon(world: "World", step: Step) -> None:
    rounds = count(1)
    world.doom(int(step.number), lambda: next(rounds) >= step.number)


def _at_write(world: "World", step: Step) -> None:
    def written() -> int:
        return sum(log.end for log in world.fleet.cluster.topics[step.text].partitions)

    before = written()
    world.doom(int(step.number), lambda: written() > before)


def _start(world: "World", _: Step) -> None:
    if len(world.fleet.processes) + len(world.fleet.frozen) < PROCESSES_MOST:
        world.start()


def _brokers_away(world: "World", step: Step) -> None:
    world.fleet.cluster.is_down = True
    world.fleet.advance(step.number)
    world.fleet.cluster.is_down = False


def _hold(switch: str) -> Callable[["World", Step], None]:
    return lambda world, step: setattr(world.fleet.cluster.faults, switch, bool(step.number))


def _count(fault: str) -> Callable[["World", Step], None]:
    return lambda world, step: getattr(world.fleet.cluster.faults, fault)(int(step.number))


def _of_topic(fault: str) -> Callable[["World", Step], None]:
    return lambda world, step: getattr(world.fleet.cluster.faults, fault)(step.text, int(step.number))


def _traffic(world: "World", step: Step) -> None:
    for number in range(_TRAFFIC):
        for source in SOURCES[: len(world.shape.listeners)]:
            world.send(Sent(Task(), number % world.shape.keys, 2, source))
        world.fleet.advance(step.number / _TRAFFIC)


def _silence(world: "World", step: Step) -> None:
    silent = world.fleet.cluster.faults.silent_topics
    (silent.add if step.number else silent.discard)(step.text)


def _just_before(world: "World", _: Step) -> None:
    wait_ms = min((process.next_ms() for process in world.fleet.processes), default=0.0)
    if 1 < wait_ms < 3_600_000:
        world.fleet.advance(wait_ms - 1)


def _is_exact(shape: Shape) -> bool:
    return shape.is_exact


def _is_plain(shape: Shape) -> bool:
    return not shape.is_exact


def _has_outages(shape: Shape) -> bool:
    return shape.breaker or shape.declares_outages


_ONE = (0, 1, 2)
_SWITCH = (1, 1, 0)

KINDS: dict[str, Kind] = {
    "time": Kind(
        lambda world, step: world.fleet.advance(step.number),
        (0, 1, 100, 950, 1_000, 3_000, 11_000, 50_000),
        "{time} pass",
        9,
        disturbs=False,
    ),
    "just-before": Kind(
        _just_before, (0,), "time passes until just before something is due", 2, disturbs=False
    ),
    "traffic": Kind(
        _traffic,
        (800, 8_000),
        "{time} pass, in which records come in of all keys",
        1.5,
        disturbs=False,
    ),
    "start": Kind(_start, (0,), "a process starts", 3),
    "stop": Kind(_to_one(Fleet.stop), _ONE, "process {number} of those that move is stopped", 2),
    "kill": Kind(
        _to_one(Fleet.kill), _ONE, "process {number} of those that move is killed", 3, is_unclean=True
    ),
    "kill-soon": Kind(
        _soon,
        (1, 2, 3, 4, 6, 9, 14),
        "a process is killed when its pump has made {number} rounds more",
        3,
        is_unclean=True,
    ),
    "kill-at-write": Kind(
        _at_write,
        _ONE,
        "process {number} of those that move is killed right after the next write to {text}",
        2,
        is_unclean=True,
        topics=Shape.written_topics,
    ),
    "lose": Kind(
        _to_one(Fleet.lose),
        _ONE,
        "the group gives up process {number} of those that move",
        0.5,
        is_unclean=True,
    ),
    "freeze": Kind(
        _to_one(Fleet.freeze), _ONE, "process {number} of those that move stands still", 0.5, is_unclean=True
    ),
    "thaw": Kind(
        lambda world, _: world.fleet.thaw(), (0,), "all that stood still goes on", 1, disturbs=False
    ),
    "brokers-away": Kind(_brokers_away, (0, 1_000, 40_000), "no broker answers for {time}"),
    "refuse-writes": Kind(
        _of_topic("refuse_writes"),
        (1, 2, 5),
        "the next {number} writes to {text} are refused",
        2,
        disturbs=False,
        topics=Shape.written_topics,
    ),
    "lose-acks": Kind(
        _of_topic("lose_acks"),
        (1, 2),
        "the next {number} writes to {text} are stored, but not acknowledged",
        topics=Shape.written_topics,
        fits=_is_plain,
    ),
    "hold-acks": Kind(
        _hold("acks_are_held"),
        _SWITCH,
        "acknowledgements of writes are held up from now on",
        1.5,
        fits=_is_plain,
        told_none="acknowledgements of writes come again",
    ),
    "hold-commits": Kind(
        _hold("commits_are_held"),
        _SWITCH,
        "commits of offsets are held up from now on",
        1.5,
        fits=_is_plain,
        told_none="commits of offsets arrive again",
    ),
    "refuse-commits": Kind(_count("refuse_commits"), (1, 3), "the next {number} commits are refused"),
    "silence": Kind(
        _silence,
        _SWITCH,
        "nothing is read of {text} from now on",
        3,
        disturbs=False,
        topics=Shape.read_topics,
        told_none="{text} is read again",
    ),
    "refuse-commits-of": Kind(
        _of_topic("refuse_commits_of"),
        (1, 2, 5),
        "the next {number} commits are refused for {text}, and stored for other topics",
        topics=Shape.read_topics,
        fits=_is_plain,
    ),
    "hold-transactions": Kind(
        _hold("transactions_are_held"),
        _SWITCH,
        "transactions stay open from now on",
        1.5,
        fits=_is_exact,
        told_none="transactions are carried out again",
    ),
    "abort": Kind(
        _count("abort_transactions"), (1, 3), "the next {number} transactions are aborted", fits=_is_exact
    ),
    "lose-outcomes": Kind(
        _count("lose_outcomes"),
        (1,),
        "the next transaction is committed, and nobody hears of it",
        fits=_is_exact,
    ),
    "clock": Kind(
        lambda world, step: world.fleet.clock.step_wall(step.number),
        (-3_600_000, -700, 700, 3_600_000),
        "the wall clock steps by {time}",
        disturbs=False,
    ),
    "away": Kind(
        lambda world, step: world.go_away(is_away=bool(step.number)),
        (1, 1, 0),
        "what the handlers call is away from now on",
        2,
        disturbs=False,
        fits=_has_outages,
        told_none="what the handlers call is back",
    ),
    "replay": Kind(
        lambda world, step: world.replay(int(step.number) or None),
        (0, 0, 1),
        "dead letters are replayed, {number} at most",
        disturbs=False,
        told_none="all dead letters are replayed",
    ),
    "discard": Kind(
        lambda world, step: world.discard(int(step.number) or None),
        (0, 1, 1),
        "dead letters are discarded, {number} at most",
        0.5,
        disturbs=False,
        told_none="all dead letters are discarded",
    ),
}


def draw_steps(shape: Shape, chance: random.Random, steps: int) -> list[Step]:
    """A script for a world of that shape."""
    fitting = [name for name, kind in KINDS.items() if kind.fits(shape)]
    weights = [KINDS[name].weight for name in fitting]
    return [
        _draw_sending(shape, chance)
        if chance.random() < 0.4
        else _draw(chance, shape, chance.choices(fitting, weights)[0])
        for _ in range(steps)
    ]


def _draw(chance: random.Random, shape: Shape, name: str) -> Step:
    kind = KINDS[name]
    topic = chance.choice(kind.topics(shape)) if kind.topics else ""
    return Step(name, chance.choice(kind.numbers), topic)


def _draw_sending(shape: Shape, chance: random.Random) -> Step:
    at = chance.randrange(len(shape.listeners))
    key = -1 if chance.random() < 0.05 else chance.randrange(shape.keys)
    task = None if chance.random() < 0.08 else _draw_task(shape.listeners[at], shape, chance)
    number = chance.choice((1, 1, 1, 2, 2, 4, 4, 12))
    if task is None or task.how == "kill":
        number = 1
    elif task.takes_s > 1 or task.how == "later":  # else such a world lasts for hours
        number = min(number, 2)
    elif task.fails:
        number = min(number, 4)
    return Step("send", text=msgspec.json.encode(Sent(task, key, number, SOURCES[at])).decode())


def _draw_task(listener: ListenerShape, shape: Shape, chance: random.Random) -> Task:
    fails = chance.choice((0, 0, 0, 1, 1, 2, listener.most_attempts - 1, listener.most_attempts))
    takes_s = chance.choice((0.0, 0.0, 0.01, 3.0, 20.0)) if listener.is_async else 0.0
    how = chance.choice(("away", "away", "away", "bug", "later", "letter", "skip"))
    if listener.is_async and not shape.is_exact and chance.random() < 0.05:
        how, fails = "kill", chance.choice((1, 1, 2))
    return Task(fails, takes_s, how, stubborn=chance.choice((0, 0, 0, 1)))
