"""An exception becomes values: how causes, groups and the listener's word decide, and that no exception can break it."""

import asyncio
import gc
import weakref
from contextlib import contextmanager
from datetime import timedelta

import msgspec
import pytest

from redrive.core.failure import Failure, Failures, Kind, classify, failure_of, signal_in
from redrive.errors import DeadLetterNow, RetryLater, Skip
from tests.core.lookalikes import caught, chained, lookalike, raised

T, P, O, POISON = Kind.TRANSIENT, Kind.PERMANENT, Kind.OUTAGE, Kind.POISON  # noqa: E741
DEFAULT = Failures()

CardDeclined = lookalike("bank.CardDeclined")
GatewayDown = lookalike("bank.GatewayDown")
Unheard = lookalike("shop.Unheard")


def judged(exc, failures=DEFAULT):
    verdict = classify(exc, failures, now_ms=0)
    return verdict.kind, verdict.rule


def kind(exc, failures=DEFAULT):
    return classify(exc, failures, now_ms=0).kind


def http(status):
    return lookalike("httpx.HTTPStatusError", status_code=status)()


# --- what the listener declares ----------------------------------------------------------------------------------------


def test_declared_classes_and_their_subclasses_have_the_declared_kind():
    failures = Failures(permanent=CardDeclined, outage=(GatewayDown, ConnectionError))
    assert judged(CardDeclined(), failures) == (P, "Failures(permanent=bank.CardDeclined)")
    assert judged(ConnectionRefusedError(), failures) == (O, "Failures(outage=ConnectionError)")
    assert kind(Unheard(), failures) == T


def test_of_declared_classes_the_nearest_counts():
    failures = Failures(transient=OSError, permanent=TimeoutError, outage=Exception)
    assert [kind(exc, failures) for exc in (OSError(), TimeoutError(), ValueError())] == [T, P, O]


def test_the_listeners_word_is_stronger_than_the_table():
    assert kind(KeyError(), Failures(transient=KeyError)) == T
    assert (
        kind(
            http(401),
            Failures(rules=lambda exc: "permanent" if getattr(exc, "status_code", 0) == 401 else None),
        )
        == P
    )


def test_rules_are_asked_before_classes_and_in_their_order():
    asked = []

    def first(exc):
        asked.append("first")

    def second(exc):
        asked.append("second")
        return Kind.OUTAGE

    failures = Failures(permanent=KeyError, rules=[first, second])
    name = "test_rules_are_asked_before_classes_and_in_their_order.<locals>.second"
    assert judged(KeyError(), failures) == (O, f"rule {name}")
    assert asked == ["first", "second"]


def test_rules_are_asked_about_causes_too():
    failures = Failures(rules=lambda exc: "outage" if isinstance(exc, GatewayDown) else None)
    kind_, rule = judged(chained(ValueError(), Unheard(), GatewayDown()), failures)
    assert kind_ == O
    assert rule.endswith(", of its cause bank.GatewayDown")


@pytest.mark.parametrize("answer", ["retry", 503, True, object(), [], b"transient"])
def test_a_rule_that_answers_nonsense_has_no_opinion(answer):
    assert judged(KeyError(), Failures(rules=lambda exc: answer)) == (P, "type LookupError")


@pytest.mark.parametrize("raises", [ValueError, SystemExit, KeyboardInterrupt, RecursionError])
def test_a_rule_that_raises_has_no_opinion(raises):
    def rule(exc):
        raise raises

    assert judged(KeyError(), Failures(rules=rule)) == (P, "type LookupError")


def test_what_nobody_knows_is_as_declared():
    verdicts = [
        judged(Unheard(), Failures(unknown=unknown)) for unknown in ("transient", "permanent", "outage")
    ]
    assert verdicts == [
        (T, "no rule knows it: unknown=transient"),
        (P, "no rule knows it: unknown=permanent"),
        (O, "no rule knows it: unknown=outage"),
    ]


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({"transient": 503}, TypeError, r"Failures\(transient=…\): 503 is no exception class"),
        (
            {"permanent": "ValueError"},
            TypeError,
            r"Failures\(permanent=…\): 'ValueError' is no exception class",
        ),
        (
            {"outage": (ValueError, str)},
            TypeError,
            r"Failures\(outage=…\): <class 'str'> is no exception class",
        ),
        ({"transient": ValueError()}, TypeError, "is no exception class"),
        ({"transient": None}, TypeError, "is no exception class"),
        (
            {"transient": KeyError, "outage": (KeyError,)},
            ValueError,
            "KeyError is declared transient and outage",
        ),
        ({"permanent": RetryLater}, ValueError, "redrive.errors.RetryLater is a signal"),
        ({"unknown": "poison"}, ValueError, "'transient', 'permanent', 'outage'"),
        ({"unknown": "retry"}, ValueError, "'transient', 'permanent', 'outage'"),
        ({"unknown": None}, ValueError, "'transient', 'permanent', 'outage'"),
        ({"rules": ["transient"]}, TypeError, "'transient' is no function"),
        ({"rules": 5}, TypeError, "5 is no function"),
        ({"rules": KeyError}, TypeError, "is no function"),
    ],
)
def test_a_wrong_declaration_is_refused_with_words(arguments, error, told):
    with pytest.raises(error, match=told):
        Failures(**arguments)


def test_classes_may_be_nested_and_repeated_as_except_takes_them():
    failures = Failures(transient=(KeyError, (OSError, (KeyError,))))
    assert failures.transient == (KeyError, OSError, KeyError)


def test_equal_declarations_are_equal():
    assert Failures(permanent=KeyError) == Failures(permanent=(KeyError,))
    assert hash(Failures(permanent=KeyError)) == hash(Failures(permanent=[KeyError]))
    assert Failures(permanent=KeyError) != Failures(outage=KeyError)


# --- causes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (chained(RuntimeError(), TimeoutError()), (T, "type TimeoutError, of its cause TimeoutError")),
        (chained(Unheard(), Unheard(), KeyError()), (P, "type LookupError, of its cause KeyError")),
        (chained(Unheard(), http(401)), (O, "HTTP 401, of its cause httpx.HTTPStatusError")),
        (chained(ValueError(), TimeoutError()), (P, "type ValueError")),
        (chained(TimeoutError(), ValueError()), (T, "type TimeoutError")),
        (chained(Unheard(), RuntimeError()), (T, "no rule knows it: unknown=transient")),
    ],
)
def test_the_outermost_exception_with_an_opinion_decides(exc, expected):
    assert judged(exc) == expected


def test_what_was_being_handled_counts_unless_it_was_suppressed():
    def clumsy():
        try:
            raise KeyError
        except KeyError:
            raise Unheard  # noqa: B904

    def deliberate():
        try:
            raise KeyError
        except KeyError:
            raise Unheard from None

    assert [kind(caught(clumsy)), kind(caught(deliberate))] == [P, T]


def test_causes_in_a_circle_end():
    one, other = Unheard(), Unheard()
    one.__cause__, other.__cause__ = other, one
    assert kind(one) == T
    one.__cause__ = one
    assert kind(one) == T


# --- groups ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaves", "expected"),
    [
        ([TimeoutError(), http(401), KeyError()], O),
        ([KeyError(), TimeoutError()], T),
        ([KeyError(), Unheard()], T),
        ([KeyError(), ValueError()], P),
        ([KeyError()], P),
        ([asyncio.CancelledError(), KeyError()], P),
        ([asyncio.CancelledError(), asyncio.CancelledError()], T),
        ([ExceptionGroup("inner", [KeyError(), ExceptionGroup("innermost", [ValueError()])])], P),
        ([Skip("old"), KeyError()], P),
        ([DeadLetterNow("no"), TimeoutError()], P),
        ([KeyError(), RetryLater("5s")], T),
        ([chained(RuntimeError(), TimeoutError()), KeyError()], T),
    ],
)
def test_a_group_is_judged_by_its_leaves_in_whatever_order(leaves, expected):
    assert kind(BaseExceptionGroup("some", leaves)) == expected
    assert kind(BaseExceptionGroup("some", leaves[::-1])) == expected


def test_a_group_is_told_as_the_leaf_that_decided():
    group = ExceptionGroup("two", [KeyError("card"), TimeoutError("too slow")])
    failure = failure_of(group, DEFAULT, now_ms=0)
    assert failure == Failure(T, "TimeoutError", "too slow", "type TimeoutError, in a group of 2")


def test_a_group_as_a_cause_decides_for_a_wrapper_without_an_opinion():
    failure = failure_of(chained(Unheard("outer"), ExceptionGroup("x", [KeyError()])), DEFAULT, now_ms=0)
    assert (failure.kind, failure.type, failure.message) == (P, "shop.Unheard", "outer")


def test_declared_classes_count_for_leaves():
    group = ExceptionGroup("x", [CardDeclined()])
    assert judged(group, Failures(permanent=CardDeclined))[0] == P


def test_the_longest_wait_of_a_group_counts():
    slow = lookalike("shop.Slow", retry_after=3)()
    slower = lookalike("shop.Slow", retry_after=9)()
    assert classify(ExceptionGroup("x", [slow, slower, slow]), DEFAULT, now_ms=0).retry_after_ms == 9_000


def test_a_task_group_of_a_handler_is_judged_by_the_task_that_failed():
    async def handler():
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.Event().wait())
            tasks.create_task(failing())

    async def failing():
        raise http(503)

    assert judged(caught(asyncio.run, handler())) == (T, "HTTP 503, in a group of 1")


# --- signals -----------------------------------------------------------------------------------------------------------


def test_signals_are_told_with_their_reason():
    found = [
        failure_of(exc, DEFAULT, now_ms=0)
        for exc in (DeadLetterNow("blocked"), RetryLater("7m", "later"), Skip("old"))
    ]
    assert found == [
        Failure(P, "redrive.errors.DeadLetterNow", "blocked", "redrive.errors.DeadLetterNow"),
        Failure(T, "redrive.errors.RetryLater", "later", "RetryLater", 420_000),
        Failure(P, "redrive.errors.Skip", "old", "redrive.errors.Skip"),
    ]


@pytest.mark.parametrize(
    ("after", "expected_ms"), [("7m", 420_000), (timedelta(hours=5), 18_000_000), ("0s", 0)]
)
def test_retry_later_is_not_cut_to_an_hour(after, expected_ms):
    assert classify(RetryLater(after), DEFAULT, now_ms=0).retry_after_ms == expected_ms


def test_retry_later_with_an_unreadable_wait_tells_it_and_leaves_the_wait_to_the_policy():
    verdict = classify(RetryLater("soon"), DEFAULT, now_ms=0)
    assert (verdict.kind, verdict.retry_after_ms) == (T, None)
    assert verdict.rule.startswith("RetryLater without a usable wait: duration 'soon' can't be read")


def test_a_signal_is_stronger_than_any_declaration():
    failures = Failures(transient=Exception, rules=lambda exc: "outage")
    assert kind(DeadLetterNow("no"), failures) == P
    assert kind(ExceptionGroup("x", [DeadLetterNow("no"), KeyError()]), failures) == P


def test_a_signal_that_a_library_wrapped_still_counts():
    """As tenacity's RetryError does."""
    assert judged(chained(Unheard(), DeadLetterNow("no"))) == (P, "redrive.errors.DeadLetterNow")


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (Skip("x"), Skip),
        (ValueError(), None),
        (BaseExceptionGroup("x", [RetryLater("5s"), DeadLetterNow("x"), Skip("x")]), DeadLetterNow),
        (
            BaseExceptionGroup("x", [Skip("x"), ExceptionGroup("y", [RetryLater("5s")]), KeyError()]),
            RetryLater,
        ),
        (BaseExceptionGroup("x", [Skip("x"), asyncio.CancelledError()]), Skip),
        (BaseExceptionGroup("x", [Skip("x"), KeyError()]), None),
        (BaseExceptionGroup("x", [KeyError()]), None),
    ],
)
def test_the_signal_of_a_group_is_found_and_a_skip_hides_no_failure(exc, expected):
    signal = signal_in(exc)
    assert (None if signal is None else type(signal)) == expected


# --- the description ---------------------------------------------------------------------------------------------------


def charge():
    raise CardDeclined("card 4711 is blocked")


def test_type_message_and_rule_are_told_and_the_stack_only_when_asked_for():
    exc = caught(charge)
    failures = Failures(permanent=CardDeclined)
    bare = failure_of(exc, failures, now_ms=0)
    assert bare == Failure(
        P, "bank.CardDeclined", "card 4711 is blocked", "Failures(permanent=bank.CardDeclined)"
    )
    full = failure_of(exc, failures, now_ms=0, with_stack=True)
    assert msgspec.structs.replace(full, stack="", fingerprint="") == bare
    assert full.stack.endswith("in charge\nbank.CardDeclined: card 4711 is blocked")
    assert full.fingerprint.startswith("v1-")


@pytest.mark.parametrize(
    ("kinds", "expected"), [({P, POISON}, True), ({T}, False), (set(), False), (list(Kind), True)]
)
def test_the_stack_can_be_asked_for_by_kind(kinds, expected):
    """Only who writes a dead letter needs it, and that depends on the kind."""
    assert bool(failure_of(KeyError(), DEFAULT, now_ms=0, with_stack=kinds).stack) == expected


def test_poison_is_what_the_decoder_says():
    exc = caught(msgspec.json.decode, b"{")
    failure = failure_of(exc, DEFAULT, now_ms=0, poison="the value is no Order", with_stack=True)
    assert (failure.kind, failure.type, failure.rule) == (
        POISON,
        "msgspec.DecodeError",
        "the value is no Order",
    )


def test_failures_of_one_place_share_a_fingerprint_whatever_they_say():
    def handle(card):
        raise CardDeclined(f"{card} is blocked")

    found = {
        failure_of(caught(handle, card), DEFAULT, now_ms=0, with_stack=True).fingerprint
        for card in ("4711", "Ann's", "x" * 5_000)
    }
    assert len(found) == 1
    other = failure_of(caught(charge), DEFAULT, now_ms=0, with_stack=True)
    assert other.fingerprint not in found


def test_a_group_has_the_fingerprint_of_the_leaf_that_decided():
    leaf = caught(charge)
    group = raised(ExceptionGroup("x", [leaf, KeyError()]))
    alone, grouped = (failure_of(e, DEFAULT, now_ms=0, with_stack=True).fingerprint for e in (leaf, group))
    assert alone == grouped


def test_a_failure_can_be_stored():
    failure = failure_of(caught(charge), DEFAULT, now_ms=0, with_stack=True)
    assert msgspec.json.decode(msgspec.json.encode(failure), type=Failure) == failure


# --- nothing is kept ---------------------------------------------------------------------------------------------------


@contextmanager
def no_collection():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "wrap", [lambda e: e, lambda e: chained(Unheard(), e), lambda e: ExceptionGroup("x", [e, KeyError()])]
)
def test_neither_the_exception_nor_its_frames_live_longer(wrap):
    """Kept, an exception ties up the whole run of records in a cycle that only the collector can undo."""

    class Order:
        pass

    gone = []

    def handler():
        order = Order()
        gone.append(weakref.ref(order))
        raise Unheard(order.__class__.__name__)

    with no_collection():
        for with_stack in (False, True):
            try:
                try:
                    handler()
                except Unheard as exc:
                    raise wrap(exc) from None
            except Exception as exc:
                gone.append(weakref.ref(exc))
                failure = failure_of(exc, Failures(rules=lambda e: None), now_ms=0, with_stack=with_stack)
            assert [ref() for ref in gone] == [None] * len(gone)
        assert failure.type == "shop.Unheard"
