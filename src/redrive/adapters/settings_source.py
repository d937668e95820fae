"""
Reads settings from where people write them: `redrive.toml`, the environment, a command's options.

Import it only where an app is run: pydantic takes longer to load than all the rest of redrive.
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from redrive.core.client_options import ClientOptions
from redrive.core.settings import PATHS, TABLES, ConsoleSettings, Settings
from redrive.core.units import parse_duration_ms, parse_size_bytes
from redrive.errors import Problem, SettingsError

DEFAULT_FILE = Path("redrive.toml")

_PREFIX = "REDRIVE_"
#: What this starts steers the test suite and is no setting of an app.
_TEST_PREFIX = "REDRIVE_TEST_"
#: All paths that can be given, those in tables with a dot.
_KNOWN = {path for path in PATHS if path not in TABLES} | {
    f"{table}.{name}" for table, names in TABLES.items() for name in names
}
_NEVER_TOLD = frozenset({"console.token", "http_token"})


def load_settings(
    *,
    config_file: Path | None = None,
    overrides: Mapping[str, object] = MappingProxyType({}),
    needs_kafka: bool = True,
) -> Settings:
    """
    Gives the settings of an app from, strongest first: `overrides`, the environment, the file, the defaults.

    `config_file`: by default `redrive.toml` in the working directory, if it is there. `overrides`: what the app or
    a command says, values by path (`{"bootstrap_servers": …, "kafka": {…}}`), None for not given. In the environment
    names start with `REDRIVE_`, those of client settings with `REDRIVE_KAFKA__` (`REDRIVE_KAFKA__SECURITY_PROTOCOL` is
    `security.protocol`); an empty variable is as good as none. `needs_kafka` False: for who asks processes only, so that nobody
    need know where Kafka is.

    Raises SettingsError with all problems at once, each with its path and where it came from: unknown names, values
    that can't be read, contradictions, a file that is missing or no TOML. No value of a secret is ever in it.
    """
    layers = (_from_file(config_file), _from_environment(), _from_overrides(overrides))
    values: dict[str, object] = {}
    options: dict[str, object] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        values |= layer.values
        options |= layer.options
        origins |= layer.origins
    settings, unread = _read(values, options)
    told = {problem.where for problem in unread}
    if not (needs_kafka or settings.bootstrap_servers):
        told.add("bootstrap_servers")
    found = [*unread, *(problem for problem in settings.problems() if problem.where not in told)]
    problems = [problem for layer in layers for problem in layer.problems]
    problems += [Problem(_at(where, _origin_of(where, origins)), what) for where, what in found]
    if problems:
        raise SettingsError(problems)
    return settings


class _Layer(NamedTuple):
    """What one source says: settings and client options by name, and where each path was written."""

    values: dict[str, object]
    options: dict[str, object]
    origins: dict[str, str]
    problems: list[Problem]


def _from_file(config_file: Path | None) -> _Layer:
    path = config_file or DEFAULT_FILE
    if config_file is None and not path.exists():
        return _Layer({}, {}, {}, [])
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        return _Layer({}, {}, {}, [Problem(str(path), f"can't be read: {error.strerror or error}")])
    except ValueError as error:  # no TOML, or no UTF-8
        return _Layer({}, {}, {}, [Problem(str(path), f"is no TOML: {error}")])
    return _layer(found, str(path))


def _from_overrides(overrides: Mapping[str, object]) -> _Layer:
    return _layer(
        {path: value for path, value in overrides.items() if value is not None}, "app or command line"
    )


def _layer(found: Mapping[str, object], origin: str) -> _Layer:
    values: dict[str, object] = {}
    problems: list[Problem] = []
    for path, value in _with_tables(found):
        if path in _KNOWN and path not in TABLES:
            values[path] = value
        elif path in TABLES:
            problems.append(Problem(_at(path, origin), f"is a table: write [{path}] and a line for each"))
        elif path != "kafka":
            problems.append(Problem(_at(path, origin), f"unknown setting{_meant(path)}"))
    table = found.get("kafka", {})
    if not isinstance(table, Mapping):
        problems.append(
            Problem(_at("kafka", origin), "is a table of client settings: write [kafka] and a line for each")
        )
        table = {}
    options: dict[str, object] = {}
    for name, value in _flat(cast("Mapping[str, object]", table)):
        if name in options:
            problems.append(
                Problem(_at(f"kafka.{name}", origin), "is given twice, with dots and with underscores")
            )
        options[name] = value
    origins = dict.fromkeys([*values, *(f"kafka.{name}" for name in options)], origin)
    return _Layer(values, options, origins, problems)


def _with_tables(found: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """What stands in a table of ours as `table.name`, so that each source may give some of it."""
    for path, value in found.items():
        if path in TABLES and isinstance(value, Mapping):
            for name, inner in cast("Mapping[str, object]", value).items():
                yield f"{path}.{name}", inner
        else:
            yield path, value


def _from_environment() -> _Layer:
    found = EnvSettingsSource(_Variables)()
    found.pop("own_dialects", None)  # told below
    if not isinstance(found.get("kafka", {}), dict):
        del found["kafka"]  # REDRIVE_KAFKA itself, told below
    for table, names in TABLES.items():
        inside = found.pop(table, None)
        if isinstance(inside, Mapping):
            found[table] = {name: value for name, value in inside.items() if name in names}
    layer = _layer(found, "environment")
    for name in os.environ:
        key = name.upper().removeprefix(_PREFIX).lower()
        if not name.upper().startswith(_PREFIX) or name.upper().startswith(_TEST_PREFIX):
            continue
        path, _, option = key.partition("__")
        if path == "kafka" and option:
            layer.origins[f"kafka.{_option_name(option.replace('__', '.'))}"] = name
        elif (dotted := key.replace("__", ".")) in _KNOWN and dotted not in {"kafka", "own_dialects"}:
            layer.origins[dotted] = name
        elif key == "own_dialects" and not os.environ[name]:
            continue
        else:
            layer.problems.append(Problem(name, f"unknown setting{_meant_variable(key)}"))
    return layer


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """TOML reads `security.protocol = "SSL"` as a table in a table; the client has flat names and texts only."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(cast("Mapping[str, object]", value), f"{prefix}{key}.")
        elif isinstance(value, bool):
            yield _option_name(prefix + key), str(value).lower()
        else:
            yield _option_name(prefix + key), str(value) if isinstance(value, int | float) else value


def _option_name(name: str) -> str:
    """Underscores stand for dots where dots can't be written; one of the client's own names has an underscore."""
    dotted = name.replace("_", ".")
    return "log_level" if dotted == "log.level" else dotted


def _at(where: str, origin: str | None) -> str:
    told = where if where.isprintable() and where.strip() else repr(where)
    return f"{told} ({origin})" if origin else told


def _origin_of(where: str, origins: Mapping[str, str]) -> str | None:
    """Where a path was written, or the table that it is in."""
    while where and where not in origins:
        where = where.rpartition(".")[0]
    return origins.get(where)


def _meant(given: str, prefix: str = "") -> str:
    close = get_close_matches(given, sorted(_KNOWN), n=1)
    if not close:
        return ""
    return f"; did you mean {prefix}{close[0].upper().replace('.', '__') if prefix else close[0]}?"


def _meant_variable(key: str) -> str:
    if key.startswith("kafka"):
        option = key.removeprefix("kafka").strip("_") or "security_protocol"
        return f"; client settings have two underscores: {_PREFIX}KAFKA__{option.upper()}"
    if key.startswith("own_dialects"):
        return "; a dialect of your own is a table: write [own_dialects.NAME] in redrive.toml"
    table, _, name = key.partition("__")
    return _meant(f"{table}.{name}" if table in TABLES else table, _PREFIX)


def _read(values: Mapping[str, object], options: Mapping[str, object]) -> tuple[Settings, list[Problem]]:
    """Gives the settings and what couldn't be read; that has its default, so that the rest can be checked as well."""
    try:
        model = _Model.model_validate({**_nested(values), "kafka": options})
    except ValidationError as error:
        unread = {_path_of(each): each for each in error.errors(include_url=False)}
        settings, _ = _read(
            {path: value for path, value in values.items() if path not in unread},
            {name: value for name, value in options.items() if f"kafka.{name}" not in unread},
        )
        return settings, [Problem(path, _why(each)) for path, each in unread.items()]
    read: dict[str, Any] = {field: getattr(model, path) for path, field in PATHS.items()}
    read["kafka"] = ClientOptions((name, secret.get_secret_value()) for name, secret in model.kafka.items())
    read["http_token"] = model.http_token.get_secret_value()
    console = model.console.model_dump() | {"token": model.console.token.get_secret_value()}
    read["console"] = ConsoleSettings(**console)
    return Settings(**read), []


def _nested(values: Mapping[str, object]) -> dict[str, object]:
    nested: dict[str, Any] = {table: {} for table in TABLES}
    for path, value in values.items():
        table, dot, name = path.partition(".")
        if dot:
            nested[table][name] = value
        else:
            nested[path] = value
    return nested


def _path_of(error: ErrorDetails) -> str:
    setting, *inside = map(str, error["loc"])
    return f"{setting}.{inside[0]}" if inside and (setting == "kafka" or setting in TABLES) else setting


def _why(error: ErrorDetails) -> str:
    if error["loc"][0] == "kafka":
        return "the client takes texts, numbers, true and false"
    if _path_of(error) in _NEVER_TOLD:
        return "has to be a text: write it in quotes"
    if error["type"] == "value_error":  # from our own units, which tell what they were given
        return error["msg"].removeprefix("Value error, ")
    return f"{error['input']!r} can't be taken: {error['msg'].replace('Input', 'it')}"


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


def _refuse_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is no number")
    return value


_Duration = Annotated[int, BeforeValidator(parse_duration_ms)]
_Size = Annotated[int, BeforeValidator(parse_size_bytes)]
_Number = Annotated[int, BeforeValidator(_refuse_bool)]
_DEFAULT = Settings()


class _Console(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    bind: str = _DEFAULT.console.bind
    token: SecretStr = SecretStr(_DEFAULT.console.token)
    token_name: str = _DEFAULT.console.token_name


class _Model(BaseModel):
    """
    How each setting is read. Whether it makes sense, alone and beside the others, is `Settings.problems`' affair.

    Merging is `load_settings`' affair, since it has to tell where a value came from.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    app: str = _DEFAULT.app
    bootstrap_servers: str = _DEFAULT.bootstrap_servers
    client_id: str = _DEFAULT.client_id
    kafka: dict[str, SecretStr] = {}
    group_protocol: str = _DEFAULT.group_protocol
    membership: str = _DEFAULT.membership
    instance_id: str = _DEFAULT.instance_id
    delivery: str = _DEFAULT.delivery
    start_timeout: _Duration = _DEFAULT.start_timeout_ms
    shutdown_timeout: _Duration = _DEFAULT.shutdown_timeout_ms
    commit_interval: _Duration = _DEFAULT.commit_interval_ms
    commit_records: _Number = _DEFAULT.commit_records
    window: _Size = _DEFAULT.window_bytes
    fetch_wait: _Duration = _DEFAULT.fetch_wait_ms
    run_records: _Number = _DEFAULT.run_records
    prefetch_records: _Number = _DEFAULT.prefetch_records
    topic_style: str = _DEFAULT.topic_style
    retry_topic: str = _DEFAULT.retry_topic
    dlq_topic: str = _DEFAULT.dlq_topic
    replay_topic: str = _DEFAULT.replay_topic
    parked_topic: str = _DEFAULT.parked_topic
    replication: _Number = _DEFAULT.replication
    dlq_partitions: _Number | None = _DEFAULT.dlq_partitions
    tier_outage: _Duration = _DEFAULT.tier_outage_ms
    brake: bool = _DEFAULT.brake
    breaker: bool = _DEFAULT.breaker
    accepts_groups: Annotated[tuple[str, ...], BeforeValidator(_split)] = _DEFAULT.accepts_groups
    dialects: Annotated[tuple[str, ...], BeforeValidator(_split)] = _DEFAULT.dialects
    own_dialects: dict[str, Any] = {}
    http: str = _DEFAULT.http
    http_token: SecretStr = SecretStr(_DEFAULT.http_token)
    unresolved_refresh: _Duration = _DEFAULT.unresolved_refresh_ms
    metrics_aliases: bool = _DEFAULT.metrics_aliases
    log_level: Annotated[str, BeforeValidator(_upper)] = _DEFAULT.log_level
    console: _Console = _Console()


class _Variables(_Model, BaseSettings):
    """How settings are called in the environment, for the library's reader."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        enable_decoding=False,  # JSON would turn the password 1e5 into a number
    )
