"""The `redrive` command. Command modules import what is heavy inside their functions, so that `--help` is quick."""

import sys
from typing import Annotated

import typer

from redrive._version import __version__
from redrive.cli import (
    console,
    demo,
    dlq,
    doctor,
    explain,
    init,
    lag,
    observation,
    retries,
    run,
    topics,
    worker,
)
from redrive.core.exit_codes import ExitCode

app = typer.Typer(
    name="redrive",
    help="Makes Kafka consumers survive failure: retry ladders on exact times, dead letters, replay with proof.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 partial, 4 differences found, 5 nothing matched, 6 stopped, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("init")(init.init)
app.command("demo")(demo.demo)
app.command("console")(console.console)
app.command("alerts")(observation.alerts)
app.command("dashboard")(observation.dashboard)
app.command("doctor")(doctor.doctor)
app.command("lag")(lag.lag)
app.command("explain")(explain.explain)
app.add_typer(topics.app, name="topics")
app.add_typer(dlq.app, name="dlq")
app.add_typer(retries.app, name="retries")
app.add_typer(worker.app, name="worker")


@app.callback()
def _root(
    _: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version.",
            is_eager=True,
            callback=lambda asked: _version(asked=asked),
        ),
    ] = False,
) -> None:
    pass


def _version(*, asked: bool) -> None:
    if asked:
        print(f"redrive {__version__}")
        raise typer.Exit


def main() -> None:
    """What the installed `redrive` runs. What isn't UTF-8 can't be written to Kafka, and no name of anything is such."""
    for argument in sys.argv[1:]:
        if not argument.isascii() and any("\ud800" <= char <= "\udfff" for char in argument):
            print(f"Error: {argument!a} is not UTF-8; nothing was done", file=sys.stderr)
            raise SystemExit(ExitCode.USAGE)
    app()
