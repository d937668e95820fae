"""What is committed besides offsets, from one owner of a partition to the next. Rows T-OFF of `tests/CATALOGUE.md`."""

import pytest

from redrive import DeadLetterNow, RetryPolicy
from redrive.core.metadata import decode_metadata, encode_metadata
from redrive.core.record import TopicPartition
from redrive.runtime.ports import Committed
from tests.runtime.at_work import Process, app_of, append, new_cluster

P0 = TopicPartition("orders", 0)


class Shop:
    """
    Handles whole numbers; those in `dead` become dead letters. While acknowledgements are held these stay unfinished, and
    what comes behind them is finished.
    """

    def __init__(self, order="partition"):
        self.order = order
        self.cluster = new_cluster()
        self.runs, self.dead = [], set()
        self.process = self.started()

    def started(self, **wrappers):
        """A process that owns the partition, after the one before was killed."""

        def handle(number: int) -> None:
            self.runs.append(number)
            if number in self.dead:
                raise DeadLetterNow("as the test wants it")

        self.process = Process(
            app_of(handle, retry=RetryPolicy(), order=self.order), self.cluster, **wrappers
        )
        return self.process

    def killed(self):
        """The process dies between two steps, and its partitions go to another one."""
        self.cluster.kill(self.process.member)
        self.cluster.clock.pass_time(60_000)
        self.runs.clear()
        return self.started()

    def commit(self, offset, *ranges, text=None, identity="orders"):
        """As another owner would have."""
        text = encode_metadata(offset, ranges, identity) if text is None else text
        self.cluster.group("shop").offsets[P0] = Committed(offset, text)

    @property
    def at(self):
        """What the group has committed."""
        return self.cluster.group("shop").offsets[P0]

    @property
    def claimed(self):
        """The offsets that the group's commit claims to be finished above its own."""
        read = decode_metadata(self.at.metadata, self.at.offset, "orders")
        assert read.ignored == ""
        return {offset for first, end in read.ranges for offset in range(first, end)}


@pytest.fixture
def shop():
    return Shop()


@pytest.mark.parametrize("order", ["partition", "key", "none"])
@pytest.mark.parametrize("end", ["killed", "closed"])
def test_t_off_1_of_what_finished_out_of_order_nothing_runs_again_and_all_else_does(end, order):
    shop = Shop(order)
    shop.dead.update(range(0, 1_000, 10))
    shop.cluster.faults.acks_are_held = True
    append(shop.cluster, *range(1_000))
    shop.process.run(3_000)
    assert (shop.at.offset, shop.claimed) == (0, set(range(1_000)) - shop.dead)

    if end == "closed":
        shop.process.pump.shut_down()
    unfinished = sorted(shop.dead)
    shop.dead.clear()
    shop.killed().run(3_000)

    assert sorted(shop.runs) == unfinished


def test_t_off_4_and_5_where_a_broker_takes_512_bytes_what_is_told_is_cut_until_all_is_well_again(shop):
    shop.cluster.group("shop").metadata_units = 511
    shop.dead.update(range(0, 5_000, 3))
    shop.cluster.faults.acks_are_held = True
    append(shop.cluster, *range(5_000))
    shop.process.run(3_000)
    assert (shop.at.offset, 300 < len(shop.at.metadata) <= 511) == (0, True)
    assert 1_000 < len(shop.claimed) < 5_000
    assert shop.claimed.isdisjoint(shop.dead)
    assert 1 <= len(shop.process.told("metadata-limited")) <= 3
    assert shop.process.told("commit-refused") == []

    shop.cluster.faults.acks_are_held = False
    shop.process.run(3_000)
    append(shop.cluster, 5_000)
    shop.process.run(3_000)

    assert (shop.at.offset, shop.claimed, len(shop.runs)) == (5_001, set(), 5_001)


def test_t_off_7_markers_and_what_was_compacted_away_hold_nothing_up(shop):
    log = shop.cluster.partition(P0)
    append(shop.cluster, 0, 1)
    log.append_marker()
    append(shop.cluster, 3, 4)
    log.append_marker()
    shop.dead.add(1)
    shop.cluster.faults.acks_are_held = True
    shop.process.run(3_000)
    assert (shop.at.offset, shop.claimed) == (1, {2, 3, 4})

    shop.cluster.faults.acks_are_held = False
    shop.process.run(3_000)
    append(shop.cluster, 6)
    shop.process.run(3_000)

    assert (shop.at.offset, shop.claimed) == (7, set())


def test_t_off_8_retention_takes_the_stuck_record_and_more_but_nothing_finished_runs_again(shop):
    append(shop.cluster, *range(20))
    shop.commit(5, (6, 12), (13, 18))
    shop.cluster.partition(P0).delete_before(9)
    shop.started().run(3_000)
    assert (shop.runs, shop.at.offset, shop.claimed) == ([12, 18, 19], 20, set())


@pytest.mark.parametrize("offset", [2, 9, 15])
def test_t_off_8_a_group_that_was_set_to_another_offset_goes_on_from_there(shop, offset):
    append(shop.cluster, *range(20))
    shop.commit(5, (6, 12), (13, 18))
    of_before = shop.at.metadata
    shop.commit(offset, text=of_before)  # by a tool that copies what it doesn't know
    shop.started().run(3_000)
    assert (shop.runs, shop.at.offset) == (list(range(offset, 20)), 20)
    assert "belongs to offset 5" in shop.process.told("map-ignored")[0]["why"]
    assert shop.process.counters().ignored_metadata == 1


@pytest.mark.parametrize(
    "text",
    ["AgAAAZkz5oAAAAAAAA==", "r2:5:orders:", "r1:5:orders:::~~~~", "\x00", "r9:5:orders::::", "é" * 4_000],
)
def test_t_off_9_metadata_that_cannot_be_read_costs_repeats_and_nothing_else(shop, text):
    append(shop.cluster, *range(20))
    shop.commit(5, text=text)
    shop.started().run(3_000)
    assert (shop.runs, shop.at.offset) == (list(range(5, 20)), 20)
    assert shop.process.counters().ignored_metadata == len(shop.process.told("map-ignored")) == (text != "\0")


def test_t_off_9_a_mirrored_group_is_not_believed(shop):
    append(shop.cluster, *range(20))
    shop.commit(5, (6, 12), identity="orders of the other cluster")
    shop.started().run(3_000)
    assert (shop.runs, shop.at.offset) == (list(range(5, 20)), 20)
    assert "another cluster" in shop.process.told("map-ignored")[0]["why"]


def test_t_off_10_a_commit_is_sent_again_until_a_broker_that_was_down_confirms_it(shop):
    append(shop.cluster, *range(20))
    shop.process.run(3_000)
    append(shop.cluster, *range(20, 30))
    shop.cluster.faults.commits_are_held = True
    shop.process.run(3_000)
    shop.cluster.is_down = True
    shop.process.run(30_000)
    assert (len(shop.runs), shop.at.offset) == (30, 20)

    shop.cluster.is_down = shop.cluster.faults.commits_are_held = False
    shop.process.run(3_000)

    assert (len(shop.runs), shop.at.offset) == (30, 30)


def test_t_off_11_refused_and_unanswered_commits_stop_nothing(shop):
    append(shop.cluster, *range(10))
    shop.cluster.faults.refuse_commits(3, "rebalance in progress")
    shop.process.run(10_000)
    assert shop.at.offset == 10

    shop.cluster.faults.commits_are_held = True
    append(shop.cluster, *range(10, 20))
    shop.process.run(70_000)
    assert len(shop.runs) == 20
    shop.cluster.faults.commits_are_held = False
    shop.process.run(3_000)
    assert shop.at.offset == 20
