"""What `redrive dlq` says: tables and lines for people, values for programs."""

import getpass
import socket
import sys
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from redrive.cli.output import Output
from redrive.core.dialects import foreign_headers
from redrive.core.record import headers_of
from redrive.core.translator import Translator
from redrive.deadletters.accounts import listed_values, row_values, state_notes
from redrive.deadletters.letters import Letter
from redrive.deadletters.portrait import Payload, header_text, payload_values, portray, portray_bytes
from redrive.deadletters.replay import Report, Tell
from redrive.deadletters.selection import Plan
from redrive.deadletters.states import Mark, Release, StateBook
from redrive.deadletters.summary import Listed, Row

#: A report names so many letters that weren't sent; --json names a thousand.
_TOLD = 20
_WIDEST = 60

_HINTS = {
    "without its value, which its share group didn't copy": "errors.deadletterqueue.copy.record.enable=true copies them",
    "poison": "--include-poison, or named by --at",
    "unknown whether it was sent": "--again, after a look at what the group did with it",
    "foreign, doesn't say where to go": "--to TOPIC",
    "doesn't say where to go": "--to TOPIC",
    "replayed already": "--at … --again",
    "discarded already": "--at … --again",
}


def show_counts(output: Output, rows: Sequence[Row], topics: Sequence[str]) -> None:
    """The answer of `ls`."""
    if rows:
        output.table(
            ["topic", "reason", "type", "group", "unresolved", "resolved", "first seen", "last seen"],
            [
                (
                    row.topic,
                    _cut(row.reason) or f"({row.dialect or 'foreign'})",
                    _cut(row.failure_type) or "-",
                    _cut(row.group) or "-",
                    f"{row.unresolved}{f' ({row.unknown} unknown)' if row.unknown else ''}",
                    row.resolved,
                    when(row.first_ms),
                    when(row.last_ms),
                )
                for row in rows
            ],
        )
        output.line()
    letters, unresolved = sum(row.letters for row in rows), sum(row.unresolved for row in rows)
    where = f"{len(topics)} topic{'s' * (len(topics) != 1)}" if topics else "no dead-letter topic here"
    output.line(f"{letters} dead letter{'s' * (letters != 1)}, {unresolved} unresolved ({where})")
    if unknown := sum(row.letters for row in rows if not row.dialect):
        output.line(
            f"{unknown} foreign: their headers are no known dialect's; what they are called can be said in "
            "[own_dialects] of redrive.toml"
        )
    causes = [row_values(row) for row in rows]
    output.result({"topics": list(topics), "letters": letters, "unresolved": unresolved, "causes": causes})


def show_list(output: Output, letters: Sequence[Listed]) -> None:
    """The answer of `ls --all`."""
    if letters:
        output.table(
            ["at", "since", "state", "reason", "type", "group", "event id"],
            [
                (
                    one.position,
                    when(one.timestamp_ms),
                    one.mark.shown if one.mark else "open",
                    _cut(one.seen.reason) or f"({one.seen.dialect or 'foreign'})",
                    _cut(one.seen.failure_type) or "-",
                    _cut(one.seen.group) or "-",
                    _cut(one.seen.event_id) or "-",
                )
                for one in letters
            ],
        )
    else:
        output.line("no dead letter")
    output.result({"letters": [listed_values(one) for one in letters]})


class Told(NamedTuple):
    """A letter, its state, and all that was done with it."""

    letter: Letter
    mark: Mark | None
    changes: Sequence[Mark | Release]


def show_letter(output: Output, told: Told, translator: Translator, *, full: bool) -> None:
    """The answer of `show`: the only one that tells what a record holds."""
    letter = told.letter
    values = portray(*told)
    record = letter.record
    for name, text in _facts(values):
        output.line(f"{name + ':':<16}{text}")
    # What was understood has been told; in --json all headers are there as they came.
    understood = translator.names_in(letter.dialect) - set(letter.unreadable)
    for name, value in foreign_headers(headers_of(record)):
        if name in understood:
            continue
        shown = header_text(value)
        output.line(f"{'header:':<16}{name} = {'(null)' if shown is None else shown}")
    _show_history(output, values)
    if values["failure"]["stack"]:
        output.line()
        output.line(values["failure"]["stack"].rstrip())
    _show_payload(output, "key", portray_bytes(record.key(), full=full))
    if letter.has_lost_its_value:
        output.line()
        why = (
            "not here; its share group's dead-letter queue copies no records"
            if letter.is_pointer
            else "lost; it was too large for this topic"
        )
        output.line(f"value: {why}. See the source for as long as it is kept there")
    else:
        _show_payload(output, "value", portray_bytes(record.value(), full=full))
    output.result({**values, "key": payload_values(record.key()), "value": payload_values(record.value())})


def _facts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    failure, source = values["failure"], values["source"]
    yield "at", values["at"]
    yield "state", values["state"]
    if values["foreign"]:
        yield "foreign", _whose(values["dialect"])
    yield "since", when(values["dead_lettered_ms"])
    if values["reason"]:
        yield "reason", values["reason"]
    if failure["type"] or failure["message"]:
        kind = f" ({failure['kind']})" if failure["kind"] else ""
        yield (
            "failure",
            ": ".join(part for part in ((failure["type"] + kind).strip(), failure["message"]) if part),
        )
    if values["group"]:
        listener = f", listener {values['listener']}" if values["listener"] else ""
        yield "group", f"{values['group']}{listener}"
    yield "event id", values["event_id"]
    if source:
        written = f", written {when(values['source_timestamp_ms'])}" if values["source_timestamp_ms"] else ""
        known = (
            part for part in (source["topic"], source["partition"], source["offset"]) if part is not None
        )
        yield "source", "/".join(map(str, known)) + written
    if values["attempts"]:
        first, last = values["first_failed_ms"], values["last_failed_ms"]
        yield "attempts", f"{values['attempts']}, first failed {when(first)}, last {when(last)}"
    if values["replays"]:
        yield "replays", f"{values['replays']}, the last by {values['replay_id'] or 'nobody knows'}"
    if values["replay_topic"]:
        yield "replay goes to", values["replay_topic"]
    if values["holds"]:
        yield "waiting for it", f"later records of its {values['holds']}, until it is replayed or discarded"
    if failure["fingerprint"]:
        yield "fingerprint", failure["fingerprint"]
    if values["unreadable_headers"]:
        yield "unreadable", ", ".join(values["unreadable_headers"])


def _whose(dialect: str) -> str:
    if not dialect:
        return "not written by redrive, and its headers are no known dialect's"
    return f"not written by redrive; its headers are those of the dialect {dialect}"


def _show_history(output: Output, values: Mapping[str, Any]) -> None:
    for change in values["history"]:
        who = " ".join(filter(None, [when(change.get("when_ms")), change.get("who", "")]))
        why = f": {change['why']}" if change.get("why") else ""
        over = f", taken over from {change['over']}" if change.get("over") else ""
        output.line(f"{'history:':<16}{change['state']} {who} (job {change['job']}{over}){why}")


def _show_payload(output: Output, name: str, payload: Payload) -> None:
    output.line()
    size = f", {payload.size_bytes} bytes" if payload.size_bytes else ""
    output.line(f"{name}: {payload.kind}{size}")
    if payload.text:
        output.line(payload.text)
    if payload.omitted_bytes:
        output.line(f"… {payload.omitted_bytes} more bytes; --full prints all")


def show_plan(
    output: Output, plan: Plan, existing: Collection[str], *, readers: Mapping[str, Sequence[str]]
) -> None:
    """What is about to be done; programs get it with the result. `readers`: of the topics that no group has to itself."""
    rows = [
        (source, target or "-", sum(reasons.values()), _reasons(reasons), _trouble(plan, target, existing))
        for (source, target), reasons in plan.routes().items()
    ]
    count = len(plan.entries)
    output.line(f"{plan.kind}: {count} letter{'s' * (count != 1)}")
    if rows:
        output.table(["from", "to", "letters", "by reason", ""], rows)
    for why, left in plan.left_out.items():
        hint = f" ({_HINTS[why]})" if why in _HINTS else ""
        output.line(f"left out: {left}, {why}{hint}")
    if plan.beyond_limit:
        output.line(f"not now: {plan.beyond_limit} more beyond the limit")
    for missing in plan.missing[:_TOLD]:
        output.line(f"not found: {missing}")
    if len(plan.missing) > _TOLD:
        output.line(f"not found: {len(plan.missing) - _TOLD} more")
    for topic, groups in readers.items():
        if groups:
            output.line(f"{topic} is read by {', '.join(groups)}: each of these groups gets the letters")
        else:
            output.line(f"{topic} is read by no group that has committed anything")
    if (more := len(plan.shared_targets()) - len(readers)) > 0 and readers:
        output.line(f"and {more} more topics, which any group may read")
    if not plan.entries and not plan.left_out and plan.seen:
        output.line(f"nothing matches; there are {_reasons(plan.seen)}")


def show_report(output: Output, plan: Plan, report: Report) -> None:
    """What became of each letter."""
    done = "sent" if plan.kind == "replay" else "discarded"
    output.line(
        f"{report.done} {done}, {report.failed} failed, {report.skipped} skipped, {report.not_found} not found "
        f"of {report.selected} (job {report.job})"
    )
    for (what, why), count in report.causes.items():
        output.line(f"{what}: {count}, {why}")
    shown = [trouble for trouble in report.troubles if trouble.what != "skipped"][:_TOLD]
    for trouble in shown:
        output.line(f"  {trouble.letter} {trouble.what}")
    more = report.failed + report.not_found - len(shown)
    if more > 0:
        output.line(f"  and {more} more; --json names up to a thousand")
    if report.unmarked:
        output.line(f"{report.unmarked} of the {done} show as unknown: their state couldn't be written")
    if report.stopped:
        output.line(f"stopped: {report.stopped}")


def warn(output: Output, books: Sequence[StateBook]) -> None:
    """What is to be known of the states."""
    for note in state_notes(books):
        output.note(note)


@contextmanager
def progress(output: Output, plan: Plan) -> Generator[Tell]:
    """A bar on a terminal, nothing elsewhere."""
    if output.as_json or not sys.stderr.isatty():
        yield lambda _, __: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(plan.kind, total=plan.selected)
        yield lambda accounted, _: bar.update(task, completed=accounted)


def when(ms: int | None) -> str:
    """An instant for a person, UTC."""
    if ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def whoami() -> str:
    """user@host of this process."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}".encode(errors="replace").decode()  # either may be no UTF-8


def _reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{_cut(reason)} {count}" for reason, count in sorted(counts.items(), key=lambda one: -one[1])
    )


def _trouble(plan: Plan, target: str, existing: Collection[str]) -> str:
    return "" if plan.kind == "discard" or target in existing else "doesn't exist: these would fail"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
