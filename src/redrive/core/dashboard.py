"""
A Grafana dashboard made from the catalogue, as the value that its JSON is.

Panels take metrics from the catalogue, so that none can show one that isn't exported; a test looks that each is shown.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, Literal

import msgspec

from redrive.core.catalogue import (
    ASSIGNED_PARTITIONS,
    BRAKE,
    BREAKER,
    BUILD_INFO,
    CAUTIOUS_PARTITIONS,
    COMMITS,
    CRASH_SUSPECTS,
    DEAD_LETTER_WRITE_FAILURES,
    DEAD_LETTERS,
    ENVELOPE_ERRORS,
    FAILED_RUNS,
    HANDLER_DURATION,
    HEADS,
    HELD_BYTES,
    HELD_FAILURES,
    HELD_RECORDS,
    IGNORED_METADATA,
    LISTENER_INFO,
    LOOP_STALLS,
    OLDEST_HANDLER,
    OLDEST_UNRESOLVED,
    OUTAGE_RECORDS,
    OUTAGES,
    PARKED_KEYS,
    PARKED_RECORDS,
    PAUSED,
    PAUSED_PARTITIONS,
    PUMP_STEP_AGE,
    QUEUED,
    RECORDS,
    RETENTION_LEFT,
    RETRIES,
    RETRY_LATENESS,
    RETRY_WRITE_FAILURES,
    SOURCE_LAG,
    TIER_LAG,
    UNCLEAN_ENDS,
    UNCONFIRMED_WRITES,
    UNRESOLVED,
    WORKER_READY,
    WORKER_RESTARTS,
    Metric,
)

UID = "redrive"
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS, _HEIGHT = 24, 8
#: What differs from Grafana's own choice.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "timeseries": {"tooltip": {"mode": "multi"}},
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "auto"},
    "heatmap": {"calculate": False},
}
_MINE = 'group=~"$group",listener=~"$listener"'
_GROUP = 'group=~"$group"'
_NOT_CLOSED = f'{_MINE},state!="closed"'


class Query(msgspec.Struct, frozen=True):
    """One expression; `legend` names its series by their labels, `{{listener}}`."""

    expr: str
    legend: str


class Panel(msgspec.Struct, frozen=True):
    """One panel; `unit` by Grafana's names, `width` of 24 columns."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: Literal["timeseries", "stat", "heatmap"] = "timeseries"
    width: int = 8
    about: str = ""


def _sum(metric: Metric, by: str, labels: str = _MINE) -> str:
    return f"sum by ({by}) ({metric.name}{{{labels}}})"


def _rate(metric: Metric, by: str, labels: str = _MINE) -> str:
    return f"sum by ({by}) (rate({metric.name}{{{labels}}}[$__rate_interval]))"


def _grown(metric: Metric, by: str, labels: str = _MINE) -> str:
    return f"sum by ({by}) (increase({metric.name}{{{labels}}}[$__rate_interval]))"


def _told_by_one(metric: Metric, by: str, pick: Literal["max", "min"] = "max") -> str:
    return f"{pick} by ({by}) (last_over_time({metric.name}{{{_MINE}}}[5m]))"


def _quantile(share: float, metric: Metric, by: str) -> str:
    bucket = f"sum by ({by}, le) (rate({metric.name}_bucket{{{_MINE}}}[$__rate_interval]))"
    return f"histogram_quantile({share:g}, {bucket})"


def _one(metric: Metric, expr: str, legend: str, title: str, **more: Any) -> Panel:
    return Panel(title, (Query(expr, legend),), about=metric.help, **more)


_UNRESOLVED_BY_REASON = _told_by_one(UNRESOLVED, "group, dlq, reason")
_DEAD_SHARE = f"{_rate(DEAD_LETTERS, 'listener')} / {_rate(RECORDS, 'listener')}"


def _quantiles(metric: Metric, by: str, legend: str, title: str) -> Panel:
    shares = ((0.5, "p50"), (0.99, "p99"))
    queries = tuple(Query(_quantile(share, metric, by), f"{legend} {name}") for share, name in shares)
    return Panel(title, queries, unit="s", about=metric.help)


ROWS: Mapping[str, tuple[Panel, ...]] = {
    "Overview": (
        _one(UNRESOLVED, f"sum({_UNRESOLVED_BY_REASON})", "", "Unresolved dead letters", kind="stat", width=4),
        _one(
            OLDEST_UNRESOLVED, f"max({_told_by_one(OLDEST_UNRESOLVED, 'dlq')})", "", "Oldest unresolved",
            unit="s", kind="stat", width=4,
        ),
        _one(
            RETENTION_LEFT, f"min({_told_by_one(RETENTION_LEFT, 'dlq', 'min')})", "", "Retention left",
            unit="s", kind="stat", width=4,
        ),
        _one(BRAKE, f"sum({BRAKE.name}{{{_MINE}}})", "", "Brakes on", kind="stat", width=4),
        _one(BREAKER, f"sum({BREAKER.name}{{{_NOT_CLOSED}}})", "", "Breakers open", kind="stat", width=4),
        _one(BUILD_INFO, f"count by (version) ({BUILD_INFO.name})", "{{version}}", "Processes by version", kind="stat", width=4),
        _one(RECORDS, _rate(RECORDS, "outcome"), "{{outcome}}", "Records by outcome", unit="rps"),
        Panel("Share of dead letters", (Query(_DEAD_SHARE, "{{listener}}"),), unit="percentunit"),
        _one(SOURCE_LAG, _sum(SOURCE_LAG, "listener, topic"), "{{topic}}", "Lag of source topics"),
        _one(
            LISTENER_INFO, f"max by (listener, topic, dlq, criticality) ({LISTENER_INFO.name}{{{_MINE}}})",
            "{{listener}}: {{topic}}, {{criticality}}", "Listeners", kind="stat", width=24,
        ),
    ),
    "Causes": (
        _one(DEAD_LETTERS, _grown(DEAD_LETTERS, "listener, reason"), "{{listener}} {{reason}}", "New dead letters by reason"),
        _one(UNRESOLVED, _UNRESOLVED_BY_REASON, "{{dlq}} {{reason}}", "Unresolved by topic and reason"),
        _one(FAILED_RUNS, _rate(FAILED_RUNS, "listener"), "{{listener}}", "Failed runs", unit="ops"),
        _one(ENVELOPE_ERRORS, _grown(ENVELOPE_ERRORS, "listener"), "{{listener}}", "Unreadable headers"),
        _one(OUTAGES, _grown(OUTAGES, "listener"), "{{listener}}", "Outages that began"),
        _one(BREAKER, f"max by (listener, state) ({BREAKER.name}{{{_NOT_CLOSED}}})", "{{listener}} {{state}}", "Breaker"),
        _one(OUTAGE_RECORDS, _sum(OUTAGE_RECORDS, "listener"), "{{listener}}", "Held in outages"),
        _one(HELD_FAILURES, _rate(HELD_FAILURES, "listener"), "{{listener}}", "Failures held", unit="ops"),
        _one(BRAKE, f"max by (listener) ({BRAKE.name}{{{_MINE}}})", "{{listener}}", "Brake"),
        _one(PAUSED, f"max by (listener) ({PAUSED.name}{{{_MINE}}})", "{{listener}}", "Paused by a person"),
    ),
    "Retries": (
        _one(RETRIES, _rate(RETRIES, "tier"), "{{tier}}", "Retries by tier", unit="rps"),
        _one(TIER_LAG, _sum(TIER_LAG, "tier"), "{{tier}}", "Waiting in tiers and replay topics"),
        _one(HEADS, _sum(HEADS, "listener"), "{{listener}}", "Heads in front of their lanes"),
        _one(QUEUED, _sum(QUEUED, "listener"), "{{listener}}", "Fetched, and not started"),
        _one(HELD_RECORDS, _sum(HELD_RECORDS, "tier"), "{{tier}}", "Held in memory", width=4),
        _one(HELD_BYTES, _sum(HELD_BYTES, "tier"), "{{tier}}", "Bytes held", unit="bytes", width=4),
        _one(QUEUED, _sum(QUEUED, "listener"), "{{listener}}", "Fetched, and not handled yet"),
        _one(HEADS, _sum(HEADS, "listener"), "{{listener}}", "Failed, and first of their lane"),
        _one(PARKED_KEYS, _sum(PARKED_KEYS, "listener"), "{{listener}}", "Parked keys"),
        _one(PARKED_RECORDS, _rate(PARKED_RECORDS, "listener"), "{{listener}}", "Parked", unit="rps"),
    ),
    "Lateness": (
        _quantiles(RETRY_LATENESS, "tier", "{{tier}}", "Start after due"),
        _one(
            RETRY_LATENESS, f"sum by (le) (increase({RETRY_LATENESS.name}_bucket{{{_MINE}}}[$__rate_interval]))",
            "{{le}}", "Start after due, all tiers", unit="s", kind="heatmap",
        ),
        _quantiles(HANDLER_DURATION, "listener", "{{listener}}", "Duration of the handler"),
        _one(
            OLDEST_HANDLER, f"max by (listener) ({OLDEST_HANDLER.name}{{{_MINE}}})",
            "{{listener}}", "Handler that runs longest", unit="s",
        ),
    ),
    "Replay": (
        _one(UNRESOLVED, f"sum by (dlq) ({_UNRESOLVED_BY_REASON})", "{{dlq}}", "Unresolved: a replay brings it down"),
        _one(OLDEST_UNRESOLVED, _told_by_one(OLDEST_UNRESOLVED, "dlq"), "{{dlq}}", "Age of the oldest", unit="s"),
        _one(RETENTION_LEFT, _told_by_one(RETENTION_LEFT, "dlq", "min"), "{{dlq}}", "Retention left", unit="s"),
    ),
    "Health": (
        _one(
            DEAD_LETTER_WRITE_FAILURES, _grown(DEAD_LETTER_WRITE_FAILURES, "listener"), "{{listener}}",
            "Refused writes of dead letters",
        ),
        _one(RETRY_WRITE_FAILURES, _grown(RETRY_WRITE_FAILURES, "listener"), "{{listener}}", "Refused writes of retries"),
        _one(UNCONFIRMED_WRITES, _sum(UNCONFIRMED_WRITES, "listener"), "{{listener}}", "Unconfirmed writes"),
        _one(IGNORED_METADATA, _grown(IGNORED_METADATA, "listener"), "{{listener}}", "Commits not understood"),
        _one(UNCLEAN_ENDS, _grown(UNCLEAN_ENDS, "listener"), "{{listener}}", "Partitions after an unclean end"),
        Panel(
            "After crashes",
            (
                Query(_sum(CAUTIOUS_PARTITIONS, "listener"), "{{listener}} cautious partitions"),
                Query(_sum(CRASH_SUSPECTS, "listener"), "{{listener}} suspects"),
            ),
            about=CRASH_SUSPECTS.help,
        ),
        _one(COMMITS, _rate(COMMITS, "group, outcome", _GROUP), "{{group}} {{outcome}}", "Commits", unit="ops"),
        _one(
            PUMP_STEP_AGE, f"max by (group) ({PUMP_STEP_AGE.name}{{{_GROUP}}})", "{{group}}", "Last step of the pump",
            unit="s",
        ),
        _one(LOOP_STALLS, _grown(LOOP_STALLS, "group", _GROUP), "{{group}}", "Stalls of the event loop"),
        _one(ASSIGNED_PARTITIONS, _sum(ASSIGNED_PARTITIONS, "topic"), "{{topic}}", "Assigned partitions"),
        _one(WORKER_READY, _sum(WORKER_READY, "group", _GROUP), "{{group}}", "Workers that are ready (--workers)"),
        _one(
            WORKER_RESTARTS, _grown(WORKER_RESTARTS, "group, worker", _GROUP), "{{group}} {{worker}}",
            "Restarts of workers (--workers)",
        ),
        _one(PAUSED_PARTITIONS, _sum(PAUSED_PARTITIONS, "topic"), "{{topic}}", "Paused partitions"),
    ),
}  # fmt: skip


def dashboard(*, title: str = "redrive") -> Mapping[str, Any]:
    """Gives the dashboard, for Grafana 9 and later. It asks for its data source, and filters by group and listener."""
    return {
        "uid": UID,
        "title": title,
        "tags": ["redrive", "kafka"],
        "schemaVersion": 37,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def _variables() -> Iterator[Mapping[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    for name, within in (("group", ""), ("listener", f"{{{_GROUP}}}")):
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": _DATASOURCE,
            "query": {"query": f"label_values({LISTENER_INFO.name}{within}, {name})", "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def _panels() -> Iterator[Mapping[str, Any]]:
    numbers = count(1)
    y = 0
    for title, panels in ROWS.items():
        place = {"h": 1, "w": _COLUMNS, "x": 0, "y": y}
        yield {
            "id": next(numbers),
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": place,
            "panels": [],
        }
        y, x = y + 1, 0
        for panel in panels:
            if x + panel.width > _COLUMNS:
                y, x = y + _HEIGHT, 0
            yield _panel(panel, next(numbers), {"h": _HEIGHT, "w": panel.width, "x": x, "y": y})
            x += panel.width
        y += _HEIGHT


def _panel(panel: Panel, number: int, place: Mapping[str, int]) -> Mapping[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": _OPTIONS[panel.kind],
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "format": "heatmap" if panel.kind == "heatmap" else "time_series",
            }
            for index, query in enumerate(panel.queries)
        ],
    }
