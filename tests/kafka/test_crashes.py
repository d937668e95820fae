"""Records that kill their process, on a real broker: found after three deaths, and no other is blamed."""

import sys
from collections import Counter
from functools import partial

import pytest

from tests.plain_kafka import is_all_committed, read_all
from tests.services.launch import ObedientService
from tests.services.obedient import Order
from tests.waiting import until

PARTITIONS = 4
EACH = 40

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="there are no workers there"),
    pytest.mark.timeout(360),
]


class Shop:
    """A service that is fed `EACH` records a partition, and in the midst of one of them a killer."""

    def __init__(self, bootstrap, folder, **shape):
        self.service = ObedientService(bootstrap, folder, tiers=("300ms",), **shape)
        self.service.create_topics(PARTITIONS)
        self.count = PARTITIONS * EACH

    def feed(self, *killers):
        good = Order(takes_s=0.001)
        self.service.send_to_each(PARTITIONS, *[good] * (EACH // 2))
        self.service.send(*killers, partition=1)
        self.service.send_to_each(PARTITIONS, *[good] * (EACH - EACH // 2))

    def is_done(self):
        topics = [self.service.source, f"{self.service.source}.retry.300ms"]
        return is_all_committed(self.service.bootstrap, self.service.shape.group, topics)

    def is_done_or_ended(self, process):
        return self.is_done() or has_ended(process)

    def deaths(self):
        """How often each record ended its process."""
        return Counter(run.event_id for run in self.service.ledger.runs() if run.note.endswith("killer"))

    def ended(self):
        return {run.event_id for run in self.service.ledger.runs() if run.note == "ended"}

    def letters(self):
        return [letter.own for letter in read_all(self.service.bootstrap, f"{self.service.source}.dlq")]


@pytest.mark.parametrize(
    ("settings", "kills", "shape"),
    [
        ({"group_protocol": "classic", "membership": "static"}, "exits", {}),
        ({"group_protocol": "consumer"}, "is killed", {"order": "key", "concurrency": 8}),
        ({"group_protocol": "consumer"}, "segfaults", {"order": "none", "concurrency": 8, "is_async": True}),
        ({"delivery": "exactly-once"}, "is killed", {"order": "key", "concurrency": 8}),
    ],
    ids=[
        "classic, exits, a function",
        "KIP-848, killed, by key",
        "KIP-848, segfaults, a coroutine",
        "exactly once",
    ],
)
def test_under_two_workers_a_killer_is_a_dead_letter_after_three_deaths(
    kafka, tmp_path, settings, kills, shape
):
    shop = Shop(kafka.bootstrap, tmp_path, **shape)
    shop.feed(Order(kills=kills, seen="killer"))
    workers = shop.service.process("--workers", "2", **settings).start(awaits="")
    try:
        until(shop.is_done, "all is committed", within_s=240)
    finally:
        workers.end()

    [(killer, deaths)] = shop.deaths().items()
    [letter] = shop.letters()
    assert (deaths, letter["reason"], letter["id"]) == (3, "crashed", killer)
    assert len(shop.ended()) == shop.count


def test_a_process_that_is_started_again_by_hand_passes_one_that_kills_at_its_second_run(kafka, tmp_path):
    shop = Shop(kafka.bootstrap, tmp_path)
    shop.feed(Order(fails=1, kills="is killed", kills_from=2, seen="killer"))
    deaths = 0
    while deaths < 10:
        process = shop.service.process().start(awaits="")
        until(partial(shop.is_done_or_ended, process), "all is committed, or it died", within_s=60)
        if not has_ended(process):
            assert process.terminate() == 0
            break
        deaths += 1

    assert deaths == 3
    [letter] = shop.letters()
    assert (letter["reason"], letter["attempt"]) == ("crashed", "2")
    assert len(shop.ended()) == shop.count


def has_ended(process):
    try:
        process.wait(0)
    except AssertionError:
        return False
    return True
