"""`redrive explain`: which kind of failure an exception is, why, and what becomes of its record."""

import builtins
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.context import HERE, AppDir, Config, Json, named_elsewhere
from redrive.cli.output import Output, reporting

if TYPE_CHECKING:
    from redrive.core.explaining import Explanation, Verdict
    from redrive.runtime.declaration import ResolvedApp

_NONE = "not decided"


Name = Annotated[
    str | None,
    typer.Argument(
        metavar="[EXCEPTION]",
        help="As KeyError, requests.exceptions.Timeout, myapp.errors.CardDeclined; or a code: http:503, sqlstate:40001, "
        "grpc:UNAVAILABLE, errno:ECONNRESET, mysql:1213, sqlite:, mongodb:, aws:, kafka:, smtp:. By default the whole table.",
        show_default=False,
    ),
]
AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:APP",
        help="Also what becomes of the record in each of its listeners. By default REDRIVE_APP, else app = … in redrive.toml, "
        "else none.",
        show_default=False,
    ),
]


def explain(
    exception: Name = None,
    app_name: AppOption = None,
    app_dir: AppDir = HERE,
    config: Config = None,
    json: Json = False,
) -> None:
    """
    Say which kind of failure an exception is, which rule decides that, and what becomes of its record.

    Needs no Kafka. Modules are imported to find the exception and what it derives from.
    """
    from redrive.core.explaining import judge

    with reporting(as_json=json) as output:
        if exception is None:
            _show_table(output)
            return
        explained, cls = _find(exception, app_dir)
        app = _load(app_name, app_dir, config)
        verdicts = [
            judge(
                explained,
                cls,
                listener=one.name,
                topic=one.topic,
                policy=one.policy,
                failures=one.failures,
                give_up=one.give_up,
            )
            for one in (app.listeners if app else ())
        ]
        _show(output, explained, cls, verdicts)


def _load(app_name: str | None, app_dir: Path, config: Path | None) -> "ResolvedApp | None":
    target = app_name or named_elsewhere(config)
    if not target:
        return None
    from redrive.cli.loading import load_app

    return load_app(target, app_dir).resolve()


def _find(text: str, app_dir: Path) -> "tuple[Explanation, type[BaseException] | None]":
    from redrive.core.explaining import SCHEMES, explain_code, explain_name, explain_type

    scheme, colon, code = text.partition(":")
    if colon:
        if scheme.lower() not in SCHEMES:
            raise typer.BadParameter(
                f"{text!r}: codes begin with {', '.join(f'{name}:' for name in SCHEMES)}; an exception is written with dots",
                param_hint="EXCEPTION",
            )
        try:
            return explain_code(scheme.lower(), code), None
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="EXCEPTION") from None
    from redrive.cli.loading import LoadError, load_object

    name = text.removeprefix("builtins.")
    try:
        found = getattr(builtins, name, None) if "." not in name else load_object(name, app_dir)
    except LoadError as error:
        known = explain_name(name)
        if known is None:
            raise LoadError(
                f"{error}\nThe built-in table doesn't know it by this name either: redrive explain"
            ) from None
        return known, None
    if found is None:
        raise LoadError(
            f"{text!r} is no built-in exception; write others with their module, as in myapp.errors.{text}"
        )
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        kind = "a class" if isinstance(found, type) else f"a {type(found).__name__}"
        raise LoadError(f"{text!r} is {kind}, not an exception class")
    return explain_type(found), found


def _show(
    output: Output, explained: "Explanation", cls: type[BaseException] | None, verdicts: "list[Verdict]"
) -> None:
    for name, told in (
        ("exception" if explained.rule[:4] == "type" or cls else "evidence", explained.name),
        ("kind", explained.kind or _NONE),
        ("decided by", f"{explained.rule}{f' (it derives from {explained.of})' if explained.of else ''}"),
        ("because", explained.why),
        ("asked first", "; ".join(explained.asked_first)),
        ("note", explained.note),
    ):
        if told:
            output.line(f"{name + ':':<13}{told}")
    for verdict in verdicts:
        output.line()
        output.line(f"listener {verdict.listener} ({verdict.topic}): {verdict.kind}, by {verdict.rule}")
        output.line(f"  the record is {_fitted(verdict.becomes)}")
        if verdict.note:
            output.line(f"  {verdict.note}")
    output.line()
    for line in _how_to_change(explained, cls):
        output.line(line)
    output.result(_values(explained, cls, verdicts))


def _fitted(becomes: str) -> str:
    return becomes if becomes.startswith(("held", "at once")) else f"tried: {becomes}"


def _how_to_change(explained: "Explanation", cls: type[BaseException] | None) -> list[str]:
    if explained.rule == "handler signal":
        return ["to change that: raise another one of RetryLater, DeadLetterNow, Skip"]
    if cls is None:
        return [
            "to change that: @app.listener(…, failures=Failures(rules=my_rule)); a rule gets the exception"
        ]
    name = cls.__qualname__
    return [
        f"to change that: @app.listener(…, failures=Failures(permanent={name})), or transient=, outage=;",
        "by what it carries: failures=Failures(rules=my_rule); for one record: raise RetryLater, DeadLetterNow or Skip",
    ]


def _values(
    explained: "Explanation", cls: type[BaseException] | None, verdicts: "list[Verdict]"
) -> dict[str, Any]:
    return {
        "name": explained.name,
        "kind": explained.kind and str(explained.kind),
        "rule": explained.rule,
        "why": explained.why,
        "of": explained.of,
        "asked_first": list(explained.asked_first),
        "note": explained.note,
        "imported": cls is not None,
        "listeners": [
            {
                "listener": one.listener,
                "topic": one.topic,
                "kind": str(one.kind),
                "rule": one.rule,
                "becomes": one.becomes,
                "note": one.note,
            }
            for one in verdicts
        ],
    }


def _show_table(output: Output) -> None:
    from redrive.core.explaining import lines

    rows = list(lines())
    output.table(
        ["evidence", "kind", "why", "which"],
        [(row.what, row.kind or _NONE, row.why, " ".join(row.keys)) for row in rows],
    )
    output.line()
    output.line(
        "The exception is asked first, then its causes; what nothing decides is transient, unless Failures(unknown=…) says "
        "otherwise. What a listener's Failures declare goes before all of it."
    )
    output.result(
        {
            "table": [
                {"what": row.what, "keys": list(row.keys), "kind": row.kind and str(row.kind), "why": row.why}
                for row in rows
            ]
        }
    )
