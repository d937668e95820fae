"""Plants a fault in a copy of the source, and runs its tests on it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.broker import ROOT
from tests.planted.plant import Plant

SOURCE = ROOT / "src" / "redrive"


def copy_to(folder: Path) -> Path:
    # With what is compiled: it goes by the times of files, which are kept.
    shutil.copytree(SOURCE, folder / "redrive")
    return folder / "redrive"


def run(copy: Path, tests: tuple[str, ...]) -> tuple[int, str]:
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
    # In CI pytest tells every difference in full: of a long text that takes longer than anybody waits.
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    environment = {**inherited, "PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def planted_copy(plant: Plant, folder: Path) -> Path:
    """A copy of the source in which the fault is planted."""
    copy = copy_to(folder)
    text = (copy / plant.file).read_text()
    assert plant.old in text, f"the text that this plant replaces isn't in {plant.file} any more"
    (copy / plant.file).write_text(text.replace(plant.old, plant.new))
    return copy


def must_be_found(plant: Plant, folder: Path) -> None:
    """Its tests turn red, for this reason and no other."""
    copy = planted_copy(plant, folder)

    code, said = run(copy, plant.tests)

    assert (code, bool(re.search(plant.says, said))) == (1, True), said
