"""
Prometheus rules made from the catalogue: who is told of what, when, and what the page for it is called.

Expressions take metrics from the catalogue, so that none can name one that isn't exported. What is told by one process
at a time is read as the last value of five minutes: at a hand-over no alert begins anew.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

import msgspec

from redrive.core.catalogue import (
    BRAKE,
    BREAKER,
    COMMITS,
    DEAD_LETTER_WRITE_FAILURES,
    DEAD_LETTERS,
    LISTENER_INFO,
    OLDEST_HANDLER,
    OLDEST_UNRESOLVED,
    PUMP_STEP_AGE,
    RECORDS,
    RETENTION_LEFT,
    RETRY_LATENESS,
    RETRY_WRITE_FAILURES,
    UNRESOLVED,
    WORKER_RESTARTS,
    Metric,
)
from redrive.core.policy import Criticality
from redrive.core.units import format_duration

Severity = Literal["critical", "warning", "info"]

_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_LISTENER = "group, listener"
_DLQ = "group, listener, dlq"
_REFUSED, _LOST = '{outcome="refused"}', '{outcome="lost"}'


class Level(msgspec.Struct, frozen=True):
    """
    From which value on an alert fires, and how urgently. `criticality`: of which listeners; None for all.

    `limit` is a number in the unit of the metric.
    """

    severity: Severity
    limit: float
    criticality: Criticality | None = None


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """
    One alert, a rule for each of its levels. Its page is `docs/runbooks/{name}.md`.

    `expr` ends with a comparison; `LIMIT` in it stands for the level's. `for_ms`: how long it has to hold. `summary` is a
    sentence without values, `description` a template of Prometheus.
    """

    name: str
    expr: str
    for_ms: int
    levels: tuple[Level, ...]
    summary: str
    description: str


def _known(metric: Metric) -> str:
    return f"last_over_time({metric.name}[5m])"


def _increase(metric: Metric, by: str, within: str, only: str = "") -> str:
    return f"sum by ({by}) (increase({metric.name}{only}[{within}]))"


_DEAD_LETTERS = (
    Alert(
        name="RedriveDeadLettersGrowing",
        expr=f"{_increase(DEAD_LETTERS, _LISTENER, '1h')} >= LIMIT",
        for_ms=300_000,
        levels=(
            Level("critical", 1, "money"),
            Level("warning", 10, "normal"),
            Level("warning", 1_000, "analytics"),
        ),
        summary="A listener makes dead letters.",
        description="Dead letters of listener {{ $labels.listener }} (group {{ $labels.group }}) within the last hour: "
        '{{ $value | printf "%.0f" }}.',
    ),
    Alert(
        name="RedriveUnresolvedLetters",
        expr=f"sum by ({_DLQ}) (max by ({_DLQ}, reason) ({_known(UNRESOLVED)})) > LIMIT",
        for_ms=900_000,
        levels=(Level("warning", 0, "money"), Level("info", 0, "normal"), Level("info", 0, "analytics")),
        summary="Dead letters wait for a person.",
        description="Dead letters of group {{ $labels.group }} in {{ $labels.dlq }} that were neither replayed nor discarded: "
        '{{ $value | printf "%.0f" }}.',
    ),
    Alert(
        name="RedriveOldestUnresolvedTooOld",
        expr=f"max by ({_DLQ}) ({_known(OLDEST_UNRESOLVED)}) > LIMIT",
        for_ms=300_000,
        levels=(
            Level("critical", 4 * _HOUR_MS / 1000, "money"),
            Level("warning", _DAY_MS / 1000, "normal"),
            Level("warning", 7 * _DAY_MS / 1000, "analytics"),
        ),
        summary="A dead letter has waited too long for a person.",
        description="The oldest unresolved dead letter of group {{ $labels.group }} in {{ $labels.dlq }} is "
        "{{ $value | humanizeDuration }} old.",
    ),
    Alert(
        name="RedriveRetentionAtRisk",
        # Of the time that retention gives a fifth is left: left < 0.2 x (left + age).
        expr=f"min by ({_DLQ}) ({_known(RETENTION_LEFT)}) < 0.25 * max by ({_DLQ}) ({_known(OLDEST_UNRESOLVED)})",
        for_ms=300_000,
        levels=(Level("critical", 0),),
        summary="Retention will delete unresolved dead letters.",
        description="In {{ $value | humanizeDuration }} retention deletes the oldest unresolved dead letter of group "
        "{{ $labels.group }} in {{ $labels.dlq }}. Nobody can bring it back then.",
    ),
    Alert(
        name="RedriveUnresolvedNotCounted",
        expr=f"count by ({_LISTENER}) ({LISTENER_INFO.name}) unless on ({_LISTENER}) {UNRESOLVED.name}",
        for_ms=900_000,
        levels=(Level("warning", 0),),
        summary="Nobody knows how many dead letters are unresolved.",
        description="No process of group {{ $labels.group }} tells the unresolved dead letters of listener "
        "{{ $labels.listener }}: alerts about them can't fire.",
    ),
)

_WRITES = (
    Alert(
        name="RedriveDeadLetterWriteFailing",
        expr=f"{_increase(DEAD_LETTER_WRITE_FAILURES, _LISTENER, '5m')} > LIMIT",
        for_ms=0,
        levels=(Level("critical", 0),),
        summary="Dead letters can't be written.",
        description="Writes of listener {{ $labels.listener }} of group {{ $labels.group }} to its dead-letter topic are "
        "refused. Nothing is lost, but the offsets of these records are held.",
    ),
    Alert(
        name="RedriveRetryWriteFailing",
        expr=f"{_increase(RETRY_WRITE_FAILURES, _LISTENER, '5m')} > LIMIT",
        for_ms=300_000,
        levels=(Level("warning", 0),),
        summary="Retries can't be written.",
        description="Writes of listener {{ $labels.listener }} of group {{ $labels.group }} to its retry topics are "
        "refused. Nothing is lost, but the offsets of these records are held.",
    ),
    Alert(
        name="RedriveCommitsRefused",
        expr=f"{_increase(COMMITS, 'group', '5m', _REFUSED)} > LIMIT",
        for_ms=600_000,
        levels=(Level("warning", 0),),
        summary="Commits are refused.",
        description="Kafka refuses commits of group {{ $labels.group }}. They are repeated; a crash would run again what "
        "finished since the last confirmed one.",
    ),
    Alert(
        name="RedriveRecordsLost",
        expr=f"{_increase(RECORDS, 'group, listener, topic', '1h', _LOST)} > LIMIT",
        for_ms=0,
        levels=(Level("critical", 0),),
        summary="Retention deleted records before they were read.",
        description="Records of {{ $labels.topic }} that were deleted before group {{ $labels.group }} read them: "
        '{{ $value | printf "%.0f" }}.',
    ),
)

_HANDLERS = (
    Alert(
        name="RedriveBrakeOn",
        expr=f"max by ({_LISTENER}) ({BRAKE.name}) > LIMIT",
        for_ms=60_000,
        levels=(Level("critical", 0),),
        summary="A listener fails nearly everything and is slowed down.",
        description="More than half of the records of listener {{ $labels.listener }} of group {{ $labels.group }} become "
        "dead letters. It takes one record a second until that changes.",
    ),
    Alert(
        name="RedriveOutage",
        expr=f'max by ({_LISTENER}) ({BREAKER.name}{{state!="closed"}}) > LIMIT',
        for_ms=600_000,
        levels=(Level("warning", 0),),
        summary="What a listener's handler calls is away.",
        description="Listener {{ $labels.listener }} of group {{ $labels.group }} holds its records: nearly all that it tried "
        "failed. It tries one a minute and goes on by itself.",
    ),
    Alert(
        name="RedriveTierLate",
        expr=f"histogram_quantile(0.99, sum by ({_LISTENER}, tier, le) (rate({RETRY_LATENESS.name}_bucket[10m]))) > LIMIT",
        for_ms=600_000,
        levels=(Level("warning", 30),),
        summary="Retries run late.",
        description="Of the records in {{ $labels.tier }} (group {{ $labels.group }}) one in a hundred runs "
        "{{ $value | humanizeDuration }} or more after its due time.",
    ),
    Alert(
        name="RedriveHandlerStuck",
        expr=f"max by ({_LISTENER}) ({OLDEST_HANDLER.name}) > LIMIT",
        for_ms=60_000,
        levels=(Level("warning", 300),),
        summary="A handler doesn't come to an end.",
        description="A handler of listener {{ $labels.listener }} of group {{ $labels.group }} has been at one record for "
        "{{ $value | humanizeDuration }}; the records behind it wait.",
    ),
    Alert(
        name="RedrivePumpStuck",
        expr=f"{PUMP_STEP_AGE.name} > LIMIT",
        for_ms=60_000,
        levels=(Level("critical", 60),),
        summary="A process stands still.",
        description="A process of group {{ $labels.group }} has done nothing for {{ $value | humanizeDuration }}; only a "
        "restart helps.",
    ),
    Alert(
        name="RedriveWorkersGone",
        expr=f"count by (group) (last_over_time({PUMP_STEP_AGE.name}[1h])) unless on (group) {PUMP_STEP_AGE.name}",
        for_ms=300_000,
        levels=(Level("critical", 0),),
        summary="No process of a group runs.",
        description="No process of group {{ $labels.group }} is scraped any more: its records wait.",
    ),
    Alert(
        name="RedriveWorkerRestarting",
        expr=f"{_increase(WORKER_RESTARTS, 'group, worker', '15m')} > LIMIT",
        for_ms=0,
        levels=(Level("warning", 3),),
        summary="A worker ends by itself again and again.",
        description="Restarts of worker {{ $labels.worker }} of group {{ $labels.group }} within 15 minutes: "
        '{{ $value | printf "%.0f" }}.',
    ),
)

ALERTS = (*_DEAD_LETTERS, *_WRITES, *_HANDLERS)
#: Told of named groups without an end: a group that was away before Prometheus looked isn't known to be missing.
_GONE = "RedriveWorkersGone"


def rules(
    *, groups: Collection[str] = (), for_ms: int | None = None, runbooks: str = "docs/runbooks"
) -> Mapping[str, Any]:
    """
    Gives the file of rules for Prometheus, as the value that its YAML is.

    `groups`: consumer groups that must run; without any, one that ran within the last hour is missed for an hour.
    `for_ms`: how long each alert's expression has to hold, instead of its own. `runbooks`: where the pages are, before
    `/{name}.md`.
    """
    found = [rule for alert in ALERTS for rule in _rules(alert, groups)]
    for rule in found:
        name = rule["alert"]
        rule["for"] = format_duration(_for_ms(name) if for_ms is None else for_ms)
        rule["annotations"]["runbook_url"] = f"{runbooks.rstrip('/')}/{name}.md"
    return {"groups": [{"name": "redrive", "rules": found}]}


def rules_text(file: Mapping[str, Any]) -> str:
    """Gives a file of rules as YAML. Texts are quoted as in JSON, which YAML reads the same."""
    return "\n".join(_lines(file)) + "\n"


def _for_ms(name: str) -> int:
    return next(alert.for_ms for alert in ALERTS if alert.name == name)


def _rules(alert: Alert, groups: Collection[str]) -> Iterator[dict[str, Any]]:
    if alert.name == _GONE and groups:
        for group in groups:
            yield _rule(
                alert,
                alert.levels[0],
                f"absent({PUMP_STEP_AGE.name}{{group={json.dumps(group, ensure_ascii=False)}}})",
            )
        return
    for level in alert.levels:
        expr = alert.expr.replace("LIMIT", f"{level.limit:g}")
        if level.criticality is not None:
            # Not a join: during a roll-out a listener may have two criticalities, which would fail the rule.
            expr += f' and on ({_LISTENER}) last_over_time({LISTENER_INFO.name}{{criticality="{level.criticality}"}}[5m])'
        yield _rule(alert, level, expr)


def _rule(alert: Alert, level: Level, expr: str) -> dict[str, Any]:
    labels: dict[str, str] = {"severity": level.severity}
    if level.criticality is not None:
        labels["criticality"] = level.criticality
    return {
        "alert": alert.name,
        "expr": expr,
        "for": "",
        "labels": labels,
        "annotations": {"summary": alert.summary, "description": alert.description},
    }


def _lines(value: Any, indent: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            if isinstance(each, (Mapping, list)):
                yield f"{indent}{name}:"
                yield from _lines(each, f"{indent}  ")
            else:
                yield f"{indent}{name}: {_scalar(each, indent)}"
        return
    for each in value:
        first, *rest = _lines(each, f"{indent}  ")
        yield f"{indent}- {first.lstrip()}"
        yield from rest


def _scalar(text: str, indent: str) -> str:
    """Quoted as in JSON; what holds quotes itself stands on a line of its own, as it is."""
    is_plain = text.isprintable() and text.strip() == text
    return f"|-\n{indent}  {text}" if '"' in text and is_plain else json.dumps(text, ensure_ascii=False)
