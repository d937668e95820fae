"""Exactly-once delivery where a commit has no room for what is finished behind a slow record."""

import asyncio
import random
from collections import Counter

import pytest

from redrive import App, Record, RetryPolicy
from redrive.core.settings import Settings
from redrive.testing import Harness

#: So many of the last ones fail once, but for those of the hot key.
FAILING = 20


@pytest.mark.parametrize(
    ("records", "units", "emits_each"),
    [
        # The broker's limit is so low that it isn't found by halving what a commit says.
        (1200, 260, 1),
        # It is, and then there is room for four failed records: all that may run are these and the first of the hot key.
        (3400, 420, 4),
    ],
)
def test_a_slow_first_record_of_a_hot_key_holds_all_up_for_as_long_as_it_takes_and_no_longer(
    records, units, emits_each
):
    chance = random.Random(1)
    hot = [number == 0 or chance.random() < 0.5 for number in range(records)]
    app = App("shop", delivery="exactly-once")

    @app.listener("orders", order="key", concurrency=64, retry=RetryPolicy("10s", blocking="key"))
    async def handle(number: int, record: Record) -> None:
        if not number:
            await asyncio.sleep(4)
        if number > records - FAILING and not hot[number] and record.attempt == 1:
            raise ConnectionError
        if number % emits_each == 0:
            record.emit("mails", b"%d" % number)

    settings = Settings(bootstrap_servers="sim:9092", breaker=False, brake=False)
    with Harness(app, partitions=1, settings=settings) as harness:
        harness.cluster.create_topic("mails")
        harness.cluster.group("shop").metadata_units = units
        for number in range(records):
            key = b"hot" if hot[number] else b"%d" % (number % 1000)
            harness.cluster.append("orders", b"%d" % number, key=key, partition=0)
        harness.advance("43s")
        mails = Counter(int(mail.value()) for mail in harness.cluster.records("mails"))
    assert mails == Counter(range(0, records, emits_each))
