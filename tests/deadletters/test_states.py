"""The protocol by which letters are claimed: what records of a state topic mean, in any order and any state of decay."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.record import TopicPartition
from redrive.deadletters.letters import Position
from redrive.deadletters.states import (
    UNREADABLE,
    Author,
    Claim,
    Mark,
    Release,
    State,
    follow,
    read_change,
)
from redrive.errors import TopologyError
from redrive.runtime.ports import Write
from redrive.sim.clock import START_WALL_MS
from tests.deadletters.desks import ALL, Office, WrappedLog

ANN, BOB = Author("ann", "a"), Author("bob", "b")


def _mark(state, job, **more):
    return Mark(state, job=job, **more)


SENDING_A, SENDING_B = _mark(State.SENDING, "a"), _mark(State.SENDING, "b")
REPLAYED_A = _mark(State.REPLAYED, "a")
B_OVER_A = _mark(State.SENDING, "b", over="a")
C_OVER_A = _mark(State.SENDING, "c", over="a")


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ([], None),
        ([SENDING_A], SENDING_A),
        ([SENDING_A, SENDING_B], SENDING_A),
        ([SENDING_A, REPLAYED_A], REPLAYED_A),
        ([SENDING_A, REPLAYED_A, SENDING_B], REPLAYED_A),
        ([SENDING_A, Release("a")], None),
        ([SENDING_A, Release("a"), SENDING_B], SENDING_B),
        ([SENDING_A, SENDING_B, Release("b")], SENDING_A),  # who lost has nothing to give back
        ([SENDING_A, Release("")], None),  # a tombstone by hand
        ([SENDING_A, B_OVER_A], B_OVER_A),
        ([SENDING_A, B_OVER_A, C_OVER_A], B_OVER_A),  # two take over at once: the first has it
        ([SENDING_A, B_OVER_A, Release("a")], B_OVER_A),  # the old owner wakes up
        ([SENDING_A, B_OVER_A, REPLAYED_A], REPLAYED_A),  # and did send it
        ([SENDING_A, REPLAYED_A, B_OVER_A], B_OVER_A),  # asked for by name
        ([B_OVER_A], B_OVER_A),  # compacted: what it was taken over from is gone
        ([_mark(State.DISCARDED, "a"), SENDING_B], _mark(State.DISCARDED, "a")),
        ([UNREADABLE, SENDING_B], UNREADABLE),
        ([UNREADABLE, _mark(State.SENDING, "b", over="?")], _mark(State.SENDING, "b", over="?")),
    ],
)
def test_a_claim_counts_when_it_is_the_first_open_one(changes, state):
    mark = None
    for change in changes:
        mark = follow(mark, change)
    assert mark == state


def test_the_state_of_a_deleted_topic_is_not_that_of_the_new_ones_letter():
    old = _mark(State.REPLAYED, "a", letter_ms=1)
    new = _mark(State.SENDING, "b", letter_ms=2)
    assert follow(old, new) == new


@given(
    st.none() | st.binary(max_size=40),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5))),
)
def test_no_record_of_a_state_topic_is_too_strange(value, headers):
    change = read_change(value, headers)
    assert isinstance(change, Release) if value is None else isinstance(change, Mark)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"x",
        b"{}",
        b"null",
        b"[]",
        b'{"state":"parked"}',
        b'{"state":1}',
        b"\xff",
        b"[" * 5000,
        b'"sending"',
    ],
)
def test_what_cannot_be_read_surely_does_not_mean_that_nothing_happened(value):
    assert read_change(value, None) is UNREADABLE


@given(
    st.builds(
        Mark,
        st.sampled_from(State),
        st.text(),
        st.integers(0, 2**60),
        st.text(),
        st.none() | st.integers(0, 9),
    )
)
def test_a_mark_is_read_as_it_was_written(mark):
    assert read_change(msgspec.json.encode(mark), None) == mark


def _ms(position):
    """When the office's letters were put aside: a millisecond after each other."""
    return int(START_WALL_MS) + 1 + position.offset


def _claims(positions, over=None):
    return [Claim(at, _ms(at), over) for at in positions]


def _book(office, log=None):
    [book] = office.books(desk=office.desk_with(log) if log else None)
    return book


@pytest.fixture
def office():
    office = Office()
    office.letters(3)
    office.cluster.create_topic("orders.dlq.state", configs={"cleanup.policy": "compact"})
    return office


POSITIONS = [Position("orders.dlq", 0, offset) for offset in range(3)]


def test_of_two_operators_who_claim_at_once_each_letter_goes_to_one(office):
    ann, bob = _book(office), _book(office)

    def bob_comes_first(number: int, write: Write) -> None:
        if number == 0:
            bob.claim(_claims(POSITIONS[:2]), BOB)

    ann = _book(office, lambda log: WrappedLog(log, bob_comes_first))
    claimed = ann.claim(_claims(POSITIONS), ANN)

    assert claimed.won == {POSITIONS[2]}
    assert set(claimed.lost) == set(POSITIONS[:2])
    assert "bob" in claimed.lost[POSITIONS[0]]


def test_a_letter_that_is_taken_is_not_claimed_at_all(office):
    _book(office).claim(_claims(POSITIONS), BOB)
    before = len(office.cluster.records("orders.dlq.state"))

    claimed = _book(office).claim(_claims(POSITIONS), ANN)

    assert (claimed.won, len(claimed.lost)) == (frozenset(), 3)
    assert len(office.cluster.records("orders.dlq.state")) == before


def test_where_a_claim_was_compacted_away_before_it_was_read_back_nothing_is_ours(office):
    """Bob claims first and is compacted away; Ann's claim looks like the first one."""
    log = office.cluster.topics["orders.dlq.state"].partitions[0]

    def bob_claims_and_is_compacted(number: int, write: Write) -> None:
        if number == 0:
            _book(office).claim(_claims(POSITIONS[:1]), BOB)
            log.punch([0])

    ann = _book(office, lambda it: WrappedLog(it, bob_claims_and_is_compacted))
    claimed = ann.claim(_claims(POSITIONS), ANN)

    assert claimed.won == frozenset()
    assert set(claimed.failed) == set(POSITIONS)


def test_who_loses_against_an_end_writes_the_end_again_so_that_compaction_keeps_it(office):
    def bob_sends_meanwhile(number: int, write: Write) -> None:
        if number == 0:
            bob = _book(office)
            bob.claim(_claims(POSITIONS[:1]), BOB)
            bob.settle(_claims(POSITIONS[:1]), State.REPLAYED, BOB)

    ann = _book(office, lambda log: WrappedLog(log, bob_sends_meanwhile))
    ann.claim(_claims(POSITIONS[:1]), ANN)

    _compact(office)
    mark = _book(office).mark(POSITIONS[0], _ms(POSITIONS[0]))
    assert (mark.state, mark.who) == (State.REPLAYED, "bob")


def _compact(office):
    log = office.cluster.topics["orders.dlq.state"].partitions[0]
    last = {record.key(): record.offset() for record in log}
    log.punch([record.offset() for record in log if last[record.key()] != record.offset()])


def test_two_who_take_over_at_once_do_not_both_get_it(office):
    _book(office).claim(_claims(POSITIONS), Author("crashed", "old"))
    over = _claims(POSITIONS, "old")

    def bob_takes_over_first(number: int, write: Write) -> None:
        if number == 0:
            assert len(_book(office).claim(over, BOB).won) == 3

    ann = _book(office, lambda log: WrappedLog(log, bob_takes_over_first))
    assert ann.claim(over, ANN).won == frozenset()


def test_a_release_leaves_alone_what_somebody_took_over(office):
    ann = _book(office)
    ann.claim(_claims(POSITIONS), ANN)
    _book(office).claim(_claims(POSITIONS[:1], "a"), BOB)

    ann.release(_claims(POSITIONS), ANN)

    assert office.states() == {str(POSITIONS[0]): "unknown"}


def test_a_claim_that_was_refused_is_told_and_holds_nothing(office):
    office.cluster.faults.refuse_writes("orders.dlq.state", 1)

    claimed = _book(office).claim(_claims(POSITIONS), ANN)

    assert claimed.won == set(POSITIONS[1:])
    assert "not authorised" in claimed.failed[POSITIONS[0]]


def test_a_claim_whose_acknowledgement_was_lost_is_found_when_it_is_read_back(office):
    office.cluster.faults.lose_acks("orders.dlq.state", 1)
    assert _book(office).claim(_claims(POSITIONS), ANN).won == set(POSITIONS)


def test_garbage_in_a_state_topic_is_counted_and_hides_no_letter(office):
    for key in (None, b"", b"x", b"orders.dlq/0", b"other.dlq/0/1", b"\xff/0/1", b"orders.dlq/0/-1"):
        office.cluster.append("orders.dlq.state", b'{"state":"replayed"}', key=key, partition=0)
    office.cluster.append("orders.dlq.state", b"garbage", key=b"orders.dlq/0/1", partition=0)

    book = _book(office)

    assert book.unreadable == 8
    assert office.states() == {"orders.dlq/0/1": "unknown"}


def test_a_missing_state_topic_is_made_as_durable_as_its_dead_letter_topic():
    office = Office()
    office.cluster.create_topic("pay.dlq", 3, replication=3)
    [_, book] = office.books()

    book.require()

    made = office.cluster.topics["pay.dlq.state"]
    assert (len(made.partitions), made.replication) == (1, 3)
    assert (made.configs["cleanup.policy"], made.configs["min.insync.replicas"]) == ("compact", "2")


def test_a_state_topic_that_cannot_be_made_is_an_error_that_says_how():
    office = Office()
    office.letters(1)
    [book] = office.books()
    office.cluster.create_topic("orders_dlq.state")  # Kafka refuses a name that differs by a dot alone

    with pytest.raises(TopologyError, match="redrive topics apply"):
        book.require()


def test_a_state_topic_that_forgets_is_refused():
    office = Office()
    office.letters(1)
    office.cluster.create_topic("orders.dlq.state")

    with pytest.raises(TopologyError, match=r"cleanup\.policy=compact"):
        office.replay(ALL)
    assert office.copies() == []


def test_the_history_of_a_letter_is_told_oldest_first(office):
    book = _book(office)
    book.claim(_claims(POSITIONS[:1]), ANN)
    book.release(_claims(POSITIONS[:1]), ANN)
    book.claim(_claims(POSITIONS[:2]), BOB)
    book.settle(_claims(POSITIONS[:1]), State.REPLAYED, BOB)

    history = book.history(POSITIONS[0])

    assert [change.job for change in history] == ["a", "a", "b", "b"]
    assert [getattr(change, "state", None) for change in history] == ["sending", None, "sending", "replayed"]


def test_states_need_no_state_topic_to_be_asked_for():
    office = Office()
    [at] = office.letters(1)
    [book] = office.books()
    assert (book.mark(at, _ms(at)), book.history(at)) == (None, [])
    assert office.cluster.partition(TopicPartition("orders.dlq.state", 0)) is None
