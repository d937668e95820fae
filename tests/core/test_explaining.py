"""What `explain` says is what a worker would decide, and what would become of the record."""

import asyncio

import pytest

from redrive import DeadLetterNow, Failures, RetryPolicy
from redrive.core.classification import TABLE, Kind
from redrive.core.explaining import (
    SCHEMES,
    explain_code,
    explain_name,
    explain_type,
    fate_of,
    judge,
    lines,
)
from redrive.core.failure import classify
from redrive.core.policy import Backoff


class CardDeclined(ValueError):
    pass


class GatewayError(Exception):
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        TimeoutError(),
        ValueError(),
        CardDeclined(),
        OSError(),
        asyncio.CancelledError(),
        EOFError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_type_is_explained_as_a_worker_judges_it(error):
    verdict = classify(error, Failures(), now_ms=0)
    explained = explain_type(type(error))
    assert (explained.kind, explained.rule) == (verdict.kind, verdict.rule)


@pytest.mark.parametrize("status", [301, 401, 404, 408, 409, 418, 429, 500, 501, 503])
def test_an_http_status_is_explained_as_a_worker_judges_it(status):
    verdict = classify(GatewayError(status), Failures(), now_ms=0)
    explained = explain_code("http", str(status))
    assert (explained.kind, explained.name) == (verdict.kind, verdict.rule)


def test_a_derived_class_tells_from_which_one_it_has_its_kind():
    assert (explain_type(KeyError).rule, explain_type(KeyError).of) == ("type LookupError", "LookupError")
    assert (explain_type(ValueError).rule, explain_type(ValueError).of) == ("type ValueError", "")


def test_what_an_exception_is_asked_for_before_its_type_is_told():
    assert explain_type(OSError).asked_first == ("an errno",)
    assert any("HTTP status" in asked for asked in explain_type(GatewayError).asked_first)
    assert explain_type(KeyError).asked_first == ()


@pytest.mark.parametrize(
    ("cls", "rule"),
    [
        (RuntimeError, "no row of the table"),
        (DeadLetterNow, "handler signal"),
        (ExceptionGroup, "exception group"),
    ],
)
def test_what_no_row_decides_has_no_kind(cls, rule):
    assert (explain_type(cls).kind, explain_type(cls).rule) == (None, rule)


@pytest.mark.parametrize(
    ("scheme", "code", "kind"),
    [
        ("sqlstate", "40001", Kind.TRANSIENT),
        ("sqlstate", "23505", Kind.PERMANENT),
        ("sqlstate", "hyt00", Kind.TRANSIENT),
        ("grpc", "unavailable", Kind.TRANSIENT),
        ("errno", "ECONNRESET", Kind.TRANSIENT),
        ("errno", "13", Kind.PERMANENT),
        ("mysql", "1213", Kind.TRANSIENT),
        ("sqlite", "SQLITE_BUSY_SNAPSHOT", Kind.TRANSIENT),
        ("smtp", "550", Kind.PERMANENT),
        ("aws", "NoSuchThing", None),
    ],
)
def test_codes_are_found_exactly_or_by_their_class(scheme, code, kind):
    assert explain_code(scheme, code).kind is kind


@pytest.mark.parametrize(
    ("scheme", "code"),
    [
        ("http", "200"),
        ("http", "abc"),
        ("http", "٥٠٣"),
        ("sqlstate", "4000"),
        ("mysql", "7"),
        ("smtp", ""),
        ("kafka", " "),
        ("aws", ""),
    ],
)
def test_what_is_no_such_code_is_refused_in_words(scheme, code):
    with pytest.raises(ValueError, match=r"is no "):
        explain_code(scheme, code)


def test_every_evidence_of_the_table_can_be_asked_for():
    assert {row.what for row in TABLE} - set(SCHEMES.values()) == {"type", "DB-API", "attribute"}


@pytest.mark.parametrize("scheme", list(SCHEMES))
def test_each_code_of_the_table_is_explained_by_its_own_row(scheme):
    for row in TABLE:
        if row.what == SCHEMES[scheme] and not row.key.endswith(("xx", "yz")) and len(row.key) != 2:
            assert explain_code(scheme, row.key).rule == row.rule


def test_a_class_that_can_not_be_imported_is_known_by_its_name():
    explained = explain_name("requests.exceptions.ConnectionError")
    assert (explained.kind, "can't be imported" in explained.note) == (Kind.TRANSIENT, True)
    assert explain_name("psycopg.IntegrityError").kind is Kind.PERMANENT
    assert explain_name("myapp.errors.CardDeclined") is None


def _judged(cls, **more):
    listener = {"policy": RetryPolicy("5s"), "failures": Failures(), "give_up": "dead-letter", **more}
    return judge(explain_type(cls), cls, listener="charge", topic="orders", **listener)


def test_what_a_listener_declares_counts_before_the_table():
    judged = _judged(CardDeclined, failures=Failures(transient=ValueError))
    assert (judged.kind, judged.rule) == (Kind.TRANSIENT, "Failures(transient=ValueError)")


def test_what_nothing_decides_is_what_the_listener_says_of_the_unknown():
    judged = _judged(RuntimeError, failures=Failures(unknown="permanent"))
    assert (judged.kind, judged.rule) == (Kind.PERMANENT, "Failures(unknown=permanent)")


def test_rules_are_told_since_they_can_not_be_asked_without_an_exception():
    def by_code(error):
        return None

    assert "by_code" in _judged(KeyError, failures=Failures(rules=by_code)).note


@pytest.mark.parametrize(
    ("kind", "policy", "give_up", "told"),
    [
        (Kind.PERMANENT, RetryPolicy("5s"), "dead-letter", "at once a dead letter"),
        (Kind.PERMANENT, RetryPolicy("5s"), "skip", "at once dropped, logged and counted"),
        (
            Kind.TRANSIENT,
            RetryPolicy(),
            "dead-letter",
            "at once a dead letter: the listener's policy has no retries",
        ),
        (
            Kind.TRANSIENT,
            RetryPolicy("5s", "10m", immediate=Backoff(2)),
            "dead-letter",
            "2 tries in place, 100ms apart; again after 5s, 10m; a dead letter when attempt 5 fails",
        ),
        (
            Kind.TRANSIENT,
            RetryPolicy("5s", max_attempts=4, max_age="1h"),
            "dead-letter",
            (
                "again after 5s, the last one 3 times; a dead letter when attempt 4 fails, or when the next try would come "
                "more than 1h after the first failure"
            ),
        ),
        (
            Kind.TRANSIENT,
            RetryPolicy("5s", "30s", blocking="key"),
            "dead-letter",
            (
                "again after 5s, 30s; a dead letter when attempt 3 fails; later records of its key wait meanwhile, and then "
                "go on"
            ),
        ),
        (
            Kind.TRANSIENT,
            RetryPolicy("5s", blocking="partition", after_dead_letter="block"),
            "dead-letter",
            (
                "again after 5s; a dead letter when attempt 2 fails; later records of its partition wait meanwhile, and "
                "then wait until the letter was replayed or resolved"
            ),
        ),
        (
            Kind.PERMANENT,
            RetryPolicy("5s", blocking="key", after_dead_letter="divert"),
            "dead-letter",
            (
                "at once a dead letter; later records of its key become dead letters too, until the letter was "
                "replayed or resolved"
            ),
        ),
        (
            Kind.PERMANENT,
            RetryPolicy("5s", blocking="key"),
            "dead-letter",
            "at once a dead letter",
        ),
    ],
)
def test_the_fate_of_a_record_is_told_by_its_policy(kind, policy, give_up, told):
    assert fate_of(kind, policy, give_up) == told


def test_the_lines_hold_each_row_once():
    assert [(line.what, key) for line in lines() for key in line.keys] == [
        (row.what, row.key) for row in TABLE
    ]
