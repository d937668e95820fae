"""Pages of letters: whole, in order, and no further than they must."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.deadletters.letters import Position
from redrive.deadletters.pages import UNRESOLVED, read_page
from redrive.deadletters.selection import Selection
from tests.deadletters.desks import Office


def _at(page):
    return [letter.position for letter, _ in page.letters]


@given(st.lists(st.integers(0, 2), max_size=20), st.integers(1, 7))
def test_pages_of_any_size_together_are_all_letters_once(partitions, limit):
    office = Office(partitions=3)
    written = [office.letter(number, partition=partition) for number, partition in enumerate(partitions)]
    [book] = office.books()
    seen, start = [], None
    while True:
        page = read_page(Selection(), book, office.desk.log, limit=limit, start=start)
        assert len(page.letters) <= limit
        seen += _at(page)
        start = page.next
        if start is None:
            break
    assert seen == sorted(written)


def test_a_page_may_begin_where_there_is_no_letter():
    office = Office(partitions=2)
    office.letters(2)
    [book] = office.books()
    assert _at(
        read_page(Selection(), book, office.desk.log, limit=5, start=Position("orders.dlq", 0, 1))
    ) == [Position("orders.dlq", 0, 1)]
    for partition, offset in ((0, 77), (1, 0), (9, 0)):
        start = Position("orders.dlq", partition, offset)
        assert read_page(Selection(), book, office.desk.log, limit=5, start=start).letters == ()


def test_a_letter_that_arrives_later_is_not_in_it():
    office = Office()
    office.letters(2)
    [book] = office.books()
    office.letter(2)
    assert len(read_page(Selection(), book, office.desk.log, limit=5).letters) == 2


@pytest.mark.parametrize(
    ("states", "offsets"), [({"open"}, [2]), ({"replayed"}, [0]), (UNRESOLVED, [2]), ({"discarded"}, [1])]
)
def test_states_are_told_apart(states, offsets):
    office = Office()
    office.letters(3)
    office.replay(Selection(limit=1))
    office.discard(Selection(limit=1))
    [book] = office.books()
    page = read_page(Selection(), book, office.desk.log, limit=5, states=states)
    assert [position.offset for position in _at(page)] == offsets
