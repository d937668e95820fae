"""How long the other side asks us to wait: `Retry-After` (RFC 9110, 10.2.3) and what client libraries make of it."""

import math
import re
from datetime import UTC, datetime, timedelta

from redrive.core.evidence import read, text

#: Longer waits are cut to an hour: a wrong header must not put a record to sleep for days.
RETRY_AFTER_MAX_MS = 3_600_000

_SECONDS = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# The three forms of an HTTP date (RFC 9110, 5.6.7). Not by strptime, whose month names follow the locale.
_CLOCK = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_DATES = (
    re.compile(
        rf"[A-Za-z]+, (?P<day>[0-9]{{2}})[ -](?P<month>[A-Za-z]{{3}})[ -](?P<year>[0-9]{{2,4}}) {_CLOCK} GMT"
    ),
    re.compile(rf"[A-Za-z]{{3}} (?P<month>[A-Za-z]{{3}}) (?P<day>[ 0-9][0-9]) {_CLOCK} (?P<year>[0-9]{{4}})"),
)


def retry_after_ms(exc: BaseException, now_ms: float) -> int | None:
    """
    The wait that this exception asks for, in milliseconds from 0 to `RETRY_AFTER_MAX_MS`; None when it asks for none.

    Looked for in `retry_after` (seconds or a timedelta), in `headers` and in `response.headers`. `now_ms` is what a
    date is compared with. What can't be read counts as not there.
    """
    try:
        wait_ms = _asked_ms(exc, now_ms)
    except BaseException:  # a hostile attribute: as if it weren't there
        return None
    if wait_ms is None:
        return None
    return max(0, min(RETRY_AFTER_MAX_MS, math.ceil(wait_ms)))  # rounded down it would be early


def _asked_ms(exc: BaseException, now_ms: float) -> float | None:
    wait_ms = _parsed_ms(read(exc, "retry_after"), now_ms)
    if wait_ms is not None:
        return wait_ms
    response = read(exc, "response")
    for headers in (read(exc, "headers"), read(response, "headers"), _aws_headers(response)):
        wait_ms = _parsed_ms(_header(headers), now_ms)
        if wait_ms is not None:
            return wait_ms
    return None


def _header(headers: object) -> object:
    get = read(headers, "get")
    if not callable(get):
        return None
    value: object = get("Retry-After") or get("retry-after")  # a plain dict minds the case
    return value


def _aws_headers(response: object) -> object:
    metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
    return metadata.get("HTTPHeaders") if isinstance(metadata, dict) else None


def _parsed_ms(value: object, now_ms: float) -> float | None:
    if isinstance(value, timedelta):
        return value / timedelta(milliseconds=1)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value) * 1000 if 0 <= value < 1e15 else None
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    written = text(value)
    if written is None:
        return None
    written = written.strip()
    if _SECONDS.fullmatch(written):
        return float(written) * 1000
    due_ms = http_date_ms(written)
    return None if due_ms is None else due_ms - now_ms


def http_date_ms(written: str) -> int | None:
    """An HTTP date, such as `Sun, 06 Nov 1994 08:49:37 GMT`, in epoch milliseconds; None when it isn't one."""
    matched = next((m for form in _DATES if (m := form.fullmatch(written))), None)
    if matched is None or matched["month"] not in _MONTHS:
        return None
    year = int(matched["year"])
    if len(matched["year"]) == 2:
        year += 1900 if year >= 70 else 2000
    month, day = _MONTHS.index(matched["month"]) + 1, int(matched["day"])
    hour, minute, second = int(matched["hour"]), int(matched["minute"]), min(int(matched["second"]), 59)
    try:
        instant = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:  # 31 February
        return None
    return round(instant.timestamp() * 1000)
