"""So is each fault against a promise."""

import pytest

from tests.planted.planting import must_be_found
from tests.planted.promises import PROMISES


@pytest.mark.timeout(400)  # to shrink what it found may take hypothesis minutes
@pytest.mark.parametrize("name", PROMISES)
def test_a_planted_fault_turns_its_tests_red(name, tmp_path):
    must_be_found(PROMISES[name], tmp_path)
