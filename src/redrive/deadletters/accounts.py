"""
What is told of dead letters and of work on them, as plain values: for programs, by the command line and by HTTP alike.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from redrive.deadletters.letters import Letter
from redrive.deadletters.portrait import portray
from redrive.deadletters.replay import Report
from redrive.deadletters.selection import Plan
from redrive.deadletters.states import Mark, StateBook
from redrive.deadletters.summary import Listed, Row

_MOST_NAMED = 3


def row_values(row: Row) -> dict[str, Any]:
    """Letters that are counted together."""
    return {
        "topic": row.topic,
        "reason": row.reason,
        "type": row.failure_type,
        "group": row.group,
        "dialect": row.dialect,
        "letters": row.letters,
        "unresolved": row.unresolved,
        "unknown": row.unknown,
        "resolved": row.resolved,
        "first_seen_ms": row.first_ms,
        "last_seen_ms": row.last_ms,
    }


def listed_values(one: Listed) -> dict[str, Any]:
    """One letter of a list."""
    return {
        "at": str(one.position),
        "since_ms": one.timestamp_ms,
        "state": one.mark.shown if one.mark else "open",
        "reason": one.seen.reason,
        "type": one.seen.failure_type,
        "group": one.seen.group,
        "dialect": one.seen.dialect,
        "event_id": one.seen.event_id or str(one.position),
    }


def letter_values(letter: Letter, mark: Mark | None) -> dict[str, Any]:
    """
    One letter by its envelope: what `portray` says less all that may quote the record (texts of failures, a producer's
    headers), and less what takes room.
    """
    values = portray(letter, mark, ())
    for name in ("headers", "history", "unreadable_headers"):
        del values[name]
    for name in ("message", "stack"):
        del values["failure"][name]
    return values


def plan_values(plan: Plan, readers: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A plan for programs. `readers`: the groups that read the targets which no single group has to itself."""
    return {
        "kind": plan.kind,
        "selected": plan.selected,
        "routes": [
            {"from": source, "to": target, "letters": sum(reasons.values()), "by_reason": dict(reasons)}
            for (source, target), reasons in plan.routes().items()
        ],
        "left_out": dict(plan.left_out),
        "beyond_limit": plan.beyond_limit,
        "missing": list(plan.missing),
        **({"readers": {topic: list(groups) for topic, groups in readers.items()}} if readers else {}),
    }


def report_values(plan: Plan, report: Report) -> dict[str, Any]:
    """A report for programs."""
    return {
        "job": report.job,
        "selected": report.selected,
        "sent" if plan.kind == "replay" else "discarded": report.done,
        "failed": report.failed,
        "skipped": report.skipped,
        "not_found": report.not_found,
        "unmarked": report.unmarked,
        "partial": report.is_partial,
        "stopped": report.stopped,
        "causes": [
            {"what": what, "why": why, "letters": count} for (what, why), count in report.causes.items()
        ],
        "troubles": [{"at": one.letter, "what": one.what, "why": one.why} for one in report.troubles],
        "troubles_omitted": report.omitted,
    }


def state_notes(books: Sequence[StateBook]) -> Iterator[str]:
    """What a person should know who relies on the states: where they can't be read, and where there are none."""
    missing = [
        book.dlq
        for book in books
        if not book.dlq.has_state and any(end > first for first, end in book.dlq.bounds.values())
    ]
    if missing:
        states, topics = _some([dlq.state for dlq in missing]), _some([dlq.topic for dlq in missing])
        yield (
            f"{states} {'doesn' if len(missing) == 1 else 'don'}'t exist, so nothing is known of what was replayed or "
            f"discarded before: all letters of {topics} count as unresolved. If it was there once, compare with what the "
            "service has handled before you replay"
        )
    for book in books:
        if book.unreadable:
            yield (
                f"{book.dlq.state}: {book.unreadable} records can't be read as states; a letter that one of them names "
                "counts as unknown"
            )


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def job_name(kind: str, now_ms: float) -> str:
    """A name that nobody else gives: claims are told apart by it."""
    return f"{kind}-{datetime.fromtimestamp(now_ms / 1000, UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
