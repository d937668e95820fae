"""
What goes wrong in the worlds of `explore`, as steps: values that can be drawn from a seed, played, left out, and told.

A step names a process by a number of which only the remainder counts, so a script stays one when steps of it are left out.
"""

import random
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

from redrive.sim.faults import Faults
from redrive.testing.harness import Harness
from redrive.testing.values import NewRecord
from redrive.testing.workers import Workers

#: What may go wrong in a world of `explore`.
Fault = Literal[
    "crash",
    "rebalance",
    "cut-off",
    "brokers",
    "writes",
    "acknowledgements",
    "commits",
    "transactions",
    "clock",
]


class Step(NamedTuple):
    """One thing that happens. `number` and `topic` as its kind has them; `record`: what is sent."""

    kind: str
    number: float = 0
    topic: str = ""
    record: NewRecord | None = None


class Scene(NamedTuple):
    """Where steps are played. `workers_most`: no more processes than this are alive at once."""

    harness: Harness
    workers_most: int


class Kind(NamedTuple):
    """
    A sort of step. `fault`: which one it belongs to, None for what isn't one. `play` does it and tells what was done, or ""
    where it can't be. `numbers`: those it is drawn with. `is_at_topic`: whether it is about one that the app writes to.
    """

    fault: Fault | None
    play: Callable[[Scene, Step], str]
    numbers: tuple[float, ...] = (0,)
    weight: int = 1
    is_at_topic: bool = False


def _send(scene: Scene, step: Step) -> str:
    if step.record is None:
        return ""
    new = step.record
    at = scene.harness.send(new.topic, new.value, key=new.key, headers=new.headers, partition=new.partition)
    key = "" if at.key() is None else f", key {_shown(at.key())}"
    return f"{at.topic()}/{at.partition()}/{at.offset()} is sent{key}: {_shown(at.value())}"


def _shown(raw: bytes | None) -> str:
    text = "null" if raw is None else raw.decode(errors="backslashreplace")
    return text if len(text) <= 200 else f"{text[:200]}…"


def _pass_time(scene: Scene, step: Step) -> str:
    scene.harness.workers.advance(step.number)
    return f"{duration(step.number)} pass"


def duration(ms: float) -> str:
    """A time as stories tell it."""
    return f"{ms:g} ms" if abs(ms) < 1_000 else f"{ms / 1000:g} s"


def _to_one(play: Callable[[Workers, int], str], *, least: int = 1) -> Callable[[Scene, Step], str]:
    """It happens to the process that the step names, told by its place; nothing does where there are fewer than `least`."""

    def pick(scene: Scene, step: Step) -> str:
        workers = scene.harness.workers
        count = len(workers.running)
        return play(workers, int(step.number) % count) if count >= least else ""

    return pick


def _crash(workers: Workers, place: int) -> str:
    number = workers.running[place].number
    workers.kill(place)
    workers.start()
    return f"process {number} is killed, another one starts in its place"


def _join(scene: Scene, _: Step) -> str:
    workers = scene.harness.workers
    if len(workers.running) + len(workers.unheard) >= scene.workers_most:
        return ""
    workers.start()
    return f"process {workers.running[-1].number} starts and joins the group"


def _leave(workers: Workers, place: int) -> str:
    number = workers.running[place].number
    workers.stop(place)
    workers.settle()
    return f"process {number} leaves the group in order"


def _lose(workers: Workers, place: int) -> str:
    workers.lose(place)
    workers.settle()
    return f"the group gives up process {workers.running[place].number}, which lives and joins again"


def _cut_off(workers: Workers, place: int) -> str:
    number = workers.running[place].number
    workers.cut_off(place)
    return f"process {number} is cut off: the brokers hear nothing of it"


def _reconnect(scene: Scene, _: Step) -> str:
    workers = scene.harness.workers
    if not workers.unheard:
        return ""
    told = ", ".join(str(worker.number) for worker in workers.unheard)
    workers.reconnect()
    workers.settle()
    return f"process {told} is heard of again"


def _brokers(scene: Scene, step: Step) -> str:
    scene.harness.cluster.is_down = True
    scene.harness.workers.advance(step.number)
    scene.harness.cluster.is_down = False
    return f"no broker answers for {duration(step.number)}"


def _counted(change: Callable[[Faults, Step], None], told: str) -> Callable[[Scene, Step], str]:
    def play(scene: Scene, step: Step) -> str:
        change(scene.harness.cluster.faults, step)
        return told.format(number=int(step.number), topic=step.topic)

    return play


def _hold(switch: str, held: str, free: str) -> Callable[[Scene, Step], str]:
    """It is set and set back by turns."""

    def play(scene: Scene, _: Step) -> str:
        faults = scene.harness.cluster.faults
        setattr(faults, switch, not getattr(faults, switch))
        return held if getattr(faults, switch) else free

    return play


def _break(scene: Scene, step: Step) -> str:
    broken = scene.harness.cluster.faults.broken_topics
    if step.topic in broken:
        scene.harness.mend_topic(step.topic)
        return f"{step.topic} takes writes again"
    scene.harness.break_topic(step.topic)
    return f"{step.topic} refuses all writes from now on"


def _step_clock(scene: Scene, step: Step) -> str:
    scene.harness.clock.step_wall(step.number)
    return f"the wall clock steps {'back' if step.number < 0 else 'on'} by {duration(abs(step.number))}"


_ONE = (0, 1, 2)
SEND, START = "send", "start"

KINDS: dict[str, Kind] = {
    SEND: Kind(None, _send, weight=0),
    START: Kind(None, _join, weight=0),
    "time": Kind(None, _pass_time, (1, 100, 950, 1_000, 5_000, 31_000, 50_000), 8),
    "crash": Kind("crash", _to_one(_crash), _ONE, 4),
    "join": Kind("rebalance", _join, weight=3),
    "leave": Kind("rebalance", _to_one(_leave, least=2), _ONE, 2),
    "lose": Kind("rebalance", _to_one(_lose), _ONE),
    "cut-off": Kind("cut-off", _to_one(_cut_off), _ONE),
    "reconnect": Kind("cut-off", _reconnect, weight=2),
    "brokers": Kind("brokers", _brokers, (1_000, 20_000, 50_000)),
    "refuse-writes": Kind(
        "writes",
        _counted(
            lambda faults, step: faults.refuse_writes(step.topic, int(step.number)),
            "the next {number} writes to {topic} are refused",
        ),
        (1, 2, 5),
        is_at_topic=True,
    ),
    "break-topic": Kind("writes", _break, weight=2, is_at_topic=True),
    "hold-acks": Kind(
        "acknowledgements",
        _hold(
            "acks_are_held",
            "acknowledgements of writes are held up from now on",
            "acknowledgements of writes come again",
        ),
        weight=2,
    ),
    "lose-acks": Kind(
        "acknowledgements",
        _counted(
            lambda faults, step: faults.lose_acks(step.topic, int(step.number)),
            "the next {number} writes to {topic} are stored, and nobody hears of it",
        ),
        (1, 2),
        is_at_topic=True,
    ),
    "hold-commits": Kind(
        "commits",
        _hold(
            "commits_are_held",
            "commits of offsets are held up from now on",
            "commits of offsets arrive again",
        ),
        weight=2,
    ),
    "refuse-commits": Kind(
        "commits",
        _counted(
            lambda faults, step: faults.refuse_commits(int(step.number)),
            "the next {number} commits are refused",
        ),
        (1, 3),
    ),
    "hold-transactions": Kind(
        "transactions",
        _hold(
            "transactions_are_held",
            "transactions stay open from now on",
            "transactions are carried out again",
        ),
        weight=2,
    ),
    "abort": Kind(
        "transactions",
        _counted(
            lambda faults, step: faults.abort_transactions(int(step.number)),
            "the next {number} transactions are aborted",
        ),
        (1, 3),
    ),
    "lose-outcome": Kind(
        "transactions",
        _counted(
            lambda faults, _: faults.lose_outcomes(1),
            "the next transaction is committed, and nobody hears of it",
        ),
    ),
    "clock": Kind("clock", _step_clock, (-3_600_000, -700, 700, 3_600_000)),
}


def draw(chance: random.Random, faults: Collection[Fault], topics: Sequence[str], count: int) -> list[Step]:
    """So many steps, each by its weight. `topics`: those that the app writes to."""
    kinds = [
        name
        for name, kind in KINDS.items()
        if (kind.fault is None or kind.fault in faults) and (topics or not kind.is_at_topic)
    ]
    drawn = chance.choices(kinds, [KINDS[name].weight for name in kinds], k=count)
    return [
        Step(
            name,
            chance.choice(KINDS[name].numbers),
            chance.choice(topics) if KINDS[name].is_at_topic else "",
        )
        for name in drawn
    ]
