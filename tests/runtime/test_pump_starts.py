"""Where assigned partitions begin: never at their end by a guess; and topics that grow while the app runs."""

from redrive import RetryPolicy
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.runtime.ports import Committed
from redrive.sim.partitioner import partition_of
from tests.runtime.at_work import Process, app_of, append, new_cluster

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
TIER = "orders.retry.5s"


class Shop:
    """A service that notes what it handles; numbers in `fails` fail at their first attempt."""

    def __init__(self, *, partitions=2, start="latest", commits=None, **wrappers):
        self.cluster = new_cluster(partitions=partitions)
        self.handled, self.fails = [], set()
        for key, offset in (commits or {}).items():
            self.cluster.group("shop").offsets[key] = Committed(offset)

        def handle(number: int) -> None:
            if number in self.fails:
                self.fails.remove(number)
                raise TimeoutError
            self.handled.append(number)

        app = app_of(handle, retry=RetryPolicy("5s"), start=start)
        self.make = lambda: Process(app, self.cluster, **wrappers)

    def append(self, *numbers, partition=0):
        append(self.cluster, *numbers, partition=partition)


class Asked:
    """A consumer that notes the questions for committed offsets."""

    def __init__(self, source, questions):
        self._source = source
        self._questions = questions

    def __getattr__(self, name):
        return getattr(self._source, name)

    def committed(self, keys, timeout_s):
        self._questions.append((sorted(keys), timeout_s))
        return self._source.committed(keys, timeout_s)


class Telling:
    """An admin client that doesn't tell of some partitions, or of none at all."""

    def __init__(self, admin, hidden, *, is_silent=False):
        self._admin = admin
        self.hidden = hidden
        self.is_silent = is_silent

    def __getattr__(self, name):
        return getattr(self._admin, name)

    def offsets(self, keys, which):
        if self.is_silent:
            raise PortError("no answer in time", retriable=True)
        return {key: at for key, at in self._admin.offsets(keys, which).items() if key not in self.hidden}


# -- start="latest" --------------------------------------------------------------------------------------------------


def test_a_new_group_begins_at_the_end_and_that_is_committed_at_once():
    shop = Shop()
    shop.append(1, 2)
    process = shop.make().run(2_000)
    assert (process.committed(), process.committed(partition=1)) == (2, 0)

    process.pump.shut_down()
    shop.append(3)
    shop.append(4, partition=1)
    shop.make().run(2_000)

    assert sorted(shop.handled) == [3, 4]


def test_while_nobody_tells_what_is_committed_for_another_partition_none_begins_at_its_end():
    shop = Shop(commits={P1: 1})
    shop.append(1, 2)
    shop.append(3, 4, partition=1)
    shop.cluster.faults.uncertain = {P1}
    process = shop.make().run(5_000)
    assert (shop.handled, process.committed()) == ([], None)
    assert len(process.told("start-unknown")) >= 4

    shop.cluster.faults.uncertain = set()
    process.run(2_000)

    # The group isn't new: partition 0 was added later, and nobody has read it.
    assert sorted(shop.handled) == [1, 2, 4]


def test_where_the_group_turns_out_to_be_new_the_partitions_begin_at_their_end():
    shop = Shop()
    shop.append(1)
    shop.append(2, partition=1)
    shop.cluster.faults.uncertain = {P0, P1}
    process = shop.make().run(3_000)
    shop.cluster.faults.uncertain = set()
    process.run(2_000)
    shop.append(3)
    process.run(1_000)
    assert shop.handled == [3]


def test_partitions_whose_end_the_cluster_does_not_tell_are_asked_for_again():
    hidden = {P0, P1}
    shop = Shop(admin=lambda admin: Telling(admin, hidden))
    process = shop.make().run(2_000)
    shop.append(1)
    process.run(2_000)
    assert (shop.handled, process.engine.lanes.keys() & hidden) == ([], set())

    hidden.clear()
    process.run(2_000)
    shop.append(2)
    shop.append(3, partition=1)
    process.run(2_000)

    assert shop.handled == [2, 3]


def test_a_partition_whose_end_the_cluster_does_not_tell_holds_up_no_other_and_skips_nothing():
    shop = Shop(admin=lambda admin: Telling(admin, {P1}))
    process = shop.make().run(500)
    shop.append(1)
    shop.append(2, partition=1)
    process.run(400)
    assert shop.handled == [1]

    process.run(5_000)

    # By now something is committed for the topic, so the partition counts as one that was added.
    assert shop.handled == [1, 2]


def test_other_topics_of_the_group_begin_though_the_end_of_one_is_not_told():
    admins = []

    def silent(admin):
        admins.append(Telling(admin, (), is_silent=True))
        return admins[0]

    shop = Shop(admin=silent)
    process = shop.make()
    shop.cluster.append(TIER, b"7", partition=1, headers=[("redrive-group", b"shop")])
    process.run(8_000)
    assert shop.handled == [7]

    admins[0].is_silent = False
    process.run(2_000)
    shop.append(8)
    process.run(1_000)
    assert shop.handled == [7, 8]


def test_a_partition_that_was_added_later_begins_at_its_start():
    shop = Shop()
    process = shop.make().run(2_000)
    shop.cluster.admin().grow("orders", 3)
    shop.append(1, 2, partition=2)
    process.run(3_000)
    assert shop.handled == [1, 2]


def test_a_partition_that_was_added_while_nothing_ran_begins_at_its_start():
    shop = Shop()
    shop.append(0)
    shop.make().run(2_000).pump.shut_down()
    shop.cluster.admin().grow("orders", 3)
    shop.append(1, 2, partition=2)
    shop.make().run(3_000)
    assert shop.handled == [1, 2]


def test_whether_the_group_is_new_is_asked_once_for_a_topic_however_many_partitions_it_has():
    questions = []
    shop = Shop(partitions=100, source=lambda source: Asked(source, questions))
    process = shop.make().run(3_000)
    assert len(process.engine.lanes) == 200
    assert len(questions) == 2


def test_questions_that_are_asked_again_do_not_hold_up_the_partitions_that_run():
    questions = []
    shop = Shop(start="earliest", source=lambda source: Asked(source, questions))
    shop.cluster.faults.uncertain = {P1}
    shop.append(1)
    process = shop.make().run(10_000)

    assert shop.handled == [1]
    assert 8 <= len(questions) <= 11
    assert all(keys == [P1] and timeout_s <= 0.5 for keys, timeout_s in questions[1:])

    shop.cluster.faults.uncertain = set()
    shop.append(2, partition=1)
    process.run(2_000)
    assert shop.handled == [1, 2]


def test_a_partition_that_was_taken_away_unstarted_is_not_asked_for_any_more():
    questions = []
    shop = Shop(start="earliest", source=lambda source: Asked(source, questions))
    shop.cluster.faults.uncertain = {P1}
    process = shop.make().run(3_000)
    process.pump.on_lost([P1])
    before = len(questions)
    process.run(3_000)
    assert len(questions) == before


# -- topics that grow ------------------------------------------------------------------------------------------------


def test_retries_of_a_source_that_grew_without_its_tiers_go_by_their_key_and_nothing_is_stuck():
    shop = Shop(start="earliest")
    process = shop.make().run(1_000)
    shop.cluster.admin().grow("orders", 3)
    shop.fails = set(range(20))
    for number in range(20):
        append(shop.cluster, number, partition=2, key=b"key-%d" % number)
    process.run(10_000)

    assert sorted(shop.handled) == list(range(20))
    assert process.is_all_committed()
    assert process.told("write-refused") == []
    assert {record.partition() == partition_of(record.key(), 2) for record in shop.cluster.records(TIER)} == {
        True
    }


def test_dead_letters_of_a_source_that_grew_without_its_dead_letter_topic_are_written():
    shop = Shop(start="earliest")
    process = shop.make().run(1_000)
    shop.cluster.admin().grow("orders", 3)
    shop.cluster.append("orders", b"no number", partition=2, key=b"k")
    process.run(3_000)
    assert len(shop.cluster.records("orders.dlq")) == 1
    assert process.committed(partition=2) == 1


def test_once_its_tiers_have_grown_too_retries_keep_their_partition_again():
    shop = Shop(start="earliest")
    process = shop.make().run(1_000)
    for topic in ("orders", TIER):
        shop.cluster.admin().grow(topic, 3)
        process.run(1_000)
    shop.fails = {1}
    append(shop.cluster, 1, partition=2, key=b"key")

    process.run(10_000)

    assert shop.handled == [1]
    assert [record.partition() for record in shop.cluster.records(TIER)] == [2]


def test_what_a_grown_topic_holds_waits_until_the_cluster_tells_its_partitions():
    shop = Shop(start="earliest")
    process = shop.make().run(1_000)
    shop.cluster.admin().grow("orders", 3)
    shop.fails = {1}
    append(shop.cluster, 1, partition=2, key=b"key")
    shop.cluster.is_down = True
    process.run(3_000)
    shop.cluster.is_down = False
    process.run(10_000)
    assert (shop.handled, process.is_all_committed()) == ([1], True)
