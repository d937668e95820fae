"""What no header of a letter may bring about."""

import pytest

from redrive.deadletters.counter import Counter
from redrive.deadletters.topics import Names
from tests.deadletters.desks import Office


@pytest.mark.parametrize("target", ["orders.dlq.state", "mails.dlq", "mails-dlt"])
def test_a_letter_that_names_a_dead_letter_or_state_topic_as_its_target_is_left_out(target):
    office = Office()
    office.letter(0, replay_topic=target)
    office.letter(1)
    counter = Counter(office.desk, Names(), frozenset())
    plan = counter.without_forgeries(office.plan())
    assert [entry.position.offset for entry in plan.entries] == [1]
    assert plan.left_out["would go to a dead-letter or state topic"] == 1


def test_a_plan_without_such_letters_stays_as_it_is():
    office = Office()
    office.letters(2)
    plan = office.plan()
    assert Counter(office.desk, Names(), frozenset()).without_forgeries(plan) is plan


def test_a_discard_goes_nowhere_so_it_takes_them_too():
    office = Office()
    office.letter(0, replay_topic="orders.dlq.state")
    plan = office.plan(kind="discard")
    assert len(Counter(office.desk, Names(), frozenset()).without_forgeries(plan).entries) == 1
