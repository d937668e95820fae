"""
A service under `redrive run`, fed by a client that is not ours: of all its records 10 % fail once, 1 % always, and
0.1 % can't be read. Each is handled, or is a dead letter; exactly once each while nothing goes wrong, at least once with
processes killed, and then what ran twice is counted and bounded.
"""

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from tests.plain_kafka import count_all, is_all_committed, read_all
from tests.services.launch import ObedientService
from tests.services.obedient import Order
from tests.waiting import until

PARTITIONS = 4
SEED = int(os.environ.get("REDRIVE_TEST_SEED", "7"))
#: What a killed process did in its last two commit intervals and a half may be done again.
LAST_MS = 2500
GARBAGE = b"\xff{not json"


def _value(number: int) -> bytes:
    """What record `number` makes its handler do."""
    if number % 1000 == 500:
        return GARBAGE
    return msgspec.json.encode(Order(fails=int(number % 10 == 3), bug=number % 100 == 7))


def _is_bad(number: int) -> bool:
    return number % 1000 == 500 or number % 100 == 7


async def _feed(bootstrap: str, topic: str, count: int) -> None:
    """As another team's service writes them. Record `number` is the `number // PARTITIONS`th of its partition."""
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, linger_ms=20, max_batch_size=200_000
    ) as producer:
        sent = [
            await producer.send(topic, _value(number), key=b"%d" % number, partition=number % PARTITIONS)
            for number in range(count)
        ]
        await asyncio.gather(*sent)


def _number(event_id: str) -> int:
    _, partition, offset = event_id.rsplit("/", 2)
    return int(offset) * PARTITIONS + int(partition)


def _is_through(shop: ObedientService) -> bool:
    topics = [shop.source, *(f"{shop.source}.retry.{tier}" for tier in shop.shape.tiers)]
    return all(is_all_committed(shop.bootstrap, shop.shape.group, [topic]) for topic in topics)


def _expected(count: int) -> Counter[tuple[int, int]]:
    """The runs that the records need: number of the record, and attempt."""
    readable = [number for number in range(count) if number % 1000 != 500]
    firsts = Counter((number, 1) for number in readable)
    return firsts + Counter((number, 2) for number in readable if number % 10 == 3 and not _is_bad(number))


def _shop(kafka, tmp_path: Path, **shape: object) -> ObedientService:
    shop = ObedientService(kafka.bootstrap, tmp_path, tiers=("500ms",), concurrency=PARTITIONS, **shape)
    shop.create_topics(PARTITIONS)
    return shop


def test_without_faults_each_is_handled_once_or_is_one_dead_letter(kafka, tmp_path):
    shop = _shop(kafka, tmp_path)
    count = 100_000
    with shop.process() as process:
        asyncio.run(_feed(shop.bootstrap, shop.source, count))
        until(lambda: _is_through(shop), "all committed", within_s=90)
        exit_code = process.terminate()

    runs = Counter((_number(run.event_id), run.attempt) for run in shop.ledger.runs())
    letters = read_all(shop.bootstrap, f"{shop.source}.dlq")
    bad = [number for number in range(count) if _is_bad(number)]
    assert exit_code == 0
    assert runs == _expected(count)
    assert sorted(_number(letter.own["id"]) for letter in letters) == bad
    assert all(letter.value == _value(_number(letter.own["id"])) for letter in letters)
    assert Counter(letter.own["reason"] for letter in letters) == {
        "permanent": count // 100,
        "poison": count // 1000,
    }
    assert shop.ledger.early() == []


@pytest.mark.chaos
def test_with_processes_killed_each_is_handled_at_least_once_and_the_extras_are_bounded(
    kafka, tmp_path, capsys, is_long
):
    shop = _shop(kafka, tmp_path, takes_s=0.0005)
    count, kills = (100_000, 5) if is_long else (30_000, 2)
    dice = random.Random(SEED)
    processes = [shop.process(commit_interval="1s") for _ in range(2)]
    killed: list[tuple[int, float]] = []
    try:
        for process in processes:
            process.start()
        asyncio.run(_feed(shop.bootstrap, shop.source, count))
        for kill in range(kills):
            _await_runs(shop, int((kill + 1) * count / (kills + 1) * dice.uniform(0.8, 1.0)))
            victim = processes[dice.randrange(2)]
            killed.append((victim.pid, time.time() * 1000))
            victim.kill()
            victim.start(awaits="")
        until(lambda: _is_through(shop), "all committed", within_s=90)
        until(lambda: count_all(shop.bootstrap, f"{shop.source}.dlq") >= count * 11 // 1000, "all letters")
    finally:
        for process in processes:
            process.end()

    runs = Counter((_number(run.event_id), run.attempt) for run in shop.ledger.runs())
    letters = Counter(_number(letter.own["id"]) for letter in read_all(shop.bootstrap, f"{shop.source}.dlq"))
    missing = _expected(count) - runs
    repeated = (runs - _expected(count)).total()
    twice = letters.total() - len(letters)
    with capsys.disabled():
        told = f"{kills} kills (seed {SEED}), {count:,} records: {repeated:,} runs and {twice} letters twice"
        print(f"\n{told}")  # noqa: T201  the figure is the result
    assert missing == Counter()
    assert sorted(letters) == [number for number in range(count) if _is_bad(number)]
    assert shop.ledger.early() == []
    assert _repeated_too_long_ago(shop, killed) == []
    # Each may have been run again, and its second retry copy too.
    assert repeated <= 2 * _runs_before(shop, killed)


def _await_runs(shop: ObedientService, count: int) -> None:
    until(lambda: shop.ledger.count() > count, f"{count} runs", within_s=60)


def _repeated_too_long_ago(shop: ObedientService, killed: list[tuple[int, float]]) -> list[str]:
    """Records that ran in a killed process more than two commits before its end, and ran again all the same."""
    ends = dict(killed)
    seen: dict[str, float] = {}
    wrong = []
    for run in shop.ledger.runs():
        if run.attempt > 1:  # may be a second copy's run
            continue
        if seen.get(run.event_id, 0.0) > LAST_MS:
            wrong.append(run.event_id)
        seen[run.event_id] = ends[run.pid] - run.start_ms if run.pid in ends else 0.0
    return wrong


def _runs_before(shop: ObedientService, killed: list[tuple[int, float]]) -> int:
    """What the killed processes did in their last two commits' time."""
    ends = dict(killed)
    return sum(run.pid in ends and run.start_ms > ends[run.pid] - LAST_MS for run in shop.ledger.runs())
