"""What a record on a source topic says of itself: its place, or the replay that brought it there."""

import pytest
from hypothesis import given

from redrive.core.dialects import with_envelope
from redrive.core.envelope import Envelope
from redrive.core.record import Record
from redrive.sim.records import SimRecord
from tests.core.envelopes import any_headers

REPLAYED = Envelope(
    group="g", attempt=7, event_id="orders/0/3", replay_id="job-1", replays=1, source_topic="x"
)


def _record(headers):
    return Record(SimRecord("orders", 2, 9, b"k", b"v", headers, 1_700_000_000_000))


def test_a_replay_that_was_sent_to_the_source_keeps_its_event_id_and_says_what_it_is():
    record = _record(with_envelope([("trace", b"1")], REPLAYED))
    assert (record.event_id, record.is_replay) == ("orders/0/3", True)


def test_nothing_else_of_its_headers_counts():
    record = _record(with_envelope([("trace", b"1")], REPLAYED))
    assert (record.attempt, record.topic, record.offset, record.due_ms) == (1, "orders", 9, None)
    assert record.headers == (("trace", b"1"),)


@pytest.mark.parametrize(
    "headers", [[], [("redrive-id", b"forged")], [("redrive-replay-id", b""), ("redrive-id", b"x")]]
)
def test_without_a_replay_it_is_its_place(headers):
    record = _record(headers)
    assert (record.event_id, record.is_replay) == ("orders/2/9", False)


@given(any_headers)
def test_no_headers_are_too_strange(headers):
    record = _record(headers)
    assert record.event_id
    assert record.is_replay in {True, False}
