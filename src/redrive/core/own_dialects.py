"""
A dialect of the user's own, as settings write it:

```toml
dialects = ["redrive", "billing"]

[own_dialects.billing]
attempt = "Billing-Attempt"
due = { header = "Billing-Not-Before", encoding = "iso-8601" }
source_topic = "Billing-Topic"
```

Fields are called as in the reference of headers, without their unit: that is the encoding's affair.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast, get_args

from redrive.core.dialect_tables import FOREIGN, line
from redrive.core.dialects import REDRIVE, Dialect, HeaderField, On
from redrive.core.encodings import FIELDS, Counts, encodings_for
from redrive.core.envelope import OWN_PREFIX
from redrive.core.translator import PLAIN, Translator

#: The fields by the names that settings have for them.
FIELD_NAMES: Mapping[str, str] = {field.removesuffix("_ms"): field for field in FIELDS}

_KEYS = ("header", "encoding", "counts")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")

_Problems = Iterator[tuple[str, str]]


def translator_of(names: Sequence[str], own: Mapping[str, object]) -> Translator:
    """
    Gives what writes the dialects of these names, and reads the user's own and all that are built in.

    Raises KeyError or ValueError where `dialect_problems` has any.
    """
    if not own and list(names) == [REDRIVE.name]:
        return PLAIN
    mine = {name: own_dialect(name, table) for name, table in own.items()}
    known = {REDRIVE.name: REDRIVE, **FOREIGN, **mine}
    return Translator([known[name.lower()] for name in names], (*mine.values(), *FOREIGN.values()))


def own_dialect(name: str, table: object) -> Dialect:
    """Gives a user's dialect. Raises ValueError with the first of its problems."""
    lines: list[HeaderField] = []
    for problem in _table_problems(name, table, lines):
        raise ValueError(": ".join(problem))
    return Dialect(name, tuple(lines))


def dialect_problems(names: Sequence[str], own: Mapping[str, object]) -> _Problems:
    """
    Gives what is wrong with the dialects that an app is to write and with its user's own: pairs of a setting's path and
    how to mend it.
    """
    names = [name.lower() for name in names]
    wrong = dict.fromkeys(own, False)
    for name, table in own.items():
        for problem in _table_problems(name, table, []):
            wrong[name] = True
            yield problem
    known = [REDRIVE.name, *FOREIGN, *own]
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            yield "dialects", f"{name!r} is none of {', '.join(known)}{meant}"
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        yield "dialects", f"has {', '.join(map(repr, repeated))} twice; once is enough"
    if REDRIVE.name not in names:
        yield (
            "dialects",
            (
                "lacks 'redrive': it alone says all that redrive must know of a record (first failure, group, replay); "
                f"write {[REDRIVE.name, *names]}"
            ),
        )
    sound = [name for name in dict.fromkeys(names) if name in known and not wrong.get(name)]
    yield from _shared_headers(
        [own_dialect(name, own[name]) if name in own else FOREIGN.get(name, REDRIVE) for name in sound]
    )


def _shared_headers(written: Sequence[Dialect]) -> _Problems:
    """Two dialects that would both write one header: a reader of either would take the other's for its own."""
    writers: dict[str, str] = {}
    for dialect in written:
        for each in dialect.fields:
            if each.on in {"never", "theirs"}:
                continue
            other = writers.setdefault(each.header, dialect.name)
            if other != dialect.name:
                yield (
                    "dialects",
                    f"{other!r} and {dialect.name!r} both write the header {each.header!r}; leave one of them out",
                )


def _table_problems(name: str, table: object, lines: list[HeaderField]) -> _Problems:
    path = f"own_dialects.{name}"
    if name == REDRIVE.name or name in FOREIGN:
        yield path, f"{name!r} is one of the dialects that are built in; give yours another name"
    elif not _NAME.fullmatch(name):
        yield path, f"{name!r} is no name for a dialect: small letters, digits, - and _, at most 63"
    if not isinstance(table, Mapping) or not table:
        yield path, 'is a table with a line for each field: attempt = "Header-Name"'
        return
    headers: dict[str, str] = {}
    for field, said in cast("Mapping[str, object]", table).items():
        at = f"{path}.{field}"
        found = _line(field, said)
        if isinstance(found, str):
            yield at, found
            continue
        lines.append(found)
        if (other := headers.setdefault(found.header, field)) != field:
            yield at, f"{found.header!r} is the header of {other} already; a header says one thing"


def _line(field: str, said: object) -> HeaderField | str:
    """The line, or what is wrong with it."""
    name = FIELD_NAMES.get(field)
    if name is None:
        close = get_close_matches(field, FIELD_NAMES, n=1)
        return f"{field!r} is no field: {f'did you mean {close[0]}?' if close else ', '.join(FIELD_NAMES)}"
    given: Mapping[str, Any] = (
        cast("Mapping[str, Any]", said) if isinstance(said, Mapping) else {"header": said}
    )
    if unknown := sorted(set(map(str, given)) - set(_KEYS)):
        return f"has {', '.join(map(repr, unknown))}; it may hold {', '.join(_KEYS)}"
    header, encoding, counts = (given.get(key, "") for key in _KEYS)
    if not isinstance(header, str) or not header.strip():
        return 'needs the name of a header: "Header-Name" or { header = "Header-Name", encoding = "…" }'
    if header.startswith(OWN_PREFIX):
        return f"{header!r} is one of redrive's own headers; they are written anyway"
    fitting = encodings_for(name)
    if encoding and encoding not in fitting:
        return f"the encoding {encoding!r} doesn't fit {field}; it is one of {', '.join(fitting)}"
    if counts and (name != "attempt" or counts not in get_args(Counts)):
        return f"counts = {counts!r}: only attempt has it, and it is one of {', '.join(get_args(Counts))}"
    # What identifies an event is as a rule the producer's own, and must outlive us.
    on: On = "theirs" if name == "event_id" else "any"
    return line(name, header, encoding, on=on, counts=counts or "runs")
