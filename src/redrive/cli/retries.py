"""`redrive retries`: what waits in the retry topics, and hurrying or discarding some of it."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from redrive.cli.bundles import unbundled
from redrive.cli.operating import (
    Doing,
    Groups,
    Types,
    Where,
    confirm,
    duration_ms,
    open_desk,
    positions,
    stopping,
)
from redrive.cli.output import Output, reporting
from redrive.core.exit_codes import ExitCode

if TYPE_CHECKING:
    from redrive.core.notices import Action
    from redrive.deadletters.replay import Desk
    from redrive.retries.selection import Plan, Selection
    from redrive.retries.tiers import OpenTier, Scope

app = typer.Typer(
    no_args_is_help=True,
    help="Waiting retries: count what waits in the retry topics and until when, make some of it due now, discard some.",
)

#: What a person says goes into log lines and into a topic.
_SAID_MOST = 1_000

Tiers = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TIER]...", help="Retry or replay topics. By default all.", show_default=False),
]
At = Annotated[
    list[str] | None,
    typer.Option(
        "--at", metavar="TIER/PARTITION/OFFSET", help="This record; may be repeated.", show_default=False
    ),
]
EventIds = Annotated[
    list[str] | None,
    typer.Option(
        "--event-id", metavar="ID", help="Records of this event; may be repeated.", show_default=False
    ),
]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", metavar="TEXT", help="Records of this key; may be repeated.", show_default=False),
]
OlderThan = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="First failed longer ago than that, as in 1h30m.", show_default=False
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, metavar="N", help="The N that are due first.", show_default=False),
]
Everything = Annotated[bool, typer.Option("--all", help="All that wait.")]
Why = Annotated[str, typer.Option("--why", help="The reason; kept with it, and logged by the workers.")]
Wait = Annotated[
    str,
    typer.Option(
        metavar="DURATION", help="How long to watch what becomes of the records; 0s: only ask for it."
    ),
]


class Chosen(NamedTuple):
    """Options by which a person says which waiting records they mean."""

    tiers: Tiers = None
    at: At = None
    event_id: EventIds = None
    failure_type: Types = None
    key: Keys = None
    group: Groups = None
    older_than: OlderThan = None
    limit: Limit = None
    everything: Everything = False


@app.command()
@unbundled
def ls(where: Where, tiers: Tiers = None, group: Groups = None) -> None:
    """Count what waits in the retry topics: by topic and group, with dues and failure types. Changes nothing."""
    from redrive.cli import retries_view
    from redrive.retries.survey import survey
    from redrive.retries.tiers import waiting_records

    with reporting(as_json=where.json) as output:
        found = _look(tiers, group, where, output)
        with retries_view.scanning(output, found.tiers) as tell:
            now_ms = found.desk.clock.wall_ms()
            waiting = waiting_records(found.tiers, found.desk.log, found.scope, tell)
            rows = survey(found.tiers, waiting, now_ms)
        retries_view.show_rows(output, rows, found.tiers, now_ms)


@app.command()
@unbundled
def hurry(chosen: Chosen, doing: Doing, where: Where, why: Why = "", wait: Wait = "10s") -> None:
    """
    Make waiting records due now. Nothing is copied: the group's workers run the same records earlier.

    Attempts aren't changed. Workers see it within two seconds; without one running it counts when the next starts.
    """
    _operate("hurry", chosen, doing, where, why, wait)


@app.command()
@unbundled
def discard(chosen: Chosen, doing: Doing, where: Where, why: Why = "", wait: Wait = "10s") -> None:
    """
    Let waiting records never run again. They are no dead letters; who did it, when and why stands in the state topic.

    What a handler has already been given isn't stopped, and is counted as come too late: exit code 3 then.
    """
    _operate("discard", chosen, doing, where, why, wait)


class _Found(NamedTuple):
    """Where retries wait, and whose are meant."""

    desk: "Desk"
    tiers: "Sequence[OpenTier]"
    scope: "Scope"


def _look(topics: list[str] | None, groups: list[str] | None, where: Where, output: Output) -> _Found:
    from redrive.deadletters.topics import ALL_STYLES, Names
    from redrive.retries.tiers import Scope, find_tiers

    found, desk = open_desk(where, output, client_id="redrive-retries")
    naming, its = found.settings.naming, found.app
    if its is None:
        names, scope = (
            Names((naming, *ALL_STYLES)),
            Scope(groups=frozenset(groups or ()), translator=found.settings.translator),
        )
    else:
        names = Names((naming,), its.group)
        accepted = {*its.accepts_groups, *found.settings.accepts_groups}
        scope = Scope(
            # Of a topic that is named, whatever its source.
            frozenset() if topics else frozenset(listener.topic for listener in its.listeners),
            frozenset(groups or [its.group]),
            dict.fromkeys(accepted, its.group),
            found.settings.translator,
        )
    return _Found(desk, find_tiers(desk.cluster, names, topics, scope), scope)


def _selection(chosen: Chosen) -> "Selection":
    from redrive.errors import ReplayRefused
    from redrive.retries.selection import Selection

    selection = Selection(
        at=frozenset(positions(chosen.at or (), "--at")),
        event_ids=frozenset(chosen.event_id or ()),
        types=frozenset(chosen.failure_type or ()),
        keys=frozenset(each.encode(errors="surrogateescape") for each in chosen.key or ()),
        groups=frozenset(chosen.group or ()),
        older_than_ms=None if chosen.older_than is None else duration_ms(chosen.older_than, "--older-than"),
        limit=chosen.limit,
        everything=chosen.everything,
    )
    try:
        selection.require()
    except ReplayRefused as error:
        raise typer.BadParameter(str(error), param_hint="selection") from None
    return selection


def _operate(action: "Action", chosen: Chosen, doing: Doing, where: Where, why: str, wait: str) -> None:
    """Plan, print, ask, post, watch, tell."""
    from redrive.cli import dlq_view, retries_view
    from redrive.deadletters.accounts import job_name
    from redrive.deadletters.states import Author
    from redrive.retries.job import Job

    with reporting(as_json=where.json) as output:
        selection, wait_ms = _selection(chosen), duration_ms(wait, "--wait")
        found = _look(chosen.tiers, chosen.group, where, output)
        plan = _plan(action, found, selection, output)
        as_json = retries_view.plan_values(plan)
        confirm(action, f"{plan.count} waiting record{'s' * (plan.count != 1)}", as_json, output, doing)
        name = job_name(action, found.desk.clock.wall_ms())
        author = Author((doing.who or dlq_view.whoami())[:_SAID_MOST], name, why[:_SAID_MOST])
        stop = threading.Event()
        job = Job(found.desk, plan, found.tiers, author, stop)
        job.require()
        job.post()
        told = "what was asked for stays; not watched any longer"
        with stopping(stop, output, told), retries_view.watching(output, plan) as tell:
            outcome = job.watch(wait_ms, tell)
        retries_view.show_outcome(output, plan, outcome)
        output.result({**as_json, **retries_view.outcome_values(plan, outcome)})
        if outcome.failed:
            raise typer.Exit(ExitCode.PARTIAL if outcome.failed < plan.count else ExitCode.FAILED)
        came_too_late = action == "discard" and outcome.ran
        if came_too_late or outcome.not_found or (outcome.waiting and wait_ms):
            raise typer.Exit(ExitCode.PARTIAL)


def _plan(action: "Action", found: _Found, selection: "Selection", output: Output) -> "Plan":
    """Select and print; exits where there is nothing to do."""
    from redrive.cli import retries_view
    from redrive.errors import ReplayRefused
    from redrive.retries.selection import make_plan
    from redrive.retries.tiers import waiting_records

    with retries_view.scanning(output, found.tiers) as tell:
        waiting = waiting_records(found.tiers, found.desk.log, found.scope, tell)
        plan = make_plan(selection, waiting, action, found.desk.clock.wall_ms())
    if len(plan.groups) > 1 and not found.scope.groups:
        raise ReplayRefused(
            f"these tiers are read by several groups ({', '.join(plan.groups)}), and what one of them discards the others "
            "would still run: name the group by --group or --app; nothing was done"
        )
    retries_view.show_plan(output, plan)
    if not plan.targets:
        output.result(retries_view.plan_values(plan))
        raise typer.Exit(ExitCode.NOTHING)
    return plan
