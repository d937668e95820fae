"""What is asked for waiting records is done once by whoever works on them, and what became of each one is told."""

import pytest

from redrive.core.notices import is_of_retries
from redrive.deadletters.states import StateBook
from redrive.deadletters.topics import Names, find_dlqs
from redrive.errors import TopologyError
from redrive.retries.selection import Selection
from tests.retries.waiting_room import STATE, TIER, Room, Shop

KEY_ERRORS = Selection(types=frozenset(["KeyError"]))


def test_discarded_records_never_run_and_the_others_do():
    room = Room()
    shop = Shop(room)
    room.wait(2)
    room.wait(3, failure_type="KeyError")
    shop.run(1_000)

    job = room.job(KEY_ERRORS)
    shop.run(4_000)

    assert room.counts(job.watch(0)) == (3, 0, 0, 0, 0)
    shop.run(40_000)
    assert [position[2] for position, _ in shop.ran] == [0, 1]
    assert room.rows()[0].waiting == 0


def test_hurried_records_run_before_their_due_and_fail_on_as_they_would_have():
    room = Room()
    shop = Shop(room)
    shop.fails = True
    room.wait(1)
    room.wait(1, failure_type="KeyError")
    shop.run(1_000)

    job = room.job(KEY_ERRORS, "hurry")
    shop.run(4_000)

    assert room.counts(job.watch(0)) == (0, 1, 0, 0, 0)
    assert [(position[2], attempt) for position, attempt in shop.ran] == [(1, 2)]
    assert len(room.cluster.records("orders.dlq")) == 1


def test_records_that_run_while_it_is_asked_for_are_counted_as_run():
    room = Room()
    shop = Shop(room)
    room.wait(2, in_ms=10_000)
    shop.run(1_000)
    job = room.job()
    shop.process.run(12_000)  # nobody looks for notices
    assert room.counts(job.watch(0)) == (0, 2, 0, 0, 0)


def test_without_a_worker_it_waits_and_the_next_one_does_it_before_anything_else():
    room = Room()
    room.wait(3, in_ms=-1_000)  # long due: a worker would run them at once
    job = room.job()
    assert room.counts(job.watch(0)) == (0, 0, 3, 0, 0)

    shop = Shop(room)
    shop.run(3_000)
    assert (shop.ran, room.counts(job.watch(0))) == ([], (3, 0, 0, 0, 0))


def test_a_job_that_is_watched_ends_when_all_is_done():
    room = Room()
    shop = Shop(room)
    room.wait(2)
    shop.run(1_000)
    job = room.job()
    told = []

    def tell(done):
        told.append(done)
        shop.run(2_000)

    outcome = job.watch(60_000, tell)
    assert room.counts(outcome) == (2, 0, 0, 0, 0)
    assert len(told) < 5


def test_another_groups_notices_are_not_heeded():
    room = Room()
    shop = Shop(room)
    room.wait(1)
    room.job()
    [record] = room.cluster.records(STATE)
    others = record.value().replace(b'"shop"', b'"billing"')
    room.cluster.append(STATE, others, key=f"notice:{TIER}/0/another/0".encode())
    shop.reader.look()
    assert [one.notice.group for one in shop.reader.take()] == ["shop"]


def test_a_tier_that_was_made_anew_is_not_touched():
    room = Room()
    room.wait(2)
    room.job()
    room.cluster.topics.pop(TIER)
    room.cluster.create_topic(TIER)
    room.wait(2, in_ms=0)
    shop = Shop(room)
    shop.run(3_000)
    assert len(shop.ran) == 2


def test_a_notice_about_what_is_committed_is_not_kept():
    room = Room()
    shop = Shop(room)
    room.wait(2, in_ms=5_000)
    shop.run(1_000)
    room.job(action="hurry")
    shop.run(10_000)
    again = Shop(room)
    assert (len(shop.ran), list(again.reader.take())) == (2, [])


def test_the_state_topic_is_made_compacted_beside_the_dead_letter_topic():
    room = Room()
    room.wait(1)
    room.job()
    assert room.cluster.topics[STATE].configs["cleanup.policy"] == "compact"


def test_without_the_dead_letter_topic_nothing_is_asked_of_anybody():
    room = Room()
    room.cluster.topics.pop("orders.dlq")
    room.wait(1)
    with pytest.raises(TopologyError, match="--app"):
        room.job()
    assert STATE not in room.cluster.topics


def test_states_of_dead_letters_are_not_disturbed_by_notices():
    room = Room()
    shop = Shop(room)
    room.wait(2)
    shop.run(1_000)
    room.job()
    shop.run(4_000)
    assert all(is_of_retries(record.key()) for record in room.cluster.records(STATE))
    assert len(room.cluster.records(STATE)) == 3

    [dlq] = find_dlqs(room.desk.cluster, Names())
    book = StateBook(*room.desk[:3], dlq)
    book.read()
    assert book.unreadable == 0


def test_a_broker_that_goes_away_is_told_and_looked_at_again():
    room = Room()
    shop = Shop(room)
    room.wait(1)
    room.job()
    room.cluster.is_down = True
    shop.reader.look()
    assert [report.event for report in shop.reports] == ["notices-unread"]

    room.cluster.is_down = False
    shop.reader.look()
    assert len(shop.reader.take()) == 1


def test_a_state_topic_that_does_not_exist_has_no_notices():
    room = Room()
    shop = Shop(room)
    room.cluster.topics.pop(STATE, None)
    shop.reader.look()
    assert (shop.reports, list(shop.reader.take())) == ([], [])


def test_a_notice_whose_write_is_refused_counts_as_failed():
    room = Room()
    room.wait(2)
    room.cluster.create_topic(STATE, configs={"cleanup.policy": "compact"})
    room.cluster.faults.refuse_writes(STATE, 1)
    outcome = room.job().watch(0)
    assert (room.counts(outcome), outcome.why.startswith(STATE)) == ((0, 0, 0, 2, 0), True)
