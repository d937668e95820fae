"""`redrive alerts` and `redrive dashboard`: rules for Prometheus and a page for Grafana, made from the catalogue."""

from typing import Annotated

import typer

from redrive.cli.context import Json
from redrive.cli.output import reporting


def alerts(
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            help="A consumer group that must run, missed also when it never ran; may be repeated.",
            show_default=False,
        ),
    ] = None,
    wait: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            help="How long each alert must hold before it fires, instead of its own: 0s to try them out.",
            show_default=False,
        ),
    ] = None,
    runbooks: Annotated[
        str, typer.Option(metavar="URL", help="Where the runbook pages are; an alert links URL/ITS-NAME.md.")
    ] = "docs/runbooks",
    json: Json = False,
) -> None:
    """
    Print alert rules for Prometheus, as YAML. Needs no Kafka and no app.

    redrive alerts --group payments > redrive.rules.yml; then name the file under rule_files in prometheus.yml.
    """
    from redrive.core.alerts import rules, rules_text

    with reporting(as_json=json) as output:
        file = rules(groups=tuple(dict.fromkeys(group or ())), for_ms=_duration_ms(wait), runbooks=runbooks)
        output.line(rules_text(file).rstrip())
        output.result(file)


def dashboard(
    title: Annotated[str, typer.Option(help="What the dashboard is called.")] = "redrive",
) -> None:
    """
    Print a dashboard for Grafana, as JSON: overview, causes, retries, lateness, replay, health.

    redrive dashboard > redrive.json; then Dashboards, New, Import. Needs no Kafka and no app.
    """
    from redrive.core.dashboard import dashboard as made

    with reporting(as_json=True) as output:
        output.result(made(title=title))


def _duration_ms(text: str | None) -> int | None:
    from redrive.core.units import parse_duration_ms

    try:
        return None if text is None else parse_duration_ms(text, allow_zero=True)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--for") from None
