"""What tells of worlds can be trusted. `scripts/test` plays some thousand new ones, too."""

import random

from redrive.testing.shrinking import shrunk
from tests.explore.shapes import ListenerShape, Shape, Task
from tests.explore.steps import KINDS, Sent, Step, draw_steps
from tests.explore.world import script_of


def test_a_seed_is_always_the_same_world():
    assert script_of(7) == script_of(7)


def test_every_kind_of_step_is_drawn():
    shapes = (Shape(breaker=True), Shape(delivery="exactly-once"))
    steps = [step for shape in shapes for step in draw_steps(shape, random.Random(1), 3_000)]
    assert {step.kind for step in steps} == {*KINDS, "send"}


def test_steps_are_told_in_words():
    told = [
        Step("kill", 1),
        Step("time", 11_000),
        Step("hold-commits", 1),
        Step("hold-commits", 0),
        Step("replay"),
    ]
    assert [str(step) for step in told] == [
        "process 1 of those that move is killed",
        "11 s pass",
        "commits of offsets are held up from now on",
        "commits of offsets arrive again",
        "all dead letters are replayed",
    ]


def test_what_is_sent_is_told_in_words():
    told = "3 of key 1 are sent to orders: their first 2 runs fail (what they call is away), a run takes 3 s"
    assert str(Sent(Task(2, 3.0), 1, 3)) == told


def test_a_shape_is_told_in_words():
    listener = ListenerShape(order="key", blocking="key")
    assert str(Shape(listeners=(listener,), breaker=True)).splitlines() == [
        "1 partitions a source, 3 keys, at-least-once, 4095 units of metadata a commit, outages are concluded from failures",
        "  orders: order key, plain handlers, 1 at once, failing records block their key, after a dead letter: release",
    ]


def test_the_shortest_script_has_only_the_steps_that_matter():
    assert shrunk(range(100), lambda steps: {3, 50, 51} <= set(steps)) == [3, 50, 51]
