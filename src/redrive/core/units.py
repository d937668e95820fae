"""
Durations and sizes as people write them. The one place that reads and prints them.

Every error is a `ValueError` that says what was given and what is accepted, so that settings can collect them.
"""

import re
from datetime import timedelta

#: The longest duration: a hundred years. An instant that far away still fits every date and 64-bit field.
MAX_DURATION_MS = 36_500 * 86_400_000
#: The largest size: what fits a signed 64-bit field.
MAX_SIZE_BYTES = 2**63 - 1

_MS_BY_UNIT = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
# Each unit at most once and from large to small, so that a duration has one reading; ASCII digits only.
_DURATION = re.compile("".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit in _MS_BY_UNIT))
_BARE_NUMBER = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?")
_DURATION_HELP = (
    "write it as '5s', '1h30m' or '250ms' (d, h, m, s, ms, from large to small) or as a timedelta"
)

_BYTES_BY_UNIT = {
    "B": 1,
    "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)")
_SIZE_HELP = "write it as '64MB' (B, kB, MB, GB, TB), '64MiB' (KiB, MiB, GiB, TiB) or as a number of bytes"


def parse_duration_ms(value: str | timedelta, *, allow_zero: bool = False) -> int:
    """
    Read a duration into whole milliseconds: `"5s"`, `"1h30m"`, `"1.5s"`, `timedelta(seconds=5)`.

    Bare numbers are refused: whether they mean seconds or milliseconds is anybody's guess. So are negative durations,
    fractions of a millisecond, more than a hundred years, and zero unless `allow_zero`. Raises `ValueError`.
    """
    if isinstance(value, timedelta):
        duration_ms, rest = divmod(value, timedelta(milliseconds=1))
        if rest:
            raise ValueError(f"duration {value!r} is not a whole number of milliseconds")
    elif isinstance(value, str):
        duration_ms = _text_ms(value)
    else:
        problem = "is a bare number" if isinstance(value, (int, float)) else f"is a {type(value).__name__}"
        raise ValueError(f"duration {_shown(value)} {problem}; {_DURATION_HELP}")
    if duration_ms < 0:
        raise ValueError(f"duration {_shown(value)} is negative")
    if duration_ms == 0 and not allow_zero:
        raise ValueError(f"duration {_shown(value)} is zero; here it must be longer")
    if duration_ms > MAX_DURATION_MS:
        raise ValueError(f"duration {_shown(value)} is longer than {format_duration(MAX_DURATION_MS)}")
    return duration_ms


def format_duration(duration_ms: int) -> str:
    """
    Print milliseconds from the largest unit that fits down to the last one needed: `5s`, `1h30m`, `1s500ms`, `0s`.

    Equal durations print equally however they were written ("90s" is `1m30s`), there is no dot or space in it (it
    is part of topic names), and `parse_duration_ms` reads the same number back.
    """
    if isinstance(duration_ms, bool) or not isinstance(duration_ms, int) or duration_ms < 0:
        raise ValueError(f"{_shown(duration_ms)} is not a number of milliseconds")
    parts: list[str] = []
    rest = duration_ms
    for unit, unit_ms in _MS_BY_UNIT.items():
        count, rest = divmod(rest, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_size_bytes(value: str | int, *, allow_zero: bool = False) -> int:
    """
    Read a size into bytes: `"64MB"` (powers of ten), `"64MiB"` (powers of two), `67108864`, `"67108864"`.

    `"64M"` is refused: tools differ on whether it is 64 MB or 64 MiB. So are negative sizes, fractions of a byte, and
    zero unless `allow_zero`. Raises `ValueError`.
    """
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError(f"size {_shown(value)} is a {type(value).__name__}; {_SIZE_HELP}")
    size_bytes = value if isinstance(value, int) else _text_bytes(value)
    if size_bytes < 0:
        raise ValueError(f"size {_shown(value)} is negative")
    if size_bytes == 0 and not allow_zero:
        raise ValueError(f"size {_shown(value)} is zero; here it must be larger")
    if size_bytes > MAX_SIZE_BYTES:
        raise ValueError(f"size {_shown(value)} is larger than a 64-bit number")
    return size_bytes


def format_size(size_bytes: int) -> str:
    """Print bytes exactly and as shortly as can be: `64MiB`, `64MB`, `1500B`. `parse_size_bytes` reads it back."""
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or size_bytes < 0:
        raise ValueError(f"{_shown(size_bytes)} is not a number of bytes")
    exact = [f"{size_bytes // unit}{name}" for name, unit in _BYTES_BY_UNIT.items() if size_bytes % unit == 0]
    return min(exact, key=len) if size_bytes else "0B"


def _text_ms(text: str) -> int:
    matched = _DURATION.fullmatch(text.strip())
    if matched is None or not matched[0]:
        problem = "is a bare number" if _BARE_NUMBER.fullmatch(text.strip()) else "can't be read"
        raise ValueError(f"duration {_shown(text)} {problem}; {_DURATION_HELP}")
    return sum(
        _scaled(number, unit_ms, text, "millisecond")
        for number, unit_ms in zip(matched.groups(), _MS_BY_UNIT.values(), strict=True)
        if number
    )


def _text_bytes(text: str) -> int:
    matched = _SIZE.fullmatch(text.strip())
    unit = _BYTES_BY_UNIT.get(matched[2] or "B") if matched else None
    if matched is None or unit is None:
        raise ValueError(f"size {_shown(text)} can't be read; {_SIZE_HELP}")
    return _scaled(matched[1], unit, text, "byte")


def _scaled(number: str, unit: int, text: str, smallest: str) -> int:
    """`number` × `unit` in whole numbers: floats would make 0.29 s into 290.00000000000006 ms."""
    whole, _, fraction = number.partition(".")
    fraction = fraction.rstrip("0")
    if len(whole) > 19 or len(fraction) > 19:
        raise ValueError(f"{_shown(text)} has more digits than any sensible number")
    parts: int = 10 ** len(fraction)
    scaled, rest = divmod(int(whole + fraction) * unit, parts)
    if rest:
        raise ValueError(f"{_shown(text)} is not a whole number of {smallest}s")
    return scaled


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"
