"""
Log lines: what happened, what becomes of the record, what to do, by the texts of the catalogue.

A bad release fails as fast as records come, and without a broker the client complains twenty times a second: each
stream of like events is told at once when it begins and then summed up every ten seconds, so that a log stays readable
and costs the pump nothing. No line holds what a record holds, nor what an exception says: that may quote the record.
"""

import logging
import re
import shlex
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from redrive.core.catalogue import LogEvent, event_of
from redrive.core.commands import Report
from redrive.runtime.clock import Clock

LOGGER = logging.getLogger("redrive")
LOGGER.addHandler(logging.NullHandler())

WINDOW_MS = 10_000.0
#: More streams at once than listeners and topics account for: what tells them apart is noise then.
_MOST_STREAMS = 500
_MOST_CHARS = 500
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_MORE = " (and %(more)s more like it in the last %(window_s)s s)"
# What changes from one complaint of the client to the next: lone counts and times, but no digits within a name.
_NOISE = re.compile(r" \(after .*|(?<![^\s(])\d+(?:ms)?(?![^\s)])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_Key = tuple[str, ...]


class _Fields(dict[str, Any]):
    """A report's fields; one that is missing leaves a hole in the line and doesn't cost it."""

    def __missing__(self, name: str) -> str:
        return "?"


class _Stream:
    """Like events within one window."""

    __slots__ = ("began_mono_ms", "event", "latest", "suppressed", "told")

    def __init__(self, event: LogEvent, began_mono_ms: float) -> None:
        self.event = event
        self.began_mono_ms = began_mono_ms
        self.told = 0
        self.suppressed = 0
        self.latest: Report | None = None


class Reporter:
    """
    Called with each report, by any thread; never raises. `flush` tells the sums that are due: call it about once a second.

    Lines go to the logger `redrive`. Their fields are attributes of the log record too, as `redrive_event` and
    `redrive_<field>`, for formatters that write JSON.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._streams: dict[_Key, _Stream] = {}
        # Held for the account only, never while a line is written.
        self._lock = threading.Lock()

    def __call__(self, report: Report) -> None:
        """Tell it now, or count it for the next sum."""
        event = event_of(report.event, report.fields) or _unlisted(report)
        if self._is_told_now(event, report):
            _tell(event, report)

    def flush(self, *, at_end: bool = False) -> None:
        """Tell how many there were of what was not told one by one, where the ten seconds are over, or `at_end` all."""
        now_ms = self._clock.mono_ms()
        due: list[tuple[LogEvent, Report, int, float]] = []
        with self._lock:
            for key, stream in list(self._streams.items()):
                elapsed_ms = now_ms - stream.began_mono_ms
                if elapsed_ms < WINDOW_MS and not at_end:
                    continue
                if stream.latest is None:
                    del self._streams[key]  # quiet again: the next one is a first one
                    continue
                due.append((stream.event, stream.latest, stream.suppressed, elapsed_ms))
                stream.began_mono_ms, stream.suppressed, stream.latest = now_ms, 0, None
        for event, report, suppressed, elapsed_ms in due:
            _tell(event, report, suppressed, elapsed_ms)

    def _is_told_now(self, event: LogEvent, report: Report) -> bool:
        key = _key(event, report)
        with self._lock:
            stream = self._streams.get(key)
            if stream is None:
                if len(self._streams) >= _MOST_STREAMS:
                    key = (event.name,)
                stream = self._streams.setdefault(key, _Stream(event, self._clock.mono_ms()))
            if stream.told < event.at_once:
                stream.told += 1
                return True
            stream.suppressed += 1
            stream.latest = report
            return False


def _unlisted(report: Report) -> LogEvent:
    return LogEvent(
        report.event, "warning", "%(event)s: " + ", ".join(f"{name} %({name})s" for name in report.fields)
    )


def _key(event: LogEvent, report: Report) -> _Key:
    fields = report.fields
    return (
        event.name,
        *(_cause(fields) if name == "error" else str(fields.get(name, "")) for name in event.limit_by),
    )


def _cause(fields: Mapping[str, Any]) -> str:
    return _NOISE.sub("", str(fields.get("error", ""))[:_MOST_CHARS])


def _tell(event: LogEvent, report: Report, count: int = 1, elapsed_ms: float = 0.0) -> None:
    fields = _Fields((name, _clean(value)) for name, value in report.fields.items())
    extra = {f"redrive_{name}": value for name, value in fields.items()}
    extra.update(redrive_event=report.event, redrive_count=count)
    fields["event"] = report.event
    # It stands in a command that people copy into their shell, and may come from a producer's header.
    if isinstance(event_id := fields.get("event_id"), str):
        fields["event_id"] = shlex.quote(event_id)
    text = event.text
    if count > 1:
        text += _MORE
        fields["more"], fields["window_s"] = f"{count - 1:,}", round(elapsed_ms / 1000)
    # A filter or handler of the application may raise; that must not stop the pump.
    with suppress(Exception):
        # The text stays as it is in the log record: collectors group lines by it.
        LOGGER.log(_LEVELS[event.level], text, fields, extra=extra)


def _clean(value: Any) -> Any:
    """One line, and not endless: what comes from outside must not look like lines of ours."""
    return _CONTROL.sub(" ", value)[:_MOST_CHARS] if isinstance(value, str) else value
