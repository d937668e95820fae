"""`redrive dlq` on a real broker, with processes that are killed, interrupted and race each other."""

import json
import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest

from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_log import KafkaLog
from redrive.adapters.kafka_settings import client_conf
from redrive.deadletters.replay import Desk, Job
from redrive.deadletters.selection import Selection, make_plan
from redrive.deadletters.states import Author, StateBook
from redrive.deadletters.topics import Names, open_dlqs
from redrive.runtime.clock import SystemClock
from tests.broker import ROOT
from tests.kafka.shop import Shop


@pytest.fixture
def shop(kafka, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("REDRIVE_APP", "REDRIVE_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    return Shop(kafka.bootstrap)


def _process(shop, job, when="after", number=0):
    command = [
        sys.executable,
        "-m",
        "tests.kafka.replay_process",
        shop.bootstrap,
        shop.dlq,
        job,
        when,
        str(number),
    ]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("when", "number", "left"),
    [
        ("before", 1, {"open": 4}),  # nothing was claimed
        ("after", 1, {"unknown": 4}),  # claimed
        ("before", 2, {"unknown": 4}),  # claimed, read back
        ("after", 2, {"unknown": 4}),  # sent, the acknowledgement never seen
        ("before", 3, {"unknown": 4}),  # acknowledged
        ("after", 3, {"replayed": 4}),
    ],
)
def test_a_kill_at_any_step_sends_no_letter_twice_unasked_and_hides_none(shop, when, number, left):
    shop.letters(4)
    process = _process(shop, "doomed", when, number)
    process.communicate("\n", timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert shop.states() == left

    _, result, _ = shop("replay", shop.dlq, "--all", "--yes")

    assert result.get("sent", 0) == left.get("open", 0)
    assert set(shop.copies().values()) <= {1}
    shop("replay", shop.dlq, "--all", "--again", "--yes")
    assert len(shop.copies()) == 4
    assert shop.states() == {"replayed": 4}


def test_processes_that_race_send_each_letter_once(shop):
    shop.letters(1500)
    racers = [_process(shop, f"racer-{number}") for number in range(3)]
    for racer in racers:
        assert racer.stdout.readline() == "planned\n"
    for racer in racers:
        racer.stdin.write("\n")
        racer.stdin.flush()
    reports = [list(map(int, racer.communicate(timeout=100)[0].split())) for racer in racers]

    assert Counter(shop.copies().values()) == {1: 1500}
    assert sum(done for done, *_ in reports) == 1500
    assert [done + failed + skipped for done, failed, skipped, _ in reports] == [1500] * 3
    assert shop.states() == {"replayed": 1500}


def test_threads_that_race_send_each_letter_once(shop):
    shop.letters(300)
    user = {"bootstrap.servers": shop.bootstrap}
    start = threading.Barrier(2)
    reports = []

    def operator(name):
        desk = Desk(KafkaCluster(client_conf(user)), KafkaLog(user), SystemClock())
        books = [
            StateBook(desk.cluster, desk.log, desk.clock, dlq)
            for dlq in open_dlqs(desk.cluster, [shop.dlq], Names())
        ]
        plan = make_plan(Selection(everything=True), books, desk.log, kind="replay")
        start.wait(60)
        reports.append(Job(desk, plan, books, Author(name, name), threading.Event()).replay())

    threads = [threading.Thread(target=operator, args=(name,)) for name in ("ann", "bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)

    assert Counter(shop.copies().values()) == {1: 300}
    assert sum(report.done for report in reports) == 300


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_cleanly_with_all_accounted_for(shop, how):
    shop.letters(400)
    arguments = ["--all", "--yes", "--json", "--rate", "20/s", "--bootstrap-servers", shop.bootstrap]
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from redrive.cli.main import main; main()",
            "dlq",
            "replay",
            shop.dlq,
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not sum(shop.copies().values()):
        assert process.poll() is None
    process.send_signal(how)
    out, said = process.communicate(timeout=60)

    result = json.loads(out)
    assert (process.returncode, result["stopped"], "Traceback" in said) == (130, "interrupted", False)
    assert result["sent"] + result["skipped"] == 400
    assert sum(shop.copies().values()) == result["sent"]
    assert shop.states() == {"replayed": result["sent"], "open": result["skipped"]}
