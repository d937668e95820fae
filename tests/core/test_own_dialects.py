"""A dialect of the user's own: what settings may say, and what is said of what they can't mean."""

import pytest

from redrive.core.envelope import Envelope
from redrive.core.own_dialects import FIELD_NAMES, dialect_problems, translator_of
from redrive.core.settings import Settings
from redrive.core.translator import PLAIN

BILLING = {
    "attempt": {"header": "Billing-Attempt", "counts": "next-run"},
    "due": {"header": "Billing-Not-Before", "encoding": "decimal-seconds"},
    "source_topic": "Billing-Topic",
    "event_id": "ce_id",
}


def _problems(names=("redrive",), own=None):
    return list(dialect_problems(names, own or {}))


def test_a_dialect_of_the_user_s_own_is_written_and_read():
    translator = translator_of(("redrive", "billing"), {"billing": BILLING})
    written = translator.write([("ce_id", b"e-1")], Envelope(attempt=2, due_ms=7_000, source_topic="orders"))
    assert [header for header in written if not header[0].startswith("redrive-")] == [
        ("ce_id", b"e-1"),
        ("Billing-Attempt", b"3"),
        ("Billing-Not-Before", b"7"),
        ("Billing-Topic", b"orders"),
    ]
    its = [("ce_id", b"e-1"), ("Billing-Attempt", b"3"), ("Billing-Not-Before", b"7")]
    assert tuple(translator.read(its)) == (Envelope(attempt=2, due_ms=7_000, event_id="e-1"), "billing", ())


def test_it_is_read_also_where_it_isn_t_written():
    translator = translator_of(("redrive",), {"billing": BILLING})
    assert translator.read([("Billing-Attempt", b"3")]).dialect == "billing"
    assert translator.write(None, Envelope(attempt=1)) == [("redrive-attempt", b"1")]


def test_without_any_it_is_the_plain_one():
    assert Settings().translator is PLAIN


def test_names_are_taken_in_any_case():
    assert _problems(("redrive", "X-Retry", "Spring")) == []
    assert [each.name for each in translator_of(("Redrive", "X-Retry"), {}).written] == ["x-retry", "redrive"]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("redrive", "sprong"), "'sprong' is none of redrive, spring, .*; did you mean 'spring'"),
        (("redrive", "spring", "spring"), "has 'spring' twice"),
        (("spring",), r"lacks 'redrive': .* write \['redrive', 'spring'\]"),
        ((), "lacks 'redrive'"),
    ],
)
def test_names_that_can_t_be_meant(names, told):
    [(path, what)] = _problems(names)
    assert path == "dialects"
    import re

    assert re.search(told, what)


@pytest.mark.parametrize(
    ("table", "path", "told"),
    [
        ({}, "own_dialects.mine", "is a table"),
        ("x-mine", "own_dialects.mine", "is a table"),
        ({"atempt": "x"}, "own_dialects.mine.atempt", "no field: did you mean attempt?"),
        ({"zzz": "x"}, "own_dialects.mine.zzz", f"no field: {', '.join(FIELD_NAMES)}"),
        ({"attempt": ""}, "own_dialects.mine.attempt", "needs the name of a header"),
        ({"attempt": 3}, "own_dialects.mine.attempt", "needs the name of a header"),
        ({"attempt": {"encoding": "int32"}}, "own_dialects.mine.attempt", "needs the name of a header"),
        ({"attempt": "redrive-attempt"}, "own_dialects.mine.attempt", "is one of redrive's own headers"),
        (
            {"group": {"header": "x", "encoding": "int32"}},
            "own_dialects.mine.group",
            "'int32' doesn't fit group; it is one of text",
        ),
        (
            {"due": {"header": "x", "encoding": "nanoseconds"}},
            "own_dialects.mine.due",
            "it is one of decimal, int64, big-integer, decimal-seconds",
        ),
        (
            {"due": {"header": "x", "unit": "s"}},
            "own_dialects.mine.due",
            "has 'unit'; it may hold header, encoding, counts",
        ),
        ({"due": {"header": "x", "counts": "runs"}}, "own_dialects.mine.due", "only attempt has it"),
        (
            {"attempt": {"header": "x", "counts": "all"}},
            "own_dialects.mine.attempt",
            "one of runs, next-run, retries",
        ),
        (
            {"attempt": "x", "hops": "x"},
            "own_dialects.mine.hops",
            "'x' is the header of attempt already",
        ),
    ],
)
def test_tables_that_can_t_be_meant(table, path, told):
    [(where, what)] = _problems(own={"mine": table})
    assert where == path
    assert told in what


@pytest.mark.parametrize("name", ["spring", "redrive", "My Dialect", "", "a" * 64])
def test_names_that_a_dialect_can_t_have(name):
    [(where, _)] = _problems(own={name: {"attempt": "x"}})
    assert where == f"own_dialects.{name}"


def test_two_that_write_one_header_contradict_each_other():
    own = {"mine": {"attempt": "retry_topic-attempts"}, "yours": {"attempt": "x-attempt"}}
    assert [what for _, what in _problems(("redrive", "spring", "mine", "yours"), own)] == [
        "'spring' and 'mine' both write the header 'retry_topic-attempts'; leave one of them out"
    ]


def test_all_problems_are_told_at_once_with_the_settings_others():
    settings = Settings(
        bootstrap_servers="kafka:9092",
        dialects=("redrive", "mine", "nobodys"),
        own_dialects={"mine": {"due": {"header": "x", "encoding": "?"}, "what": "y"}},
    )
    assert [problem.where for problem in settings.problems()] == [
        "own_dialects.mine.due",
        "own_dialects.mine.what",
        "dialects",
    ]
