"""A log that retention cut short, or that was made anew: what was fetched stays, what is gone is told exactly, all goes on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import DeadLetterNow, Failures, RetryPolicy
from redrive.core.commands import Pause, Resume
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.runtime.ports import Committed
from tests.runtime.at_work import Process, app_of, append, new_cluster, same, values
from tests.sim.engine_world import World, plan_of

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Shop:
    """
    Handles whole numbers; those in `dead` become dead letters, those in `fails` fail at their first attempt. While it
    `is_away`, there is an outage. Its group has committed offset 0 unless it `is_new`.
    """

    def __init__(self, *, partitions=1, retry=None, admin=same, is_new=True):
        self.cluster = new_cluster(partitions=partitions)
        if not is_new:
            for number in range(partitions):
                self.cluster.group("shop").offsets[TopicPartition("orders", number)] = Committed(0)
        self.handled, self.dead, self.fails = [], set(), set()
        self.is_away = False

        def handle(number: int) -> None:
            self.cluster.clock.pass_time(1)
            if self.is_away:
                raise ConnectionRefusedError
            if number in self.dead:
                raise DeadLetterNow("as the test wants it")
            if number in self.fails:
                self.fails.remove(number)
                raise TimeoutError
            self.handled.append(number)

        app = app_of(handle, retry=retry or RetryPolicy(), failures=Failures(outage=ConnectionRefusedError))
        self.process = Process(app, self.cluster, admin=admin)

    def append(self, *numbers, partition=0):
        append(self.cluster, *numbers, partition=partition)

    def cut(self, before, key=P0):
        """Retention takes what is below this offset."""
        self.cluster.partition(key).delete_before(before)

    @property
    def lost(self):
        """How many records were counted as lost; as many must have been told."""
        lost = self.process.counters().lost
        assert sum(fields["lost"] for fields in self.process.told("records-lost")) == lost
        return lost


# -- what was fetched before -----------------------------------------------------------------------------------------


def test_records_that_wait_for_a_handler_run_though_their_log_was_cut_behind_them():
    shop = Shop()
    shop.process.handlers.held = True
    shop.append(*range(10))
    shop.process.run(500)
    shop.append(*range(10, 20))
    shop.cut(15)
    shop.process.run(3_000)

    assert (shop.handled, shop.lost, shop.process.committed()) == ([], 5, 0)
    assert shop.process.told("records-lost") == [{"topic": "orders", "partition": 0, "offset": 10, "lost": 5}]

    shop.process.handlers.held = False
    shop.process.run(3_000)

    assert shop.handled == [*range(10), *range(15, 20)]
    assert (shop.lost, shop.process.committed()) == (5, 20)


def test_a_log_that_is_cut_to_its_very_end_is_committed_up_to_there():
    shop = Shop()
    shop.append(*range(5))
    shop.process.run(2_000)
    shop.append(*range(5, 9))
    shop.cut(9)
    shop.process.run(3_000)
    assert (shop.lost, shop.process.committed()) == (4, 9)

    shop.append(9)
    shop.process.run(2_000)
    assert (shop.handled, shop.lost) == ([0, 1, 2, 3, 4, 9], 4)


def test_a_log_that_is_cut_again_and_again_loses_each_record_once():
    shop = Shop(is_new=False)
    for first in range(0, 100, 10):
        shop.append(*range(first, first + 10))
        shop.cut(first + 7)
        shop.process.run(1_500)
    assert shop.lost == 70
    assert shop.handled == [first + rest for first in range(0, 100, 10) for rest in (7, 8, 9)]


@pytest.mark.parametrize("of", ["retry", "dead letter"])
def test_the_committed_offset_does_not_pass_a_record_whose_successor_is_not_confirmed(of):
    shop = Shop(retry=RetryPolicy("5s"))
    (shop.fails if of == "retry" else shop.dead).add(3)
    shop.append(*range(10))
    shop.cluster.faults.acks_are_held = True
    shop.process.run(2_000)
    shop.append(*range(10, 20))
    shop.cut(15)
    shop.process.run(3_000)

    assert shop.handled == [0, 1, 2, *range(4, 10), *range(15, 20)]
    assert (shop.lost, shop.process.committed()) == (5, 3)

    shop.cluster.faults.acks_are_held = False
    shop.process.run(2_000)
    assert shop.process.committed() == 20


def test_a_dead_letter_that_was_refused_is_still_written_and_waited_for():
    shop = Shop()
    shop.dead.add(3)
    shop.cluster.faults.refuse_writes("orders.dlq", 6)  # some fifteen seconds
    shop.append(*range(10))
    shop.process.run(2_000)
    shop.append(*range(10, 20))
    shop.cut(15)
    shop.process.run(5_000)
    assert (values(shop.cluster, "orders.dlq"), shop.lost, shop.process.committed()) == ([], 5, 3)

    shop.process.run(60_000)

    assert (values(shop.cluster, "orders.dlq"), shop.process.committed()) == ([3], 20)


def test_records_that_wait_for_their_due_run_then_though_their_tier_was_cut_behind_them():
    shop = Shop(retry=RetryPolicy("5s"))
    tier = TopicPartition("orders.retry.5s", 0)
    shop.fails.update(range(4))
    shop.append(0, 1)
    shop.process.run(1_000)
    for number in (2, 3):  # by another process of the group
        shop.cluster.append(tier.topic, b"%d" % number, partition=0, headers=[("redrive-group", b"shop")])
    shop.fails.clear()
    shop.cut(3, tier)
    shop.process.run(1_000)
    assert (shop.handled, shop.lost) == ([], 1)

    shop.process.run(6_000)

    assert (shop.handled, shop.process.committed(tier.topic)) == ([0, 1, 3], 4)


EVENT = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 12)),
    st.tuples(st.just("append and cut"), st.integers(1, 12)),
    st.tuples(st.just("cut"), st.floats(0, 1)),
    st.tuples(st.just("hold handlers"), st.booleans()),
    st.tuples(st.just("hold confirmations"), st.booleans()),
    st.tuples(st.just("refuse"), st.integers(1, 2)),
)


@given(events=st.lists(st.tuples(EVENT, st.sampled_from([0, 1, 20, 1_200])), max_size=20))
def test_each_record_is_handled_or_put_aside_or_counted_as_lost_once(events):
    shop = Shop(retry=RetryPolicy("1s"), is_new=False)
    shop.dead, shop.fails = set(range(0, 400, 7)), set(range(0, 400, 5))
    for (event, given_), then_ms in events:
        end = shop.cluster.partition(P0).end
        if event.startswith("append"):
            shop.append(*range(end, end + given_))
        if event == "append and cut":
            shop.cut(end + given_ // 2)
        elif event == "cut":
            shop.cut(int(given_ * end))
        elif event == "hold handlers":
            shop.process.handlers.held = given_
        elif event == "hold confirmations":
            shop.cluster.faults.acks_are_held = given_
        elif event == "refuse":
            shop.cluster.faults.refuse_writes("orders.dlq", given_)
        shop.process.run(then_ms)
        ended = {*shop.handled, *values(shop.cluster, "orders.dlq"), *values(shop.cluster, "orders.retry.1s")}
        below = set(range(shop.process.committed() or 0)) - ended
        assert len(below) <= shop.lost  # nothing is passed that is neither ended nor gone

    shop.process.handlers.held = shop.cluster.faults.acks_are_held = False
    for _ in range(40):
        if not shop.process.is_all_committed():
            shop.process.run(30_000)

    ended = shop.handled + values(shop.cluster, "orders.dlq")
    assert len(ended) == len(set(ended))
    assert len(ended) + shop.lost == shop.cluster.partition(P0).end
    assert shop.process.is_all_committed()


# -- where nothing was fetched yet -----------------------------------------------------------------------------------


def test_a_partition_that_was_paused_before_its_first_record_begins_wherever_its_log_does_and_nothing_was_lost():
    shop = Shop(partitions=2)
    shop.is_away = True
    shop.append(1, 2, 3, 4, 5)
    shop.process.run(5_000)  # the outage lasts: all partitions are paused
    assert shop.process.engine.lanes[P1].is_paused
    shop.append(*range(100, 203), partition=1)
    shop.cut(100, P1)

    shop.is_away = False
    shop.process.run(120_000)

    assert sorted(shop.handled) == [1, 2, 3, 4, 5, 200, 201, 202]
    assert (shop.lost, shop.process.told("records-lost")) == (0, [])


def test_a_partition_whose_beginning_was_cut_away_before_it_was_fetched_has_lost_nothing():
    shop = Shop()
    shop.process.run(500)  # started at the beginning of an empty log
    shop.append(*range(10))
    shop.cut(4)
    shop.process.run(3_000)
    assert (shop.handled, shop.lost, shop.process.committed()) == ([4, 5, 6, 7, 8, 9], 0, 10)


# -- a log that ends before what was read ----------------------------------------------------------------------------


def test_a_topic_that_was_made_anew_is_read_from_its_beginning():
    shop = Shop()
    shop.append(*range(10))
    shop.process.run(2_000)
    shop.cluster.delete_topic("orders")
    shop.cluster.create_topic("orders", 1)
    shop.append(100, 101)

    shop.process.run(3_000)

    assert (shop.handled[10:], shop.lost, shop.process.committed()) == ([100, 101], 0, 2)
    assert shop.process.told("log-restarted") == [{"topic": "orders", "partition": 0, "offset": 10}]


def test_what_comes_back_of_the_log_before_does_not_count_for_the_new_one():
    shop = Shop()
    shop.dead.add(1)
    shop.cluster.faults.acks_are_held = True
    shop.append(0, 1)
    shop.process.run(2_000)
    shop.process.handlers.held = True
    shop.append(2, 3)
    shop.process.run(500)
    shop.cluster.delete_topic("orders")
    shop.cluster.create_topic("orders", 1)
    shop.append(100)
    shop.process.run(2_000)

    shop.process.handlers.held = shop.cluster.faults.acks_are_held = False
    shop.process.run(2_000)

    assert shop.handled == [0, 100]
    assert shop.process.committed() == 1


# -- many at once, and answers that don't come -----------------------------------------------------------------------


class Forgetting:
    """An admin client that leaves partitions out of some of its answers, or gives none; it counts the questions."""

    def __init__(self, admin):
        self._admin = admin
        self.left_out, self.is_silent, self.asked = set(), False, 0

    def __getattr__(self, name):
        return getattr(self._admin, name)

    def offsets(self, keys, which):
        self.asked += 1
        if self.is_silent:
            raise PortError("no answer in time", retriable=True)
        return {key: at for key, at in self._admin.offsets(keys, which).items() if key not in self.left_out}


def _cut_everywhere(partitions):
    """A service whose partitions were all cut while it was away; its admin client."""
    admins = []

    def forgetting(admin):
        admins.append(Forgetting(admin))
        return admins[0]

    shop = Shop(partitions=partitions, admin=forgetting, is_new=False)
    for number in range(partitions):
        key = TopicPartition("orders", number)
        shop.append(*(10 * number + rest for rest in range(10)), partition=number)
        shop.cut(5, key)
    return shop, admins[0]


def test_a_hundred_partitions_that_were_cut_are_all_served_again_and_asked_for_together():
    shop, admin = _cut_everywhere(100)
    shop.process.run(3_000)
    assert sorted(shop.handled) == [number for number in range(1_000) if number % 10 >= 5]
    assert shop.lost == 500
    assert admin.asked <= 3


def test_partitions_that_the_cluster_does_not_tell_of_are_asked_for_again_and_hold_up_no_others():
    shop, admin = _cut_everywhere(3)
    admin.left_out = {P1}
    shop.process.run(3_000)
    assert (sorted(shop.handled), shop.lost) == ([*range(5, 10), *range(25, 30)], 10)

    admin.left_out = set()
    shop.process.run(2_000)

    assert (sorted(shop.handled), shop.lost) == ([*range(5, 10), *range(15, 20), *range(25, 30)], 15)


def test_while_no_broker_answers_the_earliest_offset_is_asked_for_once_a_second_and_no_more():
    shop, admin = _cut_everywhere(3)
    admin.is_silent = True
    shop.process.run(500)
    shop.cluster.is_down = True  # the consumer tells so with every poll
    before = admin.asked
    shop.process.run(10_000)
    assert 5 <= admin.asked - before <= 11

    shop.cluster.is_down = admin.is_silent = False
    shop.process.run(3_000)
    assert shop.lost == 15


def test_a_partition_that_was_taken_away_meanwhile_is_not_asked_for_any_more():
    shop, admin = _cut_everywhere(1)
    admin.is_silent = True
    shop.process.run(2_000)
    shop.process.pump.on_revoked([P0])
    before = admin.asked
    shop.process.run(5_000)
    assert admin.asked == before


# -- between the engine and the consumer -----------------------------------------------------------------------------


def test_a_lane_that_is_paused_when_its_log_is_cut_is_fetched_again_and_paused_again_when_it_is_full():
    tier = TopicPartition("orders.retry.5s", 0)
    world = World(plan_of("5s"), partitions=1, window_bytes=8_000)
    world.assign(tier)
    for _ in range(2):
        world.append(tier.topic, count=10)
        world.fetch(tier)
        assert tier in world.paused

        world.append(tier.topic, count=10)
        begin = world.positions[tier] + 10
        world.cluster.partition(tier).delete_before(begin)
        # What there was no room for is lost, too.
        lost = begin - world.engine.lanes[tier].next_offset
        assert world.engine.log_was_cut(tier, begin) == lost > 10
        world._perform()
        assert tier not in world.paused
    assert not any(isinstance(command, Pause | Resume) for command in world.engine.take_commands())
