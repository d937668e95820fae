"""Sending letters back: each accounted for, none twice unasked, whoever dies or races when."""

import threading

import pytest

from redrive.core.dialects import read_envelope
from redrive.deadletters.letters import Position
from redrive.deadletters.replay import TOLD, Job
from redrive.deadletters.selection import Selection
from redrive.deadletters.states import Author
from redrive.runtime.ports import Write
from tests.deadletters.desks import TARGET, Killed, Office, WrappedLog, dying

AGAIN = Selection(everything=True, again=True)


@pytest.fixture
def office():
    return Office()


def _counts(report):
    return (report.done, report.failed, report.skipped, report.not_found, report.selected)


def test_letters_go_back_to_the_group_that_failed_them(office):
    office.letters(3)
    report = office.replay()
    assert (_counts(report), report.is_partial) == ((3, 0, 0, 0, 3), False)
    assert office.copies() == ["orders/0/0", "orders/0/1", "orders/0/2"]
    assert set(office.states().values()) == {"replayed"}
    assert len(office.cluster.records("orders.dlq")) == 3  # nothing is ever deleted


def test_key_value_and_foreign_headers_are_kept_byte_for_byte(office):
    foreign = [("trace", b"\xff\x00"), ("n", None), ("trace", b"")]
    office.letter(0, key=b"\x00k", value=b"\xfe\xff", foreign=foreign)
    office.letter(1, key=None, value=None)

    office.replay()

    first, second = office.cluster.records(TARGET)
    assert (first.key(), first.value(), first.headers()[:3]) == (b"\x00k", b"\xfe\xff", foreign)
    assert (second.key(), second.value()) == (None, None)


def test_a_copy_is_stamped_with_its_job_and_due_at_once(office):
    office.letter(0, replays=1)
    report = office.replay()
    said = read_envelope(office.cluster.records(TARGET)[0].headers())[0]
    assert (said.replay_id, said.replays, said.attempt, said.group) == (report.job, 2, 0, "payments")
    assert said.due_ms == int(office.cluster.clock.wall_ms())


def test_a_copy_keeps_the_partition_of_its_source_where_the_counts_agree():
    office = Office(partitions=4)
    office.letter(0, source_partition=2, key=None)
    office.replay()
    assert [record.partition() for record in office.cluster.records(TARGET)] == [2]


def test_elsewhere_a_copy_goes_where_its_key_belongs():
    office = Office(partitions=4)
    office.cluster.create_topic("orders.other", 3)
    office.letter(0, source_partition=2, replay_topic="orders.other", key=b"same")
    office.letter(1, source_partition=1, replay_topic="orders.other", key=b"same")
    office.letter(2, source_partition=9, key=b"same")  # a partition that the source doesn't have

    assert office.replay().done == 3
    assert len({record.partition() for record in office.cluster.records("orders.other")}) == 1


def test_two_runs_with_a_limit_send_distinct_letters(office):
    office.letters(25)
    office.replay(Selection(limit=10))
    office.replay(Selection(limit=10))
    assert office.copies() == [f"orders/0/{number}" for number in range(20)]


def test_a_person_may_send_to_another_topic(office):
    office.letter(headers=[("x", b"1")])
    office.letter(1)
    assert office.replay(to="orders").done == 2
    assert office.copies("orders") == ["orders.dlq/0/0", "orders/0/1"]


def test_discarded_letters_are_not_sent(office):
    office.letters(2)
    report = office.discard()
    assert (report.done, office.copies(), set(office.states().values())) == (2, [], {"discarded"})
    assert office.plan().entries == ()


# -- what goes wrong ---------------------------------------------------------------------------------------------


def test_a_missing_target_fails_its_letters_and_holds_up_no_other(office):
    office.letter(0, replay_topic="orders.retry.gone")
    office.letter(1)

    report = office.replay()

    assert (_counts(report), office.copies()) == ((1, 1, 0, 0, 2), ["orders/0/1"])
    assert office.states() == {"orders.dlq/0/1": "replayed"}
    assert report.troubles[0].letter == "orders.dlq/0/0"
    assert "doesn't exist" in report.troubles[0].why


def test_a_refused_copy_gives_its_letter_back(office):
    office.letters(2)
    office.cluster.faults.refuse_writes(TARGET, 1, "larger than the topic takes", too_large=True)

    report = office.replay()

    assert _counts(report) == (1, 1, 0, 0, 2)
    assert office.states() == {"orders.dlq/0/1": "replayed"}
    assert office.replay().done == 1


def test_a_copy_that_may_have_been_sent_shows_as_unknown_and_waits_for_a_person(office):
    office.letters(2)
    office.cluster.faults.lose_acks(TARGET, 1)

    report = office.replay()

    assert _counts(report) == (1, 1, 0, 0, 2)
    assert "may have been sent" in report.troubles[0].why
    assert office.states()["orders.dlq/0/0"] == "unknown"
    assert office.plan().left_out == {"unknown whether it was sent": 1, "replayed already": 1}
    assert office.replay(AGAIN).done == 1


def test_a_letter_that_retention_takes_meanwhile_is_not_found(office):
    office.letters(3)
    job = office.job()
    office.cluster.topics["orders.dlq"].partitions[0].delete_before(2)
    assert _counts(job.replay()) == (1, 0, 0, 2, 3)


def test_a_letter_that_compaction_takes_meanwhile_is_not_found(office):
    office.letters(4)
    job = office.job()
    office.cluster.topics["orders.dlq"].partitions[0].punch([1, 3])
    report = job.replay()
    assert (_counts(report), office.copies()) == ((2, 0, 0, 2, 4), ["orders/0/0", "orders/0/2"])


def test_letters_of_a_topic_made_anew_are_not_taken_for_the_planned_ones(office):
    office.letters(2)
    job = office.job()
    office.cluster.delete_topic("orders.dlq")
    office.cluster.create_topic("orders.dlq")
    office.letter(7)
    assert (_counts(job.replay()), office.copies()) == ((0, 0, 0, 2, 2), [])


def test_letters_of_a_topic_made_anew_are_open_although_old_ones_were_replayed(office):
    office.letters(2)
    office.replay()
    office.cluster.delete_topic("orders.dlq")
    office.cluster.create_topic("orders.dlq")
    office.letter(7)
    assert office.replay().done == 1
    assert office.copies()[-1] == "orders/0/7"


def test_named_letters_that_are_nowhere_are_accounted_for(office):
    [at] = office.letters(1)
    report = office.replay(Selection(at=frozenset([at, Position("orders.dlq", 0, 99)])))
    assert _counts(report) == (1, 0, 0, 1, 2)
    assert report.is_partial


def test_a_broker_that_goes_away_ends_the_run_with_all_accounted_for(office):
    office.letters(3)

    def broker_goes(number: int, write: Write) -> None:
        if number == 3:
            office.cluster.is_down = True

    report = office.replay(desk=office.desk_with(lambda log: WrappedLog(log, broker_goes)))

    assert _counts(report) == (0, 3, 0, 0, 3)
    office.cluster.is_down = False
    assert set(office.states().values()) == {"unknown"}


def test_states_that_cannot_be_written_are_told(office):
    office.letters(2)

    def state_topic_refuses(number: int, write: Write) -> None:
        if number == 4:
            office.cluster.faults.refuse_writes("orders.dlq.state", 2)

    report = office.replay(desk=office.desk_with(lambda log: WrappedLog(log, state_topic_refuses)))

    assert (report.done, report.unmarked, report.is_partial) == (2, 2, True)
    assert set(office.states().values()) == {"unknown"}


def test_who_stops_it_gets_the_rest_counted_as_skipped(office):
    office.letters(1200)
    books = office.books()
    plan = office.plan()
    stop = threading.Event()
    job = Job(office.desk, plan, books, Author("ann", "job"), stop)

    report = job.replay(tell=lambda accounted, done: stop.set())

    assert (_counts(report), report.stopped) == ((500, 0, 700, 0, 1200), "interrupted")
    assert len(office.copies()) == 500
    assert (len(report.troubles), report.omitted) == (700, 0)
    assert office.replay().done == 700


def test_a_report_says_how_many_letters_it_leaves_out(office):
    for number in range(TOLD + 50):
        office.letter(number, replay_topic="nowhere")
    report = office.replay()
    assert (report.failed, len(report.troubles), report.omitted) == (TOLD + 50, TOLD, 50)


def test_letters_of_several_topics_and_partitions_are_all_sent():
    office = Office(partitions=3)
    for number in range(30):
        office.letter(number, partition=number % 3)
    office.cluster.create_topic("pay.dlq", 2)
    for record in office.cluster.records("orders.dlq")[:5]:
        office.cluster.append("pay.dlq", record.value(), headers=record.headers(), partition=1)
    assert office.replay().done == 35


def test_a_rate_is_kept(office):
    office.letters(50)
    job = office.job()
    began_ms = office.cluster.clock.mono_ms()
    job.replay(per_s=10)
    # The first goes at once, the last after 49 tenths of a second.
    assert office.cluster.clock.mono_ms() - began_ms == pytest.approx(4900, rel=0.05)


def test_a_high_rate_goes_in_slices(office):
    office.letters(1000)
    job = office.job()
    began_ms = office.cluster.clock.mono_ms()
    job.replay(per_s=1000)
    assert office.cluster.clock.mono_ms() - began_ms == pytest.approx(900, rel=0.05)


# -- killed at each step, and raced at each step ----------------------------------------------------------------

COUNT = 3
WRITES = 3 * COUNT  # a claim, a copy, an end for each letter


@pytest.mark.parametrize("after", range(WRITES))
def test_killed_at_any_step_no_letter_is_sent_twice_unasked_and_none_is_hidden(office, after):
    office.letters(COUNT)

    with pytest.raises(Killed):
        office.replay(desk=office.desk_with(dying(after)))
    unknown = [at for at, state in office.states().items() if state == "unknown"]
    report = office.replay()

    assert sorted(set(office.copies())) == sorted(office.copies())
    assert report.done + len(unknown) + min(COUNT, max(0, after - 2 * COUNT)) == COUNT
    office.replay(AGAIN)
    assert set(office.copies()) == {f"orders/0/{number}" for number in range(COUNT)}
    assert set(office.states().values()) == {"replayed"}


@pytest.mark.parametrize("after", range(2 * COUNT))
def test_killed_at_any_step_a_discard_leaves_open_unknown_or_discarded(office, after):
    office.letters(COUNT)
    with pytest.raises(Killed):
        office.job(kind="discard", desk=office.desk_with(dying(after))).discard()
    assert office.replay().done == COUNT - len(office.states()) + len(office.copies())
    assert set(office.states().values()) <= {"replayed", "unknown", "discarded"}


@pytest.mark.parametrize("at", range(WRITES))
def test_another_operator_at_any_step_each_letter_is_sent_once(office, at):
    office.letters(COUNT)
    others = []

    def bob_replays_all(number: int, write: Write) -> None:
        if number == at:
            others.append(office.replay())

    report = office.replay(desk=office.desk_with(lambda log: WrappedLog(log, bob_replays_all)))

    assert sorted(office.copies()) == [f"orders/0/{number}" for number in range(COUNT)]
    assert report.done + others[0].done == COUNT
    assert report.done + report.failed + report.skipped == COUNT
    assert set(office.states().values()) == {"replayed"}


@pytest.mark.parametrize("at", range(WRITES))
def test_an_operator_who_discards_at_any_step_discards_none_that_is_being_sent(office, at):
    office.letters(COUNT)
    others = []

    def bob_discards_all(number: int, write: Write) -> None:
        if number == at:
            others.append(office.discard())

    report = office.replay(desk=office.desk_with(lambda log: WrappedLog(log, bob_discards_all)))

    states = list(office.states().values())
    assert (states.count("replayed"), states.count("discarded")) == (report.done, others[0].done)
    assert report.done + others[0].done == COUNT


@pytest.mark.parametrize("at", range(WRITES))
def test_two_who_ask_again_for_what_a_crash_left_do_not_both_send_it(office, at):
    office.letters(COUNT)
    with pytest.raises(Killed):
        office.replay(desk=office.desk_with(dying(COUNT)))

    def bob_asks_too(number: int, write: Write) -> None:
        if number == at:
            bob.replay()

    bob = office.job(AGAIN)
    office.replay(AGAIN, desk=office.desk_with(lambda log: WrappedLog(log, bob_asks_too)))

    assert sorted(office.copies()) == [f"orders/0/{number}" for number in range(COUNT)]


def test_ten_thousand_letters_are_each_sent_once(office):
    office.letters(10_000)
    report = office.replay()
    assert _counts(report) == (10_000, 0, 0, 0, 10_000)
    assert len(set(office.copies())) == 10_000
