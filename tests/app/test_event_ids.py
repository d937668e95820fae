"""An event has one id in every attempt, as a dead letter and in its replay: its producer's, where a listener names the header."""

import pytest

from redrive import App, ListenerError, Record, RetryPolicy
from redrive.testing import Harness


def _app(seen, **options):
    app = App("payments")

    @app.listener("orders", retry=RetryPolicy("5s"), **options)
    def charge(order: dict, record: Record) -> None:
        seen.append(record.event_id)
        raise TimeoutError

    return app


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("event-id", b"e-1")], "e-1"),
        ([("event-id", b"old"), ("event-id", b"new")], "new"),
        ([("event-id", "größe-1".encode())], "größe-1"),
        ([("other", b"e-1")], "orders/0/0"),
        ([("event-id", None)], "orders/0/0"),
        ([("event-id", b"")], "orders/0/0"),
        ([("event-id", b"\xff\xfe")], "orders/0/0"),
        ([("event-id", b"e\n1")], "orders/0/0"),
        ([("event-id", b"x" * 257)], "orders/0/0"),
    ],
)
def test_the_producers_id_is_kept_from_the_first_attempt_to_the_dead_letter(headers, expected):
    seen = []
    with Harness(_app(seen, id_header="event-id")) as harness:
        harness.send("orders", {}, headers=headers)
        harness.advance("6s")
        [letter] = harness.dead_letters
    assert (seen, letter.envelope.event_id) == ([expected] * 2, expected)


def test_without_a_header_named_the_position_is_the_id():
    seen = []
    with Harness(_app(seen)) as harness:
        harness.send("orders", {}, headers=[("event-id", b"e-1")])
    assert seen == ["orders/0/0"]


@pytest.mark.parametrize("header", [7, "redrive-id"])
def test_what_is_no_header_of_a_producer_is_refused(header):
    with pytest.raises(ListenerError, match="id_header"):
        _app([], id_header=header).resolve()
