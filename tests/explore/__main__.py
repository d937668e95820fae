"""
Plays worlds until they are through, or one of them breaks a promise.

    scripts/explore                     # 3,000 worlds
    scripts/explore --minutes 60        # as many as fit
    scripts/explore --seed 1234         # one world again, told step by step
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count, islice

from tests.explore.shrinking import shrunk
from tests.explore.world import Story, play, script_of, told

#: Worlds that a job plays at a time.
CHUNK = 20


def play_some(seeds: range) -> list[Story]:
    """Those of these worlds that went wrong."""
    stories = (play(seed, *script_of(seed)) for seed in seeds)
    return [story for story in stories if story is not None]


def shortest(story: Story) -> Story:
    """The same failure with as few steps as can be found."""
    steps = shrunk(story.steps, lambda steps: _promise(play(story.seed, story.shape, steps)) == story.promise)
    return play(story.seed, story.shape, steps) or story


def explore(worlds: int | None, minutes: float | None, first_seed: int, jobs: int) -> tuple[int, list[Story]]:
    """How many worlds were played, and what went wrong: the first one of each promise."""
    began_s, played = time.monotonic(), 0
    found: dict[str, Story] = {}
    starts = count(first_seed, CHUNK)
    with ProcessPoolExecutor(jobs) as pool:
        rounds = islice(starts, -(-worlds // CHUNK)) if worlds else starts
        for batch in _batches(rounds, jobs * 2):
            for stories in pool.map(play_some, [range(start, start + CHUNK) for start in batch]):
                played += CHUNK
                for story in stories:
                    found.setdefault(story.promise, story)
            passed_s = time.monotonic() - began_s
            print(
                f"\r{played:,} worlds, {played / passed_s:.1f}/s, {len(found)} kinds of failure",
                end="",
                file=sys.stderr,
            )
            if minutes and passed_s > minutes * 60:
                break
    print(file=sys.stderr)
    return played, list(found.values())


def _batches(starts: Iterator[int], size: int) -> Iterator[list[int]]:
    while batch := list(islice(starts, size)):
        yield batch


def _promise(story: Story | None) -> str:
    return story.promise if story else ""


def replay(seed: int) -> int:
    """Tell one world, and what became of it."""
    shape, steps = script_of(seed)
    print(f"seed {seed}: {shape}")
    for number, step in enumerate(steps, 1):
        print(f"  {number:3}. {told(step)}")
    story = play(seed, shape, steps)
    if story is None:
        print("every promise was kept")
        return 0
    print("\nthe shortest that was found:\n")
    print(shortest(story))
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/explore", description=__doc__.split("\n\n")[0].strip())
    parser.add_argument("--worlds", type=int, help="how many worlds (3,000)")
    parser.add_argument("--minutes", type=float, help="as many worlds as fit into this time")
    parser.add_argument("--seed", type=int, help="play this world again and tell it")
    parser.add_argument("--from", dest="first", type=int, help="the first seed; any by default")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    asked = parser.parse_args()
    if asked.seed is not None:
        return replay(asked.seed)
    first = random.SystemRandom().randrange(1_000_000_000) if asked.first is None else asked.first
    worlds = asked.worlds or (None if asked.minutes else 3_000)
    played, stories = explore(worlds, asked.minutes, first, asked.jobs)
    for story in stories:
        print(shortest(story))
        print(f"  again: scripts/explore --seed {story.seed}\n")
    print(f"{played:,} worlds from seed {first}: {len(stories)} kinds of failure")
    return 1 if stories else 0


if __name__ == "__main__":
    sys.exit(main())
