"""
What redrive raises, and what handlers raise to steer it.

    RedriveError
    ├── SettingsError    settings that can't be used; all problems at once, each with its path
    ├── ListenerError    listeners or handlers that can't be used; all at once, each with file and line
    ├── TopologyError    topic names or topics that don't fit together, or are missing
    ├── EnvelopeError    headers that can't be written, or mean nothing
    ├── DecodeError      a record's value that doesn't decode to what its handler takes
    ├── PortError        the outside world refused or failed: broker, store, file; `.retriable`
    ├── ListenerStopped  a listener with give_up="stop" stopped at a record, and the process with it
    ├── ReplayRefused    a replay or discard that must not run as asked
    ├── MissingExtra     a part of redrive that needs a package that isn't installed
    └── ForkedHandle     a handle that was made before `fork()` is used after it

    HandlerSignal        no errors, apart from the tree: what a handler raises to say what becomes of its record
    ├── RetryLater       try again after a time of the handler's choice
    ├── DeadLetterNow    put it aside for a person, without another try
    └── Skip             it needs no handling
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple


class RedriveError(Exception):
    """Every error that redrive raises by itself, so that one `except` catches them all."""


class Problem(NamedTuple):
    """One thing that is wrong. `where`: a settings path (`kafka.acks`) or a place in code (`service.py:12`)."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class _ManyProblems(RedriveError):
    """An error that tells everything that is wrong at once, so that nobody mends one thing at a time."""

    def __init__(self, problems: Iterable[tuple[str, str]]) -> None:
        self.problems = tuple(Problem(*problem) for problem in problems)
        super().__init__(self.problems)  # its args build it again when it is unpickled

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems]
        return (
            lines[0]
            if len(lines) == 1
            else "\n".join([f"{len(lines)} problems:", *(f"  {line}" for line in lines)])
        )


class SettingsError(_ManyProblems):
    """Settings that can't be used. `problems`: pairs of the setting's path and what is wrong with it."""


class ListenerError(_ManyProblems):
    """Listeners or handlers that can't be used. `problems`: pairs of file and line, and what is wrong there."""


class TopologyError(RedriveError):
    """Topic names that collide or can't be, or topics that are missing or don't fit together."""


class EnvelopeError(RedriveError):
    """Headers that can't be written, or that mean nothing."""


class DecodeError(RedriveError):
    """A record's value can't be decoded to what its handler takes. Its text says why and never quotes the value."""


class PortError(RedriveError):
    """
    The outside world refused or failed: a broker, a store, a file.

    `retriable`: whether the same call may succeed later, as far as the outside says.
    """

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable


class ListenerStopped(RedriveError):
    """
    A listener with `give_up="stop"` came to the end of a record's road: the process has drained its other work and ended.

    `listener`: its name. `record`: `topic/partition/offset` where the record is, which is unfinished: who starts next begins
    with it.
    """

    def __init__(self, listener: str, record: str, why: str) -> None:
        super().__init__(listener, record, why)
        self.listener = listener
        self.record = record
        self.why = why

    def __str__(self) -> str:
        return (
            f'listener {self.listener} stopped at {self.record} ({self.why}), as its give_up="stop" says. The record is not '
            "finished, nor is what is behind it; all else was drained and committed. Mend what is wrong and start again: it is "
            f"handled first. To get past it without that: redrive worker skip {self.record} --reason TEXT, then start again"
        )


class ReplayRefused(RedriveError):
    """A replay, discard or resolve that must not run as it was asked for; nothing was sent or marked."""


class MissingExtra(RedriveError):
    """A part of redrive was used that needs a package which isn't installed. `extra` brings it; `purpose` needs it."""

    def __init__(self, extra: str, purpose: str) -> None:
        super().__init__(extra, purpose)
        self.extra = extra
        self.purpose = purpose

    def __str__(self) -> str:
        return f"{self.purpose} needs more packages; run: pip install 'redrive[{self.extra}]'"


class ForkedHandle(RedriveError):
    """A consumer, producer or app made before `fork()` was used in the child, where its threads don't exist."""


class HandlerSignal(Exception):
    """Raised by a handler to say what becomes of its record. Not an error, and never classified as one."""

    reason: str


class RetryLater(HandlerSignal):
    """
    Raised by a handler: try this record again after `after` (`"7m"` or a `timedelta`), counted as an attempt.

    `reason` is kept with the record for the person who looks. Raises `TypeError` when `after` is a bare number: whether
    that means seconds or milliseconds is anybody's guess. An `after` that can't be read ("soon") doesn't fail here;
    the policy's own delay is taken then, and the failure's text tells it.
    """

    def __init__(self, after: str | timedelta, reason: str = "") -> None:
        if not isinstance(after, (str, timedelta)):
            raise TypeError(f"RetryLater(after={after!r}): write a duration such as '5s' or a timedelta")
        super().__init__(after, reason)
        self.after = after
        self.reason = reason

    def __str__(self) -> str:
        return f"again after {self.after}" + (f": {self.reason}" if self.reason else "")


class DeadLetterNow(HandlerSignal):
    """Raised by a handler: no further attempt; a dead letter at once, with `reason` for the person who looks."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Skip(HandlerSignal):
    """Raised by a handler: this record needs no handling. It counts as skipped, `reason` is logged at debug level."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
