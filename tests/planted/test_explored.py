"""Faults that a few worlds suffice to find; `scripts/explore --planted` hunts all of them."""

import pytest

from tests.planted.explored import EXPLORED
from tests.planted.exploring import found
from tests.planted.planting import SOURCE

#: Some times as many as it takes.
WORLDS = 100
QUICK = (
    "a cumulative commit carries an unfinished record",
    "lets later records of a key run while one that blocks waits",
    "runs parked copies before their due",
    "tries records although the health function says no",
)


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_fault_is_found_within_a_few_worlds(name):
    assert found(EXPLORED[name], WORLDS, processes=1).worlds is not None


@pytest.mark.parametrize("name", EXPLORED)
def test_the_text_that_a_plant_replaces_is_there(name):
    change = EXPLORED[name]
    assert change.old in (SOURCE / change.file).read_text()
