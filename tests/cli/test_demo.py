"""`redrive demo`, as it is run: with lines and a summary, on a terminal, interrupted, and on a real broker."""

import codecs
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

MAIN = "from redrive.cli.main import main; main()"
REDRIVE = [sys.executable, "-c", MAIN]
#: The same, with stdin as the terminal that Ctrl-C is typed at.
ON_TERMINAL = [sys.executable, "-c", f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {MAIN}"]
STEP = re.compile(r" *[0-9.]+ (\S) (order-[0-9]+): (.*)")

pytestmark = pytest.mark.realtime


class Performance(NamedTuple):
    returncode: int
    stdout: str
    lines: list[str]

    @property
    def summary(self) -> dict:
        return json.loads(self.stdout.splitlines()[-1])

    def orders(self, mark: str, text: str = "") -> list[str]:
        steps = [found.groups() for line in self.lines if (found := STEP.fullmatch(line))]
        return [order for its_mark, order, its_text in steps if its_mark == mark and text in its_text]


def perform(*args: str) -> Performance:
    env = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [*REDRIVE, "demo", "--json", *args], check=False, capture_output=True, env=env, encoding="utf-8"
    )
    return Performance(done.returncode, done.stdout, done.stderr.splitlines())


@pytest.fixture(scope="module")
def performance() -> Performance:
    """One run on the mock cluster, which all tests of it look at; it takes about 40 s."""
    return perform()


def test_it_ends_well_after_about_40_seconds(performance):
    assert performance.returncode == 0
    assert 30 < performance.summary["seconds"] < 60


def test_the_only_line_on_stdout_is_the_summary(performance):
    assert performance.stdout.count("\n") == 1
    assert performance.summary["kafka"] == "a mock Kafka inside this process"
    assert performance.summary["interrupted"] is False


def test_each_order_is_in_one_place(performance):
    summary = performance.summary

    assert summary["sent"] == 310
    assert summary["sent"] == summary["handled"] + summary["discarded"] + summary["left"]
    assert summary["handled"] == sum(summary["handled_by"].values())
    assert (summary["unfinished"], summary["twice"], summary["problems"]) == (0, 0, [])
    assert summary["adds_up"] is True


def test_each_kind_of_failure_ends_as_it_should(performance):
    summary = performance.summary
    letters = summary["dead_letters"]

    assert set(letters) == {"exhausted", "permanent", "poison"}
    assert summary["handled_by"]["retry"] > 30
    assert summary["handled_by"]["replay"] == letters["exhausted"] + letters["permanent"]
    assert summary["left"] == letters["poison"]


def test_the_replay_accounts_for_what_it_selected(performance):
    replay = performance.summary["replay"]

    assert replay["selected"] == replay["sent"] > 0
    assert (replay["failed"], replay["skipped"], replay["not_found"]) == (0, 0, 0)


def test_no_retry_is_early_and_all_tiers_are_used(performance):
    summary = performance.summary

    assert summary["early"] == 0
    assert all(summary["retries"][tier] > 0 for tier in ("1s", "3s", "8s"))


def test_the_lines_tell_each_order_that_died_and_that_it_came_back(performance):
    died, poison = performance.orders("✗"), performance.orders("✗", "bytes that are no order")
    replayed, came_back = performance.orders("↑"), performance.orders("✓", "back from the dead letters")

    assert len(died) == len(set(died)) == sum(performance.summary["dead_letters"].values())
    assert sorted(replayed) == sorted(came_back) == sorted(set(died) - set(poison))


def test_the_lines_tell_the_acts_and_the_addition(performance):
    acts = [line.partition(":")[0] for line in performance.lines if re.match(r"[1-4]\. ", line)]
    ending = performance.lines[-12:]

    assert list(dict.fromkeys(acts)) == ["1. orders fail", "2. the fix", "3. the replay", "4. the proof"]
    assert "   310  orders sent" in ending
    assert "   310  accounted for, each once" in ending


def test_lines_that_are_no_terminals_hold_no_escape_codes(performance):
    assert "\x1b" not in performance.stdout + "".join(performance.lines)


def test_an_interruption_ends_it_cleanly_with_its_counts():
    command = [*REDRIVE, "demo", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, encoding="utf-8") as process:
        while "attempt 2" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate()
    summary = json.loads(stdout)

    assert process.returncode == 130
    assert "Interrupted after" in stderr
    assert "Traceback" not in stderr
    assert summary["interrupted"] is True
    assert summary["sent"] == summary["handled"] + summary["left"] + summary["unfinished"]


def test_ctrl_c_on_a_terminal_gives_the_screen_back():
    seen = watch(80, 24, until="#008")

    assert seen.returncode == 130
    assert seen.before.startswith("\x1b[?1049h")  # the alternate screen
    assert "what just happened" in seen.before
    assert "\x1b[33m" in seen.before
    assert "Interrupted after" in seen.after.partition("\x1b[?1049l")[2]


def test_no_color_is_respected_on_a_terminal():
    seen = watch(80, 24, until="#008", NO_COLOR="1")

    assert seen.returncode == 130
    assert re.findall(r"\x1b\[(?:[0-9;]*;)?[34][0-7][;m]", seen.before + seen.after) == []


def test_a_small_terminal_gets_lines():
    seen = watch(60, 15, until=": handled")

    assert seen.returncode == 130
    assert "\x1b[?1049h" not in seen.before


def test_a_kafka_that_is_not_there_is_told():
    done = subprocess.run(
        [*REDRIVE, "demo", "--bootstrap-servers", "127.0.0.1:1"], check=False, capture_output=True, text=True
    )

    assert done.returncode == 1
    assert done.stderr.startswith("nothing listens at 127.0.0.1:1: the connection is refused.")


def test_on_a_real_kafka_nothing_of_it_is_left(kafka):
    performance = perform("--bootstrap-servers", kafka.bootstrap)
    summary = performance.summary
    [told] = [line for line in performance.lines if line.startswith("deleted the group ")]
    name = told.split()[3]
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    groups = client.list_consumer_groups().result().valid

    assert performance.returncode == 0
    assert summary["sent"] == summary["handled"] + summary["left"] == 310
    assert summary["left"] == summary["dead_letters"]["poison"]
    assert summary["early"] == 0
    assert re.fullmatch(r"redrive-demo-[0-9a-f]+", name)
    assert told == f"deleted the group {name} and its 6 topics {name}.*"
    assert [topic for topic in client.list_topics(timeout=10).topics if topic.startswith(name)] == []
    assert [group.group_id for group in groups if group.group_id == name] == []


class Seen(NamedTuple):
    """What a terminal was sent before and after Ctrl-C was typed at it."""

    before: str
    after: str
    returncode: int


#: What would speak for the terminal; workers of a parallel run are told the size of pytest's own.
_HIDDEN = frozenset(["NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"])


def watch(width: int, height: int, *, until: str, **env: str) -> Seen:
    """Run it on a terminal of this size, and type Ctrl-C when this was shown."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (height, width))
    plain = {name: value for name, value in os.environ.items() if name not in _HIDDEN}
    with subprocess.Popen(
        [*ON_TERMINAL, "demo"],
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
        env={**plain, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **env},
    ) as process:
        os.close(its)
        shown = pieces(ours)
        before = ""
        while until not in before:
            before += next(shown)
        os.write(ours, b"\x03")
        after = "".join(shown)
    os.close(ours)
    return Seen(before, after, process.returncode)


def pieces(terminal: int) -> Iterator[str]:
    """What the process writes, until it ends."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while True:
        try:
            read = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            return
        yield decode(read)
