"""The dashboard shows all that is in the catalogue, and nothing else."""

import re

import pytest

from redrive.core.catalogue import METRICS, SUPERVISOR_METRICS
from redrive.core.dashboard import ROWS, dashboard

NAMES = {metric.name for metric in (*METRICS, *SUPERVISOR_METRICS)}
PANELS = [panel for panels in ROWS.values() for panel in panels]


def metrics_in(expr):
    named = set(re.findall(r"\bredrive_\w+", expr))
    return {name.removesuffix("_bucket") if name not in NAMES else name for name in named}


def test_it_has_its_rows():
    assert list(ROWS) == ["Overview", "Causes", "Retries", "Lateness", "Replay", "Health"]


def test_every_metric_of_the_catalogue_is_shown_and_no_other():
    shown = {name for panel in PANELS for query in panel.queries for name in metrics_in(query.expr)}
    assert shown == NAMES


def test_what_is_filtered_by_is_what_the_listeners_are_told_with():
    variables = {one["name"]: one.get("query") for one in dashboard()["templating"]["list"]}
    assert variables["group"]["query"] == "label_values(redrive_listener_info, group)"
    assert variables["listener"]["query"] == 'label_values(redrive_listener_info{group=~"$group"}, listener)'


def test_panels_are_placed_beside_each_other_within_the_page():
    covered = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not covered & cells
        covered |= cells
    assert {x for x, _ in covered} == set(range(24))


def test_numbers_are_each_panels_own():
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_a_legend_names_labels_that_its_expression_keeps(panel):
    for query in panel.queries:
        kept = re.match(r"[a-z_]*\(?[\d., ]*(?:sum|max|min|count)(?: by \(([^)]*)\))?", query.expr)
        labels = set(re.split(r",\s*", kept[1] or "")) if kept else set()
        assert set(re.findall(r"{{(\w+)}}", query.legend)) <= labels
