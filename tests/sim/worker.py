"""A slot's worker in the engine's world: it does with each record what it is told to."""

from typing import TYPE_CHECKING

import msgspec

from redrive.core.breaker import is_evidence
from redrive.core.commands import Again, Failed, Run, RunResult
from redrive.core.dialects import read_envelope
from redrive.core.failure import Failure, Kind
from redrive.core.record import RawRecord
from redrive.core.successors import source_envelope

if TYPE_CHECKING:
    from tests.sim.engine_world import World


class Worker:
    """A slot's worker on one run: takes records one by one, as `runtime/handlers.py` does."""

    def __init__(self, world: "World", run: Run) -> None:
        self.run = run
        self._world = world
        self._plan = world.plan.listeners[run.listener]
        self._dead = 0
        self._done = 0
        self._record: RawRecord | None = None
        run.started_mono_ms = world.clock.mono_ms()
        self._walk = run.walk()
        self.result: RunResult | None = RunResult(run, 0, 0.0, "cut") if run.gate.is_shut else None
        if world.is_seen_at_work and self.result is None:
            self._take_up()

    def step(self, outcome: str) -> None:
        """Handle a record; without one the run has ended."""
        if self._record is None:
            self._take_up()
        if self.result is None:
            self._handle(outcome)
        if self._world.is_seen_at_work and self.result is None:
            self._take_up()

    def _take_up(self) -> None:
        self._record = next(self._walk, None)
        if self._record is not None:
            self._world.truth.started(self.run, self._record)
        else:
            is_whole = self._done == self.run.count and not self.run.is_cut
            if is_whole:
                self.run.let_go()
            self._end("" if is_whole else "cut")

    def _handle(self, outcome: str) -> None:
        record, self._record = self._record, None
        if outcome == "ok":
            self._done += 1
            self._world.truth.handled(self.run.lane, record.offset())
        elif outcome == "outage":
            self.run.outage = self._failed(record, Kind.OUTAGE, "")
            self._world.truth.met_outage(self.run, record.offset())
            self._end("outage")
        else:
            self._fail(record, outcome)

    def _fail(self, record: RawRecord, outcome: str) -> None:
        self._done += 1
        signal = outcome if outcome in {"skip", "dead-letter", "retry-later"} else ""
        kind = Kind(outcome) if outcome in {"transient", "permanent", "poison"} else Kind.PERMANENT
        failed = self._failed(record, Kind.TRANSIENT if signal == "retry-later" else kind, signal)
        immediate = self._plan.policy.immediate
        is_first = not failed.envelope.attempt or (
            self.run.heads is not None and record.offset() in self.run.heads
        )
        if outcome == "transient" and immediate and failed.attempt <= immediate.retries and is_first:
            self._done -= 1
            self.run.again = Again(failed, immediate.wait_ms)
            self._world.truth.tries_again(self.run, record.offset())
            self._end("again")
            return
        self.run.failures.append(failed)
        if is_evidence(failed):
            self.run.fails_at(self._done)
        self._world.truth.failed(self._plan, self.run.lane, failed)
        policy = self._plan.policy
        ends = kind is not Kind.TRANSIENT or policy.is_last(failed.attempt)
        if (
            signal == "dead-letter"
            or (not signal and ends)
            or (signal == "retry-later" and policy.is_last(failed.attempt))
        ):
            self._dead += 1
            if self._dead >= self.run.budget:
                self._end("budget")
                return
        if policy.blocking is not None:
            self._end("held")

    def _failed(self, record: RawRecord, kind: Kind, signal: str) -> Failed:
        heads, offset = self.run.heads, record.offset()
        known = heads.envelope(offset) if heads is not None else None
        envelope = known or read_envelope(record.headers())[0]
        if known is None and (not self.run.is_of_tier or not envelope.source_topic):
            envelope = source_envelope(record)
        if known is None and heads is not None and (head := heads.get(offset)) is not None:
            envelope = msgspec.structs.replace(
                envelope, attempt=head.attempt, first_failed_ms=head.first_failed_ms
            )
        attempt = envelope.attempt + 1
        after_ms = self._world.retry_after_ms if signal == "retry-later" else None
        failure = Failure(kind, "SomeError", self._world.failure_message, "a rule", after_ms)
        return Failed(record, failure, attempt, self._world.clock.wall_ms(), envelope, signal)

    def _end(self, halt: str) -> None:
        if halt in {"outage", "budget", "again", "held"}:
            self.run.gate.is_shut = True
        self.result = RunResult(self.run, self._done, self._world.record_s * self._done, halt)
