"""
Health functions: what a listener's user says of the downstream, asked before a probe while the breaker is open.

Nobody waits for an answer: plain functions run in a thread of their own, coroutine functions on the handlers' loop.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from redrive.core.commands import Report
from redrive.core.stack import type_name
from redrive.runtime.clock import Clock
from redrive.runtime.declaration import HealthFunction, Listener
from redrive.runtime.signatures import is_coroutine_function

#: Who doesn't answer for so long is not well.
PATIENCE_MS = 10_000.0
#: Who hangs for so long in one call has no say any more, until that ends: else a downstream that is back would wait for ever.
NO_SAY_MS = 300_000.0


def health_function(given: Any) -> HealthFunction:
    """Raises ValueError, which says what is wrong with what was given as one."""
    found = HealthFunction(given, is_coroutine_function(given))
    try:
        inspect.signature(given).bind()
    except TypeError:
        raise ValueError(
            "must be callable without arguments; bind what it needs with functools.partial"
        ) from None
    except ValueError:  # some builtin: calling it will show
        pass
    return found


class Ways(NamedTuple):
    """How functions are run without being waited for: a plain one, and a coroutine. The simulator has its own."""

    plain: Callable[[Callable[[], None]], object]
    awaited: Callable[[Coroutine[Any, Any, None]], object]


def ways_of(loop: asyncio.AbstractEventLoop) -> Ways:
    """Threads that end with the process, and the loop of the handlers."""

    def in_thread(function: Callable[[], None]) -> None:
        threading.Thread(target=function, name="redrive-health", daemon=True).start()

    return Ways(in_thread, partial(asyncio.run_coroutine_threadsafe, loop=loop))


def checkups_of(
    listeners: Sequence[Listener], ways: Ways, clock: Clock, report: Callable[[Report], None]
) -> "Checkups | None":
    """What asks the health functions of an app; None where it has none."""
    functions = {at: (each.name, each.health) for at, each in enumerate(listeners) if each.health is not None}
    return Checkups(functions, ways=ways, clock=clock, report=report) if functions else None


class Checkups:
    """
    Asks the health functions of listeners, `functions` by listener: its index and its name.

    `ask` and `answers` are the pump's; both return at once. An exception, anything but True, and no answer within ten
    seconds mean that the downstream isn't well; of each listener that is told once, until it says True again. A function
    that hangs for five minutes is passed over: then the next probe tells.
    """

    def __init__(
        self,
        functions: Mapping[int, tuple[str, HealthFunction]],
        *,
        ways: Ways,
        clock: Clock,
        report: Callable[[Report], None],
    ) -> None:
        self._functions = functions
        self._ways, self._clock, self._report = ways, clock, report
        #: Whose answer is waited for, and until when.
        self._until_ms: dict[int, float] = {}
        #: Whose function is running, if it is waited for or not, and since when: no second one is started beside it.
        self._running: dict[int, float] = {}
        self._said: dict[int, str] = {}
        self._unwell: set[int] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is to come."""
        return bool(self._until_ms)

    def ask(self, listener: int) -> None:
        """Ask a listener's function, unless the last call of it never came to an end."""
        _, function = self._functions[listener]
        self._said.pop(listener, None)
        self._until_ms[listener] = self._clock.mono_ms() + PATIENCE_MS
        if listener in self._running:
            return
        self._running[listener] = self._clock.mono_ms()
        if function.is_async:
            self._ways.awaited(self._await(listener, function))
        else:
            self._ways.plain(partial(self._call, listener, function))

    def answers(self) -> list[tuple[int, bool]]:
        """Those who answered since the last call, or didn't in time: listener, and whether all is well."""
        if not self._until_ms:
            return []
        now_ms, found = self._clock.mono_ms(), list[tuple[int, bool]]()
        for listener, until_ms in list(self._until_ms.items()):
            why = self._said.pop(listener, None)
            if why is None:
                if now_ms < until_ms:
                    continue
                why = f"no answer within {PATIENCE_MS / 1000:.0f} s"
            del self._until_ms[listener]
            self._note(listener, why)
            found.append((listener, not why or now_ms - self._running.get(listener, now_ms) >= NO_SAY_MS))
        return found

    def _note(self, listener: int, why: str) -> None:
        if not why:
            self._unwell.discard(listener)
        elif listener not in self._unwell:
            self._unwell.add(listener)
            self._report(Report("unhealthy", {"listener": self._functions[listener][0], "why": why}))

    # -- elsewhere than in the pump's thread ---------------------------------------------------------------------

    def _call(self, listener: int, function: HealthFunction) -> None:
        try:
            self._end(listener, _judged(function.call()))
        except BaseException as error:
            self._end(listener, type_name(type(error)))

    async def _await(self, listener: int, function: HealthFunction) -> None:
        try:
            async with asyncio.timeout(PATIENCE_MS / 1000):
                self._end(listener, _judged(await function.call()))
        except BaseException as error:
            self._end(listener, type_name(type(error)))
            if issubclass(type(error), asyncio.CancelledError):
                raise

    def _end(self, listener: int, why: str) -> None:
        if listener in self._until_ms:
            self._said[listener] = why
        self._running.pop(listener, None)


def _judged(answer: object) -> str:
    """Why an answer means that the downstream isn't well; empty for True."""
    if inspect.iscoroutine(answer):
        answer.close()
        return "it returned a coroutine that nobody awaits; declare it with `async def`"
    if answer is True:
        return ""
    return (
        "it said False"
        if answer is False
        else f"it returned {type_name(type(answer))} instead of True or False"
    )
