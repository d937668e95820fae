"""However large the records are and however slow their handlers, only so many megabytes are kept in memory."""

import pytest

from redrive import RetryPolicy
from redrive.core.record import TopicPartition
from tests.runtime.at_work import Process, app_of, new_cluster

MEGABYTE = bytes(1_000_000)
BOUND_BYTES = 40_000_000


class Shop:
    """A service that takes its time for each record; `most_bytes` is the most it had in memory after a step."""

    def __init__(self, takes_ms, *, partitions=1, **options):
        self.cluster = new_cluster(partitions=partitions)
        self.handled, self.most_bytes = 0, 0

        def handle(value: bytes) -> None:
            self.cluster.clock.pass_time(takes_ms)
            self.handled += 1

        self.process = Process(app_of(handle, retry=RetryPolicy("5s"), **options), self.cluster)

    def append(self, value, count, **written):
        partitions = len(self.cluster.topics["orders"].partitions)
        for number in range(count):
            self.cluster.append("orders", value, partition=number % partitions, **written)

    def steps(self, count):
        for _ in range(count):
            self.process.pump.step()
            self.most_bytes = max(self.most_bytes, self.held_bytes())
        return self

    def held_bytes(self):
        """What waits for a handler, and what handlers were given."""
        engine = self.process.engine
        batches = [batch.records for lane in engine.lanes.values() for batch in (*lane.queue, *lane.returned)]
        records = [record for batch in (*batches, *(run.records for run in engine.runs)) for record in batch]
        return sum(map(_size, records))


def _size(record):
    return sum(
        len(part or b"") for part in (record.key(), record.value(), *dict(record.headers() or ()).values())
    )


@pytest.mark.parametrize("takes_ms", [0.01, 1, 100, 10_000])
@pytest.mark.parametrize("partitions", [1, 12])
def test_of_records_of_a_megabyte_no_more_than_forty_are_in_memory(takes_ms, partitions):
    shop = Shop(takes_ms, partitions=partitions)
    shop.append(MEGABYTE, 300)
    shop.steps(400)
    assert shop.most_bytes <= BOUND_BYTES


@pytest.mark.parametrize("takes_ms", [0.01, 10])
@pytest.mark.parametrize("written", [{"key": MEGABYTE}, {"headers": [("photo", MEGABYTE)]}])
def test_a_megabyte_that_is_no_value_counts_too(takes_ms, written):
    shop = Shop(takes_ms)
    shop.append(b"7", 300, **written)
    shop.steps(400)
    assert shop.most_bytes <= BOUND_BYTES


@pytest.mark.parametrize("concurrency", [4, 12])
def test_also_with_many_handlers(concurrency):
    shop = Shop(1, partitions=12, concurrency=concurrency)
    shop.append(MEGABYTE, 600)
    shop.steps(300)
    assert shop.most_bytes <= BOUND_BYTES


def test_also_while_no_handler_comes_to_an_end():
    shop = Shop(1)
    shop.process.handlers.held = True
    shop.append(MEGABYTE, 300)
    shop.steps(2_000)
    assert (shop.handled, shop.most_bytes <= BOUND_BYTES) == (0, True)


def test_large_records_after_small_ones_fill_the_memory_once_at_most_as_far_as_the_client_has_them():
    shop = Shop(1)
    shop.append(b"7", 5_000)
    shop.steps(400)
    shop.append(MEGABYTE, 60)  # what a client has fetched ahead: 64 MB
    shop.append(MEGABYTE, 200)
    shop.steps(50)
    shop.most_bytes = 0
    shop.steps(500)
    assert shop.most_bytes <= BOUND_BYTES


def test_nothing_is_held_when_all_is_handled():
    shop = Shop(1, partitions=3)
    shop.append(MEGABYTE, 50)
    shop.steps(300)
    assert (shop.handled, shop.held_bytes()) == (50, 0)
    assert {shop.process.engine.lanes[TopicPartition("orders", number)].last_run for number in range(3)} == {
        None
    }


def test_small_records_are_fetched_by_the_thousand():
    shop = Shop(0.001)
    shop.append(b"7", 20_000)
    shop.steps(100)
    assert shop.handled == 20_000
