"""`redrive init` writes a project to start from, and never over somebody's work."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from redrive.cli.main import app as commands

FILES = ["compose.yaml", "redrive.toml", "service.py", "test_service.py"]


def _init(*args):
    return CliRunner().invoke(commands, ["init", *args])


def test_four_files_and_the_next_three_commands(folder):
    result = _init("payments")

    assert sorted(path.name for path in (folder / "payments").iterdir()) == FILES
    assert result.output.splitlines() == [
        "wrote service.py, test_service.py, redrive.toml, compose.yaml",
        "next:",
        "  cd payments",
        "  docker compose up -d --wait               # a broker; or name one that runs in redrive.toml",
        "  redrive topics apply --create-sources 4   # the topics",
        "  redrive run                               # the service, until Ctrl-C",
        "pytest runs test_service.py, without Kafka",
    ]


def test_nothing_is_written_where_a_file_is_there(folder):
    (folder / "service.py").write_text("mine")

    result = _init()

    assert result.exit_code == 1
    assert "service.py is there already" in result.output
    assert sorted(path.name for path in folder.iterdir()) == ["service.py"]
    assert (folder / "service.py").read_text() == "mine"


def test_force_writes_over_what_is_there(folder):
    (folder / "service.py").write_text("mine")

    assert _init("--force").exit_code == 0
    assert (folder / "service.py").read_text() != "mine"


def test_a_folder_that_can_not_be_made_is_told(folder):
    (folder / "file").touch()

    result = _init("file/below")

    assert result.exit_code == 1
    assert result.output.startswith("can't write to file/below: ")


@pytest.mark.parametrize("app", ['App("payments")', 'App("payments", delivery="exactly-once")'])
def test_the_generated_test_passes(folder, app):
    _init()
    service = folder / "service.py"
    service.write_text(service.read_text().replace('App("payments")', app))

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
