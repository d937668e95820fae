"""The judge of `crashed` letters: who may be blamed for the end of a process, by what ran in it."""

import pytest

from tests.chaos.crashes import Alone, judge
from tests.chaos.faults import Fault, Faults, of_kills
from tests.chaos.key_order import BEGAN, HANDLED, Step

#: Each process ends when the next one begins; the third one is the first that may be told from.
KILLS = of_kills({1: 100.0, 2: 200.0, 3: 300.0})

OF_CRASHES = Faults(Fault("crash", f"worker-{pid}", 100.0 * pid, 100.0 * pid, pid) for pid in (1, 2, 3))


def _found(history: str, blamed: str, killers: str = "", faults=KILLS) -> list[str]:
    """`a+` began, `a.` ended, `|` the process was killed and the next one goes on."""
    alone, pid = Alone(blamed.split()), 1
    for at, word in enumerate(history.split()):
        if word == "|":
            pid += 1
            continue
        alone.take(Step(word[:-1], 1, {"+": BEGAN, ".": HANDLED}[word[-1]], pid, float(at)))
    verdict = judge(blamed.split(), frozenset(killers.split()), alone, faults)
    return [kind for kind, told in verdict.found.items() for _ in told]


@pytest.mark.parametrize(
    "history",
    [
        "a+ b+ | a+ b+ | a+",
        "a+ b+ | a+ b+ | b+ b. a+",
        "a+ b+ | a+ b+ | b+ b.",  # killed between naming it and running it
    ],
)
def test_a_record_that_ran_alone_when_the_third_process_was_killed_may_be_blamed(history):
    assert _found(history, "a") == []


@pytest.mark.parametrize("history", ["a+ b+ | a+ b+ | a+ b+", "a+ b+ | a+ b+ | a+ b+ b.", "a+ | a+ | b+"])
def test_a_record_that_ran_beside_another_or_not_at_all_may_not(history):
    assert _found(history, "a") == ["blamed"]


def test_two_ends_of_processes_are_too_few():
    assert _found("a+ | a+ |", "a", faults=of_kills({1: 100.0, 2: 200.0})) == ["blamed"]


def test_a_killer_must_be_blamed_and_ends_three_processes_at_most():
    assert _found("k+ b+ | k+ b+ | k+ |", "k", "k") == []
    assert _found("k+ b+ | k+ b+ | k+ |", "", "k") == ["not blamed"]
    assert _found("k+ | k+ | k+ | k+", "k", "k", OF_CRASHES) == ["killed again"]


def test_a_kill_from_outside_may_undo_what_was_known_of_a_killer():
    faults = Faults([*OF_CRASHES.all, Fault("kill", "worker-9", 1.5, 1.5, 9)])
    assert _found("k+ | k+ | k+ | k+", "k", "k", faults) == []
    assert _found("k+ | k+ | k+ | k+ | k+ | k+ | k+", "k", "k", faults) == ["killed again"]
