"""Why an exception would be of its kind, and what would become of a record: the table and a policy, in words."""

import errno
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from redrive.core import classification as table
from redrive.core.classification import TABLE, Kind, Row, find
from redrive.core.evidence import asked_first, reading_of_type
from redrive.core.failure import Failures
from redrive.core.policy import GiveUp, RetryPolicy
from redrive.core.stack import mro_of, type_name
from redrive.core.units import format_duration


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """
    What the built-in table says of a type of exception, or of a code.

    `kind` None: nothing decides, so its causes are asked, then `Failures(unknown=…)`. `rule`: the row that decided; `of`:
    the class by whose name it was found, where that is a base class. `asked_first`: what an exception at hand is asked
    for before its type counts. `note`: what else there is to know.
    """

    name: str
    kind: Kind | None
    rule: str
    why: str
    of: str = ""
    asked_first: tuple[str, ...] = ()
    note: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one listener makes of it: kind, the rule that decided, what becomes of the record, what may change that."""

    listener: str
    topic: str
    kind: Kind
    rule: str
    becomes: str
    note: str = ""


class Line(msgspec.Struct, frozen=True):
    """Rows of the table that say the same of the same evidence."""

    what: str
    keys: tuple[str, ...]
    kind: Kind | None
    why: str


def explain_type(cls: type[BaseException]) -> Explanation:
    """What the table says of exceptions of this class."""
    reading = reading_of_type(cls)
    if reading.is_signal:
        return Explanation(
            name=reading.name,
            kind=None,
            rule="handler signal",
            why="a handler raises it to decide by itself: what it asks for is done",
        )
    if reading.is_group:
        return Explanation(
            name=reading.name,
            kind=None,
            rule="exception group",
            why="each exception in it is judged; an outage counts first, then transient, and permanent when all are",
        )
    asked = asked_first(reading)
    if reading.row is None:
        return Explanation(
            name=reading.name,
            kind=None,
            rule="no row of the table",
            why="its causes are asked (`raise … from …`), then Failures(unknown=…)",
            asked_first=asked,
        )
    of = next(name for name in map(type_name, mro_of(cls)) if _names(name, reading.row))
    return Explanation(
        name=reading.name,
        kind=reading.row.kind,
        rule=reading.row.rule,
        why=reading.row.why,
        of="" if of == reading.name else of,
        asked_first=asked,
    )


def explain_name(name: str) -> Explanation | None:
    """What the table says of a class by its name alone, where it can't be imported; None when it doesn't know it."""
    row = find(table.TYPE, name)
    if row is None and name.partition(".")[0] in table.DB_API_PACKAGES:
        row = find(table.DB_API, name.rpartition(".")[2])
    if row is None:
        return None
    note = "it can't be imported here, so only its own name was looked up, not what it derives from"
    return Explanation(name=name, kind=row.kind, rule=row.rule, why=row.why, note=note)


#: What codes may be asked for, as `http:503`, by the word before the colon.
SCHEMES = {
    "http": table.HTTP,
    "sqlstate": table.SQLSTATE,
    "grpc": table.GRPC,
    "errno": table.ERRNO,
    "mysql": table.MYSQL,
    "sqlite": table.SQLITE,
    "mongodb": table.MONGODB,
    "aws": table.AWS,
    "kafka": table.KAFKA,
    "smtp": table.SMTP,
}


def explain_code(scheme: str, code: str) -> Explanation:
    """
    What the table says of a code: `explain_code("http", "503")`, with a word of `SCHEMES`. Raises ValueError for what is
    no such code.
    """
    what = SCHEMES[scheme]
    if not code.strip():
        raise ValueError(f"{scheme}: alone is no code: write one behind it")
    keys = [*_code_keys(what, code)]
    row = next((row for key in keys if (row := find(what, key)) is not None), None)
    if row is None:
        return Explanation(
            name=f"{what} {code}",
            kind=None,
            rule="no row of the table",
            why="the exception's type is asked, its causes, then Failures(unknown=…)",
        )
    return Explanation(name=f"{what} {keys[0]}", kind=row.kind, rule=row.rule, why=row.why)


def _code_keys(what: str, code: str) -> Iterator[str]:
    """The keys under which the table may have a code, the most exact first."""
    is_number = code.isascii() and code.isdecimal()
    if what == table.HTTP:
        if not is_number or not 300 <= int(code) <= 599:
            raise ValueError(f"{code!r} is no HTTP status of a failure: 300 to 599")
        yield from (code, f"{code[0]}xx")
    elif what == table.SQLSTATE:
        if len(code) != 5 or not code.isascii() or not code.isalnum():
            raise ValueError(f"{code!r} is no SQLSTATE: five characters, as in 40001")
        yield from (code.upper(), code[:2].upper())
    elif what == table.MYSQL:
        if not is_number or not 1000 <= int(code) <= 9999:
            raise ValueError(f"{code!r} is no MySQL error number: 1000 to 9999")
        yield from (code, f"{code[0]}xxx")
    elif what == table.SMTP:
        if not is_number or len(code) != 3:
            raise ValueError(f"{code!r} is no SMTP reply: three digits")
        yield from (code, f"{code[0]}yz")
    elif what == table.SQLITE:
        yield from (code.upper(), "_".join(code.upper().split("_")[:2]))
    elif what == table.ERRNO and is_number:
        yield errno.errorcode.get(int(code), code)
    else:
        yield from (code, code.upper())


def judge(
    explained: Explanation,
    cls: type[BaseException] | None,
    *,
    listener: str,
    topic: str,
    policy: RetryPolicy,
    failures: Failures,
    give_up: GiveUp,
) -> Verdict:
    """What a listener makes of an exception of this class (None: of one that has only the code that was explained)."""
    rules = ", ".join(getattr(rule, "__qualname__", repr(rule)) for rule in failures.rules)
    note = f"its rules ({rules}) are asked before, with the exception at hand" if rules else ""
    declared = [base for base in mro_of(cls) if base in failures.declared] if cls is not None else []
    if declared:
        kind = failures.declared[declared[0]]
        rule = f"Failures({kind}={type_name(declared[0])})"
    elif explained.kind is not None:
        kind, rule = explained.kind, explained.rule
    else:
        kind, rule = failures.unknown, f"Failures(unknown={failures.unknown})"
    return Verdict(
        listener=listener,
        topic=topic,
        kind=kind,
        rule=rule,
        becomes=fate_of(kind, policy, give_up),
        note=note,
    )


_ENDS: Mapping[GiveUp, str] = {
    "dead-letter": "a dead letter",
    "skip": "dropped, logged and counted",
    "stop": "the end of the process: the record stays where it is, and so does all behind it",
}


def fate_of(kind: Kind, policy: RetryPolicy, give_up: GiveUp) -> str:
    """What becomes of a record that keeps failing with this kind, in one sentence."""
    end = _ENDS[give_up]
    if kind is Kind.OUTAGE:
        return "held where it is, like all others of the listener; one is tried again after 1s, then up to 1m; nothing counts"
    if kind is not Kind.TRANSIENT:
        return f"at once {end}{_behind(policy, waits=False)}"
    steps: list[str] = []
    if policy.immediate is not None:
        wait = format_duration(policy.immediate.wait_ms)
        count = policy.immediate.retries
        steps.append(f"{count} {'try' if count == 1 else 'tries'} in place, {wait} apart")
    if policy.delays_ms:
        delays = ", ".join(map(format_duration, policy.delays_ms))
        more = policy.max_attempts - 1 - policy.immediate_retries - len(policy.delays_ms)
        steps.append(f"again after {delays}{f', the last one {more + 1} times' if more else ''}")
    age = (
        f", or when the next try would come more than {format_duration(policy.max_age_ms)} after the first failure"
        if policy.max_age_ms
        else ""
    )
    behind = _behind(policy, waits=bool(steps))
    if not steps:
        return f"at once {end}: the listener's policy has no retries{behind}"
    return f"{'; '.join(steps)}; {end} when attempt {policy.max_attempts} fails{age}{behind}"


def _behind(policy: RetryPolicy, *, waits: bool) -> str:
    """What becomes meanwhile, and then, of the records behind one that blocks."""
    if policy.blocking is None:
        return ""
    then = {
        "release": "go on",
        "block": "wait until the letter was replayed or resolved",
        "divert": "become dead letters too, until the letter was replayed or resolved",
    }[policy.after_dead_letter]
    if waits:
        return f"; later records of its {policy.blocking} wait meanwhile, and then {then}"
    return "" if policy.after_dead_letter == "release" else f"; later records of its {policy.blocking} {then}"


def lines(rows: Iterable[Row] = TABLE) -> Iterator[Line]:
    """The table with rows together that say the same, in its order."""
    group: list[Row] = []
    for row in rows:
        if group and (row.what, row.kind, row.why) != (group[0].what, group[0].kind, group[0].why):
            yield _line(group)
            group = []
        group.append(row)
    if group:
        yield _line(group)


def _line(rows: list[Row]) -> Line:
    return Line(rows[0].what, tuple(row.key for row in rows), rows[0].kind, rows[0].why)


def _names(name: str, row: Row) -> bool:
    return row.key == name or (row.what == table.DB_API and row.key == name.rpartition(".")[2])
