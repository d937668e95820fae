"""Values in header bytes, exactly as other systems write and read them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core.encodings import ENCODINGS, FIELDS, MAX_INSTANT_MS, encoding_of, encodings_for
from redrive.core.envelope import Envelope

NEW_YEAR_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z

EVERY = [(field, name) for field in FIELDS for name in encodings_for(field)]


def _values(field, name):
    sort = FIELDS[field]
    if sort.sort == "text":
        return st.text(st.characters(codec="utf-8"), max_size=100)
    if name == "flag":
        return st.integers(0, 1)
    if name.endswith("seconds"):
        return st.integers(0, MAX_INSTANT_MS // 1000).map(lambda seconds: seconds * 1000)
    least = 1 if name == "int32-or-byte" else sort.least
    return st.integers(least, sort.most)


@settings(max_examples=500)
@given(which=st.sampled_from(EVERY), data=st.data())
def test_what_is_encoded_is_decoded(which, data):
    field, name = which
    encoding = encoding_of(field, name)
    value = data.draw(_values(field, name))
    assert encoding.decode(encoding.encode(value)) == value


@settings(max_examples=500)
@given(
    which=st.sampled_from(EVERY),
    value=st.binary(max_size=12) | st.integers().map(lambda number: b"%d" % number),
)
def test_what_is_decoded_from_anywhere_may_stand_in_an_envelope(which, value):
    field, name = which
    encoding = encoding_of(field, name)
    try:
        decoded = encoding.decode(value)
    except Exception:
        return
    sort = FIELDS[field]
    assert isinstance(decoded, str) if sort.sort == "text" else sort.least <= decoded <= sort.most
    assert isinstance(encoding.encode(decoded), bytes)


@pytest.mark.parametrize(
    ("field", "name", "value", "spelled"),
    [
        ("due_ms", "big-integer", NEW_YEAR_MS, "019b76daa800"),
        ("source_timestamp_ms", "int64", NEW_YEAR_MS, "0000019b76daa800"),
        ("due_ms", "big-integer", 128, "0080"),
        ("due_ms", "big-integer", 127, "7f"),
        ("due_ms", "big-integer", 0, "00"),
        ("source_timestamp_ms", "big-integer", -1, "ff"),
        ("source_timestamp_ms", "int64", -1, "ffffffffffffffff"),
        ("source_partition", "int32", 3, "00000003"),
        ("source_offset", "int64", 17, "0000000000000011"),
        ("due_ms", "decimal", NEW_YEAR_MS, b"1767225600000".hex()),
        ("due_ms", "decimal-seconds", NEW_YEAR_MS, b"1767225600".hex()),
        ("due_ms", "int64-seconds", NEW_YEAR_MS, "000000006955b900"),
        ("due_ms", "iso-8601", NEW_YEAR_MS, b"2026-01-01T00:00:00.000+00:00".hex()),
        ("replays", "flag", 3, b"true".hex()),
    ],
)
def test_values_are_spelled_like_this(field, name, value, spelled):
    assert encoding_of(field, name).encode(value).hex() == spelled


@pytest.mark.parametrize(
    ("counts", "attempt", "spelled"),
    [("runs", 2, "00000002"), ("next-run", 1, "00000002"), ("retries", 3, "00000002")],
)
def test_attempts_are_counted_as_their_reader_counts(counts, attempt, spelled):
    encoding = encoding_of("attempt", "int32", counts)
    assert (encoding.encode(attempt).hex(), encoding.decode(bytes.fromhex(spelled))) == (spelled, attempt)


def test_a_due_in_seconds_is_rounded_up_never_early():
    assert encoding_of("due_ms", "decimal-seconds").encode(NEW_YEAR_MS + 1) == b"1767225601"


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        (b"2026-01-01T00:00:00Z", NEW_YEAR_MS),
        (b"2026-01-01T01:00:00+01:00", NEW_YEAR_MS),
        (b"2026-01-01T00:00:00.000001Z", NEW_YEAR_MS + 1),
    ],
)
def test_an_instant_in_words_is_read_in_any_time_zone_and_never_early(value, ms):
    assert encoding_of("due_ms", "iso-8601").decode(value) == ms


@pytest.mark.parametrize(
    ("field", "name", "value"),
    [
        ("due_ms", "iso-8601", b"2026-01-01T00:00:00"),  # where?
        ("due_ms", "iso-8601", b"tomorrow"),
        ("due_ms", "big-integer", b""),
        ("due_ms", "big-integer", b"\0" * 9),
        ("due_ms", "big-integer", b"\xff"),  # before 1970
        ("due_ms", "big-integer", NEW_YEAR_MS.to_bytes(8) + b"\0"),
        ("due_ms", "decimal", b"253402300800000"),
        ("source_offset", "int64", b"\0" * 4),
        ("source_offset", "int64", b"\xff" * 8),
        ("source_partition", "int32", b"\0" * 8),
        ("attempt", "int32", b"\x7f\xff\xff\xff"),
        ("replays", "flag", b"yes"),
    ],
)
def test_what_cannot_be_true_is_refused(field, name, value):
    with pytest.raises((ValueError, KeyError)):
        encoding_of(field, name).decode(value)


@pytest.mark.parametrize(
    ("value", "attempt"),
    [(b"\0\0\0\2", 1), (b"\2", 1), (b"\xff", 254), (b"\0\0\0\1", 0), (b"\0\0\x27\x11", 10_000)],
)
def test_spring_s_attempts_are_read_as_spring_reads_them(value, attempt):
    assert encoding_of("attempt", "int32-or-byte", "next-run").decode(value) == attempt


@pytest.mark.parametrize(
    "value",
    [b"", b"\0", b"\0\0", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\x80\0", b"\0\0\0\0\0\0\0\2", b"2\n"],
)
def test_what_spring_doesn_t_believe_isn_t_believed(value):
    with pytest.raises(ValueError):
        encoding_of("attempt", "int32-or-byte", "next-run").decode(value)


def test_a_field_that_cannot_be_spelled_so_says_how_it_can():
    with pytest.raises(ValueError, match=r"group is a text: its encoding is one of text$"):
        encoding_of("group", "int32")
    with pytest.raises(
        ValueError, match=r"due_ms is an instant in epoch milliseconds: .* decimal, int64, big-integer"
    ):
        encoding_of("due_ms", "int32")


def test_all_fields_of_an_envelope_have_a_sort_and_all_encodings_a_word():
    assert sorted(FIELDS) == sorted(Envelope.__struct_fields__)
    assert {name for _, name in EVERY} == set(ENCODINGS)
