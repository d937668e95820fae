"""The wait that the other side asks for: where it is found, how it is read, how far it is believed."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.failure import Failures, classify
from redrive.core.retry_after import RETRY_AFTER_MAX_MS, http_date_ms, retry_after_ms
from tests.core.lookalikes import lookalike

NOW_MS = 784_111_777_000  # Sun, 06 Nov 1994 08:49:37 GMT


class Headers(dict):
    """As clients have them: whatever the case of the name."""

    def get(self, name, default=None):
        return {key.lower(): value for key, value in self.items()}.get(name.lower(), default)


def unavailable(header):
    exc = lookalike("httpx.HTTPStatusError")()
    exc.response = SimpleNamespace(status_code=503, headers=Headers({"retry-after": header}))
    return exc


@pytest.mark.parametrize(
    ("header", "expected_ms"),
    [
        ("120", 120_000),
        (" 5 ", 5_000),
        ("0", 0),
        ("1.5", 1_500),
        ("0.0001", 1),
        (b"7", 7_000),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10_000),
        ("Sunday, 06-Nov-94 08:49:47 GMT", 10_000),
        ("Sun Nov  6 08:49:47 1994", 10_000),
        ("Sun, 06 Nov 1994 08:49:07 GMT", 0),
        ("86400", RETRY_AFTER_MAX_MS),
        ("Fri, 31 Dec 2999 23:59:59 GMT", RETRY_AFTER_MAX_MS),
        ("-1", None),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("1e3", None),
        ("9" * 400, None),
        ("Sun, 31 Feb 1994 08:49:47 GMT", None),
        ("Sun, 06 Mai 1994 08:49:47 GMT", None),
        ("Sun, 06 Nov 1994 25:49:47 GMT", None),
        ("Sun, 06 Nov 1994 08:49:47 CET", None),
    ],
)
def test_the_header_is_read_as_seconds_or_as_a_date(header, expected_ms):
    assert retry_after_ms(unavailable(header), NOW_MS) == expected_ms


@given(st.integers(0, 200_000_000_000).map(lambda at_s: datetime.fromtimestamp(at_s, UTC)))
def test_a_date_is_read_to_the_second(instant):
    assert http_date_ms(format_datetime(instant, usegmt=True)) == round(
        instant.replace(microsecond=0).timestamp() * 1000
    )


@given(st.text() | st.binary() | st.floats() | st.integers() | st.timedeltas() | st.booleans() | st.none())
def test_whatever_is_there_gives_a_bounded_wait_or_none(value):
    for exc in (unavailable(value), lookalike("shop.Slow", retry_after=value)()):
        wait_ms = retry_after_ms(exc, NOW_MS)
        assert wait_ms is None or (type(wait_ms) is int and 0 <= wait_ms <= RETRY_AFTER_MAX_MS)


@pytest.mark.parametrize(
    ("attributes", "expected_ms"),
    [
        ({"retry_after": 3}, 3_000),
        ({"retry_after": 0.25}, 250),
        ({"retry_after": timedelta(seconds=4)}, 4_000),
        ({"headers": {"Retry-After": "5"}}, 5_000),
        ({"headers": {"retry-after": "6"}}, 6_000),
        ({"response": SimpleNamespace(headers=Headers({"RETRY-AFTER": "7"}))}, 7_000),
        ({"response": {"ResponseMetadata": {"HTTPHeaders": {"retry-after": "8"}}}}, 8_000),
        ({"headers": None, "response": None}, None),
        ({"headers": [("Retry-After", "5")]}, None),
        ({"retry_after": None, "headers": {"Retry-After": "5"}}, 5_000),
    ],
)
def test_it_is_looked_for_where_clients_keep_it(attributes, expected_ms):
    assert retry_after_ms(lookalike("shop.Slow", **attributes)(), NOW_MS) == expected_ms


def test_it_is_found_on_a_cause():
    exc = lookalike("shop.GatewayError")()
    exc.__cause__ = unavailable("9")
    assert classify(exc, Failures(), now_ms=NOW_MS) == (
        "transient",
        "HTTP 503, of its cause httpx.HTTPStatusError",
        9_000,
    )


def test_it_is_found_on_an_exception_of_the_standard_library():
    from urllib.error import HTTPError

    exc = HTTPError("http://bank", 503, "told", {"Retry-After": "9"}, None)
    assert classify(exc, Failures(), now_ms=NOW_MS) == ("transient", "HTTP 503", 9_000)


def test_a_permanent_failure_has_no_wait():
    exc = unavailable("9")
    exc.response.status_code = 404
    assert classify(exc, Failures(), now_ms=NOW_MS).retry_after_ms is None
