"""Each planted fault is found: its tests turn red, and say what it did."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker import ROOT
from tests.planted.guard_plants import GUARD_PLANTS
from tests.planted.plants import PLANTS
from tests.planted.promises import PROMISES

SOURCE = ROOT / "src" / "redrive"
ALL = PLANTS | PROMISES | GUARD_PLANTS


def _copy(folder: Path) -> Path:
    shutil.copytree(
        SOURCE, folder / "redrive"
    )  # with what is compiled: it goes by the times of files, which are kept
    return folder / "redrive"


def _run(copy: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """The tests' exit code and what they said, run on the copy."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        *tests,
    ]
    environment = {**os.environ, "PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.timeout(400)  # to shrink what it found may take hypothesis minutes
@pytest.mark.parametrize("name", ALL)
def test_a_planted_fault_turns_its_tests_red(name, tmp_path):
    plant = ALL[name]
    copy = _copy(tmp_path)
    text = (copy / plant.file).read_text()
    assert plant.old in text, f"the text that this plant replaces isn't in {plant.file} any more"
    (copy / plant.file).write_text(text.replace(plant.old, plant.new))

    code, said = _run(copy, plant.tests)

    assert (code, bool(re.search(plant.says, said))) == (1, True), said


def test_without_a_plant_tests_are_green_on_a_copy(tmp_path):
    """One of each file, and no long walk: what matters is that nothing but the fault turns them red."""
    tests = {
        test.partition("::")[0]: test for plant in ALL.values() for test in plant.tests if "::test_" in test
    }

    code, said = _run(_copy(tmp_path), tuple(sorted(tests.values())))

    assert code == 0, said
