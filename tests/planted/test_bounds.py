"""So is what a process would keep of each rebalance outside of Python, for which it takes a real broker."""

from tests.planted.plant import Plant
from tests.planted.planting import must_be_found

_TESTS = "tests/bounds/test_real_rebalances.py::test_there_are_as_many_threads_file_descriptors_and_objects_as_before"
LEAK = Plant(
    "adapters/kafka_source.py",
    "        self._has_joined = True\n        self._starting = {}\n",
    "        self._has_joined = True\n        self._starting = {}\n"
    '        vars(self).setdefault("left", []).append(Consumer({"group.id": "left"}))\n',
    (f"{_TESTS}[consumer-at-least-once]",),
    r"assert \((\d+), (\d+)\) == \((?!\1,)\d+, (?!\2\))",
)


def test_a_client_for_each_assignment_turns_its_tests_red(kafka, tmp_path, monkeypatch):
    monkeypatch.setenv("REDRIVE_TEST_BOOTSTRAP", kafka.bootstrap)
    must_be_found(LEAK, tmp_path)
