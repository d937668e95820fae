"""The document tells what there is: the same routes, names and answers."""

import pytest
from starlette.routing import Route

from redrive.console.openapi import SCHEMAS
from redrive.console.pages import PAGES
from tests.console.rooms import DLQ, room


@pytest.fixture
def desk():
    with room() as opened:
        opened.office.letters(2)
        yield opened


def test_its_paths_are_the_routes(desk):
    paths = desk.get("/api/v1/openapi.json").json()["paths"]
    told = {(path, method.upper()) for path, item in paths.items() for method in item}
    routes = {
        (route.path, method)
        for route in desk.client.app.routes
        if isinstance(route, Route)
        for method in route.methods - {"HEAD"}
    }
    assert routes - {(path, "GET") for path in PAGES} == told


def test_every_reference_leads_somewhere(desk):
    document = desk.get("/api/v1/openapi.json").json()

    def references(value):
        if isinstance(value, dict):
            for name, inner in value.items():
                yield from [inner] if name == "$ref" else references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    found = set(references(document))
    assert found == {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


@pytest.mark.parametrize("name", ["replay", "discard"])
def test_what_a_body_may_hold_is_what_is_taken(desk, name):
    path = f"{DLQ}/{name}"
    operation = desk.get("/api/v1/openapi.json").json()["paths"][path.replace("orders.dlq", "{topic}")][
        "post"
    ]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    values = {"flag": True, "at": "orders.dlq/0/0", "older_than": "1ms", "newer_than": "1d"}
    body = {
        field: values["flag"] if told["type"] == "boolean" else values.get(field, "x")
        for field, told in schema["properties"].items()
    }
    answer = desk.post(f"{path}?dry_run=true&limit={_limit(operation)['maximum']}", body)
    assert answer.status_code == 200, answer.text
    assert desk.post(f"{path}?limit={_limit(operation)['maximum'] + 1}", body).status_code == 400


def _limit(operation):
    [limit] = [one["schema"] for one in operation["parameters"] if one["name"] == "limit"]
    return limit


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("Overview", lambda desk: desk.get("/api/v1/dlq").json()),
        ("Topic", lambda desk: desk.get("/api/v1/dlq").json()["topics"][0]),
        ("Cause", lambda desk: desk.get("/api/v1/dlq").json()["topics"][0]["causes"][0]),
        ("Page", lambda desk: desk.get(DLQ).json()),
        ("Listed", lambda desk: desk.get(DLQ).json()["letters"][0]),
        ("Letter", lambda desk: desk.get("/api/v1/dlq/orders.dlq/0/0").json()),
        ("Replayed", lambda desk: desk.replay()),
        ("Discarded", lambda desk: desk.post(f"{DLQ}/discard?limit=1", {"why": "x"}).json()),
        ("Problem", lambda desk: desk.get("/nowhere").json()),
    ],
)
def test_an_answer_has_the_names_that_are_told(desk, name, ask):
    assert set(ask(desk)) == set(SCHEMAS[name]["properties"])


def test_of_a_dry_run_there_is_only_the_plan(desk):
    assert set(desk.replay("?dry_run")) == set(SCHEMAS["Replayed"]["required"])
