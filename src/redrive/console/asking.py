"""
What is asked: from the text of a query and of a body to a selection, refused in words where it can't be meant.

The tables say which names there are; `openapi.py` describes them from the same tables.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import parse_qsl

import msgspec

from redrive.console.problems import Problem
from redrive.core.units import parse_duration_ms
from redrive.deadletters.letters import Position
from redrive.deadletters.pages import STATES, UNRESOLVED
from redrive.deadletters.selection import Kind, Selection

#: Letters that one call replays or discards, by default and at most: a person should look what became of them.
DEFAULT_LIMIT = 10
MOST_LETTERS = 100
#: Letters of a page, by default and at most.
DEFAULT_PAGE = 50
MOST_PAGE = 500
#: What a person says about a discard is kept with each letter's state.
MOST_WHY_CHARS = 1_000
#: Far more values than any question has.
_MOST_VALUES = 1_000

Form = Literal["texts", "positions", "position", "duration", "state", "count", "flag", "text"]
Values = Mapping[str, Sequence[str]]


class Field(NamedTuple):
    """One name that a query or a body may hold. Of the forms only `texts` and `positions` may be given several times."""

    name: str
    form: Form
    about: str
    default: int = 0
    most: int = 0

    @property
    def is_many(self) -> bool:
        return self.form in {"texts", "positions"}


WHICH = (
    Field("at", "positions", "These letters, each as TOPIC/PARTITION/OFFSET."),
    Field("event_id", "texts", "Letters of these events."),
    Field("reason", "texts", "Why they are dead letters: permanent, exhausted, poison, …"),
    Field("type", "texts", "The failure's exception type."),
    Field("group", "texts", "The consumer group that failed."),
    Field("older_than", "duration", "Put aside at least so long ago, as in 1h or 2d12h."),
    Field("newer_than", "duration", "Put aside at most so long ago."),
)
PAGE = (
    *WHICH,
    Field("state", "state", "Only letters in this state; unresolved stands for open and unknown."),
    Field("start", "position", "Where the page begins: `next` of the page before."),
    Field("limit", "count", "Letters of a page.", DEFAULT_PAGE, MOST_PAGE),
)
LETTER = (Field("payload", "flag", "Also what the record holds: its key and its value."),)
ACTION = (
    Field("limit", "count", "At most so many letters, the oldest first.", DEFAULT_LIMIT, MOST_LETTERS),
    Field("dry_run", "flag", "Answer the plan and do nothing."),
)
_AGAIN = Field(
    "again",
    "flag",
    "Also letters of which nobody knows whether they were sent; and, named by at or event_id, those that were sent or "
    "discarded.",
)
REPLAY = (*WHICH, Field("include_poison", "flag", "Also letters that couldn't be decoded."), _AGAIN)
DISCARD = (
    *WHICH,
    _AGAIN,
    Field("why", "text", "Required: the person's reason, kept with each letter's state."),
)

_YES, _NO = frozenset({"", "true", "1", "yes"}), frozenset({"false", "0", "no"})
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def read_query(text: str, fields: Sequence[Field]) -> Values:
    """Gives the values of a query by name. Raises Problem for names that aren't in `fields` or are there too often."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_VALUES, errors="strict")
    except ValueError:
        raise Problem(400, f"the query can't be read: UTF-8, at most {_MOST_VALUES} values") from None
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    _require_known(values, fields, "query")
    for field in fields:
        if len(values.get(field.name, ())) > 1 and not field.is_many:
            raise Problem(400, f"{field.name} is given {len(values[field.name])} times: once, please")
    return values


def read_body(body: bytes, content_type: str, fields: Sequence[Field]) -> Values:
    """Gives the values of a JSON body by name; an empty one has none. Raises Problem."""
    if not body.strip():
        return {}
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise Problem(
            415,
            "send the body as JSON: Content-Type: application/json",
            headers=(("Accept", "application/json"),),
        )
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise Problem(400, "the body is no JSON") from None
    if not isinstance(found, dict):
        raise Problem(400, f"the body has to be an object, with any of {_names(fields)}")
    by_name = cast("Mapping[str, Any]", found)
    _require_known(by_name, fields, "body")
    return {field.name: _texts(field, by_name[field.name]) for field in fields if field.name in by_name}


def is_asked(values: Values, name: str) -> bool:
    """Gives a flag: given without a value means yes. Raises Problem."""
    if name not in values:
        return False
    [value] = values[name]
    if value.lower() not in _YES | _NO:
        raise Problem(400, f"{name} is true or false, not {_shown(value)}")
    return value.lower() in _YES


def count_of(values: Values, fields: Sequence[Field]) -> int:
    """Gives `limit`, within what its field allows. Raises Problem."""
    field = next(field for field in fields if field.name == "limit")
    if field.name not in values:
        return field.default
    [text] = values[field.name]
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= field.most):
        raise Problem(
            400, f"limit={_shown(text)} can't be: 1 to {field.most} at a call; ask again for the next"
        )
    return int(text)


def why_of(values: Values) -> str:
    """Gives the reason of a discard. Raises Problem where there is none."""
    [text] = values.get("why", [""])
    why = _CONTROL.sub(" ", text).strip()
    if not why:
        raise Problem(400, 'say why, it is kept with the letters: {"why": "a test order"}')
    if len(why) > MOST_WHY_CHARS:
        raise Problem(400, f"why has {len(why)} characters, at most {MOST_WHY_CHARS} are kept")
    return why


def states_of(values: Values) -> Collection[str]:
    """Gives the states that are asked for, by default all. Raises Problem."""
    [state] = values.get("state", [""])
    if not state:
        return STATES
    if state not in {*STATES, "unresolved"}:
        raise Problem(400, f"state is one of unresolved, {', '.join(STATES)}, not {_shown(state)}")
    return UNRESOLVED if state == "unresolved" else {state}


def start_of(values: Values, topic: str) -> Position | None:
    """Gives where a page begins, None for the first letter. Raises Problem."""
    return _position("start", values["start"][0], topic) if "start" in values else None


def selection_of(
    values: Values, topic: str, *, groups: frozenset[str], now_ms: float, limit: int | None = None
) -> Selection:
    """
    Gives the letters of `topic` that are meant. `groups`: those that may be asked for, none for any. Raises Problem.
    """
    asked = frozenset(values.get("group", ()))
    if groups and (strange := asked - groups):
        raise Problem(
            400,
            f"{_shown(min(strange))} is none of this console's groups: {', '.join(sorted(groups - {''}))}",
        )
    from_ms, until_ms = (_instant(values, name, now_ms) for name in ("newer_than", "older_than"))
    if from_ms is not None and until_ms is not None and from_ms > until_ms:
        raise Problem(
            400, "nothing is older_than that and newer_than that at once; newer_than is the longer one"
        )
    return Selection(
        at=frozenset(_position("at", text, topic) for text in values.get("at", ())),
        event_ids=frozenset(values.get("event_id", ())),
        reasons=frozenset(values.get("reason", ())),
        types=frozenset(values.get("type", ())),
        groups=asked or groups,
        from_ms=from_ms,
        until_ms=until_ms,
        limit=limit,
        include_poison=is_asked(values, "include_poison"),
        again=is_asked(values, "again"),
    )


def require_choice(kind: Kind, query: Values, body: Values) -> None:
    """Raises Problem for a discard that doesn't say which letters: the oldest ten of all is nothing one may mean by accident."""
    if kind == "discard" and not ("limit" in query or any(field.name in body for field in WHICH)):
        raise Problem(400, f"say which letters: any of {_names(WHICH)}, or limit=N for the oldest")


def _texts(field: Field, value: Any) -> Sequence[str]:
    if field.form == "flag":
        if isinstance(value, bool):
            return [str(value).lower()]
        raise Problem(400, f"{field.name} is true or false")
    if isinstance(value, str):
        return [value]
    if field.is_many and isinstance(value, list) and all(isinstance(each, str) for each in value):
        if not value:
            raise Problem(400, f"{field.name} is empty, so nothing could be meant; leave it out for any")
        return cast("list[str]", value)
    raise Problem(400, f"{field.name} has to be a text{' or a list of texts' if field.is_many else ''}")


def _require_known(values: Collection[str], fields: Sequence[Field], where: str) -> None:
    """A filter that is ignored would let other letters be sent than were meant."""
    known = {field.name for field in fields}
    if unknown := [name for name in values if name not in known]:
        there = f"there is {_names(fields)}" if fields else "there is none"
        raise Problem(400, f"unknown in the {where}: {', '.join(map(_shown, unknown[:5]))}; {there}")


def _position(name: str, text: str, topic: str) -> Position:
    try:
        position = Position.parse(text)
    except ValueError as error:
        raise Problem(400, f"{name}: {error}") from None
    if position.topic != topic:
        raise Problem(400, f"{name}: {position} doesn't lie in {topic}")
    return position


def _instant(values: Values, name: str, now_ms: float) -> int | None:
    if name not in values:
        return None
    try:
        return int(now_ms) - parse_duration_ms(values[name][0])
    except ValueError as error:
        raise Problem(400, f"{name}: {error}") from None


def _names(fields: Sequence[Field]) -> str:
    return ", ".join(field.name for field in fields)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:59]}…")
