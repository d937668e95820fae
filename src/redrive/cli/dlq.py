"""`redrive dlq`: look at dead letters, send them back, discard them."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from redrive.cli.bundles import unbundled
from redrive.cli.operating import Doing, Groups, Types, Where, confirm, find_app, positions, stopping
from redrive.cli.output import Output, reporting
from redrive.core.dialect_tables import FOREIGN
from redrive.core.exit_codes import ExitCode
from redrive.errors import PortError

if TYPE_CHECKING:
    from redrive.deadletters.counter import Counter
    from redrive.deadletters.replay import Job, Report, Tell
    from redrive.deadletters.selection import Kind, Plan, Selection
    from redrive.deadletters.states import StateBook
    from redrive.deadletters.topics import Names

#: Topics for which it is asked who reads them: each question is a round trip for every group.
_MOST_TOLD = 10

app = typer.Typer(
    no_args_is_help=True,
    help="Dead letters: count them by cause, look at one, send them back to the group that failed them, discard them.",
    epilog=f"Those of other systems are understood too, by their headers: {', '.join(FOREIGN)}, and your own_dialects. "
    "Name their topics.",
)

Topics = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TOPIC]...", help="Dead-letter topics. By default all.", show_default=False),
]
At = Annotated[
    list[str] | None,
    typer.Option(
        "--at", metavar="DLQ/PARTITION/OFFSET", help="This letter; may be repeated.", show_default=False
    ),
]
EventIds = Annotated[
    list[str] | None,
    typer.Option(
        "--event-id", metavar="ID", help="Letters of this event; may be repeated.", show_default=False
    ),
]
Reasons = Annotated[
    list[str] | None,
    typer.Option("--reason", help="permanent, exhausted, poison, …; may be repeated.", show_default=False),
]
OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than", metavar="DURATION", help="Put aside at least so long ago.", show_default=False
    ),
]
NewerThan = Annotated[
    str | None,
    typer.Option(
        "--newer-than", metavar="DURATION", help="Put aside at most so long ago.", show_default=False
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, metavar="N", help="The oldest N.", show_default=False)
]
Everything = Annotated[bool, typer.Option("--all", help="All unresolved letters.")]
IncludePoison = Annotated[
    bool, typer.Option("--include-poison", help="Also letters that couldn't be decoded.")
]
Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Also letters of which nobody knows whether they were sent; and, named by --at or --event-id, those that "
        "were sent or discarded.",
    ),
]
To = Annotated[
    str | None,
    typer.Option(metavar="TOPIC", help="Send there instead of to the failing group.", show_default=False),
]
Rate = Annotated[
    str | None, typer.Option(metavar="N/s", help="At most so many; /m and /h too.", show_default=False)
]


class Chosen(NamedTuple):
    """Options by which a person says which letters they mean."""

    at: At = None
    event_id: EventIds = None
    reason: Reasons = None
    failure_type: Types = None
    group: Groups = None
    older_than: OlderThan = None
    newer_than: NewerThan = None
    limit: Limit = None
    everything: Everything = False
    again: Again = False


@app.command()
@unbundled
def ls(
    where: Where,
    topics: Topics = None,
    reason: Reasons = None,
    failure_type: Types = None,
    group: Groups = None,
    event_id: EventIds = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    unresolved: Annotated[
        bool, typer.Option("--unresolved", help="Leave out what was replayed or discarded.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="List each letter instead of counting.")] = False,
) -> None:
    """Count dead letters by topic, reason, failure type and group; or list them. Changes nothing."""
    from redrive.cli import dlq_view
    from redrive.deadletters.selection import Selection
    from redrive.deadletters.summary import count_listed, list_letters

    with reporting(as_json=where.json) as output:
        counter = _open_counter(where, output)
        books = counter.books(topics)
        selection = Selection(
            reasons=frozenset(reason or ()),
            types=frozenset(failure_type or ()),
            groups=frozenset(group or ()),
            event_ids=frozenset(event_id or ()),
            from_ms=_ago(newer_than, "--newer-than"),
            until_ms=_ago(older_than, "--older-than"),
        )
        desk, selection = counter.desk, counter.narrowed(selection, topics)
        letters = list_letters(selection, books, desk.log, unresolved=unresolved, translator=desk.translator)
        if everything:
            dlq_view.show_list(output, list(letters))
        else:
            dlq_view.show_counts(output, count_listed(letters), [book.dlq.topic for book in books])
        dlq_view.warn(output, books)


@app.command()
@unbundled
def show(
    where: Where,
    at: Annotated[
        str | None,
        typer.Argument(
            metavar="[DLQ/PARTITION/OFFSET]",
            help="The letter, as ls --all names it. With --event-id a topic, by default all.",
            show_default=False,
        ),
    ] = None,
    event_id: Annotated[
        str | None,
        typer.Option("--event-id", metavar="ID", help="The newest letter of this event.", show_default=False),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print a large payload to its end.")] = False,
) -> None:
    """Show one dead letter: why it is one, what it holds, its stack, and what was done with it."""
    from redrive.cli import dlq_view
    from redrive.deadletters.portrait import find_letter, find_newest

    with reporting(as_json=where.json) as output:
        if at is None and event_id is None:
            raise typer.BadParameter("name a letter, by its position or by --event-id", param_hint="letter")
        position = positions([at], "DLQ/PARTITION/OFFSET")[0] if at and event_id is None else None
        counter = _open_counter(where, output)
        topic = position.topic if position else at
        books = counter.books([topic] if topic else None)
        translator = counter.desk.translator
        if position is None:
            position = find_newest(event_id or "", books, counter.desk.log, translator=translator)
        [book] = [book for book in books if book.dlq.topic == position.topic]
        letter = find_letter(position, book, counter.desk.log, translator=translator)
        mark = book.mark(position, letter.record.timestamp()[1])
        said = dlq_view.Told(letter, mark, book.history(position))
        dlq_view.show_letter(output, said, translator, full=full)


@app.command()
@unbundled
def replay(
    chosen: Chosen,
    doing: Doing,
    where: Where,
    topics: Topics = None,
    include_poison: IncludePoison = False,
    to: To = None,
    rate: Rate = None,
) -> None:
    """
    Send dead letters back to the group that failed them: attempt 1, due at once, nothing else changed.

    Letters of other systems go to the topic that they came from, to every group that reads it.

    Prints what it will do, and asks. The letters stay where they are; what was sent isn't sent again unasked.
    """
    with reporting(as_json=where.json) as output:
        per_s = _rate(rate)
        selection = _selection(chosen, include_poison=include_poison)
        counter = _open_counter(where, output)
        work = _plan(counter, selection, topics, "replay", output, to=to or "")
        _confirm(work, output, doing)
        _carry_out(work, output, doing.who, "", lambda job, tell: job.replay(per_s=per_s, tell=tell))


@app.command()
@unbundled
def discard(
    chosen: Chosen,
    doing: Doing,
    where: Where,
    topics: Topics = None,
    why: Annotated[str, typer.Option("--why", help="Kept with the letter's state.")] = "",
) -> None:
    """Mark dead letters as done with, unsent. They stay in their topic, and --again with --at brings one back."""
    with reporting(as_json=where.json) as output:
        selection = _selection(chosen, include_poison=True)
        counter = _open_counter(where, output)
        work = _plan(counter, selection, topics, "discard", output)
        _confirm(work, output, doing)
        _carry_out(work, output, doing.who, why, lambda job, tell: job.discard(tell))


class _Work(NamedTuple):
    counter: "Counter"
    books: "Sequence[StateBook]"
    plan: "Plan"
    as_json: dict[str, Any]


def _open_counter(where: Where, output: Output) -> "Counter":
    from redrive.cli.cluster import open_counter
    from redrive.cli.run import tune_gc

    counter = open_counter(find_app(where), "redrive-dlq", output)
    tune_gc()
    return counter


def _rate(text: str | None) -> float | None:
    from redrive.deadletters.pace import parse_rate

    try:
        return None if text is None else parse_rate(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--rate") from None


def _ago(text: str | None, hint: str) -> int | None:
    """The instant that lies so long back."""
    from redrive.core.units import parse_duration_ms
    from redrive.runtime.clock import SystemClock

    try:
        return None if text is None else int(SystemClock().wall_ms()) - parse_duration_ms(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None


def _selection(chosen: Chosen, *, include_poison: bool) -> "Selection":
    from redrive.deadletters.selection import Selection
    from redrive.errors import ReplayRefused

    selection = Selection(
        at=frozenset(positions(chosen.at or (), "--at")),
        event_ids=frozenset(chosen.event_id or ()),
        reasons=frozenset(chosen.reason or ()),
        types=frozenset(chosen.failure_type or ()),
        groups=frozenset(chosen.group or ()),
        from_ms=_ago(chosen.newer_than, "--newer-than"),
        until_ms=_ago(chosen.older_than, "--older-than"),
        limit=chosen.limit,
        everything=chosen.everything,
        include_poison=include_poison,
        again=chosen.again,
    )
    try:
        selection.require()
    except ReplayRefused as error:
        raise typer.BadParameter(str(error), param_hint="selection") from None
    return selection


def _plan(
    counter: "Counter",
    selection: "Selection",
    topics: list[str] | None,
    kind: "Kind",
    output: Output,
    *,
    to: str = "",
) -> _Work:
    """Plan, and print it; exits where there is nothing to do."""
    from redrive.cli import dlq_view
    from redrive.deadletters.accounts import plan_values
    from redrive.deadletters.selection import make_plan

    _require_target(to, counter.names)
    named = {position.topic for position in selection.at}
    if topics and (elsewhere := named - set(topics)):
        raise typer.BadParameter(
            f"{', '.join(sorted(elsewhere))} is none of the topics given", param_hint="--at"
        )
    books = counter.books(topics or sorted(named))
    selection = counter.narrowed(selection, topics)
    desk = counter.desk
    plan = counter.without_forgeries(
        make_plan(selection, books, desk.log, kind=kind, to=to, translator=desk.translator)
    )
    existing = desk.cluster.describe()
    # What no single group has to itself: who reads it is what a person must know before it is sent.
    shared = ([to] if to else plan.shared_targets())[:_MOST_TOLD]
    try:
        readers = desk.cluster.readers([topic for topic in shared if topic in existing])
    except PortError as error:
        readers = {}
        output.note(f"not checked: which groups read {', '.join(shared)}: {error}")
    work = _Work(counter, books, plan, plan_values(plan, readers))
    dlq_view.show_plan(output, plan, existing.keys(), readers=readers)
    dlq_view.warn(output, books)
    if not plan.entries:
        output.result(work.as_json)
        raise typer.Exit(ExitCode.NOTHING)
    return work


def _require_target(to: str, names: "Names") -> None:
    from redrive.core.topology import Role

    if to and names.role(to) in {Role.DLQ, Role.STATE}:
        raise typer.BadParameter(
            f"{to} is a {names.role(to)} topic: nobody handles what is there", param_hint="--to"
        )


def _confirm(work: _Work, output: Output, doing: Doing) -> None:
    count = len(work.plan.entries)
    what = f"{count} letter{'s' * (count != 1)}"
    confirm(work.plan.kind, what, work.as_json, output, doing)


def _carry_out(
    work: _Work, output: Output, who: str | None, why: str, run: "Callable[[Job, Tell], Report]"
) -> None:
    from redrive.cli import dlq_view
    from redrive.deadletters.accounts import job_name, report_values
    from redrive.deadletters.replay import Job
    from redrive.deadletters.states import Author

    name = job_name(work.plan.kind, work.counter.desk.clock.wall_ms())
    author = Author(who or dlq_view.whoami(), name, why)
    stop = threading.Event()
    job = Job(work.counter.desk, work.plan, work.books, author, stop)
    with stopping(stop, output), dlq_view.progress(output, work.plan) as tell:
        report = run(job, tell)
    dlq_view.show_report(output, work.plan, report)
    output.result({**work.as_json, **report_values(work.plan, report)})
    if report.stopped == "interrupted":
        raise typer.Exit(ExitCode.INTERRUPTED)
    if report.is_partial:
        raise typer.Exit(ExitCode.PARTIAL if report.done else ExitCode.FAILED)
