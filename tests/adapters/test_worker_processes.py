"""A supervisor and its workers hear each other, and each notices the other's end, however it comes."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from redrive.adapters.worker_processes import WorkerProcesses
from redrive.errors import PortError
from redrive.runtime.ports import WorkerEnded, WorkerTold
from tests.broker import ROOT
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no workers there")

# What it is told to be by its second argument; each step leaves a line in the file named by the third.
WORKER = """
import contextlib, os, sys, threading
from redrive.adapters.worker_channel import WorkerChannel
from redrive.core.health import Health
from redrive.core.inspection import WorkerState
from redrive.runtime.ports import Views

channel, how, file = WorkerChannel(int(sys.argv[1])), sys.argv[2], sys.argv[3]

def note(text):
    with open(file, "a") as lines:
        lines.write(text + "\\n")

note("starts")
if how == "starts for ever":
    threading.Event().wait()
if how == "has a child" and os.fork() == 0:
    # A child by fork has the stream, too, and outlives its parent.
    note(f"child {os.getpid()}")
    threading.Event().wait()
stop = threading.Event()
channel.when_told(stop.set)
health = Health(is_live=True, is_ready=True, why=(), step_age_s=0.0, last_problem="", listeners=())
counted = 0

def metrics():
    global counted
    counted += 1
    return b"counted %d" % counted

def state():
    return WorkerState(
        worker=0, host="h", pid=os.getpid(), version="1", now_ms=7, step_age_s=0.0, is_ready=True, why=(),
        listeners=(), partitions=(),
    )

with channel.answering(Views(lambda: health, metrics, state)):
    note("works")
    stop.wait()
    note("drains")
note("ends")
os._exit(0)
"""


class Crew:
    """Workers that run the script, and what they did."""

    def __init__(self, folder):
        self.file = folder / "file"
        self.how = "works"
        self.workers = WorkerProcesses(self._command)
        self.pids = []

    def _command(self, worker, descriptor):
        return [sys.executable, "-c", WORKER, str(descriptor), self.how, str(self.file)]

    def start(self, how="works", awaits="works"):
        self.how = how
        self.pids.append(self.workers.start(0))
        until(lambda: awaits in self.lines(), awaits)

    def lines(self):
        return self.file.read_text().splitlines() if self.file.exists() else []

    def next(self):
        return until(lambda: self.workers.events(1.0), "an event")

    def end(self):
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def crew(tmp_path):
    crew = Crew(tmp_path)
    yield crew
    crew.end()


def test_a_worker_answers_how_it_is_and_with_metrics_where_they_are_asked_for(crew):
    crew.start()
    crew.workers.ask(0, 1, "health")
    (told,) = crew.next()
    crew.workers.ask(0, 2, "metrics")
    (more,) = crew.next()
    assert isinstance(told, WorkerTold)
    assert (told.worker, told.answer.serial, told.answer.health.is_ready, told.answer.page) == (
        0,
        1,
        True,
        b"",
    )
    assert (more.answer.serial, more.answer.page) == (2, b"counted 1")


def test_a_worker_tells_what_it_is_at_where_that_is_asked_for(crew):
    crew.start()
    crew.workers.ask(0, 1, "state")
    (told,) = crew.next()
    assert (told.answer.state.now_ms, told.answer.page) == (7, b"")
    crew.workers.ask(0, 2, "health")
    (more,) = crew.next()
    assert more.answer.state is None


def test_a_worker_that_is_starting_answers_that_it_lives(crew):
    crew.start("starts for ever", awaits="starts")
    crew.workers.ask(0, 1, "metrics")
    (told,) = crew.next()
    assert (told.answer.serial, told.answer.health, told.answer.page) == (1, None, b"")


def test_a_worker_that_is_drained_says_its_last_words_before_its_end(crew):
    crew.start()
    crew.workers.drain(0)
    crew.workers.drain(0)  # as often as one likes
    told, *_ = crew.next()
    events = [told]
    while not isinstance(events[-1], WorkerEnded):
        events += crew.next()
    assert [type(event) for event in events] == [WorkerTold, WorkerEnded]
    assert (told.answer.serial, told.answer.page) == (0, b"counted 1")
    assert events[-1] == WorkerEnded(0, 0, "exit code 0")
    assert crew.lines() == ["starts", "works", "drains", "ends"]


def test_a_worker_that_is_starting_ends_at_once(crew):
    crew.start("starts for ever", awaits="starts")
    crew.workers.drain(0)
    assert crew.next() == [WorkerEnded(0, 0, "exit code 0")]


def test_how_a_worker_was_killed_is_told(crew):
    crew.start()
    crew.workers.kill(0)
    assert crew.next() == [WorkerEnded(0, -9, "killed by SIGKILL, as by the kernel when memory is short")]


def test_a_child_that_holds_the_stream_does_not_hide_the_end_of_its_parent(crew):
    crew.start("has a child")
    children = until(lambda: [line for line in crew.lines() if line.startswith("child")], "its child")
    crew.pids.append(int(children[0].split()[1]))
    crew.workers.kill(0)
    assert crew.next() == [WorkerEnded(0, -9, "killed by SIGKILL, as by the kernel when memory is short")]


def test_nothing_is_said_to_who_is_gone_or_never_was(crew):
    crew.start()
    crew.workers.kill(0)
    crew.next()
    for worker in (0, 7):
        crew.workers.ask(worker, 1, "metrics")
        crew.workers.drain(worker)
        crew.workers.kill(worker)
    crew.workers.wake()
    assert crew.workers.events(30.0) == []


def test_a_command_that_can_not_be_run_is_told(tmp_path):
    workers = WorkerProcesses(lambda *_: [str(tmp_path / "nothing")])
    with pytest.raises(PortError, match=r"a process can't be started: .*No such file"):
        workers.start(0)


SUPERVISOR = """
import sys, threading
from tests.adapters.test_worker_processes import Crew
from pathlib import Path

crew = Crew(Path(sys.argv[1]))
crew.start()
print("started", flush=True)
threading.Event().wait()
"""


def test_workers_of_a_supervisor_that_was_killed_end_in_order(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
    )
    with process:
        assert process.stdout.readline() == "started\n"
        process.kill()
    until(lambda: "ends" in Crew(tmp_path).lines(), "the worker ends")
    assert Crew(tmp_path).lines() == ["starts", "works", "drains", "ends"]
