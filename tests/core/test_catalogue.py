"""The catalogue lists all that redrive tells about itself, and only that."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from redrive.core.catalogue import EVENTS, METRICS, PREFIX, SUPERVISOR_METRICS, event_of
from redrive.core.counters import DURATION_BOUNDS_S, LATENESS_BOUNDS_S
from redrive.runtime.ports import SourceProblem

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "redrive").rglob("*.py"))
ALL_METRICS = (*METRICS, *SUPERVISOR_METRICS)
LABELS = {
    "state",
    "group",
    "listener",
    "topic",
    "tier",
    "dlq",
    "reason",
    "outcome",
    "version",
    "criticality",
    "worker",
}

_spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)


@pytest.mark.parametrize("metric", ALL_METRICS, ids=lambda metric: metric.name)
def test_a_metric_says_by_its_name_what_it_counts_in(metric):
    assert re.fullmatch(PREFIX + r"[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.name.endswith("_seconds") == (metric.unit == "seconds")
    assert metric.name.endswith("_bytes") == (metric.unit == "bytes")
    assert bool(metric.bounds_s) == (metric.kind == "histogram")
    assert metric.help.endswith(".")


@pytest.mark.parametrize("metric", ALL_METRICS, ids=lambda metric: metric.name)
def test_labels_come_from_a_short_list_of_bounded_ones(metric):
    assert set(metric.labels) <= LABELS


def test_no_name_is_listed_twice():
    assert len({metric.name for metric in ALL_METRICS}) == len(ALL_METRICS)


def test_buckets_are_those_that_the_engine_counts_in():
    assert {metric.bounds_s for metric in METRICS} == {(), DURATION_BOUNDS_S, LATENESS_BOUNDS_S}


def test_every_event_that_is_reported_anywhere_is_listed_and_no_other():
    reported = {name for path in SOURCES for name in _reported(ast.parse(path.read_text()))}
    assert reported == {name.partition(".")[0] for name in EVENTS}


def test_an_event_has_variants_only_for_kinds_that_there_are():
    kinds = get_args(SourceProblem.__annotations__["kind"])
    variants = {name.partition(".")[2] for name in EVENTS if name.startswith("source-problem.")}
    assert variants <= set(kinds)


def test_the_entry_of_a_report_is_that_of_its_kind_where_there_is_one():
    assert event_of("source-problem", {"kind": "auth"}) is EVENTS["source-problem.auth"]
    assert event_of("source-problem", {"kind": "other"}) is EVENTS["source-problem"]
    assert event_of("assigned", {}) is EVENTS["assigned"]
    assert event_of("no such event", {}) is None


@pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: event.name)
def test_a_text_is_filled_in_by_name_and_in_no_other_way(event):
    without_fields = re.sub(r"%\(\w+\)s", "", event.text)
    assert "%" not in without_fields
    assert event.at_once >= 1


@pytest.mark.parametrize(("path", "text"), reference.pages().items())
def test_the_reference_page_is_current(path, text):
    assert (ROOT / path).read_text() == text, "run: python scripts/reference.py"


def test_only_two_modules_import_the_metrics_library():
    importing = {
        path.relative_to(ROOT / "src" / "redrive").as_posix()
        for path in SOURCES
        if re.search(r"^\s*(from|import) prometheus_client", path.read_text(), re.MULTILINE)
    }
    assert importing == {"adapters/prometheus.py", "adapters/prometheus_pages.py"}


def _reported(tree: ast.Module) -> Iterator[str]:
    """The first argument of each `Report(...)`: a text, or a variable of the same function that only texts go into."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported = {
        name.name for node in imports if node.module == "redrive.core.commands" for name in node.names
    }
    if "Report" not in imported:
        return
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Report":
                yield from _texts(node.args[0], function)


def _texts(node: ast.expr, function: ast.AST) -> list[str]:
    if isinstance(node, ast.Constant):
        return [node.value]
    assert isinstance(node, ast.Name), "an event's name must be written out, so that it can be found"
    values = [
        other.value
        for other in ast.walk(function)
        if isinstance(other, ast.Assign)
        and any(ast.dump(target) == ast.dump(node).replace("Load", "Store") for target in other.targets)
    ]
    return [part.value for value in values for part in ast.walk(value) if isinstance(part, ast.Constant)]
