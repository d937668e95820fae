"""`redrive console` as it is typed: what keeps it from starting, in words."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from redrive.cli.main import app

BOOTSTRAP = ("--bootstrap-servers", "127.0.0.1:1")


def _typed(*arguments, env=None):
    result = CliRunner().invoke(app, ["console", *arguments], env=env)
    return result.exit_code, result.output


def test_an_address_that_others_can_reach_needs_a_token(folder):
    code, said = _typed("--bind", "0.0.0.0:0", *BOOTSTRAP)
    assert (code, "REDRIVE_CONSOLE__TOKEN" in said, "openssl rand -hex 32" in said) == (1, True, True)


def test_a_token_that_can_be_guessed_is_refused_without_being_shown(folder):
    code, said = _typed(*BOOTSTRAP, env={"REDRIVE_CONSOLE__TOKEN": "hunter2"})
    assert (code, "console.token (REDRIVE_CONSOLE__TOKEN): has fewer than 16" in said, "hunter2" in said) == (
        1,
        True,
        False,
    )


def test_a_token_is_no_option_where_every_process_of_the_machine_would_see_it(folder):
    assert _typed("--token", "x" * 32)[0] == 2


@pytest.mark.parametrize("bind", ["9601", "127.0.0.1", "127.0.0.1:99999", "http://127.0.0.1:9601"])
def test_what_is_no_address_is_told(folder, bind):
    code, said = _typed("--bind", bind, *BOOTSTRAP)
    assert (code, "console.bind" in said, "host:port" in said) == (1, True, True)


def test_without_kafka_it_does_not_start(folder):
    code, said = _typed("--bind", "127.0.0.1:0", *BOOTSTRAP)
    assert (code, "127.0.0.1:1" in said) == (1, True)
    assert "#token=" not in said


@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_without_its_extra_it_says_what_to_install(folder, missing):
    script = f"import sys; sys.modules[{missing!r}] = None; from redrive.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", script, "console", *BOOTSTRAP],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert (
        ended.stderr.strip() == "`redrive console` needs more packages; run: pip install 'redrive[console]'"
    )
