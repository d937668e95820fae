"""
Test listeners without Kafka: an app on a simulated cluster, with a clock that the test moves.

    with Harness(app) as harness:
        harness.send("orders", {"id": 7})
        harness.advance("10m")
        assert [letter.reason for letter in harness.dead_letters] == ["exhausted"]

With pytest, the fixture `redrive_harness` makes harnesses and closes them.
"""

from redrive.deadletters.dead_letter import DeadLetter
from redrive.testing.harness import Harness
from redrive.testing.values import FailedRun, Handled, LetterRun, Waiting

__all__ = ["DeadLetter", "FailedRun", "Handled", "Harness", "LetterRun", "Waiting"]
