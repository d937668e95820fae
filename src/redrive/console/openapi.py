"""`/api/v1/openapi.json`, from the tables of operations and fields, and the shapes of answers kept here."""

from collections.abc import Mapping, Sequence
from typing import Any

from redrive._version import __version__
from redrive.console.asking import MOST_WHY_CHARS, Field
from redrive.console.operations import OPERATIONS, Operation
from redrive.console.problems import CONTENT_TYPE
from redrive.deadletters.pages import STATES

_TEXT, _COUNT, _FLAG = {"type": "string"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
_MS = {"type": ["integer", "null"], "description": "Epoch milliseconds, UTC."}
_TEXTS = {"type": "array", "items": _TEXT}
_MAYBE = {"type": ["string", "null"]}
_COUNTS = {"type": "object", "additionalProperties": _COUNT}
_NOTES = {"type": "array", "items": _TEXT, "description": "What a person should know of this answer."}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(of: str) -> dict[str, Any]:
    return {"type": "array", "items": _ref(of)}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_CAUSE = {
    "topic": _TEXT, "reason": _TEXT, "type": _TEXT, "group": _TEXT, "dialect": _TEXT, "letters": _COUNT, "unresolved": _COUNT,
    "unknown": _COUNT, "resolved": _COUNT, "first_seen_ms": _MS, "last_seen_ms": _MS,
}  # fmt: skip
_TOPIC = {
    "topic": _TEXT, "state_topic": _MAYBE, "letters": _COUNT, "unresolved": _COUNT, "unknown": _COUNT,
    "causes": _list("Cause"), "causes_omitted": _COUNT,
}  # fmt: skip
_LISTED = {
    "at": _TEXT, "state": {"type": "string", "enum": [str(state) for state in STATES]}, "foreign": _FLAG, "dialect": _TEXT,
    "dead_lettered_ms": _MS, "reason": _TEXT, "group": _TEXT, "listener": _TEXT, "event_id": _TEXT,
    "source": {"type": ["object", "null"]}, "source_timestamp_ms": _MS, "failure": {"type": "object"},
    "attempts": _COUNT, "first_failed_ms": _MS, "last_failed_ms": _MS, "replays": _COUNT, "replay_id": _TEXT,
    "replay_topic": _TEXT, "holds": _TEXT, "value_lost": _FLAG,
}  # fmt: skip
_PLAN = {
    "dry_run": _FLAG, "kind": _TEXT, "selected": _COUNT, "routes": {"type": "array", "items": {"type": "object"}},
    "left_out": _COUNTS, "beyond_limit": _COUNT, "missing": _TEXTS,
    "letters": {"type": "array", "items": _object(at=_TEXT, reason=_TEXT, target=_TEXT)}, "notes": _NOTES,
}  # fmt: skip
_COUNTED = {
    "job": _TEXT, "failed": _COUNT, "skipped": _COUNT, "not_found": _COUNT, "unmarked": _COUNT, "partial": _FLAG,
    "stopped": _TEXT, "causes": {"type": "array", "items": {"type": "object"}},
    "troubles": {"type": "array", "items": _object(at=_TEXT, what=_TEXT, why=_TEXT)}, "troubles_omitted": _COUNT,
}  # fmt: skip

#: What is in an answer. Of a dry run there is only the plan, so only that is required.
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "Overview": _object(topics=_list("Topic"), letters=_COUNT, unresolved=_COUNT, notes=_NOTES),
    "Topic": _object(**_TOPIC),
    "Cause": _object(**_CAUSE),
    "Page": _object(topic=_TEXT, letters=_list("Listed"), next=_MAYBE, notes=_NOTES),
    "Listed": _object(**_LISTED),
    "Letter": _object(**_LISTED, unreadable_headers=_TEXTS, history={"type": "array", "items": {"type": "object"}}),
    "Replayed": _object(**_PLAN) | {"properties": {**_PLAN, **_COUNTED, "replayed": _COUNT}},
    "Discarded": _object(**_PLAN) | {"properties": {**_PLAN, **_COUNTED, "discarded": _COUNT}},
    "Document": {"type": "object"},
    "Problem": _object(title=_TEXT, status={"type": "integer"}, detail=_TEXT),
}  # fmt: skip

_PROBLEMS = {
    "400": "The request can't be meant, or it has a token in its URL.",
    "401": "Without the token.",
    "403": "From a page of another site.",
    "404": "There is no such topic or letter here.",
    "421": "Called by a name that isn't this console's.",
    "500": "A defect; the log has the stack.",
    "503": "Kafka doesn't answer, or too many requests are at work. Ask again later.",
    "504": "It took too long.",
}
_BODY_PROBLEMS = {
    "409": "Another replay or discard of this topic is at work, or the first request with this Idempotency-Key.",
    "408": "The body took too long to come.",
    "413": "The body is too long.",
    "415": "The body is no JSON by its Content-Type.",
    "422": "The Idempotency-Key was given with another request.",
}


def document() -> dict[str, Any]:
    """Gives the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "redrive console",
            "version": __version__,
            "description": "Dead letters over HTTP. Nothing is replayed unless somebody asks for it.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(SCHEMAS),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(operation: Operation) -> dict[str, Any]:
    problems = {**_PROBLEMS, **(_BODY_PROBLEMS if operation.body is not None else {})}
    answer = {"content": {"application/json": {"schema": _ref(operation.answer)}}}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.about,
        "parameters": [*_places(operation.path), *map(_parameter, operation.query)],
        "responses": {
            "200": {"description": "Done; look at `partial`." if operation.body else "The answer.", **answer},
            **{status: _problem(about) for status, about in sorted(problems.items())},
        },
    }
    if operation.body is not None:
        described["parameters"].append(_IDEMPOTENCY)
        properties = {field.name: _schema(field) for field in operation.body}
        required = [field.name for field in operation.body if field.form == "text"]
        schema = {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            "required": required,
        }
        described["requestBody"] = {
            "required": bool(required),
            "content": {"application/json": {"schema": schema}},
        }
    return described


_IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same request with the same key again gets the first answer and does nothing.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}


def _places(path: str) -> Sequence[Mapping[str, Any]]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    return [
        {"name": name, "in": "path", "required": True, "schema": _TEXT if name == "topic" else _COUNT}
        for name in names
    ]


def _parameter(field: Field) -> dict[str, Any]:
    schema = _schema(field)
    return {"name": field.name, "in": "query", "description": schema.pop("description"), "schema": schema}


def _schema(field: Field) -> dict[str, Any]:
    said: dict[str, Any] = {"description": field.about}
    match field.form:
        case "texts" | "positions":
            return said | _TEXTS
        case "count":
            return said | {"type": "integer", "minimum": 1, "maximum": field.most, "default": field.default}
        case "flag":
            return said | {"type": "boolean", "default": False}
        case "state":
            return said | {"type": "string", "enum": ["unresolved", *(str(state) for state in STATES)]}
        case "text":
            return said | {"type": "string", "minLength": 1, "maxLength": MOST_WHY_CHARS}
        case "position" | "duration":
            return said | {"type": "string"}


def _problem(about: str) -> dict[str, Any]:
    return {"description": about, "content": {CONTENT_TYPE: {"schema": _ref("Problem")}}}
