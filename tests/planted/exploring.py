"""Plants faults in copies of the source, and plays worlds on each until one goes wrong."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.broker import ROOT
from tests.planted.explored import EXPLORED, Change
from tests.planted.planting import copy_to

#: All are hunted in the same worlds.
FIRST = 1


class Catch(NamedTuple):
    """After how many worlds a fault was found, and how it was told; None: not at all."""

    worlds: int | None
    told: str


def found(change: Change, worlds: int, processes: int) -> Catch:
    """Play so many worlds at most on a copy with this fault."""
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_to(Path(folder))
        text = (copy / change.file).read_text()
        assert change.old in text, f"the text that this plant replaces isn't in {change.file} any more"
        (copy / change.file).write_text(text.replace(change.old, change.new))
        command = [sys.executable, "-m", "tests.explore", "--until-found", "--from", str(FIRST)]
        command += ["--worlds", str(worlds), "--processes", str(processes)]
        environment = {**os.environ, "PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if caught := re.match(r"(\d+) worlds: (.*)", done.stdout):
        return Catch(int(caught[1]), caught[2])
    assert done.returncode == 0, done.stdout + done.stderr
    return Catch(None, "")


def hunt(name: str, worlds: int, processes: int) -> int:
    """Find the faults whose names contain `name`, and print the table."""
    print("| planted fault | worlds | told as |\n|---|---|---|")
    missed = 0
    for plant, change in EXPLORED.items():
        if name not in plant:
            continue
        catch = found(change, worlds, processes)
        missed += catch.worlds is None
        told = catch.told.replace("|", "\\|")
        print(f"| {plant} | {catch.worlds or f'not in {worlds:,}'} | {told} |", flush=True)
    return 1 if missed else 0
