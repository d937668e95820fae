"""
What went wrong, as values: an exception is judged and described inside the `except` that caught it, and let go of.

**How an exception is judged.** It and its causes (`__cause__`, else `__context__` unless suppressed) are walked, outermost
first. First the user's word (`Failures`, handler signals) is looked for all along the walk, then the table's
(`classification`): the first opinion counts, so a wrapper that is known decides, and one that is not asks its cause.
When nothing has an opinion, `Failures.unknown` decides. An **exception group** is as many failures as it has
leaves: a signal wins; then an outage, for nothing else can succeed before it is over; then a transient one, for a run
that gets further is worth a try; it is permanent when all of them are. Cancellations in a group are echoes and don't count.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, cast

import msgspec

from redrive.core.classification import Kind
from redrive.core.evidence import Reading, may_tell, read, reading_of, reading_of_type, row_for, text
from redrive.core.fingerprint import fingerprint
from redrive.core.retry_after import retry_after_ms
from redrive.core.stack import (
    MESSAGE_BYTES,
    cut_utf8,
    exceptions_of,
    is_group,
    message_of,
    mro_of,
    next_in_chain,
    place_of,
    stack_text,
    type_name,
)
from redrive.core.units import parse_duration_ms
from redrive.errors import DeadLetterNow, HandlerSignal, RetryLater, Skip

__all__ = ["Classes", "Failure", "Failures", "Kind", "Rule", "Verdict", "classify", "failure_of", "signal_in"]

#: Looks at an exception; says its kind, or None for no opinion.
Rule = Callable[[BaseException], Kind | str | None]
#: An exception class or some of them, also in nested tuples, as `except` takes them.
Classes = type[BaseException] | Iterable["Classes"]

# How far hostile or degenerate exceptions are followed.
_CHAIN = 32
_LEAVES = 64
_TYPES_CACHED = 1024
_RULE_BYTES = 512

_DECLARABLE = (Kind.TRANSIENT, Kind.PERMANENT, Kind.OUTAGE)
_GROUP_ORDER = (Kind.OUTAGE, Kind.TRANSIENT, Kind.PERMANENT, Kind.POISON)


class Failure(msgspec.Struct, frozen=True):
    """What went wrong, in plain values that can be stored: nothing of the exception is kept."""

    kind: Kind
    #: The exception's type, such as `httpx.ReadTimeout` or `TypeError`; of a group, the type of the leaf that decided.
    type: str
    #: What it says, at most 1 KiB of UTF-8.
    message: str
    #: What decided the kind, such as `HTTP 503` or `Failures(permanent=bank.CardDeclined)`.
    rule: str
    #: The wait that was asked for, by the other side (`Retry-After`, at most an hour) or by `RetryLater`.
    retry_after_ms: int | None = None
    #: The stack, at most 8 KiB; empty unless asked for.
    stack: str = ""
    #: What it shares with failures of the same cause; empty unless asked for.
    fingerprint: str = ""


class Verdict(NamedTuple):
    """The kind of a failure, what decided it, and the wait that was asked for."""

    kind: Kind
    rule: str
    retry_after_ms: int | None


@dataclass(frozen=True, slots=True, init=False)
class Failures:
    """
    What a listener says about its failures: `Failures(permanent=CardDeclined, outage=(VaultSealed, GatewayDown))`.

    `transient`, `permanent`, `outage`: exception classes; of several that fit, the nearest in the class hierarchy
    counts. `rules`: functions that get an exception and return its kind, or None for no opinion; they are asked before
    the classes, in their order; one that raises counts as having none. Each is asked about the exception and then its
    causes. `unknown`: the kind of what neither they nor the built-in table know; transient by default, for a useless
    retry costs a little time and a dead letter a person's.

    Raises TypeError for what is no exception class or no function, ValueError for a class declared as two kinds, for a
    `HandlerSignal`, and for a word that is no kind.
    """

    transient: tuple[type[BaseException], ...]
    permanent: tuple[type[BaseException], ...]
    outage: tuple[type[BaseException], ...]
    rules: tuple[Rule, ...]
    unknown: Kind
    #: All declared classes with their kinds.
    declared: Mapping[type, Kind] = field(repr=False, compare=False)

    def __init__(
        self,
        *,
        transient: Classes = (),
        permanent: Classes = (),
        outage: Classes = (),
        rules: Rule | Iterable[Rule] = (),
        unknown: Kind | str = Kind.TRANSIENT,
    ) -> None:
        declared: dict[type, Kind] = {}
        for kind, given in zip(_DECLARABLE, (transient, permanent, outage), strict=True):
            classes = tuple(_exception_classes(kind, given))
            for cls in classes:
                if declared.setdefault(cls, kind) is not kind:
                    raise ValueError(
                        f"Failures: {type_name(cls)} is declared {declared[cls]} and {kind}; choose one"
                    )
            object.__setattr__(self, kind.value, classes)
        if unknown not in _DECLARABLE:
            raise ValueError(f"Failures(unknown={unknown!r}): one of 'transient', 'permanent', 'outage'")
        object.__setattr__(self, "rules", _functions(rules))
        object.__setattr__(self, "unknown", Kind(unknown))
        object.__setattr__(self, "declared", declared)


def classify(exc: BaseException, failures: Failures, *, now_ms: float) -> Verdict:
    """
    Judge an exception as the head of this module tells. Never raises, whatever the exception does.

    `now_ms` is what a `Retry-After` with a date is compared with.
    """
    finding = _judged(exc, failures, now_ms)
    return Verdict(finding.kind, finding.rule, finding.retry_after_ms)


def no_outage(exc: BaseException) -> Kind | None:
    """A rule by which what the table takes for an outage is transient: nothing is held because of it."""
    return Kind.TRANSIENT if classify(exc, Failures(), now_ms=0.0).kind is Kind.OUTAGE else None


def failure_of(
    exc: BaseException,
    failures: Failures,
    *,
    now_ms: float,
    with_stack: bool | Collection[Kind] = False,
    poison: str = "",
) -> Failure:
    """
    Turn an exception into values, to be called inside the `except` that caught it. Never raises.

    `with_stack`: also stack and fingerprint, which cost ten times the rest and only dead letters need; given as some
    kinds, only when the failure is of one of them. `poison`: what could not be read; the kind is poison then, and only
    the description is taken from the exception.
    """
    finding = _Finding(Kind.POISON, poison, exc) if poison else _judged(exc, failures, now_ms)
    kind, described = finding.kind, finding.described
    name, message = reading_of(described).name, _message_of(described)
    rule = cut_utf8(finding.rule, _RULE_BYTES)
    if with_stack is False or (with_stack is not True and kind not in with_stack):
        return Failure(kind, name, message, rule, finding.retry_after_ms)
    group = fingerprint(kind, name, message, place_of(described))
    return Failure(kind, name, message, rule, finding.retry_after_ms, stack_text(exc), group)


def signal_in(exc: BaseException) -> HandlerSignal | None:
    """
    What the handler asked for: the exception itself if it is a signal, or the signal in an exception group.

    A handler's task group wraps what its tasks raise. `DeadLetterNow` in it counts first, then `RetryLater`; `Skip`
    only when there is nothing else (but cancellations), for a failure beside it must not be skipped.
    """
    if issubclass(type(exc), HandlerSignal):
        return cast("HandlerSignal", exc)
    if not is_group(exc):
        return None
    leaves = list(_leaves(exc))
    for wanted in (DeadLetterNow, RetryLater):
        for leaf in leaves:
            if issubclass(type(leaf), wanted):
                return cast("HandlerSignal", leaf)
    telling = [leaf for leaf in leaves if not ((row := row_for(leaf)) and row.is_echo)]
    if telling and all(issubclass(type(leaf), HandlerSignal) for leaf in telling):
        return cast("HandlerSignal", telling[0])
    return None


class _Finding(NamedTuple):
    """A verdict, the exception that it is told of, and whether it is only the echo of another failure."""

    kind: Kind
    rule: str
    described: BaseException
    retry_after_ms: int | None = None
    is_echo: bool = False


def _judged(exc: BaseException, failures: Failures, now_ms: float) -> _Finding:
    try:
        if not failures.rules and not failures.declared and next_in_chain(exc) is None:
            known = _known(exc, failures.unknown)
            if known is not None:
                return _Finding(*known, exc)
        return _Judge(failures, now_ms).judge(exc)
    except BaseException:  # whatever was overlooked: judging must not fail
        return _Finding(failures.unknown, f"it can't be judged: unknown={failures.unknown}", exc)


def _known(exc: BaseException, unknown: Kind) -> tuple[Kind, str] | None:
    try:
        return _known_by_type(type(exc), unknown)  # type: ignore[arg-type]  # mypy asks whether an instance is hashable
    except BaseException:  # a metaclass whose hash or comparison raises
        return None


@lru_cache(_TYPES_CACHED)
def _known_by_type(cls: type[BaseException], unknown: Kind) -> tuple[Kind, str] | None:
    """
    Kind and rule of all exceptions of a type that has nothing more to tell: no attributes, no causes asked.

    Most failures are of such a type, and judging one anew takes as long as all else that is done about it.
    """
    reading = reading_of_type(cls)
    if reading.is_open or reading.has_attributes or reading.probes or reading.is_group or reading.is_signal:
        return None
    row = reading.row
    if row is None or row.kind is None:
        return unknown, _unknown_rule(unknown)
    return row.kind, row.rule


class _Judge:
    """The walk over one exception, its causes and leaves, with a bound over all of them."""

    def __init__(self, failures: Failures, now_ms: float) -> None:
        self._failures = failures
        self._now_ms = now_ms
        self._leaves_left = _LEAVES

    def judge(self, exc: BaseException) -> _Finding:
        reading = reading_of(exc)
        finding = None
        if reading.is_signal or reading.is_group:
            signal = signal_in(exc)
            finding = None if signal is None else _of_signal(signal, signal)
        if finding is None and (self._failures.rules or self._failures.declared):
            finding = self._declared(exc)
        finding = finding or self._by_table(exc, reading)
        if finding.retry_after_ms is None and finding.kind is not Kind.PERMANENT:
            wait_ms = self._retry_after_ms(exc)
            if wait_ms is not None:
                return finding._replace(retry_after_ms=wait_ms)
        return finding

    def _declared(self, exc: BaseException) -> _Finding | None:
        """What the listener declared about it or one of its causes."""
        for node in _chain(exc):
            opinion = _opinion(self._failures, node)
            if opinion is not None:
                kind, rule = opinion
                return _Finding(kind, rule + _whose(node, exc), exc)
        return None

    def _by_table(self, exc: BaseException, reading: Reading) -> _Finding:
        """What the table says of it, else of its causes."""
        for node in _chain(exc):
            if is_group(node):
                finding = self._of_group(node)
                if finding is not None:
                    return finding if node is exc else finding._replace(described=exc)
            elif node is not exc and reading_of(node).is_signal:
                return _of_signal(cast("HandlerSignal", node), exc)
            row = row_for(node)
            if row is not None and row.kind is not None:
                return _Finding(row.kind, row.rule + _whose(node, exc), exc, None, row.is_echo)
        return _Finding(self._failures.unknown, _unknown_rule(self._failures.unknown), exc)

    def _of_group(self, group: BaseException) -> _Finding | None:
        findings: list[_Finding] = []
        for leaf in _leaves(group):
            if self._leaves_left <= 0:
                break
            self._leaves_left -= 1
            findings.append(self.judge(leaf))
        telling = [finding for finding in findings if not finding.is_echo] or findings
        if not telling:
            return None
        chosen = min(telling, key=lambda finding: _GROUP_ORDER.index(finding.kind))
        waits = [finding.retry_after_ms for finding in telling if finding.retry_after_ms is not None]
        rule = f"{chosen.rule}, in a group of {len(findings)}"
        return chosen._replace(rule=rule, retry_after_ms=max(waits, default=None))

    def _retry_after_ms(self, exc: BaseException) -> int | None:
        for node in _chain(exc):
            if may_tell(node, reading_of(node)):
                wait_ms = retry_after_ms(node, self._now_ms)
                if wait_ms is not None:
                    return wait_ms
        return None


def _unknown_rule(unknown: Kind) -> str:
    return f"no rule knows it: unknown={unknown}"


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """The exception and its causes, outermost first; bounded, since causes can run in a circle."""
    yield exc
    following = next_in_chain(exc)
    count = 1
    while following is not None and count < _CHAIN:
        yield following
        following = next_in_chain(following)
        count += 1


def _leaves(group: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group and in the groups in it, in order; of absurdly many the first ones."""
    waiting, leaves = [group], 0
    while waiting and leaves < _LEAVES:
        node = waiting.pop()
        if is_group(node):
            waiting += reversed(exceptions_of(node)[:_LEAVES])
        else:
            leaves += 1
            yield node


def _whose(node: BaseException, exc: BaseException) -> str:
    return "" if node is exc else f", of its cause {reading_of(node).name}"


def _opinion(failures: Failures, exc: BaseException) -> tuple[Kind, str] | None:
    """What was declared about this very exception, without its causes."""
    for rule in failures.rules:
        kind = _answer(rule, exc)
        if kind is not None:
            return kind, f"rule {_name(rule)}"
    if failures.declared:
        for cls in mro_of(type(exc)):
            kind = failures.declared.get(cls)
            if kind is not None:
                return kind, f"Failures({kind}={type_name(cls)})"
    return None


def _answer(rule: Rule, exc: BaseException) -> Kind | None:
    try:
        answer = rule(exc)
        return None if answer is None else Kind(answer)
    except BaseException:  # a rule that raises, or answers with what is no kind, has no opinion
        return None


def _of_signal(signal: HandlerSignal, described: BaseException) -> _Finding:
    if not issubclass(type(signal), RetryLater):
        return _Finding(
            Kind.PERMANENT, type_name(type(signal)), described, is_echo=issubclass(type(signal), Skip)
        )
    after = read(signal, "after")
    try:
        wait_ms = parse_duration_ms(after, allow_zero=True)  # type: ignore[arg-type]
    except BaseException as refused:
        return _Finding(Kind.TRANSIENT, f"RetryLater without a usable wait: {message_of(refused)}", described)
    return _Finding(Kind.TRANSIENT, "RetryLater", described, wait_ms)


def _message_of(exc: BaseException) -> str:
    reason = text(read(exc, "reason")) if issubclass(type(exc), HandlerSignal) else None
    return cut_utf8(reason, MESSAGE_BYTES) if reason else message_of(exc)


def _exception_classes(kind: Kind, given: object) -> Iterator[type[BaseException]]:
    if isinstance(given, type) and issubclass(given, BaseException):
        if issubclass(given, HandlerSignal):
            raise ValueError(f"Failures({kind}=…): {type_name(given)} is a signal; what it asks for is done")
        yield given
    elif isinstance(given, Iterable) and not isinstance(given, (type, str, bytes, Mapping)):
        for each in cast("Iterable[object]", given):
            yield from _exception_classes(kind, each)
    else:
        raise TypeError(f"Failures({kind}=…): {given!r} is no exception class")


def _functions(given: Rule | Iterable[Rule]) -> tuple[Rule, ...]:
    rules = tuple(given) if isinstance(given, Iterable) else (given,)
    for rule in rules:
        if not callable(rule) or isinstance(rule, type):
            raise TypeError(f"Failures(rules=…): {rule!r} is no function of an exception")
    return rules


def _name(rule: Rule) -> str:
    name = read(rule, "__qualname__")
    return name if isinstance(name, str) else type_name(type(rule))
