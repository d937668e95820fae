"""However many partitions have records that wait, all of them together keep no more in memory than they may."""

import pytest

from redrive.core.record import TopicPartition
from redrive.core.schedule import RECORD_OVERHEAD_BYTES
from tests.sim.engine_world import World, plan_of

PARTITIONS = 500
WINDOW_BYTES = 8 << 20


@pytest.mark.parametrize("size", [100, 20_000])
def test_five_hundred_partitions_with_records_that_wait_share_one_window(size):
    world = World(plan_of("1h"), partitions=PARTITIONS, window_bytes=WINDOW_BYTES)
    keys = [TopicPartition("orders.retry.1h", number) for number in range(PARTITIONS)]
    world.assign(*keys)
    due_ms = int(world.clock.wall_ms()) + 3_600_000
    headers = [("redrive-group", b"shop"), ("redrive-due-ms", b"%d" % due_ms)]
    for key in keys:
        for _ in range(30):
            world.cluster.append(key.topic, bytes(size), partition=key.partition, headers=headers)

    most = 0
    for _ in range(5):
        for key in keys:
            world.fetch(key, 10)
            most = max(most, sum(lane.window.held_bytes for lane in world.engine.lanes.values()))
        world.pass_time(200)

    # Of each partition one record is kept whatever there is room for: nobody else knows when it is due.
    record_bytes = size + RECORD_OVERHEAD_BYTES
    assert most <= WINDOW_BYTES + (PARTITIONS + 10) * record_bytes
    assert most >= min(WINDOW_BYTES / 2, PARTITIONS * 30 * size)
