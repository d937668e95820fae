"""An app that is the main thing of its process stops at a signal: first it drains, at the second it ends at once."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there a parent can't send these signals")

# What `run_until_stopped` is given in these processes. Each step prints a line, so that nobody has to wait for long
# enough; `block` blocks the loop, as a bad handler would.
SCRIPT = """
import asyncio, logging, signal, sys, threading
from contextlib import asynccontextmanager
from redrive.runtime.running import run_until_stopped

logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stdout)
how = sys.argv[1]

def say(text):
    print(text, flush=True)

class Serving:
    drained, drain_s = threading.Event(), 600.0

    def request_stop(self):
        pass

    async def stopped(self):
        say("serving")
        if how == "fails":
            raise OSError("the pump is dead")
        if how == "ends":
            return
        if how == "block":
            threading.Event().wait()
        await asyncio.Event().wait()

@asynccontextmanager
async def serve():
    say("starting")
    if how == "starts-for-ever":
        await asyncio.Event().wait()
    try:
        yield Serving()
    finally:
        say("draining")
        if how == "drains-for-ever":
            await asyncio.Event().wait()
        if how == "fails":
            assert await asyncio.to_thread(sys.stdin.readline) == "drained\\n"
        say("drained")

def also_by(ask):
    def told():
        sys.stdin.readline()
        ask()
        ask()

    if how == "told":
        threading.Thread(target=told, daemon=True).start()

before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
try:
    run_until_stopped(serve, also_by=also_by)
finally:
    after = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    say("handlers as before" if after == before else f"handlers differ: {after}")
say("done")
"""

Process = subprocess.Popen[str]
STOPS = "no new records; waiting for the handlers that run. Once more ends at once: their records run again"


@contextmanager
def running(how: str) -> Iterator[Process]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_until(process: Process, line: str) -> None:
    assert process.stdout is not None
    while (read := process.stdout.readline()) and read.strip() != line:
        pass
    assert read.strip() == line


def rest(process: Process, given: str | None = None) -> tuple[list[str], str]:
    out, errors = process.communicate(given, timeout=30)
    return out.splitlines(), errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_drains(number: signal.Signals) -> None:
    with running("well") as process:
        read_until(process, "serving")
        process.send_signal(number)
        lines, errors = rest(process)

    assert lines == [f"{number.name}: {STOPS}", "draining", "drained", "handlers as before", "done"]
    assert (errors, process.returncode) == ("", 0)


def test_whatever_else_may_ask_for_the_end_drains_too_however_often_it_asks() -> None:
    with running("told") as process:
        read_until(process, "serving")
        lines, errors = rest(process, "end\n")

    assert lines == ["draining", "drained", "handlers as before", "done"]
    assert (errors, process.returncode) == ("", 0)


def test_signal_ends_a_start_that_does_not_come_through() -> None:
    with running("starts-for-ever") as process:
        read_until(process, "starting")
        process.send_signal(signal.SIGTERM)
        lines, errors = rest(process)

    assert lines == [f"SIGTERM: {STOPS}", "handlers as before", "done"]
    assert (errors, process.returncode) == ("", 0)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_at_once(second: signal.Signals) -> None:
    with running("drains-for-ever") as process:
        read_until(process, "serving")
        process.send_signal(signal.SIGTERM)
        read_until(process, "draining")
        process.send_signal(second)
        lines, errors = rest(process)

    assert (lines, errors, process.returncode) == ([], "", -second)


def test_second_signal_ends_a_loop_that_a_handler_blocks() -> None:
    with running("block") as process:
        read_until(process, "serving")
        process.send_signal(signal.SIGINT)
        read_until(process, f"SIGINT: {STOPS}")
        process.send_signal(signal.SIGINT)
        lines, errors = rest(process)

    assert (lines, errors, process.returncode) == ([], "", -signal.SIGINT)


def test_app_that_ends_by_itself_is_drained() -> None:
    with running("ends") as process:
        lines, errors = rest(process)

    assert lines == ["starting", "serving", "draining", "drained", "handlers as before", "done"]
    assert (errors, process.returncode) == ("", 0)


def test_app_that_fails_is_drained_and_raises() -> None:
    with running("fails") as process:
        lines, errors = rest(process, "drained\n")

    assert lines == ["starting", "serving", "draining", "drained", "handlers as before"]
    assert (errors.splitlines()[-1], process.returncode) == ("OSError: the pump is dead", 1)


def test_first_signal_does_not_cut_the_drain_of_a_failed_app() -> None:
    with running("fails") as process:
        read_until(process, "draining")
        process.send_signal(signal.SIGTERM)
        read_until(process, f"SIGTERM: {STOPS}")
        lines, errors = rest(process, "drained\n")

    assert lines == ["drained", "handlers as before"]
    assert (errors.splitlines()[-1], process.returncode) == ("OSError: the pump is dead", 1)
