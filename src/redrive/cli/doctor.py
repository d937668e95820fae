"""`redrive doctor`: what is wrong with an app's topics, group and brokers, and what mends it."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.context import HERE, AppDir, Bootstrap, Config, Json, Loaded, Target, load
from redrive.cli.output import Output, reporting
from redrive.core.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.doctor.findings import Finding, Report


def doctor(
    target: Target = None,
    measure_clock: Annotated[
        bool,
        typer.Option(
            "--measure-clock",
            help="Compare clocks by a topic redrive.doctor, which is made for it and deleted again.",
        ),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="CODE", help="Only this check, as in RD04; may be repeated.", show_default=False
        ),
    ] = None,
    app_dir: AppDir = HERE,
    bootstrap_servers: Bootstrap = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """
    Compare what an app needs with what the cluster has: topics, rights, group, clocks, versions.

    Each finding has its code, what comes of it and what mends it. Writes nothing but with --measure-clock; exit code 4 if anything is found.
    """
    with reporting(as_json=json) as output:
        codes = _codes(only)
        loaded = load(target, app_dir=app_dir, bootstrap_servers=bootstrap_servers, config=config)
        report = _examine(loaded, output, codes, measure_clock=measure_clock)
        _show(output, report)
        output.result(_as_json(report))
        if report.findings:
            raise typer.Exit(ExitCode.DIFFERENCES)


def _codes(only: list[str] | None) -> frozenset[str]:
    """The codes asked for; all where none is named."""
    from redrive.core.doctor.table import CHECKS

    known = {check.code for check in CHECKS}
    asked = {code.upper() for code in only or ()}
    if unknown := sorted(asked - known):
        raise typer.BadParameter(
            f"{', '.join(unknown)}: no such check; there are {min(known)} to {max(known)}",
            param_hint="--only",
        )
    return frozenset(asked or known)


def _examine(loaded: Loaded, output: Output, codes: frozenset[str], *, measure_clock: bool) -> "Report":
    from redrive.adapters.kafka_inspection import KafkaInspection
    from redrive.adapters.kafka_log import KafkaLog
    from redrive.cli.cluster import connect
    from redrive.core.doctor.table import examine
    from redrive.runtime.clock import SystemClock
    from redrive.runtime.examining import Eyes, make_case, observe

    cluster = connect(loaded.settings, loaded.app.group, output)
    user = loaded.settings.client_options(loaded.app.group)
    case = make_case(loaded.app, loaded.settings, cluster.describe(), target=loaded.target)
    log = KafkaLog(user)
    try:
        with _telling(output) as tell:
            eyes = Eyes(cluster, log, KafkaInspection(user), SystemClock(), tell)
            return examine(case, observe(case, eyes, measure_clock=measure_clock), codes)
    finally:
        log.close()


@contextmanager
def _telling(output: Output) -> "Generator[Callable[[str], None]]":
    """On a terminal: what is being looked at, until the answer is there."""
    from rich.console import Console

    console = Console(stderr=True)
    if output.as_json or not console.is_terminal:
        yield lambda _: None
        return
    with console.status("looking") as status:
        yield lambda what: status.update(f"looking at {what}")


def _show(output: Output, report: "Report") -> None:
    from redrive.core.doctor.findings import several

    for finding in report.findings:
        _show_finding(output, finding)
    for each in report.unknown:
        output.line(f"not checked {each.code} {each.name}, {each.subject}: {each.why}")
        output.line(f"    needs {each.needs}")
    if report.unknown:
        output.line()
    found = [
        f"{count} {severity if count == 1 else _plural(severity)}"
        for severity, count in report.counts.items()
        if count
    ]
    unknown = f", {len(report.unknown)} not checked" if report.unknown else ""
    output.line(f"{several(report.checks, 'check')}: {', '.join(found) or 'nothing found'}{unknown}")


def _show_finding(output: Output, finding: "Finding") -> None:
    output.line(f"{finding.code} {finding.severity.upper()} {finding.subject}: {finding.seen}")
    output.line(f"    so    {finding.means}")
    if finding.mend:
        output.line(f"    mend  {finding.mend}")
    if finding.command:
        output.line(f"    run   {finding.command}")
    output.line()


def _plural(severity: str) -> str:
    return severity if severity == "info" else f"{severity}s"


def _as_json(report: "Report") -> dict[str, Any]:
    return {
        "checks": report.checks,
        "counts": dict(report.counts),
        "findings": [asdict(finding) for finding in report.findings],
        "not_checked": [asdict(each) for each in report.unknown],
    }
