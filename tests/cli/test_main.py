"""The `redrive` command as a whole: help, version, completion, typing errors, and what it loads."""

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import redrive
from redrive.cli.main import app


def _invoke(*args, env=None):
    return CliRunner().invoke(app, list(args), env=env)


def test_the_version_is_told():
    assert _invoke("--version").output == f"redrive {redrive.__version__}\n"


@pytest.mark.parametrize("command", ["run", "init", "topics"])
def test_the_help_tells_each_command(command):
    assert command in _invoke("--help").output


def test_a_typing_error_in_a_command_is_guessed():
    result = _invoke("topcis")

    assert result.exit_code == 2
    assert "Did you mean 'topics'?" in result.output


def test_the_shell_completion_completes_commands():
    result = _invoke(
        env={"_REDRIVE_COMPLETE": "complete_bash", "COMP_WORDS": "redrive to", "COMP_CWORD": "1"}
    )

    assert result.output.split() == ["topics"]


def test_the_help_loads_nothing_that_a_command_needs_to_work():
    listed = subprocess.run(
        [sys.executable, "-c", "import sys, redrive.cli.main; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()

    heavy = {
        "pydantic_settings",
        "prometheus_client",
        "rich.console",
        "rich.live",
        "asyncio",
        "redrive.wiring",
    }
    assert heavy & set(listed) == set()


def test_no_app_is_a_usage_error_that_says_where_it_can_be_named(folder):
    result = _invoke("topics", "plan", env={"COLUMNS": "200"})

    assert result.exit_code == 2
    assert (
        'name the app, as in service:app; or set REDRIVE_APP, or app = "service:app" in redrive.toml'
        in result.output
    )


@pytest.mark.parametrize("option", ["--reason", "--who", "--why", "--key"])
def test_what_is_not_utf8_is_refused_in_one_line(option):
    code = "from redrive.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", code, "worker", "pause", "charge", option, b"down \xff"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        2,
        "",
        "Error: 'down \\udcff' is not UTF-8; nothing was done\n",
    )


def _commands(command, path=()):
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, (*path, name))


@pytest.mark.parametrize(("path", "command"), list(_commands(typer.main.get_command(app))))
def test_no_help_loses_a_word_to_the_terminals_markup(path, command):
    """Square brackets are markup to rich: `[default: 3]` in a text isn't shown."""
    shown = _invoke(*path, "--help", env={"COLUMNS": "250", "TERM": "dumb"}).output.replace("│", " ").split()
    texts = [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]
    for text in texts:
        words = text.split()
        assert not words or any(shown[at : at + len(words)] == words for at in range(len(shown))), (
            f"{' '.join(path)}: {text}"
        )
