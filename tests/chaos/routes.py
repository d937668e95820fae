"""
What topics say about where records went: nothing but a function of what was written, of what ran, and of what was done to whom.

Each record has a plan: how often it fails, and how it ends. From that follows what must have run and been written: a run for
each attempt, a copy in a retry topic for each failure that isn't the last, and either what its handler emits or one dead
letter with the right reason. None may be missing, and nothing else may be there. What is there more than once

- is a violation with delivery exactly-once, but for runs;
- else must come of what is there as often: a copy or an end of a run, or its write was refused; and a run of a copy, where
  those don't count that were undone (`Faults.undid`).
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tests.chaos.faults import Faults
from tests.chaos.key_order import Verdict

RUN, RETRY, EMITTED = "run", "retry", "emitted"
#: Ends for which a record isn't run.
NEVER_RUN = ("poison", "crashed")


class Plan(NamedTuple):
    """A record that was sent. `ends`: `EMITTED`, or the reason of its dead letter. `fails`: in so many first attempts."""

    record: str
    ends: str = EMITTED
    fails: int = 0


class Trace(NamedTuple):
    """
    A run of a record, or what was written of it. `what`: `RUN`, `RETRY`, `EMITTED`, or the reason of a dead letter. `place`: the
    partition of a run; the topic of what was written. `pid`: of a run.
    """

    record: str
    what: str
    attempt: int
    at_ms: float
    place: str = ""
    pid: int = 0


def judge(
    plans: Iterable[Plan],
    traces: Iterable[Trace],
    faults: Faults | None = None,
    *,
    blamed: frozenset[str] = frozenset(),
    has_tiers: bool = True,
    exactly_once: bool = False,
) -> Verdict:
    """
    Judge all traces of some records. `blamed`: those that became dead letters for kills; whether they deserved it is judged
    elsewhere. Without `has_tiers` a failing record is written nowhere before its end, and its runs are judged elsewhere: they only
    explain its ends.
    """
    verdict = Verdict()
    found: dict[str, list[Trace]] = defaultdict(list)
    for trace in traces:
        found[trace.record].append(trace)
    for plan in plans:
        verdict.counts["records"] += 1
        of_record = sorted(found.pop(plan.record, ()), key=lambda trace: trace.at_ms)
        if plan.record in blamed:
            _find_ends_of_blamed(verdict, plan, of_record, exactly_once=exactly_once)
        else:
            _find_missing(verdict, plan, of_record, has_tiers=has_tiers)
        _find_repeated(verdict, of_record, faults or Faults(), has_tiers=has_tiers, exactly_once=exactly_once)
    for record, of_record in found.items():
        verdict.note("unknown", f"{_told(of_record[0])}: no such record was sent ({record})")
    return verdict


def _find_missing(verdict: Verdict, plan: Plan, traces: list[Trace], *, has_tiers: bool) -> None:
    """What must be there and isn't, and the other way round."""
    wanted = {(plan.ends, 0)}
    if has_tiers:
        runs = plan.fails + (plan.ends == EMITTED)
        wanted |= {(RETRY, attempt) for attempt in range(1, runs)}
        wanted |= {(RUN, attempt) for attempt in range(1, runs + 1)}
    there = {(trace.what, trace.attempt) for trace in traces if has_tiers or trace.what != RUN}
    for what, attempt in sorted(wanted - there):
        kind = "lost" if what == plan.ends else "left out"
        verdict.note(kind, f"{plan.record} has no {what} {attempt or ''}".rstrip())
    for what, attempt in sorted(there - wanted):
        verdict.note("unexpected", f"{plan.record} has {what} {attempt or ''}".rstrip())


def _find_ends_of_blamed(verdict: Verdict, plan: Plan, traces: list[Trace], *, exactly_once: bool) -> None:
    """It may have ended one way or the other; how far it came before nobody knows."""
    ends = {trace.what for trace in traces if trace.what in (plan.ends, "crashed")}
    if not ends:
        verdict.note("lost", f"{plan.record} has no end")
    elif len(ends) > 1 and exactly_once:
        verdict.note("twice", f"{plan.record} has two ends: {', '.join(sorted(ends))}")


def _find_repeated(
    verdict: Verdict, traces: list[Trace], faults: Faults, *, has_tiers: bool, exactly_once: bool
) -> None:
    """`traces` of one record in the order of their times."""
    seen: dict[tuple[str, int], list[Trace]] = defaultdict(list)
    for trace in traces:
        before = list(seen[trace[1:3]])
        seen[trace[1:3]].append(trace)
        if trace.what == RUN and not has_tiers:
            continue
        verdict.counts[f"traces: {trace.what}"] += 1
        if not before:
            continue
        verdict.counts[f"repeated: {trace.what}"] += 1
        if exactly_once and trace.what != RUN:
            verdict.note("twice", _told(trace))
        elif not _is_explained(trace, before, seen, faults):
            verdict.note(
                "unexplained", f"{_told(trace)} again, and nothing undid that of {before[-1].at_ms:.0f}"
            )


def _is_explained(
    trace: Trace, before: list[Trace], seen: dict[tuple[str, int], list[Trace]], faults: Faults
) -> bool:
    """Whether a trace may be there, though those `before` are: by what it came of, or by what became of who did them."""
    if trace.what == RUN:
        copies = len(seen[RETRY, trace.attempt - 1]) or 1
        lasting = sum(not faults.undid(run.place, run.pid, run.at_ms, trace.at_ms) for run in before)
        return lasting < copies or faults.was_late(trace.place, trace.pid, trace.at_ms)
    if trace.what in NEVER_RUN:
        place = f"{trace.record.rpartition('/')[0]}/"
        return faults.broke_off(place, before[-1].at_ms, trace.at_ms)
    runs = [run for of_kind in seen.values() for run in of_kind if run.what == RUN]
    attempt = trace.attempt or max((run.attempt for run in runs), default=0)
    return len(before) < len(seen[RUN, attempt]) or any(
        faults.refused(trace.place, pid, before[-1].at_ms, trace.at_ms) for pid in {run.pid for run in runs}
    )


def _told(trace: Trace) -> str:
    number = f" {trace.attempt}" if trace.attempt else ""
    return f"{trace.record} {trace.what}{number} at {trace.at_ms:.0f}"
