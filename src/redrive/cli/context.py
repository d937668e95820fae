"""What all commands share: the options by which they find the app, its settings and its cluster."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from redrive.errors import SettingsError

if TYPE_CHECKING:
    from redrive.core.settings import Settings
    from redrive.runtime.declaration import ResolvedApp

Target = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODULE:APP]",
        help="The app, as in service:app. By default REDRIVE_APP, else app = … in redrive.toml.",
        show_default=False,
    ),
]
AppDir = Annotated[
    Path, typer.Option("--app-dir", help="Where the module is looked for.", file_okay=False, exists=True)
]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="Where Kafka is; several by commas. By default REDRIVE_BOOTSTRAP_SERVERS, else redrive.toml.",
        show_default=False,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Settings. By default redrive.toml, if there.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

HERE = Path()
_NOTHING: Mapping[str, object] = MappingProxyType({})


class Loaded(NamedTuple):
    """An app ready to be run or asked: as commands name it, checked, and with its settings."""

    target: str
    app: "ResolvedApp"
    settings: "Settings"


def load(
    target: str | None,
    *,
    app_dir: Path = HERE,
    bootstrap_servers: str | None = None,
    config: Path | None = None,
    overrides: Mapping[str, object] = _NOTHING,
) -> Loaded:
    """
    Import the app, check it, and read its settings; `overrides` are settings by their paths, None for not given.

    Raises LoadError, ListenerError or SettingsError; `typer.BadParameter` when no app was named anywhere.
    """
    named = target or named_elsewhere(config)
    if not named:
        raise typer.BadParameter(
            'name the app, as in service:app; or set REDRIVE_APP, or app = "service:app" in redrive.toml',
            param_hint="MODULE:APP",
        )
    from redrive.cli.loading import load_app

    app = load_app(named, app_dir)
    resolved = app.resolve()
    asked = {"bootstrap_servers": bootstrap_servers, **overrides}
    settings = app.load_settings(config_file=config, overrides=asked)
    return Loaded(named, resolved, replace(settings, app=named))


class MaybeLoaded(NamedTuple):
    """What a command works with that also goes without an app: `app` None."""

    app: "ResolvedApp | None"
    settings: "Settings"


def load_if_named(
    target: str | None,
    *,
    app_dir: Path = HERE,
    bootstrap_servers: str | None = None,
    config: Path | None = None,
    overrides: Mapping[str, object] = _NOTHING,
    needs_kafka: bool = True,
) -> MaybeLoaded:
    """
    Import the app if one is named anywhere, and read the settings; `overrides` as for `load`. `needs_kafka` False: without an
    app nobody need say where Kafka is.

    Raises LoadError, ListenerError or SettingsError.
    """
    if target or named_elsewhere(config):
        loaded = load(
            target, app_dir=app_dir, bootstrap_servers=bootstrap_servers, config=config, overrides=overrides
        )
        return MaybeLoaded(loaded.app, loaded.settings)
    from redrive.adapters.settings_source import load_settings

    asked = {"bootstrap_servers": bootstrap_servers, **overrides}
    return MaybeLoaded(None, load_settings(config_file=config, overrides=asked, needs_kafka=needs_kafka))


def named_elsewhere(config: Path | None) -> str:
    """The app that the environment or the settings file names; "" for none. Raises SettingsError."""
    if named := os.environ.get("REDRIVE_APP"):
        return named
    file = config or Path("redrive.toml")
    if not file.exists():
        return ""
    try:
        return str(tomllib.loads(file.read_text("utf-8")).get("app", ""))
    except (OSError, ValueError) as error:
        raise SettingsError([(str(file), f"can't be read: {error}")]) from error
