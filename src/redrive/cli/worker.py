"""`redrive worker`: what running processes are at; pausing a listener of theirs, getting past a stuck record."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from redrive.cli.bundles import unbundled
from redrive.cli.operating import Doing, Where, confirm, duration_ms, find_app, open_desk, positions, stopping
from redrive.cli.output import Output, reporting
from redrive.core.exit_codes import ExitCode

if TYPE_CHECKING:
    from redrive.cli.worker_view import Asked
    from redrive.core.inspection import WorkersSeen
    from redrive.core.plan import GroupPlan, ListenerPlan
    from redrive.core.settings import Settings
    from redrive.deadletters.replay import Desk

app = typer.Typer(
    no_args_is_help=True,
    help="Running processes: what they are at, pausing a listener for all of them, skipping a record that is stuck.",
)

#: What a person says goes into log lines and into a topic.
_SAID_MOST = 1_000

At = Annotated[
    list[str] | None,
    typer.Option(
        "--at",
        metavar="HOST:PORT",
        help="Where processes serve HTTP; may be repeated. By default the setting http.",
        show_default=False,
    ),
]
ListenerName = Annotated[str, typer.Argument(metavar="LISTENER", help="Its name.", show_default=False)]
Record = Annotated[
    str, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="The record.", show_default=False)
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; kept with it, and logged by the workers.")
]
Wait = Annotated[
    str,
    typer.Option(
        metavar="DURATION", help="How long to watch what becomes of the record; 0s: only ask for it."
    ),
]
Who = Annotated[
    str | None,
    typer.Option("--who", help="Who is said to have done it. By default user@host.", show_default=False),
]


@app.command()
@unbundled
def ls(where: Where, at: At = None) -> None:
    """List running processes: whether each is ready, what it has, what is stuck. Asks over HTTP, with http_token."""
    from redrive.cli import worker_view

    with reporting(as_json=where.json) as output:
        asked = _asked(at, find_app(where, needs_kafka=False).settings)
        worker_view.show_list(output, asked)
        _exit_unless_complete(asked)


@app.command()
@unbundled
def dump(
    where: Where,
    at: At = None,
    listener: Annotated[
        str | None, typer.Option("--listener", metavar="NAME", help="Only this one.", show_default=False)
    ] = None,
) -> None:
    """
    Show all that processes know of their work: what runs and since when, what is stuck and why, each partition.

    Asks over HTTP, with http_token. Never a key or a value of a record.
    """
    from redrive.cli import worker_view

    with reporting(as_json=where.json) as output:
        asked = _asked(at, find_app(where, needs_kafka=False).settings)
        names = {each.name for worker in asked.seen.workers for each in worker.listeners}
        if listener is not None and listener not in names:
            raise typer.BadParameter(
                f"no process that answers has listener {listener!r}, but {', '.join(sorted(names))}",
                param_hint="--listener",
            )
        worker_view.show_dump(output, asked, listener)
        _exit_unless_complete(asked)


@app.command()
@unbundled
def pause(listener: ListenerName, where: Where, reason: Reason = "", who: Who = None) -> None:
    """
    Pause a listener in all processes of its group until it is resumed, whatever is restarted meanwhile.

    What runs may end, retries wait, nothing is lost. Processes see it within two seconds. Needs Kafka, not their HTTP.
    """
    _say("pause", listener, where, reason, who)


@app.command()
@unbundled
def resume(listener: ListenerName, where: Where, reason: Reason = "", who: Who = None) -> None:
    """Let a paused listener go on, in all processes of its group."""
    _say("resume", listener, where, reason, who)


@app.command()
@unbundled
def skip(
    record: Record, doing: Doing, where: Where, reason: Reason = "", wait: Wait = "10s", at: At = None
) -> None:
    """
    Get past one record that is stuck: it doesn't run again, and is no dead letter; who did it and why is written down.

    What a handler is at isn't stopped; it is skipped when it fails. Without a process running it counts for the next.
    """
    from redrive.cli import worker_view
    from redrive.deadletters.accounts import job_name
    from redrive.deadletters.states import Author, require_state_topic
    from redrive.retries.job import Job
    from redrive.workers.skipping import find

    with reporting(as_json=where.json) as output:
        wait_ms = duration_ms(wait, "--wait")
        [position] = positions([record], "TOPIC/PARTITION/OFFSET")
        open_ = _open(where, output)
        found = find(open_.desk, open_.plan, position)
        if isinstance(found, str):
            output.line(f"{position}: nothing to skip: {found}")
            output.result({"record": str(position), "answer": "unknown", "why": found})
            raise typer.Exit(ExitCode.NOTHING)
        asked: dict[str, Any] = {"record": str(position), "listener": found.listener.name}
        worker_view.show_skippable(output, found, open_.desk.clock.wall_ms())
        confirm("skip", str(position), asked, output, doing)
        name = job_name("skip", open_.desk.clock.wall_ms())
        author = Author(_by(doing.who), name, reason[:_SAID_MOST])
        stop = threading.Event()
        job = Job(open_.desk, found.plan, (), author, stop)
        cluster, log, clock, _ = open_.desk
        require_state_topic(cluster, log, clock, dlq=found.listener.dlq, state=found.listener.state)
        job.post()
        with stopping(stop, output, "what was asked for stays; not watched any longer"):
            outcome = job.watch(wait_ms)
        workers = _seen_by(at, open_.settings) if outcome.waiting else None
        answer = worker_view.show_answer(output, position, outcome, workers)
        output.result({**asked, **answer, "job": name, "who": author.who, "reason": author.why})
        if outcome.failed:
            raise typer.Exit(ExitCode.FAILED)
        if outcome.ran or (outcome.waiting and wait_ms):
            raise typer.Exit(ExitCode.PARTIAL)


class _Open(NamedTuple):
    """A group, and where it works."""

    desk: "Desk"
    plan: "GroupPlan"
    settings: "Settings"

    def listener(self, name: str) -> "ListenerPlan":
        for each in self.plan.listeners:
            if each.name == name:
                return each
        names = ", ".join(each.name for each in self.plan.listeners)
        raise typer.BadParameter(
            f"{self.plan.group} has no listener {name!r}, but {names}", param_hint="LISTENER"
        )


def _open(where: Where, output: Output) -> _Open:
    from redrive.runtime.planning import plan_group

    found, desk = open_desk(where, output, client_id="redrive-worker")
    if found.app is None:
        raise typer.BadParameter(
            'name the app whose group is meant, as in service:app; or set REDRIVE_APP, or app = "service:app" in '
            "redrive.toml",
            param_hint="--app",
        )
    return _Open(desk, plan_group(found.app, found.settings, desk.cluster.describe()), found.settings)


def _say(action: str, name: str, where: Where, reason: str, who: str | None) -> None:
    from redrive.cli import worker_view
    from redrive.core.pausing import Pausing
    from redrive.workers.pausing import paused_listeners, say

    with reporting(as_json=where.json) as output:
        open_ = _open(where, output)
        listener = open_.listener(name)
        before = paused_listeners(open_.desk, [listener], open_.plan.group).get(name)
        said = Pausing(
            "pause" if action == "pause" else "resume",
            open_.plan.group,
            name,
            _by(who),
            int(open_.desk.clock.wall_ms()),
            reason[:_SAID_MOST],
        )
        say(open_.desk, listener, said)
        worker_view.show_said(output, said, before)


def _by(who: str | None) -> str:
    from redrive.cli.dlq_view import whoami

    return (who or whoami())[:_SAID_MOST]


def _exit_unless_complete(asked: "Asked") -> None:
    if asked.unanswered or asked.seen.silent:
        raise typer.Exit(ExitCode.PARTIAL)


def _asked(at: Sequence[str] | None, settings: "Settings") -> "Asked":
    """What processes are at, and who doesn't answer. Raises PortError where nobody does."""
    from redrive.adapters.worker_http import ask_workers
    from redrive.cli.worker_view import Asked
    from redrive.core.inspection import WorkersSeen
    from redrive.core.settings import is_address
    from redrive.errors import PortError, SettingsError

    for address in at or ():
        if not is_address(address):
            raise typer.BadParameter(f"{address!r} is no address: write HOST:PORT", param_hint="--at")
    addresses = list(at or ([settings.http] if settings.http else []))
    missing = [
        (
            "http_token",
            "not set; give that of the processes: REDRIVE_HTTP_TOKEN, or http_token in redrive.toml",
        )
    ] * (not settings.http_token)
    if not addresses:
        missing.append(("http", "not set, so nobody knows where processes serve: give --at HOST:PORT"))
    if missing:
        raise SettingsError(missing)
    found: list[WorkersSeen] = []
    problems: list[str] = []
    for address in addresses:
        try:
            found.append(ask_workers(address, settings.http_token))
        except PortError as error:
            problems.append(str(error))
    if not found:
        raise PortError("; ".join(problems))
    seen = WorkersSeen(
        workers=tuple(worker for each in found for worker in each.workers),
        silent=tuple(number for each in found for number in each.silent),
    )
    return Asked(seen, tuple(problems))


def _seen_by(at: Sequence[str] | None, settings: "Settings") -> "WorkersSeen | None":
    """The same for who can do without."""
    from redrive.errors import RedriveError

    if not settings.http_token or not (at or settings.http):
        return None
    try:
        return _asked(at, settings).seen
    except RedriveError:
        return None
