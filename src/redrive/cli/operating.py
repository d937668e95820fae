"""What commands share that change something: options by which a person selects, how they ask, how they are stopped."""

import signal
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from redrive.cli.context import HERE, AppDir, Bootstrap, Config, Json, MaybeLoaded, load_if_named
from redrive.cli.output import Output
from redrive.core.exit_codes import ExitCode

if TYPE_CHECKING:
    from redrive.deadletters.letters import Position
    from redrive.deadletters.replay import Desk

AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:APP",
        help="Only what is this app's, by its names. By default REDRIVE_APP, else app = … in redrive.toml, else any.",
        show_default=False,
    ),
]
Types = Annotated[
    list[str] | None,
    typer.Option("--type", help="The failure's exception type; may be repeated.", show_default=False),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", help="The consumer group that failed; may be repeated.", show_default=False),
]


class Where(NamedTuple):
    """Options by which commands on records find the app, if there is one, and the cluster."""

    app_name: AppOption = None
    app_dir: AppDir = HERE
    bootstrap_servers: Bootstrap = None
    config: Config = None
    json: Json = False


class Doing(NamedTuple):
    """Options of commands that change something: whether they ask, and who does it."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan.")] = False
    who: Annotated[
        str | None,
        typer.Option("--who", help="Who is said to have done it. By default user@host.", show_default=False),
    ] = None


def find_app(where: Where, *, needs_kafka: bool = True) -> MaybeLoaded:
    """Gives the app, if one is named, with the settings. `needs_kafka` False: where Kafka is need not be known."""
    return load_if_named(
        where.app_name,
        app_dir=where.app_dir,
        bootstrap_servers=where.bootstrap_servers,
        config=where.config,
        needs_kafka=needs_kafka,
    )


def open_desk(where: Where, output: Output, *, client_id: str) -> "tuple[MaybeLoaded, Desk]":
    """Gives the app, if one is named, and what operations on records work with. `client_id`: where no app is named."""
    from redrive.adapters.kafka_log import KafkaLog
    from redrive.cli.cluster import connect
    from redrive.cli.run import tune_gc
    from redrive.deadletters.replay import Desk
    from redrive.runtime.clock import SystemClock

    found = find_app(where)
    client_id = found.app.group if found.app else client_id
    cluster = connect(found.settings, client_id, output)
    desk = Desk(cluster, KafkaLog(found.settings.client_options(client_id)), SystemClock())
    tune_gc()
    return found, desk


def positions(texts: Sequence[str], hint: str) -> "list[Position]":
    """Gives the positions that a person typed. Raises typer.BadParameter."""
    from redrive.deadletters.letters import Position

    try:
        return [Position.parse(text) for text in texts]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None


def duration_ms(text: str, hint: str) -> int:
    """Gives the duration that a person typed, zero included. Raises typer.BadParameter."""
    from redrive.core.units import parse_duration_ms

    try:
        return parse_duration_ms(text, allow_zero=True)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=hint) from None


def confirm(kind: str, what: str, as_json: Mapping[str, Any], output: Output, doing: Doing) -> None:
    """Go on only when a person said so, now or by an option; else exits. `as_json`: the plan, for programs."""
    if doing.dry_run:
        output.result(as_json)
        raise typer.Exit
    if doing.yes:
        return
    if not sys.stdin.isatty():
        output.note(f"nothing was done: without a terminal to ask on, {kind} needs --yes (or --dry-run)")
        output.result(as_json)
        raise typer.Exit(ExitCode.USAGE)
    try:
        is_meant = typer.confirm(f"{kind} {what}?", err=True)
    except typer.Abort:
        raise KeyboardInterrupt from None
    if not is_meant:
        output.note("nothing was done")
        output.result(as_json)
        raise typer.Exit(ExitCode.FAILED)


@contextmanager
def stopping(
    stop: threading.Event,
    output: Output,
    told: str = "stopping after what is on its way; once more ends at once, and leaves that unknown",
) -> Generator[None]:
    """The first Ctrl-C or SIGTERM ends the run after what is on its way, the second at once."""

    def on_signal(_: int, __: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        output.note(told)

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
