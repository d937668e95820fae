"""The judge of routes finds each kind of violation, and none where all is as it should be."""

import random

import pytest

from tests.chaos.faults import (
    AFTER_MS,
    GAVE,
    LOST,
    REFUSED,
    TOOK,
    UNCOMMITTED,
    UNKNOWN,
    Fault,
    Faults,
    Word,
)
from tests.chaos.routes import EMITTED, RETRY, RUN, Plan, Trace, judge

PLANS = [
    Plan("orders/1/well"),
    Plan("orders/1/late", fails=1),
    Plan("orders/1/bad", "permanent", 1),
    Plan("orders/1/worn", "exhausted", 3),
    Plan("orders/1/unread", "poison"),
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
PLACE, TOPIC = "orders/1/", "orders.out"
#: The process that did all that is right, and the one that has the partition at 900 ms.
FIRST, SECOND = 17, 18


def _history(*ends, kills=()):
    """The first process takes the partition at 0 ms, says these words of its end at 500; the second one takes it at 600."""
    words = [Word(PLACE, FIRST, TOOK, 0), *(Word(PLACE, FIRST, end, 500) for end in ends)]
    return Faults([*ANYTHING, *kills], [*words, Word(PLACE, SECOND, TOOK, 600)])


#: What explains nothing by itself: it was done to others, or to the cluster.
ANYTHING = [Fault(kind, "any", 400, 700, 0) for kind in (*AFTER_MS, "roll", "alter", "slow")]
ANYTHING += [Fault(kind, "another", 400, 700, 19) for kind in AFTER_MS]
KILL = Fault("kill", "worker-1", 500, 500, FIRST)
#: What undoes what the first process did last.
UNDONE = {
    "it is killed": _history(kills=[KILL]),
    "it is killed while it gives the partition back": _history(GAVE, kills=[KILL._replace(began_ms=550)]),
    "it says that it lost the partition": _history(LOST),
    "its last commit is not confirmed": _history(GAVE, UNCOMMITTED),
    "it doesn't know what became of a transaction": Faults(
        ANYTHING, [Word(PLACE, FIRST, TOOK, 0), Word(PLACE, FIRST, UNKNOWN, 500)]
    ),
}
NOT_UNDONE = {
    "nothing is known": Faults(ANYTHING),
    "it keeps the partition": Faults(ANYTHING, [Word(PLACE, FIRST, TOOK, 0)]),
    "it gave the partition back, all committed": _history(GAVE),
    "it says nothing, and lives": _history(),
    "it is killed long after it gave the partition back": _history(
        GAVE, kills=[KILL._replace(began_ms=800, ended_ms=800)]
    ),
    "it knew nothing of a transaction before that, and later gave the partition back": Faults(
        ANYTHING,
        [
            Word(PLACE, FIRST, TOOK, -9000),
            Word(PLACE, FIRST, UNKNOWN, -8000),
            Word(PLACE, FIRST, GAVE, 510),
            Word(PLACE, SECOND, TOOK, 600),
        ],
    ),
    "it is killed, and nobody took the partition yet": Faults([KILL], [Word(PLACE, FIRST, TOOK, 0)]),
    "it lost another partition": Faults(
        ANYTHING,
        [
            Word(PLACE, FIRST, TOOK, 0),
            Word("orders/2/", FIRST, TOOK, 0),
            Word("orders/2/", FIRST, LOST, 500),
            Word(PLACE, FIRST, GAVE, 510),
            Word(PLACE, SECOND, TOOK, 600),
        ],
    ),
}


def _trace(record, what, attempt, at_ms, pid):
    place, pid = (PLACE, pid) if what == RUN else (TOPIC, 0)
    return Trace(f"orders/1/{record}", what, attempt, at_ms, place, pid)


def _traces(*more, without=(), pid=SECOND):
    traces = [_trace(*one, 10.0 * at, FIRST) for at, one in enumerate(RIGHT) if one not in without]
    return [*traces, *(_trace(*one, AGAIN_MS + at, pid) for at, one in enumerate(more))]


def _found(traces, faults=None, **more):
    verdict = judge(PLANS, traces, faults, **more)
    return [kind for kind, told in verdict.found.items() for _ in told]


def test_what_is_right_is_right():
    assert _found(_traces()) == _found(_traces(), exactly_once=True) == []


@pytest.mark.parametrize("trace", RIGHT, ids=lambda trace: "-".join(map(str, trace)))
def test_each_trace_that_is_missing_is_found(trace):
    ends = {plan.record: plan.ends for plan in PLANS}
    expected = "lost" if trace[1] == ends[f"orders/1/{trace[0]}"] else "left out"
    assert _found(_traces(without=[trace])) == [expected]


WRITTEN = [one for one in RIGHT if one[1] != RUN]
RUNS = [one for one in RIGHT if one[1] == RUN]
#: The copy or the end of a run, and the run.
COMES_OF = {
    ("well", EMITTED, 0): ("well", RUN, 1),
    ("late", RETRY, 1): ("late", RUN, 1),
    ("late", EMITTED, 0): ("late", RUN, 2),
    ("bad", "permanent", 0): ("bad", RUN, 1),
    ("worn", RETRY, 2): ("worn", RUN, 2),
    ("worn", "exhausted", 0): ("worn", RUN, 3),
}


@pytest.mark.parametrize("faults", UNDONE.values(), ids=UNDONE)
def test_what_was_undone_may_run_again(faults):
    for run in RUNS:
        assert _found(_traces(run), faults) == []


@pytest.mark.parametrize("faults", NOT_UNDONE.values(), ids=NOT_UNDONE)
def test_what_was_not_undone_may_not_be_repeated_whatever_else_happened(faults):
    for trace in RIGHT:
        assert _found(_traces(trace), faults) == ["unexplained"]


@pytest.mark.parametrize("faults", UNDONE.values(), ids=UNDONE)
def test_what_is_written_again_comes_of_a_run_that_is_repeated_too(faults):
    for written, run in COMES_OF.items():
        assert _found(_traces(run, written), faults) == []
        assert _found(_traces(written), faults) == ["unexplained"]


def test_a_write_that_was_refused_may_be_there_all_the_same():
    for at_ms, found in ((500, []), (20_000, ["unexplained"])):
        faults = Faults(words=[Word(TOPIC, FIRST, REFUSED, at_ms)])
        assert _found(_traces(("well", EMITTED, 0)), faults) == found
    others = Faults(words=[Word(TOPIC, SECOND, REFUSED, 500), Word("other", FIRST, REFUSED, 500)])
    assert _found(_traces(("well", EMITTED, 0)), others) == ["unexplained"]


@pytest.mark.parametrize("faults", UNDONE.values(), ids=UNDONE)
def test_an_end_without_a_run_may_be_written_again_where_a_process_broke_off(faults):
    assert _found(_traces(("unread", "poison", 0)), faults) == []


def test_a_process_that_does_not_know_yet_that_it_lost_the_partition_may_run_what_another_ran():
    def found(*said):
        words = [Word(PLACE, SECOND, TOOK, -1), *(Word(PLACE, SECOND, *one) for one in said)]
        return _found(_traces(("well", RUN, 1)), Faults(ANYTHING, [*words, Word(PLACE, FIRST, TOOK, 1)]))

    assert found((LOST, 5_000)) == []
    assert found() == found((LOST, 50_000)) == found((GAVE, 5_000)) == ["unexplained"]


def test_in_a_storm_no_repetition_is_excused_by_what_happened_to_others():
    """Three processes in turn; all but the last lose the partition, are killed, or give it back; something fails all the time."""
    dice = random.Random(1)
    faults, words, plans, traces = [], [], [], []
    for at in range(200):
        pid, took_ms = 100 + at, 1000.0 * at
        words.append(Word(PLACE, pid, TOOK, took_ms))
        end = dice.choice(("kill", LOST, GAVE))
        if end == "kill":
            faults.append(Fault("kill", "it", took_ms + 950, took_ms + 950, pid))
        else:
            words.append(Word(PLACE, pid, end, took_ms + 950))
        kind = dice.choice(list(AFTER_MS))
        faults.append(Fault(kind, "any", took_ms, took_ms + dice.uniform(0, 900)))
        for number in range(20):
            # Twice in one process; or once before it gave the partition back, and once in the next one.
            to_next = end == GAVE and number % 2
            began_ms = took_ms + dice.uniform(0, 400)
            again_ms = took_ms + (dice.uniform(1001, 1400) if to_next else dice.uniform(500, 900))
            record = f"{at}-{number}"
            plans.append(Plan(f"{PLACE}{record}"))
            for at_ms, by in ((began_ms, pid), (again_ms, pid + bool(to_next))):
                traces += [_trace(record, RUN, 1, at_ms, by), _trace(record, EMITTED, 0, at_ms, by)]
    verdict = judge(plans, traces, Faults(faults, words))
    assert verdict.counts["violations: unexplained"] == len(plans)


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
    assert _found(_traces(trace)) == ["unexpected"]


def test_a_record_nobody_sent_is_found():
    assert _found(_traces(("other", EMITTED, 0))) == ["unknown"]


def test_a_copy_that_was_written_twice_may_run_twice_and_have_two_ends():
    """The fault was between the copies, not between what came of them."""
    words = [Word(TOPIC, FIRST, REFUSED, 36)]
    again = [("late", RETRY, 1), ("late", RUN, 2), ("late", EMITTED, 0)]
    assert _found(_traces(*again), Faults(words=words)) == []


def test_a_record_that_was_blamed_for_kills_has_one_end_or_the_other():
    blamed = frozenset({"orders/1/late"})
    crashed = ("late", "crashed", 0)
    assert _found(_traces(crashed, without=[("late", EMITTED, 0)]), blamed=blamed) == []
    assert _found(_traces(crashed), blamed=blamed) == []
    assert _found(_traces(without=[("late", EMITTED, 0)]), blamed=blamed) == ["lost"]


def test_exactly_once_a_record_that_was_blamed_has_not_both_ends():
    blamed = frozenset({"orders/1/late"})
    assert _found(_traces(("late", "crashed", 0)), blamed=blamed, exactly_once=True) == ["twice"]


def test_without_tiers_a_failing_record_is_written_nowhere_but_at_its_end():
    ends = [one for one in _traces() if one.what != RETRY]
    assert _found(ends, has_tiers=False) == []
    assert _found([*ends, _trace("late", RETRY, 1, AGAIN_MS, 0)], has_tiers=False) == ["unexpected"]
