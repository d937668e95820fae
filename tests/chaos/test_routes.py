"""The judge of routes finds each kind of violation, and none where all is as it should be."""

import pytest

from tests.chaos.faults import Fault, Faults
from tests.chaos.routes import EMITTED, RETRY, RUN, Plan, Trace, judge

PLANS = [
    Plan("well"),
    Plan("late", fails=1),
    Plan("bad", "permanent", 1),
    Plan("worn", "exhausted", 3),
    Plan("unread", "poison"),
]
#: A trace each 10 ms.
RIGHT = [
    ("well", RUN, 1),
    ("well", EMITTED, 0),
    ("late", RUN, 1),
    ("late", RETRY, 1),
    ("late", RUN, 2),
    ("late", EMITTED, 0),
    ("bad", RUN, 1),
    ("bad", "permanent", 0),
    ("worn", RUN, 1),
    ("worn", RETRY, 1),
    ("worn", RUN, 2),
    ("worn", RETRY, 2),
    ("worn", RUN, 3),
    ("worn", "exhausted", 0),
    ("unread", "poison", 0),
]
AGAIN_MS = 900.0
KILLED = Faults([Fault("kill", "worker-1", 500, 500, 17)])
ALTERED = Faults([Fault("alter", "orders", 500, 500), Fault("roll", "workers", 400, 600)])


def _traces(*more, without=()):
    traces = [
        Trace(record, what, attempt, 10.0 * at)
        for at, (record, what, attempt) in enumerate(RIGHT)
        if (record, what, attempt) not in without
    ]
    return [*traces, *(Trace(*one, AGAIN_MS) for one in more)]


def _found(traces, faults=None, **more):
    verdict = judge(PLANS, traces, faults, **more)
    return [kind for kind, told in verdict.found.items() for _ in told]


def test_what_is_right_is_right():
    assert _found(_traces()) == _found(_traces(), exactly_once=True) == []


@pytest.mark.parametrize("trace", RIGHT, ids=lambda trace: "-".join(map(str, trace)))
def test_each_trace_that_is_missing_is_found(trace):
    ends = {plan.record: plan.ends for plan in PLANS}
    expected = "lost" if trace[1] == ends[trace[0]] else "left out"
    assert _found(_traces(without=[trace])) == [expected]


@pytest.mark.parametrize("trace", RIGHT, ids=lambda trace: "-".join(map(str, trace)))
def test_each_trace_that_comes_twice_needs_a_fault_in_between(trace):
    assert _found(_traces(trace)) == _found(_traces(trace), ALTERED) == ["unexplained"]
    assert _found(_traces(trace), KILLED) == []


@pytest.mark.parametrize("trace", RIGHT, ids=lambda trace: "-".join(map(str, trace)))
def test_exactly_once_no_fault_excuses_a_second_copy_but_a_second_run(trace):
    assert _found(_traces(trace), KILLED, exactly_once=True) == ([] if trace[1] == RUN else ["twice"])


@pytest.mark.parametrize(
    "trace",
    [
        ("well", "permanent", 0),
        ("well", "crashed", 0),
        ("well", RETRY, 1),
        ("well", RUN, 2),
        ("bad", EMITTED, 0),
        ("bad", "exhausted", 0),
        ("bad", RUN, 2),
        ("late", RETRY, 2),
        ("worn", RETRY, 3),
        ("unread", RUN, 1),
    ],
    ids=lambda trace: "-".join(map(str, trace)),
)
def test_each_trace_that_should_not_be_is_found(trace):
    assert _found(_traces(trace), KILLED) == ["unexpected"]


def test_a_record_nobody_sent_is_found():
    assert _found(_traces(("other", EMITTED, 0))) == ["unknown"]


@pytest.mark.parametrize("kind", ["kill", "crash", "stop", "broker", "cut", "hold"])
def test_a_fault_explains_what_is_repeated_after_it_and_nothing_long_after(kind):
    def fault(at_ms):
        return Faults([Fault(kind, "it", at_ms, at_ms + 1, 17)])

    again = _traces(("well", EMITTED, 0))
    assert _found(again, fault(800)) == []
    assert _found(again, fault(901)) == _found(again, fault(-20_000)) == ["unexplained"]


def test_a_copy_that_was_written_twice_may_run_twice_and_have_two_ends():
    """The fault was between the copies, not between what came of them."""
    faults = Faults([Fault("kill", "worker-1", 35, 35, 17)])
    again = [("late", RETRY, 1), ("late", RUN, 2), ("late", EMITTED, 0)]
    assert _found(_traces(*again), faults) == []


def test_a_record_that_was_blamed_for_kills_has_one_end_or_the_other():
    blamed = frozenset({"late"})
    crashed = ("late", "crashed", 0)
    assert _found(_traces(crashed, without=[("late", EMITTED, 0)]), blamed=blamed) == []
    assert _found(_traces(crashed), blamed=blamed) == []
    assert _found(_traces(without=[("late", EMITTED, 0)]), blamed=blamed) == ["lost"]


def test_exactly_once_a_record_that_was_blamed_has_not_both_ends():
    blamed = frozenset({"late"})
    assert _found(_traces(("late", "crashed", 0)), blamed=blamed, exactly_once=True) == ["twice"]


def test_without_tiers_a_failing_record_is_written_nowhere_but_at_its_end():
    ends = [one for one in _traces() if one.what not in (RUN, RETRY)]
    assert _found(ends, has_tiers=False) == []
    assert _found([*ends, Trace("late", RETRY, 1, AGAIN_MS)], has_tiers=False) == ["unexpected"]
