"""What a query and a body may say, and what is refused in words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.console import asking
from redrive.console.problems import Problem
from redrive.deadletters.letters import Position
from redrive.deadletters.pages import STATES
from redrive.deadletters.selection import Selection

NOW_MS = 1_800_000_000_000.0


def _refusal(call, *arguments, **named):
    with pytest.raises(Problem) as raised:
        call(*arguments, **named)
    return int(raised.value.status), raised.value.detail


def _selected(query):
    return asking.selection_of(
        asking.read_query(query, asking.PAGE), "orders.dlq", groups=frozenset(), now_ms=NOW_MS, limit=5
    )


def test_a_query_selects_as_the_command_line_does():
    assert _selected(
        "at=orders.dlq/0/1&at=orders.dlq/0/2&reason=permanent&type=KeyError&group=payments&event_id=a%20b"
    ) == Selection(
        at=frozenset([Position("orders.dlq", 0, 1), Position("orders.dlq", 0, 2)]),
        reasons=frozenset(["permanent"]),
        types=frozenset(["KeyError"]),
        groups=frozenset(["payments"]),
        event_ids=frozenset(["a b"]),
        limit=5,
    )


def test_ages_are_counted_from_now():
    assert _selected("older_than=1h&newer_than=2d") == Selection(
        from_ms=int(NOW_MS) - 2 * 86_400_000, until_ms=int(NOW_MS) - 3_600_000, limit=5
    )


def test_a_body_selects_as_a_query_does():
    body = json.dumps(
        {"reason": ["permanent", "exhausted"], "type": "KeyError", "again": True, "include_poison": False}
    )
    values = asking.read_body(body.encode(), "application/json; charset=utf-8", asking.REPLAY)
    assert asking.selection_of(values, "orders.dlq", groups=frozenset(), now_ms=NOW_MS, limit=5) == Selection(
        reasons=frozenset(["permanent", "exhausted"]), types=frozenset(["KeyError"]), again=True, limit=5
    )


@pytest.mark.parametrize("body", [b"", b" \n"])
def test_an_empty_body_needs_no_content_type(body):
    assert asking.read_body(body, "", asking.REPLAY) == {}


@pytest.mark.parametrize(
    "kind",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp"],
)
def test_a_body_of_another_type_is_refused(kind):
    assert _refusal(asking.read_body, b'{"type":"KeyError"}', kind, asking.REPLAY)[0] == 415


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 50_000, "no JSON"),
        (b"[]", "has to be an object"),
        (b"null", "has to be an object"),
        (b'"type"', "has to be an object"),
        (b'{"types": "KeyError"}', "unknown in the body: 'types'"),
        (b'{"limit": 5}', "unknown in the body: 'limit'"),
        (b'{"to": "orders"}', "unknown in the body: 'to'"),
        (b'{"type": 5}', "a text or a list of texts"),
        (b'{"type": null}', "a text or a list of texts"),
        (b'{"type": [5]}', "a text or a list of texts"),
        (b'{"type": []}', "nothing could be meant"),
        (b'{"again": "yes"}', "true or false"),
        (b'{"again": 1}', "true or false"),
        (b'{"older_than": ["1h"]}', "has to be a text"),
    ],
)
def test_a_body_that_cannot_be_meant(body, told):
    status, detail = _refusal(asking.read_body, body, "application/json", asking.REPLAY)
    assert (status, told in detail) == (400, True), detail


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("types=KeyError", "unknown in the query: 'types'"),
        ("limit=5&limit=6", "2 times"),
        ("state=open&state=unknown", "2 times"),
        ("type=%ff", "can't be read"),
        ("&".join(["type=a"] * 1_001), "can't be read"),
        ("x" * 10_000 + "=1", "unknown in the query: 'xxx"),
    ],
)
def test_a_query_that_cannot_be_meant(query, told):
    status, detail = _refusal(asking.read_query, query, asking.PAGE)
    assert (status, told in detail, len(detail) < 400) == (400, True, True), detail


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("at=orders.dlq/0", "is no position"),
        ("at=other.dlq/0/1", "doesn't lie in orders.dlq"),
        ("at=orders.dlq/0/" + "9" * 5_000, "at:"),
        ("older_than=1", "older_than:"),
        ("older_than=soon", "older_than:"),
        ("older_than=", "older_than:"),
        ("older_than=2h&newer_than=1h", "newer_than is the longer one"),
    ],
)
def test_letters_that_cannot_be_meant(query, told):
    status, detail = _refusal(_selected, query)
    assert (status, told in detail) == (400, True), detail


@pytest.mark.parametrize(("text", "count"), [(None, 10), ("1", 1), ("100", 100), ("007", 7)])
def test_limits_that_are_kept(text, count):
    assert asking.count_of({} if text is None else {"limit": [text]}, asking.ACTION) == count


@pytest.mark.parametrize(
    "text", ["0", "-1", "101", "1e2", "10.0", "", " 5", "٣", "all", "9" * 5_000, "NaN", "0x10", "1_0"]
)
def test_absurd_limits_are_refused_with_what_goes(text):
    status, detail = _refusal(asking.count_of, {"limit": [text]}, asking.ACTION)
    assert (status, "1 to 100 at a call" in detail, len(detail) < 200) == (400, True, True)


@pytest.mark.parametrize(
    ("text", "is_asked"),
    [("", True), ("true", True), ("1", True), ("TRUE", True), ("false", False), ("0", False), ("no", False)],
)
def test_a_flag_that_is_given_without_a_value_is_meant(text, is_asked):
    assert asking.is_asked({"dry_run": [text]}, "dry_run") is is_asked


def test_a_flag_that_is_neither_is_refused_and_not_taken_for_no():
    assert _refusal(asking.is_asked, {"dry_run": ["perhaps"]}, "dry_run")[0] == 400


@pytest.mark.parametrize(
    ("text", "states"), [("open", {"open"}), ("unresolved", {"open", "unknown"}), ("replayed", {"replayed"})]
)
def test_states(text, states):
    assert set(asking.states_of({"state": [text]})) == states


def test_without_a_state_all_are_meant_and_a_strange_one_is_refused():
    assert asking.states_of({}) == STATES
    assert _refusal(asking.states_of, {"state": ["done"]})[0] == 400


@pytest.mark.parametrize("why", [None, "", "  ", "\n\t", "x" * 1_001])
def test_a_discard_needs_a_reason_that_can_be_kept(why):
    assert _refusal(asking.why_of, {} if why is None else {"why": [why]})[0] == 400


def test_a_reason_is_one_line():
    assert asking.why_of({"why": [" a\ntest\x1b[31m order "]}) == "a test [31m order"


def test_an_app_answers_for_its_own_groups_only():
    groups = frozenset({"payments", ""})
    assert asking.selection_of({}, "orders.dlq", groups=groups, now_ms=NOW_MS).groups == groups
    assert asking.selection_of(
        {"group": ["payments"]}, "orders.dlq", groups=groups, now_ms=NOW_MS
    ).groups == {"payments"}
    status, detail = _refusal(
        asking.selection_of, {"group": ["mails"]}, "orders.dlq", groups=groups, now_ms=NOW_MS
    )
    assert (status, detail) == (400, "'mails' is none of this console's groups: payments")


def _is_answered_or_refused(call):
    try:
        call()
    except Problem as problem:
        return problem.status == 400
    return True


@given(st.text(max_size=200))
def test_any_query_is_read_or_refused(text):
    assert _is_answered_or_refused(lambda: _selected(text))


@given(st.binary(max_size=200))
def test_any_body_is_read_or_refused(body):
    assert _is_answered_or_refused(lambda: asking.read_body(body, "application/json", asking.REPLAY))
