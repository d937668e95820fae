"""Rates as people write them."""

import pytest

from redrive.deadletters.pace import parse_rate


@pytest.mark.parametrize(
    ("text", "per_s"), [("50", 50), ("50/s", 50), ("120/m", 2), ("3600/h", 1), ("0.5", 0.5), (" 7/s ", 7)]
)
def test_a_rate_is_letters_a_second(text, per_s):
    assert parse_rate(text) == per_s


@pytest.mark.parametrize("text", ["", "fast", "50/d", "-1", "1e3", "nan", "inf", "/s", "5 /s", "٣", "1_000"])
def test_what_is_no_rate_is_refused_in_words(text):
    with pytest.raises(ValueError, match="is no rate"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["0", "0/s", "0.0/h", "9999999"])
def test_a_rate_that_cannot_be_kept_is_refused(text):
    with pytest.raises(ValueError, match="can't be kept"):
        parse_rate(text)
