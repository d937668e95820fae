"""What the how-to pages show works as it is shown."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer

from redrive.cli.main import app

DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "how-to"
#: Pages whose commands are typed in a hurry: each must be one that the program takes.
URGENT = [*sorted((DOCS / "runbooks").glob("*.md")), PAGES / "alerts.md", PAGES / "3am.md"]
_BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _files(page: str) -> dict[str, str]:
    """The page's code by file name; blocks that don't begin with one are no files."""
    return dict(_BLOCK.findall((PAGES / page).read_text("utf-8")))


@pytest.mark.parametrize("page", ["act-on-dead-letters.md", "test-your-listeners.md"])
def test_the_tests_on_a_page_pass(page, tmp_path):
    files = _files(page)
    for name, code in files.items():
        (tmp_path / name).write_text(code, "utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "-rA"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    shown = sum(code.count("def test_") for code in files.values())
    assert f"{shown} passed" in ended.stdout


def _commands(page: Path) -> list[list[str]]:
    """All that begins with `redrive` on a page, in blocks of code and within lines."""
    text = page.read_text("utf-8")
    blocks = re.findall(r"^ *(redrive [a-z].*)$", text, re.MULTILINE)
    within = re.findall(r"`(redrive [a-z][^`]*)`", text)
    return [shlex.split(re.split(" [>;] ", found)[0])[1:] for found in [*blocks, *within]]


@pytest.mark.parametrize("page", URGENT, ids=lambda page: page.stem)
def test_a_command_on_an_urgent_page_is_one_that_there_is(page):
    commands = _commands(page)
    assert commands
    for arguments in commands:
        command: click.Command = typer.main.get_command(app)
        rest = list(arguments)
        while isinstance(command, click.Group):
            command = command.commands[rest.pop(0)]
        command.make_context(arguments[0], rest)
