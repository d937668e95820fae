"""No exception can break the judging of exceptions: traps in every attribute and method, circles, groups without end."""

import gc
import weakref
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core.failure import Failure, Failures, Kind, classify, failure_of
from redrive.errors import HandlerSignal, PortError
from tests.core.lookalikes import caught, chained, lookalike, raised

T, P = Kind.TRANSIENT, Kind.PERMANENT
DEFAULT = Failures()

CardDeclined = lookalike("bank.CardDeclined")
Unheard = lookalike("shop.Unheard")


def judged(exc):
    verdict = classify(exc, DEFAULT, now_ms=0)
    return verdict.kind, verdict.rule


def exploding(error):
    def explode(*args, **kwargs):
        raise error("from a trap")

    return explode


class HostileStr(str):
    """Text whose every method raises."""

    __slots__ = ()
    for _name in ("__eq__", "__hash__", "__len__", "__format__", "__str__", "__getitem__", "__add__", "__radd__", "encode",
                  "partition", "strip", "isascii", "split"):  # fmt: skip
        locals()[_name] = exploding(ZeroDivisionError)


class HostileInt(int):
    """A number whose comparisons and conversions raise."""

    for _name in ("__eq__", "__hash__", "__le__", "__ge__", "__lt__", "__gt__", "__int__", "__index__", "__floordiv__",
                  "__str__", "__repr__", "__bool__", "__add__"):  # fmt: skip
        locals()[_name] = exploding(ZeroDivisionError)


class Liar:
    """Says it is something else, and fails at whatever one asks."""

    __class__ = property(exploding(SystemExit))
    __getattr__ = exploding(KeyboardInterrupt)
    __bool__ = exploding(ZeroDivisionError)
    __eq__ = exploding(ZeroDivisionError)
    __hash__ = exploding(ZeroDivisionError)
    __call__ = exploding(GeneratorExit)


class HostileDict(dict):
    get = exploding(KeyboardInterrupt)
    __getitem__ = exploding(KeyboardInterrupt)


ERRORS = st.sampled_from(
    [ValueError, AttributeError, SystemExit, KeyboardInterrupt, RecursionError, MemoryError]
)
VALUES = st.one_of(
    st.none(), st.integers(), st.text(), st.binary(), st.booleans(), st.floats(), st.just(503), st.just("40001"),
    st.builds(HostileStr, st.text()), st.builds(HostileInt, st.integers(0, 600)), st.builds(Liar), st.builds(HostileDict),
    st.builds(lambda: lambda *args: Liar()), st.builds(lambda: exploding(SystemExit)), st.just(ValueError), st.builds(KeyError),
)  # fmt: skip
TRAPS = ERRORS.map(lambda error: property(exploding(error)))
METHODS = ERRORS.map(exploding)
MEMBERS = st.dictionaries(
    st.sampled_from([
        "status_code", "status", "http_status", "code", "response", "headers", "retry_after", "sqlstate", "pgcode", "orig",
        "errno", "args", "__cause__", "__context__", "__suppress_context__", "__traceback__", "__notes__", "__dict__",
        "__class__", "sqlite_errorname", "has_error_label", "retriable", "smtp_code", "reason", "after", "exceptions",
        "__module__", "__doc__",
    ]),
    VALUES | TRAPS,
    max_size=6,
)  # fmt: skip
SPECIAL = st.dictionaries(
    st.sampled_from(["__str__", "__repr__", "__getattr__", "__getattribute__", "__eq__", "__hash__", "__bool__", "__len__",
                     "__reduce__", "__instancecheck__", "split", "derive"]),
    METHODS | st.just(lambda self, *a: Liar()) | st.just(lambda self, *a: HostileStr("x")),
    max_size=4,
)  # fmt: skip
MODULES = st.sampled_from([
    "shop", "builtins", "httpx", "grpc", "botocore.exceptions", "pymongo.errors", "cimpl", "sqlalchemy.exc", "sqlite3", "pyodbc",
    "pymysql.err", "smtplib", "google.api", "aiokafka.errors", "redrive.errors", "", ".", "a" * 5_000, "é\ud800",
])  # fmt: skip
BASES = st.sampled_from(
    [
        Exception,
        BaseException,
        ValueError,
        OSError,
        KeyError,
        RuntimeError,
        StopIteration,
        HandlerSignal,
        PortError,
    ]
)


class Meta(type):
    """A metaclass that fails at comparing, hashing and asking."""

    __hash__ = exploding(ZeroDivisionError)
    __eq__ = exploding(ZeroDivisionError)
    __instancecheck__ = exploding(ZeroDivisionError)
    __subclasscheck__ = exploding(ZeroDivisionError)
    __repr__ = exploding(ZeroDivisionError)

    def __getattribute__(cls, name):
        raise SystemExit(name)


@st.composite
def hostile(draw):
    """Builds an exception of a class made of traps, at the end of a chain or in groups or not, raised or not."""
    name = draw(st.sampled_from(["Hostile", "OperationalError", "N" * 5_000, "é\u202e"]))
    meta, base, module = draw(st.sampled_from([type, Meta])), draw(BASES), draw(MODULES)
    members = {"__module__": module, **draw(MEMBERS), **draw(SPECIAL)}
    args = draw(st.lists(VALUES, max_size=2))
    attributes = draw(st.dictionaries(st.sampled_from(["response", "status", "headers"]), VALUES, max_size=2))
    wrappings = draw(
        st.lists(st.sampled_from(["cause", "context", "circle", "group", "deep group"]), max_size=3)
    )
    is_raised = draw(st.booleans())

    def build():
        exc = base.__new__(meta(name, (base,), members), *args)
        for attribute, value in attributes.items():
            with suppress(BaseException):
                setattr(exc, attribute, value)
        for wrapping in wrappings:
            exc = wrapped(exc, wrapping)
        return raised(exc) if is_raised else exc

    return build


def wrapped(exc, wrapping):
    outer = Unheard("outer")
    if wrapping == "cause":
        outer.__cause__ = exc
    elif wrapping == "context":
        outer.__context__ = exc
    elif wrapping == "circle":
        BaseException.__dict__["__cause__"].__set__(exc, outer)
        outer.__cause__ = exc
    else:
        depth, width = (300, 1) if wrapping == "deep group" else (1, 100)
        outer = exc
        with suppress(BaseException):  # some refuse to be put into a group
            for _ in range(depth):
                outer = BaseExceptionGroup("x" * 10_000, [outer] * width)
    return outer


@settings(max_examples=400)
@given(hostile(), st.sampled_from([True, False, {P}]), st.sampled_from(["", "bytes"]))
def test_no_exception_can_break_it(build, with_stack, poison):
    exc = build()
    failures = Failures(permanent=CardDeclined, rules=lambda e: "outage" if str(e) == "?" else None)
    failure = failure_of(exc, failures, now_ms=0, with_stack=with_stack, poison=poison)
    texts = (failure.type, failure.message, failure.rule, failure.stack, failure.fingerprint)
    assert [type(text) for text in texts] == [str] * 5
    limits = (256, 1024, 512, 8192, 15)
    assert [len(text.encode()) <= limit for text, limit in zip(texts, limits, strict=True)] == [True] * 5
    assert type(failure.kind) is Kind
    assert failure.retry_after_ms is None or type(failure.retry_after_ms) is int
    assert msgspec.json.decode(msgspec.json.encode(failure), type=Failure) == failure


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, RecursionError])
def test_a_message_that_can_not_be_told_is_said_to_be_so(error):
    exc = lookalike("shop.Mute", __str__=exploding(error))()
    failure = failure_of(exc, DEFAULT, now_ms=0)
    assert failure.message == f"(no message: its __str__ raised {error.__name__})"


def test_a_hostile_class_is_judged_by_what_it_is_all_the_same():
    cls = Meta("Hostile", (KeyError,), {"__module__": "shop", "response": property(exploding(SystemExit))})
    assert judged(KeyError.__new__(cls)) == (P, "type LookupError")


def test_a_recursion_error_is_told_within_its_bounds():
    def endless():
        endless()

    failure = failure_of(caught(endless), DEFAULT, now_ms=0, with_stack=True)
    assert (failure.kind, failure.type) == (P, "RecursionError")
    assert len(failure.stack) <= 8192


def asked_about(exc):
    """How many exceptions a rule is asked about when this one is judged."""
    asked = []
    assert classify(exc, Failures(rules=asked.append), now_ms=0).kind == T
    return len(asked)


def test_absurdly_many_leaves_are_looked_at_in_part():
    group = BaseExceptionGroup(
        "x", [chained(Unheard(), ExceptionGroup("y", [Unheard()] * 1_000)) for _ in range(1_000)]
    )
    assert asked_about(group) <= 200
    for _ in range(3):
        group = chained(Unheard(), BaseExceptionGroup("x", [group] * 1_000))
    assert asked_about(group) <= 200


def test_of_an_absurdly_long_chain_the_outer_causes_count():
    assert asked_about(chained(*[Unheard() for _ in range(10_000)], KeyError())) == 32


def test_a_chain_of_causes_that_is_overridden_in_the_class_is_followed_as_python_does():
    cls = lookalike("shop.Odd", __cause__=property(exploding(SystemExit)), __context__=None)

    def fail():
        raise cls from KeyError()

    assert judged(caught(fail)) == (P, "type LookupError, of its cause KeyError")


def test_what_a_hostile_attribute_does_leaves_the_rest_to_decide():
    write_error = lookalike("pymongo.errors.WriteError", has_error_label=exploding(SystemExit))()
    unavailable = lookalike("shop.ApiError", status_code=503, headers=HostileDict())()
    assert judged(write_error) == (P, "type pymongo.errors.WriteError")
    assert classify(unavailable, DEFAULT, now_ms=0) == (T, "HTTP 503", None)


def test_a_long_rule_is_cut():
    assert len(failure_of(KeyError(), DEFAULT, now_ms=0, poison="é" * 5_000).rule.encode()) <= 512


def test_classes_made_at_run_time_do_not_pile_up():
    made = []
    for number in range(2_000):
        cls = type(f"Made{number}", (Exception,), {})
        made.append(weakref.ref(cls))
        failure_of(cls(), DEFAULT, now_ms=0)
        del cls
    gc.collect()
    assert sum(ref() is not None for ref in made) <= 1_100
