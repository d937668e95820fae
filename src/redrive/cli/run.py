"""`redrive run`: the process of an app, or its supervisor and workers."""

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from redrive.cli.context import HERE, AppDir, Bootstrap, Config, Loaded, Target, load
from redrive.cli.logs import LogFormat, set_up_logging
from redrive.cli.output import Output, reporting
from redrive.core.exit_codes import ExitCode
from redrive.errors import ListenerStopped

if TYPE_CHECKING:
    from redrive.adapters.worker_channel import WorkerChannel

#: More processes of one app on one machine than anybody wants.
MOST_WORKERS = 256

#: Collections that traverse all that lives cost more than they free: records die by reference count.
_GC_THRESHOLDS = (100_000, 50, 1_000)


Http = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Serve /livez, /readyz and /metrics here.", show_default=False),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MOST_WORKERS,
        metavar="N",
        help="Run N processes under a supervisor, which restarts them. By default this process alone.",
        show_default=False,
    ),
]
Membership = Annotated[
    str | None,
    typer.Option(
        metavar="dynamic|static",
        help="static: a worker that comes back gets its partitions back at once. By default dynamic.",
        show_default=False,
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(metavar="LEVEL", help="DEBUG, INFO, WARNING or ERROR. By default INFO.", show_default=False),
]
LogConfig = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Python logging configuration: .toml, .json or .ini.", show_default=False
    ),
]
GcTuning = Annotated[
    bool, typer.Option("--gc-tuning/--no-gc-tuning", help="Let the garbage collector run rarely.")
]


def run(
    target: Target = None,
    app_dir: AppDir = HERE,
    bootstrap_servers: Bootstrap = None,
    config: Config = None,
    http: Http = None,
    workers: Workers = None,
    membership: Membership = None,
    log_level: LogLevel = None,
    log_format: Annotated[LogFormat, typer.Option(help="Lines for people, or JSON.")] = LogFormat.PLAIN,
    log_config: LogConfig = None,
    gc_tuning: GcTuning = True,
    as_worker: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """
    Run all listeners of an app until SIGTERM or Ctrl-C.

    Handlers that run then may finish. A second signal ends at once: their records are read again by the next process.
    With --workers SIGHUP replaces one worker after another.
    """
    with reporting() as output:
        me = _worker(as_worker)
        overrides = {"http": http, "log_level": log_level and log_level.upper(), "membership": membership}
        loaded = load(
            target, app_dir=app_dir, bootstrap_servers=bootstrap_servers, config=config, overrides=overrides
        )
        level = loaded.settings.log_level
        set_up_logging(level=level, log_format=log_format, config=log_config, worker=me and me.number)
        if workers is not None and me is None:
            from redrive.cli.supervise import supervise

            raise typer.Exit(supervise(loaded, workers))
        if gc_tuning:
            tune_gc()
        _run(loaded, me, output)


class _Worker(NamedTuple):
    """What one of a supervisor's workers is told: its number, and the way to the supervisor."""

    number: int
    channel: "WorkerChannel"


def _worker(told: str | None) -> _Worker | None:
    if told is None:
        return None
    from redrive.adapters.worker_channel import WorkerChannel

    number, _, descriptor = told.partition(":")
    try:
        # Before the app is imported, which may take long: the supervisor may be gone by then.
        return _Worker(int(number), WorkerChannel(int(descriptor)))
    except (ValueError, OSError):
        raise typer.BadParameter(
            "is between a supervisor and its workers", param_hint="--as-worker"
        ) from None


def _run(loaded: Loaded, me: _Worker | None, output: Output) -> None:
    from redrive.runtime.running import run_until_stopped
    from redrive.wiring import serve

    app, settings = loaded.app, loaded.settings
    try:
        if me is None:
            run_until_stopped(lambda: serve(app, settings))
        else:
            run_until_stopped(
                lambda: serve(app, settings, worker=me.number, show=me.channel.answering),
                also_by=me.channel.when_told,
            )
    except ListenerStopped as error:
        output.problem(error)
        raise typer.Exit(ExitCode.STOPPED) from None


def tune_gc() -> None:
    """What is loaded by now lives as long as the process: it is never looked at again, and the rest rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
