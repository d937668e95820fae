"""Unresolved letters are counted in the background: from where the last look ended, and anew when topics change."""

import pytest

from redrive.core.readings import Depth
from redrive.core.record import TopicPartition
from redrive.deadletters.depth import FORGET_MS, MOST_LETTERS, Depths, Reach
from redrive.deadletters.letters import Position
from redrive.deadletters.selection import Selection
from redrive.deadletters.topics import Names
from tests.deadletters.desks import Office

REFRESH_MS = 30_000.0
DLQ, STATE = "orders.dlq", "orders.dlq.state"


class Counting:
    """A log that counts the records that are read."""

    def __init__(self, log):
        self._log = log
        self.read = 0

    def scan(self, key, start, end):
        for record in self._log.scan(key, start, end):
            self.read += 1
            yield record


class Watching:
    """An office whose letters are counted by a service of `payments`; `wanted` is what the service has to tell of."""

    def __init__(self, *, partitions=1, most_letters=MOST_LETTERS, cluster=lambda cluster: cluster):
        self.office = Office(partitions=partitions)
        self.cluster = self.office.cluster
        self.log = Counting(self.cluster.log())
        self.reports = []
        self.wanted = [DLQ]
        reach = Reach(
            cluster=cluster(self.cluster.admin()),
            log=self.log,
            clock=self.cluster.clock,
            report=self.reports.append,
        )
        self.depths = Depths(
            lambda: self.wanted,
            reach,
            names=Names(),
            groups=["payments"],
            refresh_ms=REFRESH_MS,
            most_letters=most_letters,
        )

    def looked(self):
        """What is told after the next look that is due."""
        self.cluster.clock.advance(REFRESH_MS)
        self.depths.look()
        return {dlq: counts(one) for dlq, one in self.depths.depths.items()}

    def told(self):
        return [(report.event, report.fields) for report in self.reports]


def counts(one: Depth):
    return {reason: count for reason, count in one.unresolved.items() if count}


@pytest.fixture
def watching():
    return Watching()


def test_letters_count_until_they_are_replayed_or_discarded(watching):
    watching.office.letters(3)
    assert watching.looked() == {DLQ: {"permanent": 3}}
    watching.office.replay()
    assert watching.looked() == {DLQ: {}}
    watching.office.letter(3)
    assert watching.looked() == {DLQ: {"permanent": 1}}
    watching.office.discard()
    assert watching.looked() == {DLQ: {}}


def test_a_look_reads_only_what_is_new(watching):
    watching.office.letters(50)
    watching.looked()
    assert watching.log.read == 50
    watching.looked()
    assert watching.log.read == 50
    watching.office.letter(50)
    watching.looked()
    assert watching.log.read == 51


def test_it_looks_no_sooner_than_the_refresh_unless_a_topic_came(watching):
    watching.wanted = []
    watching.office.letters(1)
    watching.depths.look()
    assert watching.depths.depths == {}
    watching.wanted = [DLQ]
    watching.depths.look()
    assert counts(watching.depths.depths[DLQ]) == {"permanent": 1}
    watching.office.letter(1)
    watching.cluster.clock.advance(REFRESH_MS - 2)
    watching.depths.look()
    assert counts(watching.depths.depths[DLQ]) == {"permanent": 1}


def test_a_topic_that_goes_to_another_process_is_no_longer_told_here(watching):
    watching.office.letters(1)
    watching.looked()
    watching.wanted = []
    assert watching.looked() == {}


def test_letters_of_other_groups_are_not_told(watching):
    watching.office.letter(0, group="payments")
    watching.office.letter(1, group="another")
    watching.office.letter(2, headers=[])
    assert watching.looked() == {DLQ: {"permanent": 1, "foreign": 1}}


def test_all_partitions_count():
    watching = Watching(partitions=3)
    for partition in range(3):
        watching.office.letter(partition, partition=partition)
    assert watching.looked() == {DLQ: {"permanent": 3}}
    watching.office.replay()
    assert watching.looked() == {DLQ: {}}


def test_what_retention_deleted_does_not_count(watching):
    watching.office.letters(5)
    watching.looked()
    watching.cluster.partition(TopicPartition(DLQ, 0)).delete_before(4)
    assert watching.looked() == {DLQ: {"permanent": 1}}


def test_the_age_and_the_retention_of_the_oldest_are_told(watching):
    watching.cluster.topics[DLQ].configs["retention.ms"] = "86400000"
    watching.office.letters(2)
    put_aside_ms = watching.cluster.records(DLQ)[0].timestamp()[1]
    watching.looked()
    told = watching.depths.depths[DLQ]
    assert (told.oldest_ms, told.retention_ms) == (put_aside_ms, 86_400_000)


def test_unlimited_retention_is_none(watching):
    watching.cluster.topics[DLQ].configs["retention.ms"] = "-1"
    watching.looked()
    assert watching.depths.depths[DLQ].retention_ms is None


def test_a_deleted_topic_vanishes_and_one_made_anew_is_counted_from_its_beginning(watching):
    watching.office.letters(5)
    watching.looked()
    watching.cluster.delete_topic(DLQ)
    assert watching.looked() == {}
    watching.cluster.create_topic(DLQ, 1)
    assert watching.looked() == {DLQ: {}}
    watching.office.letters(6)
    assert watching.looked() == {DLQ: {"permanent": 6}}


def test_a_topic_made_anew_between_two_looks_is_counted_from_its_beginning(watching):
    watching.office.letters(5)
    watching.looked()
    watching.cluster.delete_topic(DLQ)
    watching.cluster.create_topic(DLQ, 1)
    watching.office.letters(7)
    assert watching.looked() == {DLQ: {"permanent": 7}}


def test_ten_thousand_letters_whose_state_topic_was_lost_count_again_and_it_is_said(watching):
    watching.office.letters(10_000)
    watching.office.replay()
    assert watching.looked() == {DLQ: {}}
    watching.cluster.delete_topic(STATE)
    assert watching.looked() == {DLQ: {"permanent": 10_000}}
    assert watching.told() == [("states-lost", {"dlq": DLQ, "state": STATE, "letters": 10_000})]
    assert watching.looked() == {DLQ: {"permanent": 10_000}}
    assert len(watching.told()) == 1


def test_a_state_topic_made_anew_is_read_from_its_beginning(watching):
    watching.office.letters(4)
    watching.office.replay()
    watching.looked()
    watching.cluster.delete_topic(STATE)
    watching.office.replay()
    assert watching.looked() == {DLQ: {}}
    assert [event for event, _ in watching.told()] == ["states-lost"]


def test_letters_without_a_state_topic_from_the_start_are_open_and_it_is_said_once(watching):
    watching.office.letters(2)
    assert watching.looked() == {DLQ: {"permanent": 2}}
    watching.looked()
    assert [event for event, _ in watching.told()] == ["states-lost"]


def test_nothing_is_said_of_a_state_topic_that_appears(watching):
    watching.looked()
    watching.office.letters(2)
    watching.office.replay()
    assert watching.looked() == {DLQ: {}}
    assert watching.told() == []


def test_without_a_broker_the_last_count_is_kept_for_a_while_and_then_none_is_told(watching):
    watching.office.letters(1)
    watching.looked()
    watching.cluster.is_down = True
    assert watching.looked() == {DLQ: {"permanent": 1}}
    watching.cluster.clock.advance(FORGET_MS)
    assert watching.looked() == {}
    assert {event for event, _ in watching.told()} == {"states-lost", "unresolved-unknown"}
    watching.cluster.is_down = False
    assert watching.looked() == {DLQ: {"permanent": 1}}


def test_two_state_topics_are_no_count_but_a_reason(watching):
    watching.office.letters(1)
    watching.cluster.create_topic(STATE, 1)
    watching.cluster.create_topic("orders.dlq-state", 1)
    assert watching.looked() == {}
    [(event, fields)] = watching.told()
    assert event == "unresolved-unknown"
    assert "has 2 state topics" in fields["error"]


def test_more_letters_than_are_watched_are_told_as_that_until_there_is_much_room_again():
    watching = Watching(most_letters=4)
    watching.office.letters(6)
    watching.office.discard(Selection(at=frozenset([Position(DLQ, 0, 5)])))
    assert watching.looked() == {DLQ: {"permanent": 4}}
    watching.looked()
    assert [event for event, _ in watching.told()] == ["unresolved-too-many"]
    watching.cluster.partition(TopicPartition(DLQ, 0)).delete_before(1)
    assert watching.looked() == {DLQ: {"permanent": 3}}
    watching.cluster.partition(TopicPartition(DLQ, 0)).delete_before(3)
    watching.looked()
    assert watching.looked() == {DLQ: {"permanent": 2}}


class Interrupted:
    """A cluster at which something happens between the questions of one look: before the second one about offsets."""

    def __init__(self, cluster, happens):
        self._cluster, self._happens = cluster, happens
        self._asked = 0

    def describe(self, *arguments, **options):
        return self._cluster.describe(*arguments, **options)

    def offsets(self, keys, which):
        self._asked += 1
        if self._asked == 2:
            self._happens()
        return self._cluster.offsets(keys, which)


def test_a_letter_that_comes_and_goes_during_a_look_is_done_with_at_the_next():
    def happens():
        watching.office.letter(1)
        watching.office.replay()

    watching = Watching(cluster=lambda cluster: Interrupted(cluster, happens))
    watching.cluster.create_topic(STATE, 1, configs={"cleanup.policy": "compact"})
    watching.office.letter(0)
    assert watching.looked() == {DLQ: {"permanent": 2}}
    assert watching.looked() == {DLQ: {}}


def test_a_topic_that_cannot_be_counted_does_not_keep_others_from_it(watching):
    watching.office.letters(1)
    watching.cluster.create_topic("payouts.dlq", 1)
    for state in ("payouts.dlq.state", "payouts.dlq-state"):
        watching.cluster.create_topic(state, 1)
    watching.wanted = [DLQ, "payouts.dlq"]
    assert watching.looked() == {DLQ: {"permanent": 1}}


def test_a_cluster_that_tells_no_ids_once_in_a_while_loses_nothing(watching):
    watching.office.letters(3)
    watching.office.replay()
    watching.looked()
    ids = {name: watching.cluster.topics[name].topic_id for name in (DLQ, STATE)}
    for known in ("", None):
        for name, topic_id in ids.items():
            watching.cluster.topics[name].topic_id = topic_id if known is None else known
        assert watching.looked() == {DLQ: {}}
    assert (watching.told(), watching.log.read) == ([], 3 + 6)


def test_a_record_of_the_state_topic_that_means_nothing_is_passed_by(watching):
    watching.office.letters(1)
    watching.cluster.create_topic(STATE, 1, configs={"cleanup.policy": "compact"})
    for key in (b"", b"\xff", b"orders.dlq/0", b"other.dlq/0/0"):
        watching.cluster.append(STATE, b'{"state":"replayed"}', key=key)
    assert watching.looked() == {DLQ: {"permanent": 1}}


def test_a_reader_that_is_closed_tells_nothing(watching):
    watching.office.letters(1)
    watching.looked()
    watching.depths.close()
    watching.depths.start()
    watching.depths._thread.join(10)
    assert watching.depths.depths == {}
