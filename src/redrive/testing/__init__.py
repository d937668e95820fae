"""
Test listeners without Kafka: an app on a simulated cluster, with a clock that the test moves.

    with Harness(app) as harness:
        harness.send("orders", {"id": 7})
        harness.advance("10m")
        assert [letter.reason for letter in harness.dead_letters] == ["exhausted"]

`explore` plays whole worlds with an app's handlers, in which everything goes wrong that can.

With pytest, the fixture `redrive_harness` makes harnesses and closes them, and `redrive_explore` is `explore` with as many
worlds as the command line says.
"""

from redrive.deadletters.dead_letter import DeadLetter
from redrive.testing.exploring import Explored, explore
from redrive.testing.faults import Fault
from redrive.testing.harness import Harness
from redrive.testing.values import Begun, FailedRun, Handled, LetterRun, NewRecord, Waiting
from redrive.testing.worlds import World

__all__ = [
    "Begun",
    "DeadLetter",
    "Explored",
    "FailedRun",
    "Fault",
    "Handled",
    "Harness",
    "LetterRun",
    "NewRecord",
    "Waiting",
    "World",
    "explore",
]
