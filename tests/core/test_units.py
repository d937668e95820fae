"""Durations and sizes: what is read, what is refused and with which words, and that printing and reading agree."""

import contextlib
import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.units import (
    MAX_DURATION_MS,
    MAX_SIZE_BYTES,
    format_duration,
    format_size,
    parse_duration_ms,
    parse_size_bytes,
)

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("250ms", 250),
        ("5s", 5 * SECOND),
        ("1m", MINUTE),
        ("1h30m", HOUR + 30 * MINUTE),
        ("2d", 2 * DAY),
        ("1d2h3m4s5ms", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5),
        ("90s", 90 * SECOND),
        ("1.5s", 1_500),
        ("0.29s", 290),
        ("0.001s", 1),
        ("1.50000000s", 1_500),
        ("0s1ms", 1),
        ("007s", 7 * SECOND),
        ("  5s\n", 5 * SECOND),
        (timedelta(seconds=5), 5 * SECOND),
        (timedelta(days=400, milliseconds=1), 400 * DAY + 1),
    ],
)
def test_a_duration_is_read_into_milliseconds(text, expected_ms):
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize(
    "value", [5, 5.0, True, 0, -1, float("nan"), float("inf"), "5", "0.5", "-3", "1e3", "0"]
)
def test_a_bare_number_is_refused_with_the_way_to_write_it(value):
    with pytest.raises(ValueError, match=r"is a bare number; write it as '5s', '1h30m' or '250ms'"):
        parse_duration_ms(value)


@pytest.mark.parametrize(
    "text",
    ["", " ", "s", "5 s", "5S", "5M", "5sec", "5 seconds", "30m1h", "1s1s", "1h 30m", "-5s", "+5s", ".5s", "5.s", "1e3s",
     "1_000s", "٥s", "5s;", "nan", "inf", "nans", "1,5s", "5w", "1y", "PT5S", "5s\x00", "5µs"],
)  # fmt: skip
def test_what_is_no_duration_is_refused_and_shown(text):
    with pytest.raises(ValueError, match=re.escape(repr(text)) + ".*can't be read; write it as"):
        parse_duration_ms(text)


@pytest.mark.parametrize("value", [None, [], b"5s", ("5s",), object])
def test_what_is_no_text_is_a_value_error_too(value):
    with pytest.raises(ValueError, match=r"duration .* is a .*; write it as"):
        parse_duration_ms(value)


@pytest.mark.parametrize(
    "value", ["1.5ms", "0.0001s", timedelta(microseconds=1500), timedelta(microseconds=-1)]
)
def test_fractions_of_a_millisecond_are_refused_instead_of_rounded(value):
    with pytest.raises(ValueError, match="not a whole number of milliseconds"):
        parse_duration_ms(value)


def test_a_negative_timedelta_is_refused():
    with pytest.raises(ValueError, match="is negative"):
        parse_duration_ms(timedelta(seconds=-1))


@pytest.mark.parametrize("zero", ["0s", "0ms", "0h0s", "0.0s", timedelta()])
def test_zero_is_accepted_only_where_it_is_allowed(zero):
    assert parse_duration_ms(zero, allow_zero=True) == 0
    with pytest.raises(ValueError, match="is zero; here it must be longer"):
        parse_duration_ms(zero)


@pytest.mark.parametrize("value", ["36501d", "9" * 19 + "d", timedelta.max.days * timedelta(days=1)])
def test_more_than_a_hundred_years_is_refused(value):
    with pytest.raises(ValueError, match="is longer than 36500d"):
        parse_duration_ms(value)


@pytest.mark.parametrize("text", ["9" * 5_000 + "s", "0." + "1" * 5_000 + "s", "x" * 100_000])
def test_an_absurd_text_is_refused_quickly_and_shown_in_short(text):
    with pytest.raises(ValueError) as refused:
        parse_duration_ms(text)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("duration_ms", "expected"),
    [(0, "0s"), (1, "1ms"), (5 * SECOND, "5s"), (1_500, "1s500ms"), (90 * SECOND, "1m30s"), (90 * MINUTE, "1h30m"),
     (DAY, "1d"), (36 * HOUR, "1d12h"), (DAY + 1, "1d1ms")],
)  # fmt: skip
def test_a_duration_is_printed_without_what_is_zero(duration_ms, expected):
    assert format_duration(duration_ms) == expected


@given(st.integers(0, MAX_DURATION_MS))
def test_a_printed_duration_is_read_back_exactly(duration_ms):
    assert parse_duration_ms(format_duration(duration_ms), allow_zero=True) == duration_ms


@given(st.integers(0, 10**30))
def test_a_printed_duration_is_fit_for_a_topic_name(duration_ms):
    assert re.fullmatch(r"[0-9a-z]+", format_duration(duration_ms))


@given(st.text())
def test_any_text_is_read_or_refused_with_a_value_error(text):
    for parse in (parse_duration_ms, parse_size_bytes):
        with contextlib.suppress(ValueError):
            assert parse(text) > 0


@pytest.mark.parametrize("bad", [-1, 1.0, True, None, "5s"])
def test_only_whole_numbers_from_zero_up_are_printed(bad):
    with pytest.raises(ValueError, match="is not a number of milliseconds"):
        format_duration(bad)
    with pytest.raises(ValueError, match="is not a number of bytes"):
        format_size(bad)


@pytest.mark.parametrize(
    ("value", "expected_bytes"),
    [("64MB", 64_000_000), ("64MiB", 67_108_864), ("1.5kB", 1_500), ("0.5KiB", 512), ("2TB", 2 * 10**12), ("1B", 1),
     ("64 MB", 64_000_000), (" 1GiB ", 2**30), (67_108_864, 67_108_864), ("67108864", 67_108_864), ("1KB", 1_000)],
)  # fmt: skip
def test_a_size_is_read_into_bytes(value, expected_bytes):
    assert parse_size_bytes(value) == expected_bytes


@pytest.mark.parametrize(
    "value", ["", "MB", "64M", "64K", "64mb", "64Mb", "-1MB", "1,5MB", "many", "1e6", "0x10", "1  MB"]
)
def test_a_size_that_can_be_read_in_two_ways_or_none_is_refused(value):
    with pytest.raises(ValueError, match=re.escape(repr(value)) + " can't be read; write it as '64MB'"):
        parse_size_bytes(value)


@pytest.mark.parametrize("value", [None, 1.5, True, b"1MB", [1]])
def test_a_size_of_another_type_is_refused(value):
    with pytest.raises(ValueError, match=r"is a .*; write it as '64MB'"):
        parse_size_bytes(value)


def test_fractions_of_a_byte_negative_and_absurd_sizes_are_refused():
    for value, problem in [
        ("0.0001kB", "whole number of bytes"),
        (-1, "negative"),
        ("9223373TB", "larger than a 64-bit number"),
        ("9" * 5_000, "more digits"),
        (MAX_SIZE_BYTES + 1, "larger than a 64-bit number"),
    ]:
        with pytest.raises(ValueError, match=problem):
            parse_size_bytes(value)


@pytest.mark.parametrize("zero", ["0B", "0MB", 0, "0"])
def test_a_size_of_zero_is_accepted_only_where_it_is_allowed(zero):
    assert parse_size_bytes(zero, allow_zero=True) == 0
    with pytest.raises(ValueError, match="is zero"):
        parse_size_bytes(zero)


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, "0B"),
        (1, "1B"),
        (64_000_000, "64MB"),
        (67_108_864, "64MiB"),
        (1_500, "1500B"),
        (1_000, "1kB"),
        (1_024, "1KiB"),
    ],
)
def test_a_size_is_printed_exactly_and_shortly(size_bytes, expected):
    assert format_size(size_bytes) == expected


@given(st.integers(0, MAX_SIZE_BYTES))
def test_a_printed_size_is_read_back_exactly(size_bytes):
    assert parse_size_bytes(format_size(size_bytes), allow_zero=True) == size_bytes
