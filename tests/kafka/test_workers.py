"""`redrive run --workers`: the workers share the work; whatever becomes of one of them, no record is lost."""

import json
import os
import re
import signal
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.plain_kafka import is_all_committed
from tests.services.launch import ObedientService
from tests.services.obedient import Order
from tests.waiting import until

PARTITIONS = 4
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no workers there")


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Shop:
    """A service under a supervisor of two workers, seen from outside."""

    def __init__(self, bootstrap, folder, port, **settings):
        self.service = ObedientService(bootstrap, folder, tiers=("300ms",), takes_s=0.001)
        self.service.create_topics(PARTITIONS)
        self.port = port
        self.process = self.service.process("--workers", "2", http=f"127.0.0.1:{port}", **settings)
        self.ledger = self.service.ledger
        self.count = 0

    def __enter__(self):
        self.process.start(awaits="all workers at port")
        return self.until_ready()

    def __exit__(self, *_):
        self.process.end()

    def until_ready(self):
        until(lambda: self.fetched("/readyz") == (200, "ok\n"), "all workers are ready")
        return self

    def fetched(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def series(self):
        """All values by name and labels."""
        _, page = self.fetched("/metrics")
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }

    def total(self, name, **labels):
        """A metric over all series that have these labels."""
        wanted = labels.items()
        return sum(value for (found, has), value in self.series().items() if found == name and wanted <= has)

    def handled(self):
        return self.total("redrive_records_total", outcome="handled")

    def feed(self, count):
        """So many a partition; a tenth fails once."""
        self.service.send_to_each(PARTITIONS, *(Order(fails=int(at % 10 == 0)) for at in range(count)))
        self.count += count * PARTITIONS

    def await_all(self):
        """Wait until all is handled and committed, and look that nothing was lost."""
        topics = [self.service.source, f"{self.service.source}.retry.300ms"]
        group = self.service.shape.group
        until(lambda: is_all_committed(self.service.bootstrap, group, topics), "all committed", within_s=60)
        assert len(self.ledger.by_record()) == self.count
        assert self.ledger.early() == []

    def pids(self):
        """The workers' processes, by their numbers, while both run."""
        workers = json.loads(self.fetched("/readyz?verbose")[1])["workers"]
        return {worker["worker"]: worker["pid"] for worker in workers}

    def assignments(self):
        """What each worker said of its partitions, one after another."""
        said = re.findall(
            r"worker (\d) redrive: Partitions (assigned|given back|lost).*: (.*)\.", self.process.said()
        )
        return [(int(worker), what, partitions) for worker, what, partitions in said]


@pytest.fixture
def shop(kafka, tmp_path, port):
    with Shop(kafka.bootstrap, tmp_path, port) as shop:
        yield shop


def test_both_workers_work_and_are_seen_as_one_and_drain_at_sigterm(shop):
    shop.feed(500)
    shop.await_all()
    until(lambda: shop.handled() == shop.count, "all are counted")
    pids = shop.pids()
    assert {run.pid for run in shop.ledger.runs()} == set(pids.values())
    assert shop.total("redrive_records_total", outcome="retried") == shop.count / 10
    assert shop.total("redrive_assigned_partitions", topic=shop.service.source) == PARTITIONS
    assert shop.total("redrive_worker_ready") == 2
    assert shop.total("redrive_brake_on", worker="1") == 0
    assert shop.fetched("/livez") == (200, "ok\n")

    shop.service.send_to_each(PARTITIONS, Order(takes_s=1.0))
    until(lambda: shop.ledger.count() >= shop.count * 1.1 + PARTITIONS / 2, "handlers run")
    exit_code = shop.process.terminate()

    runs = [run for run in shop.ledger.runs()[int(shop.count * 1.1) :] if run.note != "ended"]
    ended = [run for run in shop.ledger.runs() if run.note == "ended"]
    assert (exit_code, len(ended)) == (0, len(runs))
    assert not any(_runs(pid) for pid in pids.values())


def test_a_killed_worker_is_replaced_and_nothing_is_lost_or_uncounted_twice(shop):
    shop.feed(1000)
    until(lambda: shop.ledger.count() > 500, "both are at work")
    before = shop.handled()
    killed = shop.pids()[1]
    os.kill(killed, signal.SIGKILL)
    until(lambda: shop.pids()[1] not in (0, killed), "another process")
    assert shop.handled() >= before
    shop.until_ready()
    shop.await_all()
    assert shop.total("redrive_worker_restarts_total", worker="1") == 1
    assert f"Worker 1 (process {killed}) ended by itself: killed by SIGKILL" in shop.process.said()


def test_a_rolling_restart_replaces_all_and_runs_nothing_twice(shop):
    shop.feed(1000)
    until(lambda: shop.ledger.count() > 500, "both are at work")
    before = shop.pids()
    shop.process.signal(signal.SIGHUP)
    until(lambda: "All 2 workers were replaced" in shop.process.said(), "all were replaced")
    after = shop.pids()
    shop.await_all()
    assert set(before.values()) & set(after.values()) == set()
    assert shop.ledger.repeats() == 0
    until(lambda: shop.handled() == shop.count, "those who ended are counted, too")


def test_workers_of_a_killed_supervisor_drain_and_leave_the_group(shop):
    shop.feed(1000)
    until(lambda: shop.ledger.count() > 500, "both are at work")
    pids = shop.pids()
    shop.process.kill()
    until(lambda: not any(_runs(pid) for pid in pids.values()), "the workers end")
    assert shop.process.said().count("The supervisor is gone, so this worker ends too") == 2

    shop.process.start(awaits="all workers at port")
    shop.await_all()
    assert shop.ledger.repeats() == 0


def test_a_static_member_takes_its_partitions_back_and_the_other_notices_nothing(kafka, tmp_path, port):
    with Shop(kafka.bootstrap, tmp_path, port, membership="static", instance_id="blue") as shop:
        until(lambda: {worker for worker, *_ in shop.assignments()} == {0, 1}, "both have partitions")
        shop.feed(300)
        shop.await_all()
        before = shop.assignments()
        last = {worker: partitions for worker, what, partitions in before if what == "assigned"}
        os.kill(shop.pids()[1], signal.SIGKILL)
        until(lambda: len(shop.assignments()) > len(before), "its partitions come back")
        shop.feed(300)
        shop.await_all()
        assert shop.assignments()[len(before) :] == [(1, "assigned", last[1])]
        assert shop.process.terminate() == 0


def test_of_two_processes_of_one_static_name_the_older_one_ends_and_says_why(kafka, tmp_path):
    service = ObedientService(kafka.bootstrap, tmp_path)
    service.create_topics()
    with service.process(membership="static", instance_id="blue") as older:
        with service.process(membership="static", instance_id="blue"):
            assert older.wait(30) == 1
        assert "give each host, and each supervisor on a host, an instance_id of its own" in older.said()


def _runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended may stay in the table until somebody asks for it.
    return " Z " not in _status(pid)


def _status(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return ""
