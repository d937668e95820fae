"""
Running a listener's handler over a run of records: the only place that runs user code.

Whatever a handler raises is caught per record and turned into values on the spot. A kept exception would hold its
traceback, that the frame of the run, and that every record of the run: half a gigabyte a second at full rate.

The loops are written out, one for each shape of handler, since a call more per record is what the happy path is made
of. What happens when a record fails is shared by all of them (`_Failing`).
"""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import msgspec

from redrive.core.breaker import Row, is_evidence
from redrive.core.commands import Again, Failed, Halt, Run, RunResult, Signal
from redrive.core.emitting import Emitting
from redrive.core.envelope import Envelope
from redrive.core.failure import Kind, failure_of, signal_in
from redrive.core.record import RawRecord, headers_of
from redrive.core.successors import source_envelope, stranger
from redrive.core.translator import PLAIN, Translator
from redrive.errors import RetryLater, Skip
from redrive.runtime.clock import Clock
from redrive.runtime.declaration import Listener
from redrive.runtime.decoding import undecodable

_PERMANENT = frozenset([Kind.PERMANENT])
#: The record at which the run ended stays where it is, to be tried again.
_STAYS = frozenset(["outage", "again"])


class _Failing:
    """The failures of one run: what they are, and whether the run has to end because of one."""

    __slots__ = ("_clock", "_dead", "_failures", "_id_header", "_policy", "_row", "_run", "halt")

    def __init__(self, run: Run, listener: Listener, clock: Clock, row: Row) -> None:
        self._run = run
        self._row = row
        self._policy = listener.policy
        self._failures = listener.failures
        self._id_header = listener.id_header
        self._clock = clock
        self._dead = 0
        self.halt: Halt = ""

    def failed(self, record: RawRecord, envelope: Envelope | None, error: BaseException) -> bool:
        """The handler raised. True when the run has to end: with the record, or before it."""
        if envelope is None:
            # Here, where the record is at hand: the pump's thread would have to fetch it from another core's cache.
            envelope = source_envelope(record, self._id_header)
        attempt = envelope.attempt + 1
        now_ms = self._clock.wall_ms()
        # The stack costs ten times the rest: only what will be a dead letter is worth it.
        with_stack = self._policy.is_last(attempt) or _PERMANENT
        failure = failure_of(error, self._failures, now_ms=now_ms, with_stack=with_stack)
        failed = Failed(record, failure, attempt, now_ms, envelope, _signal_of(error))
        immediate = self._policy.immediate
        if (
            immediate is None
            or attempt > immediate.retries
            or failed.signal
            or failure.kind is not Kind.TRANSIENT
        ):
            return self._add(failed)
        # Not here: the slot has other lanes to serve meanwhile.
        self._run.again = Again(failed, immediate.wait_ms)
        return self._halt("again")

    def poison(self, record: RawRecord, envelope: Envelope | None, error: BaseException) -> bool:
        """A record that could not be decoded. True when the run has to end."""
        envelope = source_envelope(record, self._id_header) if envelope is None else envelope
        attempt = envelope.attempt + 1
        now_ms = self._clock.wall_ms()
        told = undecodable(error, record.value())  # a library's own words may quote the value
        failure = failure_of(
            told, self._failures, now_ms=now_ms, with_stack=True, poison="the value can't be decoded"
        )
        return self._add(Failed(record, failure, attempt, now_ms, envelope))

    def _add(self, failed: Failed) -> bool:
        """Take a failed record into the result. True when the run has to end with it, or before it in an outage."""
        run = self._run
        if failed.failure.kind is Kind.OUTAGE:
            run.outage = failed
            return self._halt("outage")
        run.failures.append(failed)
        if failed.signal == "dead-letter" or (
            failed.signal != "skip" and self._ends(failed.failure.kind, failed.attempt)
        ):
            self._dead += 1
            if self._dead >= run.budget:
                return self._halt("budget")
        # Later records of its lane may not run before it is known what becomes of it.
        if self._policy.blocking is not None:
            return self._halt("held")
        # A run may have thousands of records: in an outage it must not fail with all of them before the breaker hears of it.
        return is_evidence(failed) and self._is_row() and self._halt("row")

    def _is_row(self) -> bool:
        """Whether so many failed in a row that the breaker should hear of each."""
        run = self._run
        is_row = self._row.failed(goes_on=run.fails_at(run.taken()))
        return is_row and run.lane.listener.plan.breaker

    def _ends(self, kind: Kind, attempt: int) -> bool:
        return kind is Kind.PERMANENT or kind is Kind.POISON or self._policy.is_last(attempt)

    def _halt(self, halt: Halt) -> bool:
        self.halt = halt
        # Runs queued behind this one in the lane must not overtake what it leaves undone.
        self._run.gate.is_shut = True
        return True


def _signal_of(error: BaseException) -> Signal:
    """What the handler asked for by raising."""
    signal = signal_in(error)
    if signal is None:
        return ""
    kind = type(signal)  # isinstance() would ask the signal's own code
    return (
        "skip" if issubclass(kind, Skip) else "retry-later" if issubclass(kind, RetryLater) else "dead-letter"
    )


class Invoker:
    """
    One listener, ready to run. `resources` is what the app's lifespan yielded.

    `run` for plain functions, called in a worker thread; `run_async` for coroutine functions, awaited on the
    handlers' event loop. Both return the result and leave failures in the run.
    """

    def __init__(
        self, listener: Listener, clock: Clock, stop: threading.Event, translator: Translator = PLAIN
    ) -> None:
        self.listener = listener
        self.resources: Any = None
        self._clock = clock
        self._translator = translator
        self._read_hop = translator.read_hop
        self._row = Row()
        #: Set when the process ends: coroutines may be cancelled then.
        self._stop = stop

    def run(self, run: Run) -> RunResult:
        """Handle the records of the run, one after another."""
        iterator = self._begin(run)
        if iterator is None:
            return RunResult(run, 0, 0.0, "cut")
        failing = _Failing(run, self.listener, self._clock, self._row)
        began_ms = self._clock.mono_ms()
        if run.is_of_tier or run.heads is not None or not self.listener.takes_value:
            last = self._each(run, iterator, failing)
        elif self.listener.takes_record:
            last = self._each_with_record(run, iterator, failing)
        else:
            last = self._each_value(iterator, failing)
        return self._end(run, last, failing, began_ms)

    def stop(self) -> None:
        """The slots are being closed: coroutines may be cancelled."""
        self._stop.set()

    async def run_async(self, run: Run) -> RunResult:
        """The same for a coroutine function."""
        iterator = self._begin(run)
        if iterator is None:
            return RunResult(run, 0, 0.0, "cut")
        failing = _Failing(run, self.listener, self._clock, self._row)
        began_ms = self._clock.mono_ms()
        takes_more = self.listener.takes_record or self.listener.time_limit_ms is not None
        if run.is_of_tier or run.heads is not None or takes_more:
            last = await self._each_awaited(run, iterator, failing)
        else:
            last = await self._each_value_awaited(iterator, failing)
        return self._end(run, last, failing, began_ms)

    # -- plain functions -----------------------------------------------------------------------------------------

    def _each_value(self, iterator: Iterator[RawRecord], failing: _Failing) -> RawRecord | None:
        decode, handler = self.listener.decode, self.listener.handler
        record = None
        for record in iterator:
            try:
                value = decode(record.value())
            except BaseException as error:
                if failing.poison(record, None, error):
                    break
                continue
            try:
                if (returned := handler(value)) is not None:
                    _refuse_coroutine(returned)
            except BaseException as error:
                if failing.failed(record, None, error):
                    break
        return record

    def _each_with_record(
        self, run: Run, iterator: Iterator[RawRecord], failing: _Failing
    ) -> RawRecord | None:
        decode, handler, resources = self.listener.decode, self.listener.handler, self.resources
        view, emitting = self.listener.view, run.emitting
        record = None
        for record in iterator:
            try:
                value = decode(record.value())
            except BaseException as error:
                if failing.poison(record, None, error):
                    break
                continue
            try:
                if (returned := handler(value, view(record, None, 1, resources, emitting))) is not None:
                    _refuse_coroutine(returned)
            except BaseException as error:
                if failing.failed(record, None, error):
                    break
        return record

    def _each(self, run: Run, iterator: Iterator[RawRecord], failing: _Failing) -> RawRecord | None:
        """Any shape of handler, any topic; records of a tier carry an envelope, and their lateness is measured."""
        decode, handler = self.listener.decode, self.listener.handler
        takes_record, wall_ms, starts_ms = self.listener.takes_record, self._clock.wall_ms, run.starts_ms
        record = None
        for record in iterator:
            starts_ms.append(wall_ms())
            try:
                value = decode(record.value())
            except BaseException as error:
                if failing.poison(record, self._envelope(run, record), error):
                    break
                continue
            envelope = None
            try:
                # The headers are read early only for who wants to see them: that costs as much as all the rest.
                if takes_record:
                    envelope = self._envelope(run, record)
                    returned = self._call(run, record, envelope, value)
                else:
                    returned = handler(value)
                if returned is not None:
                    _refuse_coroutine(returned)
            except BaseException as error:
                if failing.failed(record, envelope or self._envelope(run, record), error):
                    break
        return record

    # -- coroutine functions -------------------------------------------------------------------------------------

    async def _each_value_awaited(self, iterator: Iterator[RawRecord], failing: _Failing) -> RawRecord | None:
        decode, handler = self.listener.decode, self.listener.handler
        record = None
        for record in iterator:
            try:
                value = decode(record.value())
            except BaseException as error:
                if failing.poison(record, None, error):
                    break
                continue
            try:
                await handler(value)
            except BaseException as error:
                self.outlive_cancellation(error)
                if failing.failed(record, None, error):
                    break
        return record

    async def _each_awaited(
        self, run: Run, iterator: Iterator[RawRecord], failing: _Failing
    ) -> RawRecord | None:
        decode = self.listener.decode
        takes_record, wall_ms, starts_ms = self.listener.takes_record, self._clock.wall_ms, run.starts_ms
        record = None
        for record in iterator:
            starts_ms.append(wall_ms())
            try:
                value = decode(record.value())
            except BaseException as error:
                if failing.poison(record, self._envelope(run, record), error):
                    break
                continue
            envelope = None
            try:
                if takes_record:
                    envelope = self._envelope(run, record)
                await self._call_within_limit(run, record, envelope, value)
            except BaseException as error:
                self.outlive_cancellation(error)
                if failing.failed(record, envelope or self._envelope(run, record), error):
                    break
        return record

    async def _call_within_limit(
        self, run: Run, record: RawRecord, envelope: Envelope | None, value: Any
    ) -> None:
        limit_ms = self.listener.time_limit_ms
        if limit_ms is None:
            await self._call(run, record, envelope, value)
            return
        async with asyncio.timeout(limit_ms / 1000):
            await self._call(run, record, envelope, value)

    def outlive_cancellation(self, error: BaseException) -> None:
        """
        A handler that raises CancelledError, or cancels its own task, has failed like any other. Only when the slots are
        being closed is it meant for the slot, and raised again.
        """
        # Not by isinstance(), which would ask the exception's own code.
        if not issubclass(type(error), asyncio.CancelledError):
            return
        if self._stop.is_set():
            raise error
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()

    # -- shared --------------------------------------------------------------------------------------------------

    def _call(self, run: Run, record: RawRecord, envelope: Envelope | None, value: Any) -> Any:
        listener = self.listener
        if not listener.takes_record:
            return listener.handler(value)
        attempt = (envelope.attempt if envelope is not None else 0) + 1
        seen = listener.view(record, envelope, attempt, self.resources, run.emitting)
        return listener.handler(value, seen) if listener.takes_value else listener.handler(seen)

    def _envelope(self, run: Run, record: RawRecord) -> Envelope | None:
        """What is known of a record before this run of its handler; None for one of a source topic that is new."""
        known = None if run.heads is None else run.heads.get(record.offset())
        if known is None:
            return self._said(run, record) if run.is_of_tier else None
        if run.heads is not None and (envelope := run.heads.envelope(record.offset())) is not None:
            return envelope
        said = self._said(run, record) if run.is_of_tier else source_envelope(record, self.listener.id_header)
        return msgspec.structs.replace(said, attempt=known.attempt, first_failed_ms=known.first_failed_ms)

    def _said(self, run: Run, record: RawRecord) -> Envelope:
        """What the headers of a tier's record say."""
        envelope, unreadable = self._read_hop(headers_of(record))
        if envelope.source_topic:
            run.unreadable += len(unreadable)
            return envelope
        envelope, count = stranger(record, self._translator)
        run.unreadable += count
        return envelope

    def _begin(self, run: Run) -> Iterator[RawRecord] | None:
        run.started_mono_ms = self._clock.mono_ms()
        if self.listener.takes_record:
            run.emitting = Emitting()
        iterator = run.walk()
        # Looked at after the iterator is in place: a cut before that would have had nothing to stop.
        return None if run.gate.is_shut else iterator

    def _end(self, run: Run, last: RawRecord | None, failing: _Failing, began_ms: float) -> RunResult:
        seconds = (self._clock.mono_ms() - began_ms) / 1000
        if last is not None and not run.failures:
            self._row.ends()
        if run.emitting is not None:
            run.emitting.is_over = True
        if not failing.halt and not run.is_cut:
            run.let_go()
            return RunResult(run, run.count, seconds)
        done = next((at for at, record in enumerate(run.records, 1) if record is last), 0)
        if failing.halt in _STAYS:
            done -= 1
        return RunResult(run, done, seconds, failing.halt or "cut")


def _refuse_coroutine(returned: Any) -> None:
    """A plain function that hands back a coroutine (`lambda order: pay(order)`) has done nothing: never count it."""
    if isinstance(returned, Coroutine):
        returned.close()
        raise TypeError("the handler returned a coroutine that nobody awaits; declare it with `async def`")
