"""Plays worlds from seeds, in which a user's handlers meet everything that can go wrong."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar, get_args, overload

from redrive.app import App
from redrive.core.settings import Settings
from redrive.errors import ListenerError
from redrive.runtime.declaration import ResolvedApp
from redrive.sim.cluster import SimCluster
from redrive.testing.faults import Fault, Step
from redrive.testing.harness import Harness, made
from redrive.testing.promises import Broken
from redrive.testing.shrinking import shrunk
from redrive.testing.values import check_counts
from redrive.testing.worlds import Game, Sending, Story, World, play, script

S = TypeVar("S")


class Explored(NamedTuple):
    """
    What was played, summed over all worlds: records sent, runs of handlers that ended well and that didn't, and how often
    which fault happened.
    """

    worlds: int
    sent: int
    handled: int
    failed: int
    faults: Counter[str]


@overload
def explore(
    app_factory: Callable[[], App],
    *,
    send: Sending,
    invariant: Callable[[World[None]], object] | None = None,
    worlds: int = 1000,
    seed: int = 0,
    steps: int = 20,
    workers: int = 3,
    partitions: int = 2,
    topics: Collection[str] = (),
    faults: Collection[Fault] = (),
    settings: Settings | None = None,
) -> Explored: ...
@overload
def explore(
    app_factory: Callable[[S], App],
    *,
    outside: Callable[[], S],
    send: Sending,
    invariant: Callable[[World[S]], object] | None = None,
    worlds: int = 1000,
    seed: int = 0,
    steps: int = 20,
    workers: int = 3,
    partitions: int = 2,
    topics: Collection[str] = (),
    faults: Collection[Fault] = (),
    settings: Settings | None = None,
) -> Explored: ...
def explore(
    app_factory: Callable[..., App],
    *,
    outside: Callable[[], Any] | None = None,
    send: Sending,
    invariant: Callable[[World[Any]], object] | None = None,
    worlds: int = 1000,
    seed: int = 0,
    steps: int = 20,
    workers: int = 3,
    partitions: int = 2,
    topics: Collection[str] = (),
    faults: Collection[Fault] = (),
    settings: Settings | None = None,
) -> Explored:
    """
    Play `worlds` worlds, each another one, in which the app's own handlers run through faults; gives how much happened.

    `app_factory`: makes the app, for each process that starts, so that what a process keeps in memory dies with it. `outside`:
    makes what outlives processes (a database, a bank), once a world; it is given to `app_factory`, and is `world.outside`.
    Without it `app_factory` takes no argument.

    `send`: the records of a world, sent in that order between the other steps: a list, or a function of the world's own
    `random.Random` that gives them. `invariant`: what must hold after each step, and at the end (`world.is_over`); it says
    False, or raises, when it doesn't. redrive's own promises are checked along: each record is handled or a dead letter in the
    end, or dropped by `Skip` or `give_up="skip"`; none runs before its due; all run in the order that their listener asks
    for; with delivery `exactly-once` none becomes two dead letters.

    `seed`: of the first world, the next one has the next number. A seed is always the same world, as long as handlers
    throw no dice of their own and read no clock but the event loop's. `steps`: what happens in a world besides what is
    sent; 20, so that stories stay short. `workers`: processes at most; 3, so that partitions move between some that have had
    them. `partitions`: of each source topic; 2, so that processes share them. `topics`: others that must be there, such as
    those that handlers emit to. `faults`: which may happen; empty: all. `settings`: by default those of
    `Settings(breaker=False)`, since an outage that never ends would hold records for ever.

    Raises AssertionError for a world in which something doesn't hold, with the shortest story of it that was found and
    what plays it again, and where no handler ran in any world, so that nothing was checked; ListenerError for an app that
    can't be run, or that has a listener with `give_up="stop"`, with which a world has no end; ValueError and TypeError for
    what can't be, such as a coroutine as invariant; SettingsError and TopologyError as `Harness` does.
    """
    if not callable(app_factory):
        raise TypeError(
            f"explore({app_factory!r}) takes a function that makes the app, for each process anew"
        )
    check_counts("explore", worlds=worlds, workers=workers, partitions=partitions)
    make_outside: Callable[[], Any] = outside or (lambda: None)
    make_app: Callable[[Any], App] = app_factory if outside is not None else lambda _: app_factory()
    settings = settings or Settings(bootstrap_servers="sim:9092", breaker=False)
    app, targets = _looked_at(lambda: make_app(make_outside()), topics, settings)
    game = Game(
        make_app=make_app,
        outside=make_outside,
        send=send if callable(send) else tuple(send),  # an iterator is at its end after the first world
        invariant=invariant,
        steps=steps,
        workers=workers,
        partitions=partitions,
        topics=topics,
        faults=_faults(faults, app),
        settings=settings,
        app=app,
        targets=targets,
    )
    return _explored(game, range(seed, seed + worlds))


def _explored(game: Game[Any], seeds: range) -> Explored:
    explored, unrun = Explored(0, 0, 0, 0, Counter()), ""
    for seed in seeds:
        story = play(game, seed, script(game, seed))
        if story.broken is not None:
            raise _failure(game, seed, story, story.broken)
        explored, unrun = _with(explored, story), unrun or story.unrun
    if not explored.handled and not explored.failed:
        raise AssertionError(_nothing_ran(explored, unrun))
    return explored


def _nothing_ran(explored: Explored, unrun: str) -> str:
    why = (
        unrun or "they went to no listener, or were dropped undecoded" if explored.sent else "send gives none"
    )
    return f"no handler ran in any of {explored.worlds} worlds with {explored.sent} records, so nothing was checked: {why}"


def _looked_at(
    make_app: Callable[[], App], topics: Collection[str], settings: Settings
) -> tuple[ResolvedApp, list[str]]:
    """What processes will run, and the topics that it writes to. Raises what is wrong with it."""
    app = made(make_app).resolve()
    if stopping := [each for each in app.listeners if each.give_up == "stop"]:
        told = "explore() can't play it: with give_up='stop' a world has no end; give the app another one in tests"
        raise ListenerError([(each.where, told) for each in stopping])
    cluster = SimCluster()
    for topic in topics:
        cluster.create_topic(topic)
    with Harness(make_app, settings=settings, cluster=cluster):
        sources = {listener.topic for listener in app.listeners}
        # What is compacted holds the states of dead letters: people write to it.
        targets = [
            name for name, topic in cluster.topics.items() if name not in sources and not topic.is_compacted
        ]
    return replace(app, delivery=app.delivery or settings.delivery), targets


def _faults(asked: Collection[Fault], app: ResolvedApp) -> list[Fault]:
    """Those that may happen. Raises ValueError for what is none."""
    every = get_args(Fault)
    if unknown := [each for each in asked if each not in every]:
        raise ValueError(f"explore(faults={unknown!r}): there are {', '.join(map(repr, every))}")
    return [
        each
        for each in every
        if (not asked or each in asked) and (each != "transactions" or app.delivery == "exactly-once")
    ]


def _with(explored: Explored, story: Story) -> Explored:
    return Explored(
        explored.worlds + 1,
        explored.sent + sum(step.record is not None for step in story.steps),
        explored.handled + story.runs[0],
        explored.failed + story.runs[1],
        explored.faults + story.faults,
    )


def _failure(game: Game[Any], seed: int, story: Story, broken: Broken) -> AssertionError:
    """Tells the shortest story of what didn't hold that is found, and what plays it again."""

    def goes_wrong(steps: Sequence[Step]) -> bool:
        found = play(game, seed, steps).broken
        return found is not None and found.what == broken.what

    again = f"again: explore(…, seed={seed}, worlds=1)"
    if not goes_wrong(story.steps):
        again += "; but played once more it was another world: something in it comes neither from its seed nor its clock"
    else:
        shortest = play(game, seed, shrunk(story.steps, goes_wrong))
        story, broken = shortest, shortest.broken or broken
    failure = AssertionError("\n".join([f"in the world of seed {seed}: {broken}", *story.lines, again]))
    failure.__cause__ = broken.__cause__
    return failure
