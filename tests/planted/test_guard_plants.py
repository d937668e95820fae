"""So is each fault of the crash guard."""

import pytest

from tests.planted.guard_plants import GUARD_PLANTS
from tests.planted.planting import must_be_found


@pytest.mark.timeout(400)  # to shrink what it found may take hypothesis minutes
@pytest.mark.parametrize("name", GUARD_PLANTS)
def test_a_planted_fault_turns_its_tests_red(name, tmp_path):
    must_be_found(GUARD_PLANTS[name], tmp_path)
