"""Counting and listing letters, by what they say and what became of them."""

import pytest

from redrive.deadletters.selection import Selection
from redrive.deadletters.summary import count_letters, list_letters
from redrive.sim.clock import START_WALL_MS
from tests.deadletters.desks import Killed, Office, dying

EVERY = Selection()


def _rows(office, selection=EVERY, **more):
    rows = count_letters(selection, office.books(), office.desk.log, **more)
    return [(row.reason, row.failure_type, row.group, row.unresolved, row.resolved) for row in rows]


def test_letters_are_counted_by_topic_reason_type_and_group():
    office = Office()
    office.letter(0, reason="exhausted", failure_type="TimeoutError")
    office.letter(1)
    office.letter(2)
    office.letter(3, group="mails")
    assert _rows(office) == [
        ("permanent", "KeyError", "payments", 2, 0),
        ("permanent", "KeyError", "mails", 1, 0),
        ("exhausted", "TimeoutError", "payments", 1, 0),
    ]


def test_a_row_says_when_its_first_and_last_letter_were_put_aside():
    office = Office()
    office.letters(3)
    [row] = count_letters(EVERY, office.books(), office.desk.log)
    assert (row.first_ms, row.last_ms) == (int(START_WALL_MS) + 1, int(START_WALL_MS) + 3)


def test_what_is_done_with_counts_as_resolved_and_what_nobody_knows_does_not():
    office = Office()
    office.letters(4)
    office.replay(Selection(limit=1))
    office.discard(Selection(limit=1))
    with pytest.raises(Killed):
        office.replay(Selection(limit=1), desk=office.desk_with(dying(1)))

    [row] = count_letters(EVERY, office.books(), office.desk.log)

    assert (row.letters, row.unresolved, row.unknown, row.resolved) == (4, 2, 1, 2)
    assert _rows(office, unresolved=True) == [("permanent", "KeyError", "payments", 2, 0)]


def test_filters_mean_what_they_mean_for_a_replay():
    office = Office()
    office.letter(0, reason="exhausted")
    office.letter(1)
    assert _rows(office, Selection(reasons=frozenset(["exhausted"]))) == [
        ("exhausted", "KeyError", "payments", 1, 0)
    ]


def test_foreign_letters_and_garbage_are_counted_too():
    office = Office()
    office.letter(headers=[])
    office.letter(headers=[("redrive-reason", b"\xff"), ("redrive-group", None)])
    office.letter(headers=[("redrive-reason", b""), ("", None)])
    assert _rows(office) == [("", "", "", 3, 0)]


def test_a_list_names_each_letter_with_its_state():
    office = Office()
    office.letters(3)
    office.replay(Selection(limit=1))
    listed = list_letters(EVERY, office.books(), office.desk.log)
    assert [(str(one.position), one.mark.shown if one.mark else "open") for one in listed] == [
        ("orders.dlq/0/0", "replayed"),
        ("orders.dlq/0/1", "open"),
        ("orders.dlq/0/2", "open"),
    ]


def test_empty_topics_count_nothing():
    assert _rows(Office()) == []
