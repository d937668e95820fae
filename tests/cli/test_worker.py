"""What `redrive worker ls` and `dump` say when processes don't answer, and when something was typed wrong."""

import contextlib
import json
import socket

import msgspec
import pytest
from typer.testing import CliRunner

from redrive.adapters.http_probe import Shown, start_probe
from redrive.cli.main import app
from redrive.core.inspection import ListenerSeen, WorkersSeen, WorkerState

TOKEN = "s3cret-s3cret-s3cret"
LISTENER = ListenerSeen(
    group="shop", name="charge", topic="orders", slots=1, partitions=1, queued=0, held=0, runs=(), stuck=(), stuck_count=0,
    brake_on=False, breaker="closed", held_in_outage=0, outage_wait_s=None, paused=None,
)  # fmt: skip
WORKER = WorkerState(
    worker=0, host="h", pid=7, version="1", now_ms=9, step_age_s=0.1, is_ready=True, why=(), listeners=(LISTENER,), partitions=()
)  # fmt: skip


@contextlib.contextmanager
def serving(*silent):
    """The address of a process that answers, and of which some workers don't."""
    said = msgspec.json.encode(WorkersSeen(workers=(WORKER,), silent=silent))
    with contextlib.closing(
        start_probe("127.0.0.1:0", Shown(lambda: None, bytes, lambda: said, TOKEN))
    ) as probe:
        yield f"127.0.0.1:{probe.port}"


@pytest.fixture
def closed():
    """An address at which nothing answers while the test runs."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def ask(verb, *addresses, token=TOKEN, options=()):
    """Exit code, stdout, stderr."""
    at = [each for address in addresses for each in ("--at", address)]
    environment = {"REDRIVE_HTTP_TOKEN": token, "REDRIVE_HTTP": None}
    result = CliRunner().invoke(app, ["worker", verb, *at, *options], env=environment)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert TOKEN not in result.output
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("verb", ["ls", "dump"])
def test_who_answers_is_shown_and_who_does_not_is_named(folder, closed, verb):
    with serving() as address:
        code, shown, noted = ask(verb, address, closed)
    assert (code, noted) == (3, f"nothing answers at {closed} as a worker does: Connection refused\n")
    assert "pid 7 on h" in shown


def test_programs_are_told_who_does_not_answer(folder, closed):
    with serving(1) as address:
        code, shown, _ = ask("ls", address, closed, options=["--json"])
    told = json.loads(shown)
    assert (code, len(told["workers"]), told["silent"], len(told["unanswered"])) == (3, 1, [1], 1)


def test_a_worker_that_is_silent_is_named(folder):
    with serving(1) as address:
        code, _, noted = ask("ls", address)
    assert (code, noted) == (3, "worker 1 didn't answer: it is starting, ending, or hangs\n")


def test_where_nobody_answers_the_command_fails_and_says_why(folder, closed):
    code, shown, noted = ask("ls", closed)
    assert (code, shown) == (1, "")
    assert noted == f"nothing answers at {closed} as a worker does: Connection refused\n"


def test_a_wrong_token_is_told_in_one_line(folder):
    with serving() as address:
        code, shown, noted = ask("ls", address, token="another-s3cret-s3c")
    assert (code, shown) == (1, "")
    assert noted == (
        f"{address} tells nothing: it has another http_token: give that of its process as REDRIVE_HTTP_TOKEN, or http_token in "
        "redrive.toml\n"
    )


def test_a_listener_that_no_process_has_is_a_mistake_and_those_there_are_are_named(folder):
    with serving() as address:
        code, shown, noted = ask("dump", address, options=["--listener", "chrage"])
    assert (code, shown) == (2, "")
    assert "no process that answers has listener 'chrage', but charge" in " ".join(
        noted.replace("│", "").split()
    )


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:99999", ":9600x"])
def test_what_is_no_address_is_a_mistake(folder, address):
    code, shown, noted = ask("ls", address)
    assert (code, shown) == (2, "")
    assert f"{address!r} is no address: write HOST:PORT" in " ".join(noted.replace("│", "").split())
