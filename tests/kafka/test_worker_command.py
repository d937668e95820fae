"""`redrive worker` on a real broker, beside the processes that it is about; and what stops at a record."""

import socket
import sys

import pytest

from redrive.adapters.worker_http import ask_workers
from redrive.core.notices import read_end
from redrive.errors import PortError
from tests.plain_kafka import committed, is_all_committed, read_all
from tests.services.launch import ObedientService
from tests.services.obedient import Order
from tests.waiting import until

TOKEN = "s3cret-s3cret-s3cret"


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


class Shop:
    """A service with a partition for each of two processes, and what a person types."""

    def __init__(self, kafka, folder, partitions=2, **shape):
        self.service = ObedientService(kafka.bootstrap, folder, tiers=("1h",), **shape)
        self.service.create_topics(partitions)
        self.source, self.ledger = self.service.source, self.service.ledger
        self.addresses = []

    def process(self):
        self.addresses.append(free_address())
        return self.service.process(http=self.addresses[-1], http_token=TOKEN)

    def __call__(self, *arguments):
        """Exit code, the one JSON object, what else was said."""
        at = [each for address in self.addresses for each in ("--at", address)]
        asks = arguments[0] in {"ls", "dump", "skip"}
        return self.service.command("worker", *arguments, *(at if asks else []), http_token=TOKEN)

    def workers(self):
        """What all processes are at, without the start of a command for each look."""
        return [worker for address in self.addresses for worker in ask_workers(address, TOKEN).workers]

    def listeners(self):
        return [worker.listeners[0] for worker in self.workers()]

    def are_assigned(self):
        """Whether each process has its partition of the source and of the tier."""
        try:
            return [each.partitions for each in self.listeners()] == [2, 2]
        except PortError:  # one is starting
            return False

    def front(self, topic):
        """What is first in a topic's only partition."""
        [found] = [
            each.front for worker in self.workers() for each in worker.partitions if each.topic == topic
        ]
        return found

    def is_all_committed(self):
        return is_all_committed(self.service.bootstrap, self.service.shape.group, [self.source])

    def ends(self):
        state = read_all(self.service.bootstrap, f"{self.source}.dlq.state")
        found = filter(None, (read_end(record.key, record.value) for record in state))
        return [(key.topic, key.partition, offset, end.state, end.why) for key, offset, end in found]


def test_a_pause_is_seen_by_all_processes_and_outlives_them_until_it_is_resumed(kafka, tmp_path):
    shop = Shop(kafka, tmp_path)
    with shop.process() as one, shop.process():
        until(shop.are_assigned, "each has partitions")
        code, said, _ = shop("pause", shop.source, "--reason", "bank is down", "--who", "ann")
        assert (code, said["action"], said["who"], said["before"]) == (0, "pause", "ann", None)
        until(lambda: all(each.paused for each in shop.listeners()), "both have seen it")
        shop.service.send_to_each(2, Order(), Order())

        assert one.terminate() == 0
        one.start()
        until(shop.are_assigned, "each has partitions again")
        _, listed, _ = shop("ls")
        told = [
            (
                worker["is_ready"],
                worker["listeners"][0]["paused"]["who"],
                worker["listeners"][0]["paused"]["why"],
            )
            for worker in listed["workers"]
        ]
        assert (told, shop.ledger.count()) == ([(True, "ann", "bank is down")] * 2, 0)

        code, said, _ = shop("resume", shop.source)
        assert (code, said["before"]["who"]) == (0, "ann")
        until(shop.is_all_committed, "all is handled")
        assert shop.ledger.count() == 4


def test_a_record_that_is_stuck_is_shown_and_skipped(kafka, tmp_path):
    shop = Shop(kafka, tmp_path, partitions=1)
    tier = f"{shop.source}.retry.1h"
    with shop.process() as process:
        shop.service.send(Order(fails=9), Order(stuck="for ever"), Order())
        front = until(lambda: shop.front(tier), "it waits")
        assert (front.offset, front.attempt, front.why) == (0, 1, "ConnectionError")
        _, dumped, _ = shop("dump")
        [run] = dumped["workers"][0]["listeners"][0]["runs"]
        assert (run["topic"], run["offset"], run["running_s"] > 0) == (shop.source, 1, True)

        code, said, _ = shop("skip", f"{tier}/0/0", "--yes", "--reason", "no such order")
        assert (code, said["answer"]) == (0, "skipped")
        assert shop.ends() == [(tier, 0, 0, "skipped", "no such order")]
        code, said, _ = shop("skip", f"{shop.source}/0/1", "--yes", "--wait", "1s")
        assert (code, said["answer"], said["pid"]) == (3, "running", process.pid)
        assert committed(shop.service.bootstrap, shop.service.shape.group, shop.source)[0] == 1

        process.kill()
        runs = shop.ledger.count()
        process.start()
        until(shop.is_all_committed, "it was got past")
        assert [run.event_id for run in shop.ledger.runs()[runs:]] == [f"{shop.source}/0/2"]
        code, said, _ = shop("skip", f"{shop.source}/0/1", "--yes")
        assert (code, said["answer"]) == (5, "unknown")


def test_a_listener_that_stops_ends_its_process_until_it_is_mended_or_the_record_is_skipped(kafka, tmp_path):
    shop = Shop(kafka, tmp_path, partitions=1, give_up="stop")
    process = shop.service.process()
    shop.service.send(Order(), Order(bug=True), Order())
    for _ in range(2):
        process.start(awaits="Listener")
        assert process.wait(30) == 6
        assert f"redrive worker skip {shop.source}/0/1" in process.said()
        assert committed(shop.service.bootstrap, shop.service.shape.group, shop.source) == {0: 1}

    code, said, _ = shop("skip", f"{shop.source}/0/1", "--yes", "--wait", "0s", "--reason", "no such order")
    assert (code, said["answer"]) == (0, "waiting")
    process.start()
    until(shop.is_all_committed, "it goes on")
    assert process.terminate() == 0
    assert shop.ends() == [(shop.source, 0, 1, "skipped", "no such order")]
    assert read_all(shop.service.bootstrap, f"{shop.source}.dlq") == []


@pytest.mark.skipif(sys.platform == "win32", reason="there are no workers there")
def test_a_supervisor_shows_what_its_workers_are_at_and_ends_when_one_stops_at_a_record(kafka, tmp_path):
    shop = Shop(kafka, tmp_path, give_up="stop")
    shop.addresses.append(free_address())
    process = shop.service.process("--workers", "2", http=shop.addresses[0], http_token=TOKEN)
    with process:
        until(shop.are_assigned, "each has a partition")
        _, seen, _ = shop("ls")
        assert ([worker["worker"] for worker in seen["workers"]], seen["silent"]) == ([0, 1], [])
        assert len({worker["pid"] for worker in seen["workers"]} | {process.pid}) == 3
        shop.service.send(Order(bug=True))
        assert process.wait(60) == 6
    assert "all workers end, and the supervisor with code 6" in process.said()
