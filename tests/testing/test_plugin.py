"""The plugin costs a test run nothing until its fixture is used."""

import subprocess
import sys

import pytest


def test_the_plugin_alone_loads_neither_the_harness_nor_a_client():
    code = "import sys, redrive.testing_plugin; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    heavy = (
        "redrive.testing.",
        "redrive.sim",
        "redrive.deadletters.replay",
        "confluent_kafka",
        "pydantic",
        "asyncio.runners",
    )
    assert [name for name in loaded if name.startswith(heavy) or name == "redrive.testing"] == []


_COUNTED = """
from redrive import App
from redrive.testing import NewRecord

def test_worlds(redrive_explore):
    app = App("shop")
    app.listener("orders", name="pay")(lambda order: None)
    seeds = []

    def orders(chance):
        seeds.append(chance.random())
        return [NewRecord("orders", 1)]

    explored = redrive_explore(lambda: app, send=orders, worlds=3, steps=0)
    print("played", explored.worlds, seeds[0])
"""


@pytest.mark.parametrize(
    ("options", "played"),
    [
        ([], "played 3 0.8444218515250481"),
        (["--redrive-worlds", "5"], "played 5 0.8444218515250481"),
        (["--redrive-worlds", "1", "--redrive-seed", "1"], "played 1 0.13436424411240122"),
    ],
)
def test_the_command_line_says_how_many_worlds_and_which(tmp_path, options, played):
    (tmp_path / "test_counted.py").write_text(_COUNTED)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", *options],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert played in ran.stdout, ran.stdout + ran.stderr
