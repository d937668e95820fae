"""The page on redrive.testing leaves nothing out."""

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from redrive import testing
from redrive.sim.faults import Faults
from redrive.testing import Fault, Harness, explore
from redrive.testing.workers import Workers

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "testing.md").read_text("utf-8")
_NAMED = set(re.findall(r"\w[\w-]*", " ".join(re.findall(r"`([^`]+)`", PAGE))))
#: Asked by the simulated cluster itself, and by the processes.
_INNER = {"next_abort", "next_outcome_is_lost", "next_refusal", "next_ack_is_lost", "next_commit_refusal"}
_INNER |= {"next_refused_topics"}
_INNER |= {"settle", "advance", "known_waits_ms", "close", "reports"}


def _public(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")} - (
        _INNER if kind is not Harness else set()
    )


@pytest.mark.parametrize("kind", [Harness, Workers, Faults])
def test_every_public_method_is_on_the_page(kind):
    assert _public(kind) - _NAMED == set()


def test_every_argument_is_on_the_page():
    arguments = {*inspect.signature(explore).parameters, *inspect.signature(Harness).parameters}
    assert arguments - _NAMED == set()


def test_every_fault_is_on_the_page():
    faults = re.findall(r"^\| `([a-z-]+)` \|", PAGE[PAGE.index("| fault |") :], re.MULTILINE)
    assert faults == list(get_args(Fault))


def test_every_name_is_on_the_page():
    assert set(testing.__all__) - {"DeadLetter", "Fault", "LetterRun", "Waiting"} - _NAMED == set()
