"""Each planted fault is found: its tests turn red, and say what it did."""

import pytest

from tests.planted.guard_plants import GUARD_PLANTS
from tests.planted.planting import copy_to, must_be_found, run
from tests.planted.plants import PLANTS
from tests.planted.promises import PROMISES


@pytest.mark.timeout(400)  # to shrink what it found may take hypothesis minutes
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_turns_its_tests_red(name, tmp_path):
    must_be_found(PLANTS[name], tmp_path)


def test_without_a_plant_tests_are_green_on_a_copy(tmp_path):
    """One of each file, and no long walk: what matters is that nothing but the fault turns them red."""
    plants = (PLANTS | PROMISES | GUARD_PLANTS).values()
    tests = {test.partition("::")[0]: test for plant in plants for test in plant.tests if "::test_" in test}

    code, said = run(copy_to(tmp_path), tuple(sorted(tests.values())))

    assert code == 0, said
