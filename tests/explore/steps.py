"""
What happens in a world, step by step, as values: they can be drawn from a seed, played, left out, and told.

Steps name processes by their place among those that move, so a script stays one when steps of it are left out.
"""

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.sim.fleet import Fleet

#: No more processes than this are alive at once.
PROCESSES_MOST = 3


class Step(NamedTuple):
    """One thing that happens. `number` and `text` as its kind has them."""

    kind: str
    number: float = 0
    text: str = ""

    def __str__(self) -> str:
        return KINDS[self.kind].told.format(number=self.number, text=self.text)


class Kind(NamedTuple):
    """
    What a step does and how it is told. `weight`: how often it is drawn. `disturbs`: whether records may run more than
    once for it.
    """

    play: Callable[[Fleet, Step], None]
    draw: Callable[[random.Random, Sequence[str]], Step]
    told: str
    weight: int = 1
    disturbs: bool = True


def _plain(kind: str, *numbers: float) -> Callable[[random.Random, Sequence[str]], Step]:
    return lambda chance, _: Step(kind, chance.choice(numbers or (0,)))


def _at_a_topic(kind: str, *numbers: float) -> Callable[[random.Random, Sequence[str]], Step]:
    return lambda chance, topics: Step(kind, chance.choice(numbers), chance.choice(topics))


def _to_one(change: Callable[[Fleet, int], None]) -> Callable[[Fleet, Step], None]:
    def play(fleet: Fleet, step: Step) -> None:
        if fleet.processes:
            change(fleet, int(step.number) % len(fleet.processes))

    return play


def _start(fleet: Fleet, _: Step) -> None:
    if len(fleet.processes) + len(fleet.frozen) < PROCESSES_MOST:
        fleet.start()


def _brokers_away(fleet: Fleet, step: Step) -> None:
    fleet.cluster.is_down = True
    fleet.advance(step.number)
    fleet.cluster.is_down = False


def _hold(switch: str) -> Callable[[Fleet, Step], None]:
    return lambda fleet, step: setattr(fleet.cluster.faults, switch, bool(step.number))


def _just_before(fleet: Fleet, _: Step) -> None:
    wait_ms = min((process.next_ms() for process in fleet.processes), default=0.0)
    if 1 < wait_ms < 3_600_000:
        fleet.advance(wait_ms - 1)


_ONE = (0, 1, 2)

KINDS: dict[str, Kind] = {
    "time": Kind(
        lambda fleet, step: fleet.advance(step.number),
        _plain("time", 0, 1, 100, 950, 1_000, 5_000, 31_000, 50_000),
        "{number:,.0f} ms pass",
        12,
        disturbs=False,
    ),
    "just-before": Kind(
        _just_before,
        _plain("just-before"),
        "time passes until just before something is due",
        2,
        disturbs=False,
    ),
    "start": Kind(_start, _plain("start"), "a process starts", 3),
    "stop": Kind(
        _to_one(Fleet.stop), _plain("stop", *_ONE), "process {number} of those that move is stopped", 2
    ),
    "kill": Kind(
        _to_one(Fleet.kill), _plain("kill", *_ONE), "process {number} of those that move is killed", 3
    ),
    "lose": Kind(
        _to_one(Fleet.lose), _plain("lose", *_ONE), "the group gives up process {number} of those that move"
    ),
    "freeze": Kind(
        _to_one(Fleet.freeze), _plain("freeze", *_ONE), "process {number} of those that move stands still"
    ),
    "thaw": Kind(
        lambda fleet, _: fleet.thaw(), _plain("thaw"), "all that stood still goes on", 2, disturbs=False
    ),
    "brokers-away": Kind(
        _brokers_away, _plain("brokers-away", 0, 1_000, 40_000), "no broker answers for {number:,.0f} ms"
    ),
    "refuse-writes": Kind(
        lambda fleet, step: fleet.cluster.faults.refuse_writes(step.text, int(step.number)),
        _at_a_topic("refuse-writes", 1, 2, 5),
        "the next {number} writes to {text} are refused",
        2,
        disturbs=False,
    ),
    "lose-acks": Kind(
        lambda fleet, step: fleet.cluster.faults.lose_acks(step.text, int(step.number)),
        _at_a_topic("lose-acks", 1, 2),
        "the next {number} writes to {text} are stored, but not acknowledged",
    ),
    "hold-acks": Kind(
        _hold("acks_are_held"), _plain("hold-acks", 1, 0), "acknowledgements are held back: {number}", 2
    ),
    "hold-commits": Kind(
        _hold("commits_are_held"), _plain("hold-commits", 1, 0), "commits are held up: {number}", 2
    ),
    "hold-transactions": Kind(
        _hold("transactions_are_held"), _plain("hold-transactions", 1, 0), "transactions stay open: {number}"
    ),
    "refuse-commits": Kind(
        lambda fleet, step: fleet.cluster.faults.refuse_commits(int(step.number)),
        _plain("refuse-commits", 1, 3),
        "the next {number} commits are refused",
    ),
    "abort": Kind(
        lambda fleet, step: fleet.cluster.faults.abort_transactions(int(step.number)),
        _plain("abort", 1, 3),
        "the next {number} transactions are aborted",
    ),
    "lose-outcomes": Kind(
        lambda fleet, step: fleet.cluster.faults.lose_outcomes(int(step.number)),
        _plain("lose-outcomes", 1),
        "the next transaction is committed, and nobody hears of it",
    ),
    "clock": Kind(
        lambda fleet, step: fleet.clock.step_wall(step.number),
        _plain("clock", -3_600_000, -700, 700, 3_600_000),
        "the wall clock steps by {number:,.0f} ms",
        disturbs=False,
    ),
}


def draw(chance: random.Random, topics: Sequence[str]) -> Step:
    """Any step, by its weight. `topics`: those that the app writes to."""
    kinds = list(KINDS)
    kind = chance.choices(kinds, [KINDS[name].weight for name in kinds])[0]
    return KINDS[kind].draw(chance, topics)
