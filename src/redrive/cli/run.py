"""`redrive run`: the worker process of an app."""

import gc
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli.context import HERE, AppDir, Bootstrap, Config, Target, load
from redrive.cli.logs import LogFormat, set_up_logging
from redrive.cli.output import reporting

#: Collections that traverse all that lives cost more than they free: records die by reference count.
_GC_THRESHOLDS = (100_000, 50, 1_000)


def run(
    target: Target = None,
    app_dir: AppDir = HERE,
    bootstrap_servers: Bootstrap = None,
    config: Config = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Serve /livez, /readyz and /metrics here.", show_default=False
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL", help="DEBUG, INFO, WARNING or ERROR. [default: INFO]", show_default=False
        ),
    ] = None,
    log_format: Annotated[LogFormat, typer.Option(help="Lines for people, or JSON.")] = LogFormat.PLAIN,
    log_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Python logging configuration: .toml, .json or .ini.", show_default=False
        ),
    ] = None,
    gc_tuning: Annotated[
        bool, typer.Option("--gc-tuning/--no-gc-tuning", help="Let the garbage collector run rarely.")
    ] = True,
) -> None:
    """
    Run all listeners of an app until SIGTERM or Ctrl-C.

    Handlers that run then may finish. A second signal ends at once: their records are read again by the next process.
    """
    with reporting():
        overrides = {"http": http, "log_level": log_level and log_level.upper()}
        loaded = load(
            target, app_dir=app_dir, bootstrap_servers=bootstrap_servers, config=config, overrides=overrides
        )
        set_up_logging(level=loaded.settings.log_level, log_format=log_format, config=log_config)
        from redrive.runtime.running import run_until_stopped
        from redrive.wiring import serve

        if gc_tuning:
            tune_gc()
        run_until_stopped(lambda: serve(loaded.app, loaded.settings))


def tune_gc() -> None:
    """What is loaded by now lives as long as the process: it is never looked at again, and the rest rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
