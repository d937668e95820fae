"""What `redrive retries` says: tables and lines for people, values for programs."""

import sys
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from redrive.cli.dlq_view import when
from redrive.cli.output import Output
from redrive.core.units import format_duration
from redrive.retries.job import Outcome
from redrive.retries.job import Tell as Watched
from redrive.retries.selection import Plan
from redrive.retries.survey import Row
from redrive.retries.tiers import OpenTier, Tell

#: So many failure types are named in a row; --json names all that are known apart.
_TOP = 3
_TOLD = 20
_WIDEST = 40


def show_rows(output: Output, rows: Sequence[Row], tiers: Sequence[OpenTier], now_ms: float) -> None:
    """The answer of `ls`."""
    if rows:
        output.table(
            ["tier", "group", "waiting", "overdue", "next due", "last due", "top failures"],
            [
                (
                    row.topic,
                    _cut(row.group),
                    row.waiting,
                    row.overdue or "-",
                    _due(row.next_due_ms, now_ms),
                    _due(row.last_due_ms, now_ms),
                    _types(row.types),
                )
                for row in rows
            ],
        )
        output.line()
    waiting, overdue = sum(row.waiting for row in rows), sum(row.overdue for row in rows)
    where = f"{len(tiers)} retry topic{'s' * (len(tiers) != 1)}" if tiers else "no retry topic here"
    output.line(f"{waiting} record{'s' * (waiting != 1)} waiting, {overdue} overdue ({where})")
    unread = [row for row in rows if row.waiting and not row.is_read]
    for row in unread:
        output.note(
            f"{row.topic}: group {row.group} has committed nothing there nor on the source topic, so nobody may be working on "
            f"its {row.waiting} records; does its service run, and under this name?"
        )
    output.result({"waiting": waiting, "overdue": overdue, "tiers": [_row_values(row) for row in rows]})


def _row_values(row: Row) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "group": row.group,
        "delay_ms": row.delay_ms,
        "waiting": row.waiting,
        "overdue": row.overdue,
        "next_due_ms": row.next_due_ms,
        "last_due_ms": row.last_due_ms,
        "oldest_ms": row.oldest_ms,
        "read": row.is_read,
        "types": [{"type": name, "records": count} for name, count in row.types.most_common()],
    }


def show_plan(output: Output, plan: Plan) -> None:
    """What is about to be done; programs get it with the result."""
    output.line(f"{plan.action}: {plan.count} waiting record{'s' * (plan.count != 1)}")
    by_tier = _by_tier(plan)
    if by_tier:
        output.table(
            ["tier", "group", "records"],
            [(topic, _cut(group), count) for (topic, group), count in by_tier.items()],
        )
        output.line(f"by failure type: {_types(plan.types, len(plan.types))}")
    if plan.beyond_limit:
        output.line(f"not now: {plan.beyond_limit} more beyond the limit")
    for missing in plan.missing[:_TOLD]:
        output.line(f"not found among what waits: {missing}")
    if len(plan.missing) > _TOLD:
        output.line(f"not found among what waits: {len(plan.missing) - _TOLD} more")
    if not plan.targets:
        output.line(f"nothing matches; {plan.seen} wait there")


def plan_values(plan: Plan) -> dict[str, Any]:
    """A plan for programs."""
    return {
        "action": plan.action,
        "selected": plan.count + len(plan.missing),
        "tiers": [
            {"topic": topic, "group": group, "records": count}
            for (topic, group), count in _by_tier(plan).items()
        ],
        "types": dict(plan.types),
        "beyond_limit": plan.beyond_limit,
        "missing": list(plan.missing),
    }


def _by_tier(plan: Plan) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for target in plan.targets:
        counts[target.partition.topic, target.group] += target.count
    return counts


def show_outcome(output: Output, plan: Plan, outcome: Outcome) -> None:
    """What became of the records."""
    done = (
        f"{outcome.discarded} discarded, {outcome.ran} came too late"
        if plan.action == "discard"
        else f"{outcome.done} done"
    )
    output.line(
        f"{done}, {outcome.waiting} waiting, {outcome.failed} failed, {outcome.not_found} not found "
        f"of {outcome.selected} (job {outcome.job})"
    )
    if plan.action == "discard" and outcome.ran:
        output.line("too late: a handler had them already; what failed again waits on another tier by now")
    if outcome.waiting:
        output.line(
            "waiting: asked for, and not seen to be done yet. Workers look every two seconds, and what was asked for stays: "
            "it counts for whoever runs them. See: redrive retries ls"
        )
    if outcome.failed:
        output.line(f"failed: {outcome.why}")


def outcome_values(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """An outcome for programs."""
    return {
        "job": outcome.job,
        "done" if plan.action == "hurry" else "too_late": outcome.ran,
        "discarded": outcome.discarded,
        "waiting": outcome.waiting,
        "failed": outcome.failed,
        "not_found": outcome.not_found,
    }


@contextmanager
def scanning(output: Output, tiers: Sequence[OpenTier]) -> Generator[Tell]:
    """A bar on a terminal, nothing elsewhere."""
    if output.as_json or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=sum(tier.size for tier in tiers))
        yield lambda passed: bar.update(task, advance=passed)


@contextmanager
def watching(output: Output, plan: Plan) -> Generator[Watched]:
    """A bar on a terminal, nothing elsewhere."""
    if output.as_json or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(plan.action, total=plan.count)
        yield lambda done: bar.update(task, completed=done)


def _due(due_ms: int | None, now_ms: float) -> str:
    if due_ms is None:
        return "-"
    seconds = abs(due_ms - now_ms) // 1000
    away = format_duration(int(min(seconds, 10**9)) * 1000)
    return f"{when(due_ms)} ({f'in {away}' if due_ms >= now_ms else f'{away} ago'})"


def _types(types: Mapping[str, int], most: int = _TOP) -> str:
    ordered = sorted(types.items(), key=lambda one: -one[1])
    told = ", ".join(f"{_cut(name) or '(not told)'} {count}" for name, count in ordered[:most])
    return f"{told}, …" if len(ordered) > most else told or "-"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
