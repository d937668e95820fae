"""Workers that can't work: no storm of restarts, no endless loop, and one message for one mistake."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.waiting import until

fcntl = pytest.importorskip("fcntl", reason="there are no workers on Windows")
termios = pytest.importorskip("termios")

APP = """
import os, sys, threading
from redrive import App

with open("starts", "a") as starts:
    starts.write(f"{os.getpid()}\\n")
app = App("shop", settings={"bootstrap_servers": "127.0.0.1:1"})

@app.listener("orders")
def handle(order: dict) -> None:
    pass
"""
DIES = f"""{APP}
if "--as-worker" in sys.argv:
    os._exit(int(os.environ["CODE"]))
"""
IMPORTS_FOR_EVER = f"""{APP}
if "--as-worker" in sys.argv:
    print("importing", flush=True)
    threading.Event().wait()
"""


class Run:
    """`redrive run` in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.log = folder / "log"
        self.process = None

    def start(self, *options, service=DIES, code=3, terminal=None):
        (self.folder / "service.py").write_text(service)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "redrive", "run", "service:app", *options],
                cwd=self.folder,
                env={**environment, "PYTHONPATH": os.pathsep.join(sys.path), "CODE": str(code)},
                stdin=subprocess.DEVNULL if terminal is None else terminal,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=None if terminal is None else lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
            )
        return self

    def said(self):
        return self.log.read_text()

    def starts(self):
        """Processes that imported the app, the supervisor's included."""
        file = self.folder / "starts"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def wait(self):
        return self.process.wait(30)


@pytest.fixture
def run(tmp_path):
    run = Run(tmp_path)
    yield run
    if run.process and run.process.poll() is None:
        run.process.kill()
        run.process.wait()


def test_a_worker_that_dies_at_once_each_time_is_started_ever_more_rarely(run):
    run.start("--workers", "1")
    until(lambda: "in 4 s" in run.said(), "the third wait")
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0
    waits = re.findall(r"ended by itself: exit code 3\..* again in (\d+) s", run.said())
    assert (waits, run.starts()) == (["1", "2", "4"], 1 + 3)


def test_a_worker_that_ends_with_a_usage_error_at_the_start_ends_all(run):
    assert run.start("--workers", "1", code=2).wait() == 2
    assert "Another start would end the same way" in run.said()
    assert run.starts() == 2


@pytest.mark.parametrize(
    ("options", "service", "code", "told"),
    [
        ([], "", 1, "module 'service' (SERVICE) has no 'app', and no App at all"),
        (
            ["--membership", "sticky"],
            DIES,
            1,
            "membership (app or command line): 'sticky' is none of dynamic, static",
        ),
        (["--http", "127.0.0.1:http"], DIES, 1, "http (app or command line): '127.0.0.1:http' is no address"),
        (["--http", "192.0.2.1:9600"], DIES, 1, "this machine has no such address"),
        (["--as-worker", "0:999"], DIES, 2, "is between a supervisor and its workers"),
        (["--as-worker", "nonsense"], DIES, 2, "is between a supervisor and its workers"),
    ],
)
def test_what_is_wrong_is_told_once_before_any_worker_is_started(run, options, service, code, told):
    assert run.start("--workers", "2", *options, service=service).wait() == code
    said = " ".join(run.said().replace(str(run.folder / "service.py"), "SERVICE").replace("│", " ").split())
    assert said.count(told) == 1
    assert run.starts() <= 1


@pytest.mark.parametrize("count", ["0", "-1", "257", "many"])
def test_a_number_of_workers_that_makes_no_sense_is_refused(run, count):
    assert run.start("--workers", count).wait() == 2
    assert "--workers" in run.said()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_all_by_that_signal(run, number):
    run.start("--workers", "2", service=IMPORTS_FOR_EVER)
    until(lambda: run.said().count("importing") == 2, "both are there")
    pids = [int(pid) for pid in re.findall(r"runs as process (\d+)", run.said())]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)  # they don't hear the first
    run.process.send_signal(number)
    until(lambda: "all workers end" in run.said(), "the first was heard")
    run.process.send_signal(number)
    assert run.wait() == -number
    assert not any(_exists(pid) for pid in pids)


def test_a_service_manager_that_signals_all_processes_does_not_count_as_a_second_signal(run):
    """systemd does; a worker hears both of it and of its supervisor."""
    run.start("--workers", "1", service=APP)
    until(lambda: "Trying for another" in run.said(), "it waits for Kafka")
    (pid,) = re.findall(r"runs as process (\d+)", run.said())
    os.kill(int(pid), signal.SIGTERM)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait() == 0
    assert "exit code 0" in run.said()


def test_json_lines_tell_which_worker_they_are_of_or_about(run):
    run.start("--workers", "1", "--log-format", "json", service=APP)
    until(lambda: "Trying for another" in run.said(), "it waits for Kafka")
    lines = [json.loads(line) for line in run.said().splitlines()]
    started = next(line for line in lines if line.get("redrive_event") == "worker-started")
    trying = next(line for line in lines if "Trying for another" in line["message"])
    assert (started["redrive_worker"], started["level"]) == (0, "INFO")
    assert (trying["redrive_worker"], trying["level"]) == (0, "WARNING")


def test_it_ends_when_its_terminal_is_closed(run):
    """That comes as SIGHUP, too, which else begins a rolling restart."""
    ours, theirs = os.openpty()
    run.start("--workers", "1", service=APP, terminal=theirs)
    os.close(theirs)
    until(lambda: "Trying for another" in run.said(), "it waits for Kafka")
    run.process.send_signal(signal.SIGHUP)
    until(lambda: "Rolling restart" in run.said(), "the terminal is there")
    os.close(ours)
    assert run.wait() == 0
    assert "SIGHUP: all workers end" in run.said()


def _exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
