"""
A process that replays all letters of a topic and ends itself on the way, as SIGKILL would.

    python -m tests.kafka.replay_process BOOTSTRAP DLQ JOB (before|after) NUMBER

NUMBER counts the calls by which something is written, from 1: the claims, the copies, the ends. `before`: the call is
not made; `after`: it is made and its answer never seen. NUMBER 0: it lives.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_log import KafkaLog
from redrive.adapters.kafka_settings import client_conf
from redrive.core.record import RawRecord, TopicPartition
from redrive.deadletters.replay import Desk, Job
from redrive.deadletters.selection import Selection, make_plan
from redrive.deadletters.states import Author, StateBook
from redrive.deadletters.topics import Names, open_dlqs
from redrive.runtime.clock import SystemClock
from redrive.runtime.ports import Log, NotWritten, Write, Written


class DyingLog:
    """A log whose process is killed at one of its writes."""

    def __init__(self, log: Log, when: str, number: int) -> None:
        self._log = log
        self._when = when
        self._left = number

    def scan(self, key: TopicPartition, start: int, end: int) -> Iterator[RawRecord]:
        yield from self._log.scan(key, start, end)

    def write_many(self, writes: Sequence[Write]) -> Sequence[Written | NotWritten]:
        if not writes:
            return []
        self._left -= 1
        if self._left == 0 and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answers = self._log.write_many(writes)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return answers

    def write(self, *_: object) -> tuple[int, int]:
        raise NotImplementedError


def main(bootstrap: str, dlq: str, job: str, when: str, number: str) -> None:
    """Plan and replay, or die."""
    user = {"bootstrap.servers": bootstrap}
    log = DyingLog(KafkaLog(user), when, int(number))
    desk = Desk(KafkaCluster(client_conf(user)), log, SystemClock())
    books = [
        StateBook(desk.cluster, log, desk.clock, found) for found in open_dlqs(desk.cluster, [dlq], Names())
    ]
    for book in books:
        book.read()
    plan = make_plan(Selection(everything=True), books, log, kind="replay")
    sys.stdout.write("planned\n")
    sys.stdout.flush()
    sys.stdin.readline()  # so that several start together
    report = Job(desk, plan, books, Author("test", job), threading.Event()).replay()
    sys.stdout.write(f"{report.done} {report.failed} {report.skipped} {report.selected}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
