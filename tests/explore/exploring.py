"""Plays worlds side by side, and counts what happened in them."""

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import count, islice

from redrive.testing.shrinking import shrunk
from tests.explore.coverage import Coverage
from tests.explore.world import Story, play, script_of

#: Worlds that a process plays at a time; the first of them is watched.
CHUNK = 25
#: The same where the first that goes wrong ends it all.
_HUNTED = 5
#: A world that takes longer, of the processor's time, has lost itself: that is a finding, too.
_PATIENCE_S = 20


class Tally:
    """What happened in some worlds. `stories`: of those that went wrong, in the order of their seeds."""

    def __init__(self) -> None:
        self.worlds = 0
        self.stories: list[Story] = []
        self.steps: Counter[str] = Counter()
        self.reports: Counter[str] = Counter()
        self.coverage = Coverage()

    def add(self, other: "Tally") -> None:
        self.worlds += other.worlds
        self.stories += other.stories
        self.steps += other.steps
        self.reports += other.reports
        self.coverage.add(other.coverage)

    def kinds(self) -> list[Story]:
        """The first story of each promise that was broken."""
        found: dict[str, Story] = {}
        for story in self.stories:
            found.setdefault(story.promise, story)
        return list(found.values())


def explore(
    *,
    worlds: int | None,
    minutes: float | None,
    first: int,
    processes: int,
    stops_at_first: bool = False,
    watches: bool = True,
    tell: Callable[[Tally, float], None] = lambda _, __: None,
) -> Tally:
    """
    Play worlds from the seed `first` on: so many, or as many as fit into the time. `watches`: the first world of each chunk, for
    what it reaches. `tell` is told each time some were played, with the seconds since the beginning.
    """
    began_s, tally = time.monotonic(), Tally()
    chunk = _HUNTED if stops_at_first else CHUNK
    starts = count(first, chunk)
    rounds = islice(starts, -(-worlds // chunk)) if worlds else starts
    with ProcessPoolExecutor(processes) as pool:
        for batch in _batches(rounds, processes * 2):
            for one in pool.map(play_chunk, [(range(start, start + chunk), watches) for start in batch]):
                tally.add(one)
            passed_s = time.monotonic() - began_s
            tell(tally, passed_s)
            is_over = minutes is not None and passed_s >= minutes * 60
            if is_over or (stops_at_first and tally.stories):
                break
    return tally


def play_chunk(asked: tuple[range, bool]) -> Tally:
    """Play the worlds of these seeds."""
    seeds, watches = asked
    tally = Tally()
    for seed in seeds:
        shape, steps = script_of(seed)
        is_watched = watches and seed == seeds.start
        with _patience(), tally.coverage.watching() if is_watched else nullcontext():
            story = play(seed, shape, steps, tally.reports)
        tally.worlds += 1
        tally.steps.update(step.kind for step in steps)
        if story is not None:
            tally.stories.append(story)
    return tally


def shortest(story: Story) -> Story:
    """The same failure with as few steps as can be found; of a world without end, all of them: each try would take as long."""
    if story.promise == f"raised {TimeoutError.__name__}":
        return story

    def goes_wrong(steps: list) -> bool:
        with _patience():
            found = play(story.seed, story.shape, steps)
        return found is not None and found.promise == story.promise

    return play(story.seed, story.shape, shrunk(story.steps, goes_wrong)) or story


@contextmanager
def _patience() -> Iterator[None]:
    def lose_it(*_: object) -> None:
        raise TimeoutError("a world doesn't come to its end")

    before = signal.signal(signal.SIGVTALRM, lose_it)
    signal.setitimer(signal.ITIMER_VIRTUAL, _PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _batches(starts: Iterator[int], size: int) -> Iterator[list[int]]:
    while batch := list(islice(starts, size)):
        yield batch
