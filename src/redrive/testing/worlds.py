"""One world of `explore`: what happens in it, what is checked, and how it is told."""

import inspect
import random
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from redrive.app import App
from redrive.core.settings import Settings
from redrive.errors import TopologyError
from redrive.runtime.declaration import ResolvedApp
from redrive.sim.clock import START_WALL_MS, VirtualClock
from redrive.sim.cluster import SimCluster
from redrive.sim.faults import Faults
from redrive.testing.faults import KINDS, SEND, START, Fault, Scene, Step, draw
from redrive.testing.harness import Harness
from redrive.testing.promises import Broken, Promises, event_of
from redrive.testing.values import Begun, Handled, NewRecord

S = TypeVar("S")

#: The records of a world: always the same, or drawn from its dice.
Sending = Sequence[NewRecord] | Callable[[random.Random], Iterable[NewRecord]]
#: When the faults have ceased a world gets so many steps of a minute, or longer where nothing is due earlier.
_CALM_STEPS = 500
_CALM_STEP_MS = 60_000.0
_CALM_STEP_MOST_MS = 30 * 24 * 3_600_000.0
_CALM_LOOK_MS = 10_000.0
#: When nothing has happened in so many of them, nothing will: back-off and sessions are shorter than one.
_QUIET_STEPS = 30
#: So many runs are told of one step.
_RUNS_TOLD = 12


class NothingChecked(ValueError):
    """What a test gave to `explore` would let every world pass."""


class World(Generic[S]):
    """
    A world that is being played, as the invariant sees it.

    `outside`: what outlives its processes, as made by `explore(outside=…)`. `harness`: its app, with `handled`, `failed`,
    `dead_letters`, `waiting`; only to be looked at. `sent`: what was sent so far. `is_over`: whether all faults have ceased, and
    all that was sent has come to its end.
    """

    def __init__(self, outside: S, harness: Harness) -> None:
        self.outside = outside
        self.harness = harness
        self.sent: list[NewRecord] = []
        self.is_over = False


class Game(NamedTuple, Generic[S]):
    """
    What all worlds of one exploration have in common. `app`: what every process runs, as a value; `targets`: the topics that
    it writes to. The others are arguments of `explore`.
    """

    make_app: Callable[[S], App]
    outside: Callable[[], S]
    send: Sending
    invariant: Callable[[World[S]], object] | None
    steps: int
    workers: int
    partitions: int
    topics: Collection[str]
    faults: Collection[Fault]
    settings: Settings
    app: ResolvedApp
    targets: Sequence[str]


class Story(NamedTuple):
    """
    What became of a world. `broken`: what didn't hold; None: all did. `lines`: what happened, step by step; `runs`: how many
    handlers ended well, and how many didn't; `faults`: how often which fault happened. `unrun`: where no handler ran, what
    became of a record.
    """

    steps: Sequence[Step]
    broken: Broken | None
    lines: Sequence[str]
    runs: tuple[int, int]
    faults: Counter[str]
    unrun: str


def script(game: Game[S], seed: int) -> list[Step]:
    """
    What happens in the world of that seed: processes start, and records are sent between drawn steps. Raises TypeError for
    what isn't a record.
    """
    chance = random.Random(seed)
    records = list(game.send(chance) if callable(game.send) else game.send)
    for record in records:
        if not isinstance(record, NewRecord):
            raise TypeError(f"explore(send=…) gives {record!r}: write NewRecord(topic, value)")
    sends = [Step(SEND, record=record) for record in records]
    others = draw(chance, game.faults, game.targets, game.steps)
    is_send = [True] * len(sends) + [False] * len(others)
    chance.shuffle(is_send)
    turns = {True: iter(sends), False: iter(others)}
    return [Step(START)] * chance.randrange(game.workers) + [next(turns[each]) for each in is_send]


def play(game: Game[S], seed: int, steps: Sequence[Step]) -> Story:
    """
    Let these steps happen in the world of that seed, and then all come to its end. Raises TopologyError, NothingChecked.
    """
    outside = game.outside()
    cluster = SimCluster(VirtualClock(), seed=seed)
    for topic in game.topics:
        cluster.create_topic(topic, game.partitions)
    harness = Harness(
        lambda: game.make_app(outside), partitions=game.partitions, settings=game.settings, cluster=cluster
    )
    player = _Player(game, World(outside, harness))
    broken: Broken | None = None
    try:
        for step in steps:
            player.play(step)
        player.end()
    except Broken as error:
        broken = error
    except (TopologyError, NothingChecked):  # wrong is the test: it sends to no topic, or checks nothing
        raise
    except Exception as error:  # whatever is raised by redrive, a lifespan or a decoder is a finding, too
        broken = Broken(f"raised {type(error).__name__}", f"raised {error!r}")
        broken.__cause__ = error
    finally:
        harness.workers.close(in_order=False)
    player.tell_runs()
    runs = len(harness.handled), len(harness.failed)
    unrun = "" if broken or any(runs) else _unrun(harness)
    return Story(steps, broken, player.lines, runs, player.faults, unrun)


def _unrun(harness: Harness) -> str:
    for letter in harness.dead_letters:
        return f"{letter.source} is a dead letter, {letter.reason}: {letter.failure_type}: {letter.failure_message}"
    return ""


def _said_by(error: Exception) -> str:
    """What an invariant raised; of an assertion without a text, which has one only under pytest, its line."""
    if not isinstance(error, AssertionError):
        return repr(error)
    return str(error) or traceback.extract_tb(error.__traceback__)[-1].line or repr(error)


class _Player(Generic[S]):
    def __init__(self, game: Game[S], world: World[S]) -> None:
        self._game, self._world = game, world
        self._scene = Scene(world.harness, game.workers)
        self._promises = Promises(world.harness, game.app)
        self._told_runs = 0
        self._number = 0
        self.lines: list[str] = []
        self.faults: Counter[str] = Counter()

    def play(self, step: Step) -> None:
        """Let it happen, and check. Raises Broken."""
        kind = KINDS[step.kind]
        self.tell_runs()
        told = kind.play(self._scene, step)
        if not told:  # there was nothing to do it to
            return
        self._tell(told)
        if step.record is not None:
            self._world.sent.append(step.record)
        if kind.fault is not None:
            self.faults[kind.fault] += 1
        self._check()

    def end(self) -> None:
        """No more faults: all that was sent must come to its end. Raises Broken."""
        cluster, workers = self._world.harness.cluster, self._world.harness.workers
        self.tell_runs()
        self._tell("no more faults; time passes until all has come to its end")
        cluster.is_down, cluster.faults = False, Faults()
        is_back_ms = START_WALL_MS + cluster.clock.mono_ms() - cluster.clock.wall_ms()
        cluster.clock.step_wall(max(0.0, is_back_ms))
        workers.reconnect()
        if not workers.running:
            workers.start()
        quiet = 0
        for _ in range(_CALM_STEPS):
            before = self._happened()
            known_ms = [ms for ms in workers.known_waits_ms() if ms < _CALM_STEP_MOST_MS]
            workers.advance(max(_CALM_STEP_MS, min(known_ms, default=0.0)), step_most_ms=_CALM_LOOK_MS)
            self._check()
            quiet = quiet + 1 if self._happened() == before else 0
            if quiet == _QUIET_STEPS or not self._promises.unfinished():
                break
        self._promises.check_end()
        self._world.is_over = True
        self._check()

    def _happened(self) -> tuple[int, int]:
        """Changes when a handler runs, and with all that is written."""
        topics = self._world.harness.cluster.topics.values()
        return len(self._world.harness.history), sum(log.end for topic in topics for log in topic.partitions)

    def _check(self) -> None:
        self._promises.check()
        if self._game.invariant is None:
            return
        try:
            said = self._game.invariant(self._world)
        except Exception as error:
            raise Broken(f"invariant: {type(error).__name__}", _said_by(error)) from error
        if said is False:
            raise Broken("invariant", "the invariant says False")
        if inspect.isawaitable(said) or inspect.isgenerator(said) or inspect.isasyncgen(said):
            if inspect.iscoroutine(said):
                said.close()  # else Python says that it was never awaited
            raise NothingChecked(
                f"explore(invariant=…) gives a {type(said).__name__}, which is never run: write a plain function (def, "
                "without yield) that says False, or raises, when something doesn't hold"
            )

    # -- telling -------------------------------------------------------------------------------------------------

    def _tell(self, told: str) -> None:
        self._number += 1
        self.lines.append(f"{self._number:3}. {told}")

    def tell_runs(self) -> None:
        """What handlers did since it was told last."""
        runs = self._world.harness.history[self._told_runs :]
        self._told_runs += len(runs)
        ended = {id(run.record) for run in runs if not isinstance(run, Begun)}
        told = [run for run in runs if not (isinstance(run, Begun) and id(run.record) in ended)]
        for run in told[:_RUNS_TOLD]:
            attempt = f", attempt {run.attempt}" if run.attempt > 1 else ""
            at = f"{event_of(run.record)}{attempt}, in process {run.worker}"
            if isinstance(run, Begun):
                self.lines.append(f"       {run.listener} begins {at}")
            elif isinstance(run, Handled):
                self.lines.append(f"       {run.listener} handles {at}")
            else:
                self.lines.append(f"       {run.listener} fails {at}: {run.error!r}")
        if len(told) > _RUNS_TOLD:
            self.lines.append(f"       and {len(told) - _RUNS_TOLD} more")
