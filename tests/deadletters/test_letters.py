"""Where letters are, what they say, and what is sent for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.dialects import read_envelope, with_envelope
from redrive.deadletters.letters import Position, copy_of, glance, read_letter
from redrive.sim.records import SimRecord
from tests.deadletters.desks import envelope

_headers = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "redrive-group",
                "redrive-reason",
                "redrive-failure-type",
                "redrive-id",
                "redrive-replay-topic",
                "x",
                "",
            ]
        ),
        st.none() | st.binary(max_size=6) | st.text(max_size=6).map(str.encode),
    ),
    max_size=8,
)


def _letter(headers, value=b"v"):
    return read_letter(SimRecord("orders.dlq", 2, 7, b"k", value, headers, 1_700_000_009_000))


@pytest.mark.parametrize("text", ["orders.dlq/0/17", "a/2147483647/9223372036854775807"])
def test_a_position_is_read_as_it_is_written(text):
    assert str(Position.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "orders.dlq", "orders.dlq/0", "orders.dlq/0/", "orders.dlq/0/-1", "orders.dlq/-1/0", "/0/1", "a/b/0/1",
     "orders.dlq/0/1/2", "orders.dlq/0/x", "orders.dlq/0/1.5", "orders.dlq/0/ 1", "orders.dlq/0/¹", "orders.dlq/0/٣",
     "orders.dlq/4294967296/1", "orders.dlq/0/99999999999999999999"],
)  # fmt: skip
def test_what_is_no_position_is_refused_in_words(text):
    with pytest.raises(ValueError, match="is no position"):
        Position.parse(text)


def test_the_example_for_a_position_is_of_the_topic_that_was_typed():
    with pytest.raises(
        ValueError, match=r"'orders/0' is no position: write TOPIC/PARTITION/OFFSET, as in orders/0/17$"
    ):
        Position.parse("orders/0")


@given(_headers)
def test_a_glance_sees_what_the_whole_envelope_says(headers):
    whole = read_envelope(headers)[0]
    expected = (whole.group, whole.reason, whole.failure_type, whole.event_id, whole.replay_topic)
    assert tuple(glance(headers))[:5] == expected


@given(_headers)
def test_any_headers_make_a_letter(headers):
    letter = _letter(headers)
    assert letter.is_foreign == glance(headers).is_foreign


def test_a_copy_starts_anew_for_the_same_group_and_event():
    letter = _letter(with_envelope([], envelope(5, replays=2)))

    said = read_envelope(copy_of(letter, job="job-1", now_ms=1_800_000_000_000).headers)[0]

    assert said == envelope(
        5,
        attempt=0,
        due_ms=1_800_000_000_000,
        replay_id="job-1",
        replays=3,
        # what went wrong stays with the letter
        first_failed_ms=None, last_failed_ms=None, failure_kind="", failure_type="", failure_message="", failure_stack="",
        reason="", fingerprint="", listener="", replay_topic="",
    )  # fmt: skip


def test_foreign_headers_are_sent_byte_for_byte_in_their_order():
    foreign = [("trace", b"\xff\x00"), ("n", None), ("trace", b""), ("X", b"1")]
    letter = _letter([*with_envelope(foreign, envelope(1))])

    sent = copy_of(letter, job="j", now_ms=0).headers

    assert [header for header in sent if not header[0].startswith("redrive-")] == foreign
    assert len({name for name, _ in sent if name.startswith("redrive-")}) == len(sent) - len(foreign)


def test_a_foreign_letter_is_sent_under_its_position_as_event_id():
    said = read_envelope(copy_of(_letter([("x", b"1")]), job="j", now_ms=5).headers)[0]
    assert (said.event_id, said.group, said.due_ms) == ("orders.dlq/2/7", "", 5)


@pytest.mark.parametrize(
    ("said", "value", "lost"),
    [
        ({}, b"v", False),
        ({}, None, False),  # a null value that its producer wrote
        ({"reason": "poison"}, None, False),
        ({"reason": "too-large"}, b"v", False),
        ({"reason": "too-large"}, None, True),
        (
            {"source_timestamp_ms": None, "failure_kind": ""},
            None,
            True,
        ),  # cut down to what it can't do without
        ({"source_timestamp_ms": None, "failure_kind": ""}, b"v", False),
    ],
)
def test_a_letter_knows_whether_its_value_was_lost(said, value, lost):
    assert _letter(with_envelope([], envelope(1, **said)), value).has_lost_its_value is lost


def test_a_foreign_null_value_is_not_lost():
    assert _letter([], None).has_lost_its_value is False
