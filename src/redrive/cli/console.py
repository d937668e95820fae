"""`redrive console`: dead letters over HTTP."""

from typing import TYPE_CHECKING, Annotated

import typer

from redrive.cli.context import HERE, AppDir, Bootstrap, Config, Target, load_if_named
from redrive.cli.logs import LogFormat, set_up_logging
from redrive.cli.output import Output, reporting

if TYPE_CHECKING:
    from redrive.cli.context import MaybeLoaded
    from redrive.console.server import Place


def console(
    target: Target = None,
    bind: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where to listen; port 0 for any that is free. By default 127.0.0.1:9601.",
            show_default=False,
        ),
    ] = None,
    app_dir: AppDir = HERE,
    bootstrap_servers: Bootstrap = None,
    config: Config = None,
    log_format: Annotated[LogFormat, typer.Option(help="Lines for people, or JSON.")] = LogFormat.PLAIN,
) -> None:
    """
    Serve dead letters over HTTP until SIGTERM or Ctrl-C: counts, letters, replay and discard, each with a token.

    The token is REDRIVE_CONSOLE__TOKEN, or console.token in redrive.toml. Without one it listens on this machine
    only, makes a token for this run, and prints it once. With an app its dead-letter topics are served, else all.
    """
    with reporting() as output:
        found = load_if_named(
            target,
            app_dir=app_dir,
            bootstrap_servers=bootstrap_servers,
            config=config,
            overrides={"console.bind": bind},
        )
        _serve(found, log_format, output)


def _serve(found: "MaybeLoaded", log_format: LogFormat, output: Output) -> None:
    from redrive.cli.cluster import open_counter
    from redrive.errors import MissingExtra

    try:
        from redrive.console.server import make_server, take_place
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"starlette", "uvicorn", "h11", "anyio"}:
            raise
        raise MissingExtra("console", "`redrive console`") from None
    from redrive.console.clerk import Clerk

    place = take_place(found.settings.console)
    with place.socket:
        counter = open_counter(found, "redrive-console", output)
        clerk = Clerk(counter, _topics(found))
        # Audit lines are told whatever the level: they are what is looked for afterwards.
        level = "DEBUG" if found.settings.log_level == "DEBUG" else "INFO"
        set_up_logging(level=level, log_format=log_format, config=None)
        _greet(place, output)
        make_server(place, clerk, counter.desk.clock).run(sockets=[place.socket])


def _topics(found: "MaybeLoaded") -> frozenset[str] | None:
    """The app's dead-letter topics; None without an app: all there are."""
    if found.app is None:
        return None
    naming, group = found.settings.naming, found.app.group
    return frozenset(naming.dlq(listener.topic, group=group) for listener in found.app.listeners)


def _greet(place: "Place", output: Output) -> None:
    """Where it is. A token that was made is told here and nowhere else: it is good for this run."""
    address = f"http://{place.address}"
    if not place.is_made:
        output.note(
            f"redrive console: {address}/ (with the token of the settings; the API: {address}/api/v1/openapi.json)"
        )
        return
    output.note(
        f"redrive console, for this machine only: {address}/#token={place.credential.token}\n"
        f'the API: curl -H "Authorization: Bearer {place.credential.token}" {address}/api/v1/dlq\n'
        "This token is good until Ctrl-C. For one that stays set REDRIVE_CONSOLE__TOKEN"
    )
