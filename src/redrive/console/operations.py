"""What can be asked over HTTP, as a table: the routes and the OpenAPI document are made from it."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from redrive.console.asking import ACTION, DISCARD, LETTER, PAGE, REPLAY, Field

BASE = "/api/v1"


class Operation(NamedTuple):
    """`name` is the handler's; `query`, `body`: what they may hold; `answer`: the schema of what comes back."""

    name: str
    method: Literal["GET", "POST"]
    path: str
    about: str
    answer: str
    query: Sequence[Field] = ()
    body: Sequence[Field] | None = None


OPERATIONS = (
    Operation(
        "overview",
        "GET",
        f"{BASE}/dlq",
        "The dead-letter topics, each with how many letters are unresolved, and of what causes.",
        "Overview",
    ),
    Operation(
        "page",
        "GET",
        f"{BASE}/dlq/{{topic}}",
        "Letters of a topic by partition and offset: what their envelopes say, not what the records hold.",
        "Page",
        PAGE,
    ),
    Operation(
        "letter",
        "GET",
        f"{BASE}/dlq/{{topic}}/{{partition}}/{{offset}}",
        "One letter with its failure, its stack and what was done with it.",
        "Letter",
        LETTER,
    ),
    Operation(
        "replay",
        "POST",
        f"{BASE}/dlq/{{topic}}/replay",
        "Send letters back to the group that failed them; a few at a call, the oldest first.",
        "Replayed",
        ACTION,
        REPLAY,
    ),
    Operation(
        "discard",
        "POST",
        f"{BASE}/dlq/{{topic}}/discard",
        "Mark letters as done with, unsent. They stay in their topic.",
        "Discarded",
        ACTION,
        DISCARD,
    ),
    Operation("openapi", "GET", f"{BASE}/openapi.json", "This document.", "Document"),
)
