"""
Plays worlds until they are through, and tells of those that break a promise.

    scripts/explore                     # 3,000 worlds
    scripts/explore --minutes 60        # as many as fit
    scripts/explore --seed 1234         # one world again, told step by step
    scripts/explore --planted           # how many worlds it takes to find each planted fault
"""

import argparse
import os
import random
import sys

from tests.explore.exploring import Tally, explore, shortest
from tests.explore.steps import KINDS
from tests.explore.world import play, script_of


def main() -> int:
    asked = _parser().parse_args()
    if asked.seed is not None:
        return replay(asked.seed)
    if asked.planted is not None:
        from tests.planted.exploring import hunt

        return hunt(asked.planted, asked.worlds or 3_000, asked.processes)
    first = random.SystemRandom().randrange(1_000_000_000) if asked.first is None else asked.first
    worlds = asked.worlds or (None if asked.minutes else 3_000)
    passed_s = 0.0

    def tell(tally: Tally, seconds: float) -> None:
        nonlocal passed_s
        passed_s = seconds
        if sys.stderr.isatty():
            print(f"\r{_rate(tally, seconds)}", end="", file=sys.stderr)

    tally = explore(
        worlds=worlds,
        minutes=asked.minutes,
        first=first,
        processes=asked.processes,
        stops_at_first=asked.until_found,
        watches=not asked.until_found,
        tell=tell,
    )
    print(file=sys.stderr)
    if asked.until_found:
        return _tell_first(tally, first)
    for story in tally.kinds():
        print(shortest(story))
        print(f"  again: scripts/explore --seed {story.seed}\n")
    print(f"{_rate(tally, passed_s)}, from seed {first}, on {asked.processes} processes")
    if not asked.brief:
        _tell_reach(tally)
    return 1 if tally.stories else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/explore", description=__doc__.split("\n\n")[0].strip())
    parser.add_argument("--worlds", type=int, help="how many worlds (3,000)")
    parser.add_argument("--minutes", type=float, help="as many worlds as fit into this time")
    parser.add_argument("--seed", type=int, help="play this world again and tell it")
    parser.add_argument("--from", dest="first", type=int, help="the first seed; any by default")
    parser.add_argument("--brief", action="store_true", help="don't tell what was covered")
    parser.add_argument("--until-found", action="store_true", help="end with the first world that goes wrong")
    parser.add_argument(
        "--planted", nargs="?", const="", metavar="NAME", help="find this planted fault, or all of them"
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="worlds at once (the cores)"
    )
    return parser


def replay(seed: int) -> int:
    """Tell one world, and what became of it."""
    shape, steps = script_of(seed)
    print(f"seed {seed}: {shape}")
    for number, step in enumerate(steps, 1):
        print(f"  {number:3}. {step}")
    story = play(seed, shape, steps)
    if story is None:
        print("every promise was kept")
        return 0
    print("\nthe shortest that was found:\n")
    print(shortest(story))
    return 1


def _rate(tally: Tally, seconds: float) -> str:
    failures = len(tally.kinds())
    return f"{tally.worlds:,} worlds, {tally.worlds / max(seconds, 1e-3):.1f}/s, {failures} kinds of failure"


def _tell_first(tally: Tally, first: int) -> int:
    """How many worlds it took to find something, and what."""
    if not tally.stories:
        print(f"nothing in {tally.worlds} worlds")
        return 0
    story = tally.stories[0]
    print(f"{story.seed - first + 1} worlds: {story.told}")
    return 1


def _tell_reach(tally: Tally) -> None:
    """What was covered."""
    coverage = tally.coverage
    never = coverage.never_called()
    print(f"\nsteps: {_counts(tally.steps)}")
    print(f"never drawn: {', '.join(sorted({*KINDS, 'send'} - tally.steps.keys())) or 'none'}")
    print(f"\nwhat processes told: {_counts(tally.reports)}")
    print(f"\ncommands of the engine, in each 25th world: {_counts(coverage.commands)}")
    print(
        f"functions of the core that these called: {len(coverage.calls)} of {len(coverage.calls) + len(never)}"
    )
    print(f"not called: {', '.join(never)}")


def _counts(counter: "dict[str, int]") -> str:
    return ", ".join(f"{name} {number:,}" for name, number in sorted(counter.items()))


if __name__ == "__main__":
    sys.exit(main())
