"""What is told of dead letters as plain values."""

import msgspec
import pytest

from redrive.deadletters.accounts import letter_values, state_notes
from redrive.deadletters.letters import read_letter
from tests.deadletters.desks import Office


def test_letters_whose_states_were_lost_are_told_to_be_all_unresolved():
    office = Office()
    office.letters(2)
    office.replay()
    assert list(state_notes(office.books())) == []
    del office.cluster.topics["orders.dlq.state"]
    [note] = state_notes(office.books())
    assert note.startswith("orders.dlq.state doesn't exist, so nothing is known of what was replayed")


def test_an_empty_topic_without_states_has_lost_nothing():
    assert list(state_notes(Office().books())) == []


def test_topics_without_states_are_told_in_one_line_however_many_there_are():
    office = Office()
    office.letters(1)
    [book] = office.books()
    [note] = state_notes([book] * 5)
    assert note.startswith(
        "orders.dlq.state, orders.dlq.state, orders.dlq.state and 2 more don't exist, so nothing is"
    )
    assert "all letters of orders.dlq, orders.dlq, orders.dlq and 2 more count as unresolved" in note


def test_states_that_cannot_be_read_are_told():
    office = Office()
    office.letters(1)
    office.replay()
    office.cluster.append("orders.dlq.state", b"?", key=b"orders.dlq/0/0", headers=[], partition=0)
    [note] = state_notes(office.books())
    assert note.startswith("orders.dlq.state: 1 records can't be read as states")


@pytest.mark.parametrize("foreign", [[("secret-name", b"secret")], [("a", b"\xff\xfe"), ("a", None)]])
def test_a_listed_letter_holds_nothing_of_its_record(foreign):
    office = Office()
    office.letter(
        0, value=b"secret", key=b"secret", foreign=foreign, failure_message="secret", failure_stack="secret"
    )
    [record] = office.cluster.records("orders.dlq")
    assert b"secret" not in msgspec.json.encode(letter_values(read_letter(record), None))
