"""One world: a shape, a script of steps, and what became of it."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from tests.explore.ledger import Broken, Ledger
from tests.explore.letters import Operator
from tests.explore.shapes import Shape, draw_shape
from tests.explore.shop import Shop
from tests.explore.steps import KINDS, Sent, Step, draw_steps
from tests.sim.fleet import Fleet
from tests.sim.mortal_fleet import Mortal

#: A wall clock that was set back is set further on than that before a world ends.
_BACK_MOST_MS = 7_200_000.0
#: So long a world goes on at a time when its faults are over, before it is asked whether all is done.
_ROUND_MS = 12_000.0
#: So seldom are engines looked after when nothing happens, for more worlds an hour.
_STEP_MOST_MS = 3_200.0
STEPS = 16
#: A record that kills ends three processes; more deaths at one instant are told at the end of the world.
_DEATHS_MOST = 20


class World:
    """It is played once. Raises Broken, by the step or the end that shows it."""

    def __init__(self, shape: Shape, seed: int, shop: Shop | None = None) -> None:
        self.shape = shape
        self.shop = shop or Shop(shape)
        self.fleet = Fleet(
            app=self.shop.app,
            partitions=shape.partitions,
            seed=seed,
            delivery=shape.delivery,
            breaker=shape.breaker,
        )
        self.fleet.step_most_ms = _STEP_MOST_MS
        self.shop.open(self.fleet.clock)
        self.fleet.cluster.group("shop").metadata_units = shape.metadata_units
        self.ledger = Ledger(shape, self.shop, self.fleet)
        self.fleet.cluster.group("shop").on_stored = self.ledger.check
        self.operator = Operator(self.fleet)
        #: The events of which processes told an operator.
        self.reports: Counter[str] = Counter()
        #: When which processes are killed.
        self._doomed: dict[int, Callable[[], bool]] = {}
        self.start()
        self.fleet.advance(0)

    def play(self, step: Step) -> None:
        """Let it happen, and check."""
        if step.kind == "send":
            self.send(msgspec.json.decode(step.text, type=Sent))
        else:
            kind = KINDS[step.kind]
            self.ledger.note_step(step, kind)
            kind.play(self, step)
        self._bury()
        self.ledger.check()

    def end(self) -> None:
        """No more faults: all that was sent must come to its end."""
        self.go_away(is_away=False)
        self.shop.is_mended = self.ledger.outages > 0 or self.shape.breaker
        self.fleet.clock.step_wall(_BACK_MOST_MS)
        self.fleet.thaw()
        if not self.fleet.processes:
            self.start()
        self.fleet.calm_down(self._is_done, round_ms=_ROUND_MS)
        self.ledger.check()
        self.ledger.check_end()

    def close(self) -> None:
        for process in self.fleet.everyone:
            self.reports.update(report.event for report in process.reports)
        self.fleet.close()

    # -- what steps do -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """One more process, which the shop's records can kill."""
        self.fleet.start()
        self.fleet.processes[-1] = Mortal(self.fleet.processes[-1], self._after_round)

    def doom(self, index: int, is_time: Callable[[], bool]) -> None:
        """One of the processes that move is killed when it is time; asked whenever its pump has made a round."""
        if moving := self.fleet.processes:
            self._doomed[moving[index % len(moving)].process.resources] = is_time

    def go_away(self, *, is_away: bool) -> None:
        """What the handlers call goes, or is back."""
        if not is_away:
            self.shop.away_since_ms = None
        elif self.shop.away_since_ms is None:
            self.shop.away_since_ms = self.fleet.clock.mono_ms()
            self.ledger.outages += 1

    def replay(self, most: int | None) -> None:
        """An operator sends letters back."""
        job, events = self.operator.job("replay", most)
        # Before they are sent: their handlers are to know it.
        self.shop.replays.update(events)
        self.ledger.sent_back.sent(events)
        job.replay()

    def discard(self, most: int | None) -> None:
        """An operator discards letters."""
        job, events = self.operator.job("discard", most)
        job.discard()
        self.ledger.note_discards(events)

    def _after_round(self, number: int) -> bool:
        """The pump of this process has made a round. Whether it dies now."""
        is_killed = number in self.shop.dying
        if is_killed:
            self.ledger.note_death()
        self.ledger.look()
        return is_killed or (number in self._doomed and self._doomed[number]())

    def send(self, sent: Sent) -> None:
        """Records come in."""
        value = b"\xff" if sent.task is None else msgspec.json.encode(sent.task)
        key = None if sent.key < 0 else b"key-%d" % sent.key
        for _ in range(sent.count):
            self.ledger.note_sent(self.fleet.cluster.append(sent.source, value, key=key), sent.task)

    def _bury(self) -> None:
        """Who died is replaced."""
        for _ in range(_DEATHS_MOST):
            dead = [process for process in self.fleet.processes if process.is_dead]
            if not dead:
                return
            for process in dead:
                self.fleet.processes.remove(process)
                self.start()
            self.fleet.advance(0)

    def _is_done(self) -> bool:
        self._bury()
        self.ledger.check()
        self.ledger.check_rest()
        if self.ledger.is_done():
            return True
        if self.ledger.waits_for_letters():
            self.replay(None)
            self.discard(None)
        return False


class Story(NamedTuple):
    """A world that went wrong."""

    seed: int
    shape: Shape
    steps: tuple[Step, ...]
    promise: str
    told: str

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.told}", f"  {self.shape}"]
        lines += [f"  {number:3}. {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join(lines)


def script_of(seed: int) -> tuple[Shape, list[Step]]:
    """What a seed stands for."""
    chance = random.Random(seed)
    shape = draw_shape(chance)
    return shape, draw_steps(shape, chance, STEPS)


def play(seed: int, shape: Shape, steps: Sequence[Step], reports: Counter[str] | None = None) -> Story | None:
    """Play a world. None: every promise was kept. `reports`: where what its processes told is counted."""
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
        if reports is not None:
            reports.update(world.reports)
    return None
