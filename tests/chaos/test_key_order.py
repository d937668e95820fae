"""The checker of order by key finds each kind of violation, and none in what a right engine does."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.faults import (
    ABORTED,
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
    of_kills,
)
from tests.chaos.key_order import BEGAN, FAILED, HANDLED, Letter, Sent, Step, Verdict, judge

MOST = 3
KILLED_AT = {1: 50.5, 2: 75.5}
#: Three records of one key; `dying` fails for good.
THREE = [Sent("a", "k"), Sent("b", "k"), Sent("c", "k")]
DYING = [Sent("dying", "k", dies_at=MOST), Sent("next", "k")]


def _steps(history: str) -> list[Step]:
    """`a1+` began with attempt 1, `a1.` was handled, `a1!` failed; `|` another process goes on: 1, 2, 3. A step each ms."""
    steps, pid, at_ms = [], 1, 40.0
    for word in history.split():
        if word == "|":
            at_ms = KILLED_AT.get(pid, at_ms) + 1
            pid += 1
            continue
        what = {"+": BEGAN, ".": HANDLED, "!": FAILED}[word[-1]]
        steps.append(Step(word[:-2], int(word[-2]), what, pid, at_ms))
        at_ms += 1
    return steps


def _found(history: str, sent=THREE, kills=None, letters=(), **more) -> str:
    """The kind of the first violation; others may follow from it. Empty: all is right."""
    return next(iter(judge(sent, _steps(history), of_kills(kills or {}), letters, **more).found), "")


RIGHT = {
    "one after another": "a1+ a1. b1+ b1. c1+ c1.",
    "a failing one is waited for": "a1+ a1! a2+ a2! a3+ a3. b1+ b1. c1+ c1.",
    "another process takes over between two records": "a1+ a1. | b1+ b1. c1+ c1.",
    "a retry in another process": "a1+ a1! | a2+ a2. b1+ b1. c1+ c1.",
}
AFTER_A_KILL = {
    "what was in flight runs again": "a1+ a1. b1+ | b1+ b1. c1+ c1.",
    "a tail runs again": "a1+ a1. b1+ b1. c1+ | a1+ a1. b1+ b1. c1+ c1.",
    "a shorter tail runs again after the next kill": "a1+ a1. b1+ b1. | a1+ a1. b1+ | b1+ b1. c1+ c1.",
    "the same attempt, its failure not committed": "a1+ a1! | a1+ a1! a2+ a2. b1+ b1. c1+ c1.",
    "the next attempt, its failure committed": "a1+ a1! | a2+ a2. b1+ b1. c1+ c1.",
    "a handled retry keeps its number": "a1+ a1! a2+ a2. | a2+ a2. b1+ b1. c1+ c1.",
}
WRONG = {
    "a later one begins while an earlier one runs": ("at once", "a1+ b1+ b1. a1. c1+ c1."),
    "a later one begins while an earlier one waits": ("overtook", "a1+ a1! b1+ b1. a2+ a2. c1+ c1."),
    "a record is left out for a while": ("overtook", "a1+ a1. c1+ c1. b1+ b1."),
    "a record never runs": ("overtook", "a1+ a1. c1+ c1."),
    "the last one never runs": ("lost", "a1+ a1. b1+ b1."),
    "the last one never ends": ("lost", "a1+ a1. b1+ b1. c1+"),
    "a record runs twice at once": ("at once", "a1+ | a1+ a1. b1+ b1. c1+ c1. a1."),
    "a record runs again": ("repeated", "a1+ a1. a1+ a1. b1+ b1. c1+ c1."),
    "a record runs again in another process, none being killed": (
        "repeated",
        "a1+ a1. | a1+ a1. b1+ b1. c1+ c1.",
    ),
    "an attempt is counted twice": ("attempt", "a1+ a1! a1+ a1! a2+ a2. b1+ b1. c1+ c1."),
    "an attempt is left out": ("attempt", "a1+ a1! a3+ a3. b1+ b1. c1+ c1."),
    "the first attempt is not the first": ("attempt", "a2+ a2. b1+ b1. c1+ c1."),
    "another process counts from the start": ("attempt", "a1+ a1! a2+ a2! | a1+ a1. b1+ b1. c1+ c1."),
    "a record nobody sent": ("unknown", "a1+ a1. x1+ x1. b1+ b1. c1+ c1."),
}
WRONG_AFTER_A_KILL = {
    "a tail runs again with a gap": ("gap", "a1+ a1. b1+ b1. c1+ c1. | a1+ a1. c1+ c1."),
    "one runs again after newer ones ran": (
        "repeated",
        "a1+ a1! a2+ a2. | b1+ b1. a1+ a1. b1+ b1. c1+ c1.",
    ),
    "a second kill brings back more than the first did": (
        "committed",
        "a1+ a1. b1+ b1. | b1+ b1. | a1+ a1. b1+ b1. c1+ c1.",
    ),
    "what the next process had passed runs again": (
        "committed",
        "a1+ a1. | b1+ b1. | a1+ a1. b1+ b1. c1+ c1.",
    ),
    "what a retry had waited behind runs again": (
        "committed",
        "a1+ a1. b1+ b1! b2+ | a1+ a1. b1+ b1! b2+ b2. c1+ c1.",
    ),
    "attempts are reset": ("attempt", "a1+ a1! a2+ a2! | a1+ a1. b1+ b1. c1+ c1."),
    "a run that was killed counts as failed": ("attempt", "a1+ | a2+ a2. b1+ b1. c1+ c1."),
    "a later one begins before the killed one ran again": (
        "overtook",
        "a1+ | b1+ b1. a1+ a1. b1+ b1. c1+ c1.",
    ),
    "a killed process goes on": ("repeated", "a1+ a1. | b1+ b1. c1+ c1. a2+ a2."),
}


@pytest.mark.parametrize("history", RIGHT.values(), ids=RIGHT)
def test_what_is_right_without_a_kill(history):
    assert _found(history) == ""


@pytest.mark.parametrize("history", AFTER_A_KILL.values(), ids=AFTER_A_KILL)
def test_what_is_right_after_a_kill(history):
    assert _found(history, kills=KILLED_AT) == ""


@pytest.mark.parametrize(("kind", "history"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_without_a_kill(kind, history):
    assert _found(history) == kind


@pytest.mark.parametrize(("kind", "history"), WRONG_AFTER_A_KILL.values(), ids=WRONG_AFTER_A_KILL)
def test_what_is_wrong_in_spite_of_a_kill(kind, history):
    assert _found(history, kills=KILLED_AT) == kind


@pytest.mark.parametrize("history", [name for name in AFTER_A_KILL.values() if "a2+ a2. b" not in name])
def test_what_a_kill_excuses_nothing_else_does(history):
    assert _found(history) != ""


def test_where_handlers_emit_a_retry_says_nothing_of_those_before_it():
    history = "a1+ a1. b1+ b1! b2+ | a1+ a1. b2+ b2. c1+ c1."
    assert _found(history, kills=KILLED_AT) == "committed"
    assert _found(history, kills=KILLED_AT, emits=True) == ""
    history = WRONG_AFTER_A_KILL["a second kill brings back more than the first did"][1]
    assert _found(history, kills=KILLED_AT, emits=True) == "committed"


def test_what_ended_long_before_a_kill_may_not_run_again():
    history = "a1+ a1. b1+ b1. | a1+ a1. b1+ b1. c1+ c1."
    assert _found(history, kills=KILLED_AT, repeat_within_ms=9.5) == ""
    assert _found(history, kills=KILLED_AT, repeat_within_ms=9.4) == "too old"


def test_a_run_before_its_due_is_early():
    steps = [Step("a", 1, BEGAN, 1, 10.0), Step("a", 1, FAILED, 1, 11.0)]
    on_time = [*steps, Step("a", 2, BEGAN, 1, 20.0, due_ms=20), Step("a", 2, HANDLED, 1, 21.0)]
    early = [*steps, Step("a", 2, BEGAN, 1, 19.9, due_ms=20), Step("a", 2, HANDLED, 1, 21.0)]
    assert judge(THREE[:1], on_time).violations == 0
    assert list(judge(THREE[:1], early).found) == ["early"]


#: Something that was done to another process, or to the whole cluster, all the time; it explains nothing.
STORM = [Fault(kind, "any", 0, 1000, pid) for kind in (*AFTER_MS, "roll") for pid in (0, 9)]
WORD = {word: word for word in (TOOK, GAVE, LOST, UNCOMMITTED, UNKNOWN, REFUSED, ABORTED)}
#: Where records are whose names tell no place, and what else is told about.
PLACE, ABOUT = "//", {REFUSED: "emitted", ABORTED: ""}


def _found_of_processes(history: str, step_ms=10.0, kills=None, storm=STORM, **more) -> str:
    """`1:took`, `1:a1+`: which process; a step each 10 ms, but `1:+1000` lets so many pass."""
    steps, words, at_ms = [], [], 0.0
    for word in history.split():
        pid, what = int(word.split(":")[0]), word.split(":")[1]
        at_ms += step_ms
        if what[0] == "+":
            at_ms += float(what)
        elif what in WORD:
            words.append(Word(ABOUT.get(what, PLACE), pid, WORD[what], at_ms))
            steps += [Step("", 0, TOOK, pid, at_ms)] * (what == "took")
        else:
            steps += [step._replace(pid=pid, at_ms=at_ms) for step in _steps(what)]
    faults = Faults([*storm, *of_kills(kills or {}).all], words)
    return next(iter(judge(THREE, steps, faults, **more).found), "")


LATE = {
    "it ends what it was at": "1:took 1:a1+ 1:a1. 1:b1+ 2:took 2:b1+ 1:b1. 1:lost 2:b1. 2:c1+ 2:c1.",
    "it begins more, which the other one does too": "1:took 1:a1+ 1:a1. 1:b1+ 2:took 2:b1+ 1:b1. 1:c1+ 1:lost 2:b1. 1:c1. 2:c1+ 2:c1.",
    "what it had not committed runs again": "1:took 1:a1+ 1:a1. 1:b1+ 1:b1. 1:lost 2:took 2:a1+ 2:a1. 2:b1+ 2:b1. 2:c1+ 2:c1.",
    "it says so when that ran again": "1:took 1:a1+ 1:a1. 2:took 2:a1+ 2:a1. 1:lost 2:b1+ 2:b1. 2:c1+ 2:c1.",
    "it does it again itself": "1:took 1:a1+ 1:a1. 1:b1+ 1:b1. 1:lost 1:took 1:a1+ 1:a1. 1:b1+ 1:b1. 1:c1+ 1:c1.",
}


@pytest.mark.parametrize("history", LATE.values(), ids=LATE)
def test_what_a_process_does_that_lost_its_partition_needs_its_own_word(history):
    assert _found_of_processes(history) == ""
    assert _found_of_processes(history.replace("1:lost ", "")) != ""
    assert _found_of_processes(history.replace("1:lost", "2:lost")) != ""
    assert _found_of_processes(history.replace("1:lost", "1:gave")) != ""


def test_what_was_not_committed_when_it_was_given_back_runs_again():
    history = "1:took 1:a1+ 1:a1. 1:gave 1:uncommitted 2:took 2:a1+ 2:a1. 2:b1+ 2:b1. 2:c1+ 2:c1."
    assert _found_of_processes(history) == ""
    assert _found_of_processes(history.replace("1:uncommitted ", "")) == "repeated"


def test_after_a_transaction_that_nobody_knows_of_the_same_process_begins_again_and_later_no_more():
    history = "1:took 1:a1+ 1:a1. 1:unknown 1:a1+ 1:a1. 1:b1+ 1:b1. 1:c1+ 1:c1."
    assert _found_of_processes(history) == ""
    assert (
        _found_of_processes(history.replace("1:unknown", "1:unknown 1:+2000 1:a1+ 1:a1. 1:+10")) == "repeated"
    )


def test_a_record_whose_write_was_refused_when_its_partition_was_given_back_runs_again_and_those_behind_it_need_not():
    history = "1:took 1:a1+ 1:a1. 1:b1+ 1:b1. 1:refused 1:gave 2:took 2:a1+ 2:a1. 2:c1+ 2:c1."
    assert _found_of_processes(history) == ""
    assert _found_of_processes(history.replace("1:refused ", "")) == "repeated"
    assert _found_of_processes(history.replace("1:refused", "2:refused")) == "repeated"
    assert (
        _found_of_processes(history.replace("1:refused ", "").replace("1:took", "1:took 1:refused"))
        == "repeated"
    )
    assert _found_of_processes(history.replace("1:refused 1:gave", "1:gave 1:+12000 1:refused")) == "repeated"


@pytest.mark.parametrize(
    ("aborted", "found"), [("3:+10", "too old"), ("3:aborted", ""), ("3:+12000", "too old")]
)
def test_while_brokers_abort_transactions_what_a_kill_undoes_may_be_older(aborted, found):
    history = f"3:+10000 1:took 3:aborted 1:a1+ 1:a1. 1:b1+ 1:b1. {aborted} 2:took 2:a1+ 2:a1. 2:b1+ 2:b1. 2:c1+ 2:c1."
    killed_ms = 10_010.0 + 10 * len(history.split("2:took", maxsplit=1)[0].split())
    kills = {1: killed_ms - 10 + 12_000 * ("12000" in aborted)}
    assert _found_of_processes(history, kills=kills, storm=[], repeat_within_ms=15) == found


def test_a_kill_long_after_the_partition_was_given_back_explains_nothing():
    history = "1:took 1:a1+ 1:a1. 1:gave 2:took 2:b1+ 2:b1. 2:a1+ 2:a1. 2:b1+ 2:b1. 2:c1+ 2:c1."
    assert _found_of_processes(history, kills={1: 75}) == "repeated"


def test_what_a_process_began_before_it_lost_the_partition_may_end_when_it_has_it_again():
    history = "1:took 1:a1+ 1:a1. 1:b1+ 2:took 2:b1+ 2:b1. 1:lost 2:gave 1:took 1:b1. 1:c1+ 1:c1."
    assert _found_of_processes(history) == ""
    assert _found_of_processes(history.replace("1:b1.", "1:b1. 1:b1.")) == "end"


def test_what_a_late_process_did_is_not_done():
    left_out = "1:took 1:a1+ 1:a1. 1:b1+ 2:took 1:b1. 1:lost 2:c1+ 2:c1."
    assert _found_of_processes(left_out) == "overtook"


def test_a_process_that_was_given_up_must_stop_soon():
    history = "1:took 1:a1+ 1:a1. 2:took 2:b1+ 2:b1. 2:c1+ 2:c1. 1:b1+ 1:+1 1:lost"
    assert _found_of_processes(history) == ""
    assert _found_of_processes(history.replace("1:+1", "1:+40000")) == "beside"


def test_verdicts_of_parts_are_added():
    wrong, right = (
        judge(THREE, _steps(history)) for history in ("a1+ a1. c1+ c1.", "a1+ a1. b1+ b1. c1+ c1.")
    )
    both = Verdict()
    both.add(wrong)
    both.add(right)
    assert (both.violations, both.counts["runs"]) == (wrong.violations, 5)
    assert both.found == wrong.found


LETTER = [Letter("dying")]
DIES = "dying1+ dying1! dying2+ dying2! dying3+ dying3! next1+ next1."


def test_a_record_that_dies_lets_the_later_ones_go_and_is_one_letter():
    assert _found(DIES, DYING, letters=LETTER) == ""
    assert _found(DIES, DYING) == "letter"
    assert _found(DIES, DYING, letters=LETTER * 2) == "letter"
    assert _found(DIES, DYING, letters=[*LETTER, Letter("next")]) == "letter"


def test_a_record_that_dies_holds_the_later_ones_until_its_last_attempt():
    early = "dying1+ dying1! dying2+ dying2! next1+ next1. dying3+ dying3!"
    assert _found(early, DYING, letters=LETTER) == "overtook"


def test_there_is_no_attempt_after_the_last():
    history = "dying1+ dying1! dying2+ dying2! dying3+ dying3! dying4+ dying4! next1+ next1."
    assert _found(history, DYING, letters=LETTER) == "repeated"


def test_a_last_run_that_a_kill_made_happen_twice_may_leave_two_letters():
    history = "dying1+ dying1! dying2+ dying2! dying3+ dying3! | dying3+ dying3! next1+ next1."
    assert _found(history, DYING, KILLED_AT, LETTER * 2) == ""
    assert _found(history, DYING, KILLED_AT, LETTER * 3) == "letter"


def test_poison_never_runs_and_is_a_letter():
    poison = frozenset({"p"})
    history = "a1+ a1. b1+ b1. c1+ c1."
    assert _found(history, letters=[Letter("p", "poison")], poison=poison) == ""
    assert _found(history, poison=poison) == "letter"


def test_a_record_blamed_for_kills_is_through_with_them_and_counted():
    history = "a1+ a1. b1+ | b1+ | c1+ c1."
    blamed = judge(THREE, _steps(history), of_kills(KILLED_AT), [Letter("b", "crashed")])
    assert blamed.violations == 0
    assert blamed.counts["blamed for kills"] == 1
    assert _found(history, kills=KILLED_AT) == "overtook"
    assert _found("a1+ a1. | c1+ c1.", kills=KILLED_AT, letters=[Letter("b", "crashed")]) == ""
    assert _found("a1+ a1. | c1+ c1.", kills=KILLED_AT) == "overtook"


class Engine:
    """
    A naive one that is right: it commits all keys at one moment, and waits with a retry for the commit of its failure.

    `turn(n)`: the n-th key's run begins or ends. Keys have five records each; the third fails twice, the fourth for good.
    """

    KEYS = 3
    FAILURES = (0, 0, 2, MOST, 0)

    def __init__(self) -> None:
        self.sent = [
            Sent(f"{key}/{at}", str(key), MOST if failures == MOST else 0)
            for key in range(self.KEYS)
            for at, failures in enumerate(self.FAILURES)
        ]
        self.steps: list[Step] = []
        self.letters: list[Letter] = []
        self.kills: dict[int, float] = {}
        self._pid, self._now_ms = 1, 0.0
        self._places = dict.fromkeys(range(self.KEYS), (0, 1))  # record and attempt whose turn it is
        self._committed = dict(self._places)
        self._running: set[int] = set()
        self._uncommitted: set[int] = set()

    def commit(self) -> None:
        self._committed = dict(self._places)
        self._uncommitted.clear()

    def kill(self) -> None:
        self._now_ms += 1
        self.kills[self._pid] = self._now_ms
        self._pid += 1
        self._places = dict(self._committed)
        self._running.clear()
        self._uncommitted.clear()

    def turn(self, key: int) -> None:
        at, attempt = self._places[key]
        if at == len(self.FAILURES) or key in self._uncommitted:
            return
        if key not in self._running:
            self._running.add(key)
            self._note(key, at, attempt, BEGAN)
            return
        self._running.discard(key)
        if attempt > self.FAILURES[at]:
            self._note(key, at, attempt, HANDLED)
            self._places[key] = at + 1, 1
            return
        self._note(key, at, attempt, FAILED)
        if attempt < MOST:
            self._places[key] = at, attempt + 1
            self._uncommitted.add(key)
            return
        self.letters.append(Letter(f"{key}/{at}"))
        self._places[key] = at + 1, 1

    def finish(self) -> None:
        while any(at < len(self.FAILURES) for at, _ in self._places.values()):
            self.commit()
            for key in range(self.KEYS):
                self.turn(key)

    def _note(self, key: int, at: int, attempt: int, what: str) -> None:
        self._now_ms += 1
        self.steps.append(Step(f"{key}/{at}", attempt, what, self._pid, self._now_ms))

    def violations(self, steps: list[Step]) -> int:
        return judge(self.sent, steps, of_kills(self.kills), self.letters).violations


def _engine(moves: list[int]) -> Engine:
    """Moves below the number of keys are turns; then a commit; then a kill."""
    engine = Engine()
    for move in moves:
        if move < Engine.KEYS:
            engine.turn(move)
        elif move == Engine.KEYS:
            engine.commit()
        else:
            engine.kill()
    engine.finish()
    return engine


MOVES = st.lists(st.sampled_from([0, 0, 1, 1, 2, 2, 3, 4]), max_size=120)


@given(MOVES)
def test_what_a_right_engine_does_is_right_whoever_is_killed(moves):
    engine = _engine(moves)
    assert engine.violations(engine.steps) == 0


@given(MOVES, st.data())
def test_a_whole_run_less_is_always_found(moves, data):
    engine = _engine(moves)
    counts = Counter((step.record, step.what != BEGAN) for step in engine.steps)
    once = [step.record for step in engine.steps if step.what == HANDLED and counts[step.record, True] == 1]
    left_out = data.draw(st.sampled_from(once))
    steps = [step for step in engine.steps if step.record != left_out]
    assert engine.violations(steps) > 0


@given(MOVES, st.data())
def test_two_neighbours_of_a_key_exchanged_are_always_found(moves, data):
    engine = _engine(moves)
    key = str(data.draw(st.integers(0, Engine.KEYS - 1)))
    names = {f"{key}/0": f"{key}/1", f"{key}/1": f"{key}/0"}
    steps = [step._replace(record=names.get(step.record, step.record)) for step in engine.steps]
    assert engine.violations(steps) > 0


@given(MOVES, st.data())
def test_attempts_that_begin_anew_after_a_kill_are_always_found(moves, data):
    engine = _engine(moves)
    third = [at for at, step in enumerate(engine.steps) if step.record[2:] == "2" and step.attempt > 1]
    reset = data.draw(st.sampled_from(third))
    steps = list(engine.steps)
    steps[reset] = steps[reset]._replace(attempt=1)
    assert engine.violations(steps) > 0
