"""One letter for a person, whatever it holds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.deadletters.letters import Position, read_letter
from redrive.deadletters.portrait import (
    SHOWN_BYTES,
    SHOWN_HEX_BYTES,
    find_letter,
    payload_values,
    portray,
    portray_bytes,
)
from redrive.errors import ReplayRefused
from redrive.sim.records import SimRecord
from tests.deadletters.desks import Office


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "null", ""),
        (b"", "empty", ""),
        (
            b'{"b":1.10,"a":[1,2],"b":2}',
            "json",
            '{\n  "b": 1.10,\n  "a": [\n    1,\n    2\n  ],\n  "b": 2\n}',
        ),
        (b" [] ", "json", "[]"),
        ("grüße\n".encode(), "text", "grüße\n"),
        (b"{broken", "text", "{broken"),
        (b"[" * 100_000, "text", "[" * SHOWN_BYTES),
        (b"\xff\x00A", "hex", "00000000  ff 00 41" + " " * 39 + "  ..A"),
        (b"\x1b[31mred", "hex", "00000000  1b 5b 33 31 6d 72 65 64" + " " * 24 + "  .[31mred"),
    ],
)
def test_bytes_are_shown_as_what_they_are(value, kind, text):
    payload = portray_bytes(value)
    assert (payload.kind, payload.text) == (kind, text)


@pytest.mark.parametrize(
    ("value", "omitted"),
    [
        (b"x" * (SHOWN_BYTES + 5), 5),
        (b"\xff" * (SHOWN_HEX_BYTES + 7), 7),
        (b"x" * (SHOWN_BYTES - 1) + "€".encode(), 3),
        (b"x" * 1_000_000, 1_000_000 - SHOWN_BYTES),
    ],
)
def test_what_is_left_out_of_a_large_payload_is_told(value, omitted):
    assert portray_bytes(value).omitted_bytes == omitted
    assert portray_bytes(value, full=True).omitted_bytes == 0


@given(
    st.none()
    | st.binary(max_size=200)
    | st.text(max_size=50).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_no_payload_is_too_strange(value):
    portray_bytes(value)
    json.dumps(payload_values(value))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["redrive-group", "redrive-attempt", "redrive-source-topic", "redrive-due-ms", "x", "é"]
            ),
            st.none() | st.binary(max_size=9) | st.integers().map(lambda n: str(n).encode()),
        )
    )
)
def test_no_headers_are_too_strange(headers):
    letter = read_letter(SimRecord("orders.dlq", 0, 0, None, None, headers, -1))
    json.dumps(portray(letter, None, []))


def _letter(office, at):
    [book] = office.books()
    letter = find_letter(at, book, office.desk.log)
    return portray(letter, book.mark(at, letter.record.timestamp()[1]), book.history(at))


def test_a_letter_tells_its_headers_by_meaning_and_its_history():
    office = Office()
    at = office.letter(5, foreign=[("trace", b"1"), ("trace", b"\xff"), ("n", None)])
    office.replay()

    values = _letter(office, at)

    assert (values["state"], values["reason"], values["attempts"]) == ("replayed", "permanent", 4)
    assert values["source"] == {"topic": "orders", "partition": 0, "offset": 5}
    assert values["headers"] == [["trace", "1"], ["trace", "hex:ff"], ["n", None]]
    assert [(change["state"], change["who"], change["job"]) for change in values["history"]] == [
        ("sending", "ann@host", "job-1"),
        ("replayed", "ann@host", "job-1"),
    ]


def test_a_foreign_letter_is_shown_with_what_there_is():
    office = Office()
    at = office.letter(headers=[("redrive-attempt", b"many")])
    values = _letter(office, at)
    assert (values["foreign"], values["event_id"], values["unreadable_headers"]) == (
        True,
        "orders.dlq/0/0",
        ["redrive-attempt"],
    )


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (Position("orders.dlq", 0, 3), r"no letter at orders\.dlq/0/3: it has the offsets 0 to 2$"),
        (Position("orders.dlq", 0, 1), "holds no record"),
        (Position("orders.dlq", 4, 0), "no partition 4"),
    ],
)
def test_where_there_is_no_letter_it_says_what_there_is(at, told):
    office = Office()
    office.letters(3)
    office.cluster.topics["orders.dlq"].partitions[0].punch([1])
    [book] = office.books()
    with pytest.raises(ReplayRefused, match=told):
        find_letter(at, book, office.desk.log)


def test_an_empty_partition_says_so():
    [book] = Office().books()
    with pytest.raises(ReplayRefused, match="it is empty"):
        find_letter(Position("orders.dlq", 0, 0), book, Office().desk.log)
