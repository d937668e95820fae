"""What the how-to pages show works as it is shown."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from redrive.cli.main import app
from redrive.core.catalogue import EVENTS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "how-to"
#: Pages whose commands are typed as they stand, many in a hurry: each must be one that the program takes.
PRINTED = sorted([*(DOCS / "runbooks").glob("*.md"), *PAGES.glob("*.md")])
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


def test_the_story_on_a_page_is_the_one_that_is_told(tmp_path):
    page = "test-your-listeners.md"
    for name, code in _files(page).items():
        (tmp_path / name).write_text(
            code.replace("bank.pay(order, idempotency_key=record.event_id)", "bank.pay(order)"), "utf-8"
        )
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    [story] = re.findall(
        r"^```\n(in the world .*?)^```$", (PAGES / page).read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    told = re.sub(r"^E +(AssertionError: )?", "", ended.stdout, flags=re.MULTILINE)
    assert [line for line in story.splitlines() if line.strip() not in told] == []


def _command(arguments: list[str]) -> tuple[Any, list[str]]:
    """The command that is named, and what follows its name."""
    command, rest = typer.main.get_command(app), list(arguments)
    while isinstance(command, TyperGroup) and rest:
        command = command.commands[rest.pop(0)]
    return command, rest


def _unknown(arguments: list[str]) -> set[str]:
    """The options that the named command doesn't have."""
    command, rest = _command(arguments)
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return {word for word in rest if word.startswith("-")} - known


def _split(typed: str) -> list[str]:
    return shlex.split(re.split(" [>;|] ", typed)[0], comments=True)[1:]


@pytest.mark.parametrize("page", PRINTED, ids=lambda page: page.stem)
def test_a_command_on_a_page_is_one_that_there_is(page):
    text = page.read_text("utf-8")
    fenced = re.findall(r"^ *```(?:sh)?\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    for typed in re.findall(r"^ *(redrive [a-z].*)$", "\n".join(fenced), re.MULTILINE):
        command, rest = _command(_split(typed))
        command.make_context(typed, rest)
    for named in re.findall(r"`(redrive [a-z][^`]*)`", text):
        assert _unknown(_split(named)) == set(), named


def _named_in_log_lines() -> list[tuple[str, list[str]]]:
    """By event, each `redrive …` of its line: words, options and placeholders up to the first other text."""
    found = []
    for event in EVENTS.values():
        for typed in re.findall(r"\bredrive((?: (?:--)?[a-z-]+| %\S+)+)", event.text):
            found.append((event.name, typed.split()))
    return found


@pytest.mark.parametrize(("event", "typed"), _named_in_log_lines())
def test_a_command_that_a_log_line_names_has_the_options_it_is_named_with(event, typed):
    assert _unknown(typed) == set()
