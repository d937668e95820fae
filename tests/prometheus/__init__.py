"""
Prometheus, Alertmanager and promtool, real ones: from PATH, else from Debian's packages (`scripts/promtool`).

Where they can't be had the tests are skipped, and say so; with `CI` set that is a failure.
"""

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@cache
def _found() -> dict[str, str] | str:
    """The programs by name, else why there are none."""
    try:
        done = subprocess.run(
            [ROOT / "scripts" / "promtool"], capture_output=True, text=True, check=False, timeout=110
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return done.stderr.strip()
    return {Path(line).name: line for line in done.stdout.split()}


def program(name: str) -> str:
    """The path of `promtool`, `prometheus` or `prometheus-alertmanager`."""
    found = _found()
    if not isinstance(found, str):
        return found[name]
    if os.environ.get("CI"):
        pytest.fail(f"CI must run the tests of alerts: {found}")
    pytest.skip(f"NOT TESTED WITH PROMETHEUS: {found}")


def promtool(*arguments: str | Path) -> str:
    """What promtool says; empty when it is content. Prints all of it where it isn't."""
    done = subprocess.run(
        [program("promtool"), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def written(path: Path, value: Any) -> Path:
    """A file for Prometheus: JSON, which its YAML reader reads."""
    path.write_text(json.dumps(value), "utf-8")
    return path
