"""
Successors: the retry copy or dead letter that must be confirmed before the offset of a failed record may pass.

The account of what is outstanding is kept here and nowhere else. A refused write is tried again with growing back-off
for as long as it takes; meanwhile its record stays unfinished, and the other records of the partition go on.
"""

import hashlib
import heapq
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from redrive.core.commands import Command, Failed, Produce, Refusal, Report
from redrive.core.dialects import MAX_COUNT, NO_ENVELOPE, read_envelope, replay_headers_only, shrink
from redrive.core.emitting import Emission, Emitted, failure_of_emission
from redrive.core.envelope import Envelope
from redrive.core.lane import Lane
from redrive.core.listener_state import Stopped
from redrive.core.notices import Notice, write_end
from redrive.core.pending import Pending
from redrive.core.plan import Now
from redrive.core.record import RawRecord, TopicPartition, event_id_of, headers_of
from redrive.core.router import DeadLetter, Drop, Hold, Reason, Retry, Stop, decide, tier_for
from redrive.core.transactions import Transactions
from redrive.core.translator import PLAIN, Translator

if TYPE_CHECKING:
    from redrive.core.parked import Parked

RESEND_FIRST_MS = 500.0
RESEND_MOST_MS = 30_000.0
#: Steps of `shrink`, after which only headers are sent.
_SHRINK_STEPS = 8

Fate = Literal["retried", "held", "dead", "skipped", "stopped"]


class Successors:
    """
    Writes successors by putting `Produce` commands into `outbox`; `partitions`: how many each topic has. `translator`: in
    which dialects their headers are written. `transactions`: where writes go instead, with delivery `exactly-once`.
    """

    def __init__(
        self,
        group: str,
        outbox: list[Command],
        partitions: Mapping[str, int],
        translator: Translator = PLAIN,
        transactions: Transactions | None = None,
    ) -> None:
        self._group = group
        self._transactions = transactions
        self._outbox = outbox
        self._partitions = partitions
        self._translator = translator
        self._write_headers = translator.write
        self._waiting: list[tuple[float, int, Pending]] = []
        self._sequence = 0
        #: Writes without an answer yet.
        self.outstanding = 0

    def route(self, lane: Lane, failed: Failed, *, is_passed: bool = False) -> Fate | Hold:
        """
        Decide on a failed record and send its successor, if it is to have one. What became of it, as the brake counts it.

        `is_passed`: later records of its lane have gone on, so none waits for it.
        """
        plan, counters = lane.listener.plan, lane.listener.counters
        counters.failed_runs += 1
        action = decide(failed, plan, _roll(failed) if plan.policy.jitter else 0.0)
        if isinstance(action, Drop):
            counters.dropped[action.reason] += 1
            lane.finish(failed.record.offset())
            if action.reason == "skip":
                return "skipped"
            event = "letter-passed-by" if plan.letters_of else "record-given-up"
            self._outbox.append(Report(event, _failure_fields(lane, failed, action.reason)))
            return "dead"
        if isinstance(action, Hold):
            return action
        if isinstance(action, Retry):
            tier = plan.tiers[action.tier].topic
            counters.retried[tier] += 1
            self._send(lane, failed.record, self.envelope_after(failed, action.due_ms), tier)
            return "retried"
        if isinstance(action, Stop):
            self._stop(lane, failed.record, _failure_fields(lane, failed, action.reason))
            return "stopped"
        self._dead_letter(lane, failed, action, "" if is_passed else _holds(lane))
        return "dead"

    def _stop(self, lane: Lane, record: RawRecord, fields: dict[str, object]) -> None:
        """Leave the record open for good: no commit of this process passes it."""
        place = f"{lane.key.topic}/{lane.key.partition}/{record.offset()}"
        why = f"{fields['reason']}, attempt {fields['attempt']}, {fields['type']}"
        lane.listener.stopped = lane.listener.stopped or Stopped(place, why)
        self._outbox.append(Report("listener-stopped", fields))

    def repost(self, lane: Lane, record: RawRecord, now: Now) -> None:
        """Post a record on that waits longer than its tier: the same attempt, the same due."""
        envelope, _ = envelope_of(record, self._translator)
        tiers = lane.listener.plan.tiers
        rest_ms = (envelope.due_ms or 0) - now.wall_ms
        topic = (
            tiers[tier_for(rest_ms, lane.listener.plan.policy.delays_ms)].topic if tiers else lane.key.topic
        )
        hops = min(envelope.hops + 1, MAX_COUNT)
        self._send(lane, record, msgspec.structs.replace(envelope, hops=hops), topic)

    def divert(
        self, lane: Lane, record: RawRecord, hole: int, now: Now, outdated: Iterable[int] = ()
    ) -> None:
        """Let a record that didn't run follow the dead letter of its key at offset `hole`. `outdated`: holes that go then."""
        plan = lane.listener.plan
        lane.listener.counters.dead[Reason.DIVERTED] += 1
        is_replay = lane.tier is not None
        envelope = msgspec.structs.replace(
            envelope_of(record, self._translator)[0]
            if is_replay
            else source_envelope(record, plan.id_header),
            group=self._group,
            due_ms=None,
            last_failed_ms=int(now.wall_ms),
            failure_message=f"not handled: it waited for {lane.key.topic}/{lane.key.partition}/{hole}, which died",
            reason=Reason.DIVERTED,
            listener=plan.name,
            replay_topic=plan.replay,
            holds="key",
        )
        self._send(lane, record, envelope, plan.dlq, outdated)

    def park(self, lane: Lane, record: RawRecord, envelope: Envelope, parked: "Parked") -> None:
        """Write a copy that waits in the parked topic; the record stays first in its lane until all in-sync replicas have it."""
        envelope = msgspec.structs.replace(envelope, group=self._group)
        pending = Pending(lane, record, envelope, lane.listener.plan.parked)
        pending.parked = parked
        self._begin(pending)

    def end(self, lane: Lane, record: RawRecord, notice: Notice, now: Now) -> None:
        """Write down that a person discarded or skipped a record; only then its offset, which is open, may pass."""
        reason = "skipped-by-operator" if notice.action == "skip" else "discarded"
        lane.listener.counters.dropped[reason] += 1
        pending = Pending(lane, record, NO_ENVELOPE, lane.listener.plan.state)
        pending.note = write_end(lane.key, record.offset(), notice, int(now.wall_ms))
        pending.frees = self._freed_by(lane, record)
        pending.will_free()
        self._begin(pending)

    def emit(self, lane: Lane, emitted: Emitted) -> None:
        """Write what a record's handler emitted; only then its offset, which is open, may pass."""
        parts = [None] if self._transactions else emitted.emissions
        emitted.left = len(parts)
        frees = self._freed_by(lane, emitted.record)
        for emission in parts:
            pending = Pending(lane, emitted.record, NO_ENVELOPE, emitted.emissions[0].topic)
            pending.is_dead_letter, pending.emitted, pending.emission = False, emitted, emission
            pending.frees = frees
            pending.will_free()
            self._begin(pending)

    def refused(self) -> list[Pending]:
        """Those that were refused and wait to be sent again. Any thread."""
        return [pending for _, _, pending in self._waiting.copy()]

    def answered(self, answers: Iterable[tuple[Pending, Refusal | None]], now: Now) -> None:
        """What came back for writes. Those that all in-sync replicas have let the offset of their record pass."""
        for pending, refusal in answers:
            self.outstanding -= 1
            if refusal is not None:
                self._refused(pending, refusal, now)
                continue
            lane, record = pending.lane, pending.record
            lane.writes.ended(record)
            if not lane.alive:
                continue
            if pending.misses_source and self._transactions is None:  # a transaction has told of both
                self._run_again(pending)
            elif pending.parked is not None:
                pending.parked.answered(pending)
            elif pending.is_dead_letter:
                lane.letter_written(record, int(now.wall_ms))
                pending.free()
            elif pending.emitted is None or pending.emitted.was_last():
                lane.finish(record.offset())
                pending.free()

    def _refused(self, pending: Pending, refusal: Refusal, now: Now) -> None:
        """The write failed: judge it when it was too large by itself, else try again later."""
        lane = pending.lane
        if not pending.is_wanted or (pending.emitted is not None and pending.emitted.is_void):
            self._give_up(pending)
            return
        if pending.emitted is not None and refusal.kind == "too-large" and pending.alone:
            pending.lane.writes.ended(pending.record)
            self._emitted_too_large(lane, pending.emitted, refusal, now)
            return
        if refusal.kind == "too-large" and pending.note is None:
            self._too_large(pending, now)
            return
        counters = lane.listener.counters
        counters.write_failures["dead-letter" if pending.is_dead_letter else "retry"] += 1
        wait_ms = min(RESEND_MOST_MS, RESEND_FIRST_MS * 2 ** min(pending.tries, 10))
        pending.tries += 1
        lane.writes.waiting += 1
        self._sequence += 1
        heapq.heappush(self._waiting, (now.mono_ms + wait_ms, self._sequence, pending))
        fields = {
            "listener": lane.listener.plan.name,
            "topic": pending.topic,
            "error": refusal.detail,
            "wait_ms": int(wait_ms),
        }
        self._outbox.append(Report("write-refused", {**fields, **_position(lane, pending.record)}))

    def tick(self, now: Now) -> None:
        """Send again what has waited long enough."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= now.mono_ms:
            pending = heapq.heappop(waiting)[2]
            pending.lane.writes.waiting -= 1
            if pending.is_wanted:
                if pending.parked is not None:
                    # The one that was refused may be there all the same: copies tell which of them is the last.
                    pending.envelope = msgspec.structs.replace(pending.envelope, hops=pending.tries)
                self._produce(pending)
            else:
                self._give_up(pending)

    def _dead_letter(self, lane: Lane, failed: Failed, action: DeadLetter, holds: str) -> None:
        plan = lane.listener.plan
        lane.listener.counters.dead[action.reason] += 1
        envelope = msgspec.structs.replace(
            self.envelope_after(failed, None),
            reason=action.reason,
            failure_stack=failed.failure.stack,
            fingerprint=failed.failure.fingerprint,
            listener=plan.name,
            replay_topic=plan.replay,
            holds=holds,
        )
        fields = {**_failure_fields(lane, failed, action.reason), "event_id": envelope.event_id}
        self._outbox.append(Report("dead-letter", fields))
        if lane.keeps_holes and holds:
            then = "wait" if plan.policy.after_dead_letter == "block" else "become dead letters too"
            self._outbox.append(Report("lane-blocked", {**fields, "blocking": holds, "then": then}))
        self._send(lane, failed.record, envelope, plan.dlq, self.holes_of(lane, failed.record))

    def _too_large(self, pending: Pending, now: Now) -> None:
        """One oversize record fails its whole batch, so it is judged only after it was sent alone."""
        if not pending.alone:
            pending.alone = True
            self._produce(pending)
            return
        while pending.step < _SHRINK_STEPS:
            smaller = shrink(pending.envelope, pending.step)
            pending.step += 1
            if smaller is not None and smaller != pending.envelope:
                pending.envelope = smaller
                self._produce(pending)
                return
        if not pending.is_dead_letter:
            self._too_large_for_tier(pending)
        elif not pending.headers_only:
            pending.headers_only = True
            fields = {"listener": pending.lane.listener.plan.name, "topic": pending.topic}
            self._outbox.append(
                Report("dead-letter-cut", {**fields, **_position(pending.lane, pending.record)})
            )
            self._produce(pending)
        else:
            self._refused(pending, Refusal("unavailable", "refused as too large even without its value"), now)

    def _emitted_too_large(self, lane: Lane, emitted: Emitted, refusal: Refusal, now: Now) -> None:
        """What a record's handler emitted can't be written: so the record has failed, though its handler has not."""
        emitted.is_void = True
        lane.listener.counters.handled -= 1
        before, record = emitted.envelope, emitted.record
        if before is None:
            before = source_envelope(record, emitted.id_header)
        failure = failure_of_emission(refusal.detail)
        failed = Failed(record, failure, emitted.attempt, now.wall_ms, before)
        self.route(lane, failed, is_passed=True)

    def _too_large_for_tier(self, pending: Pending) -> None:
        plan, envelope = pending.lane.listener.plan, pending.envelope
        if plan.give_up == "stop":
            pending.lane.writes.ended(pending.record)
            about = {"listener": plan.name, "reason": str(Reason.TOO_LARGE), "attempt": envelope.attempt}
            place = _position(pending.lane, pending.record)
            self._stop(pending.lane, pending.record, {**about, "type": envelope.failure_type, **place})
            return
        pending.lane.listener.counters.dead[Reason.TOO_LARGE] += 1
        pending.topic, pending.is_dead_letter, pending.step = plan.dlq, True, 0
        pending.envelope = msgspec.structs.replace(
            envelope,
            reason=Reason.TOO_LARGE,
            due_ms=None,
            listener=plan.name,
            replay_topic=plan.replay,
        )
        self._produce(pending)

    def _send(
        self,
        lane: Lane,
        record: RawRecord,
        envelope: Envelope,
        topic: str,
        outdated: Iterable[int] = (),
    ) -> None:
        pending = Pending(lane, record, envelope, topic)
        pending.frees = [(lane, hole) for hole in outdated]
        self._begin(pending)

    def _begin(self, pending: Pending) -> None:
        pending.lane.writes.began(pending.record)
        self._produce(pending)

    def _give_up(self, pending: Pending) -> None:
        pending.lane.writes.ended(pending.record)
        if pending.lane.alive and pending.misses_source:
            self._run_again(pending)

    def _run_again(self, pending: Pending) -> None:
        """Nobody can be told what this record frees: it stays unfinished, and runs again where both partitions are."""
        if (emitted := pending.emitted) is not None:
            if emitted.is_void:
                return
            emitted.is_void = True
        pending.lane.window.hold(0, pending.record)
        pending.lane.make_ready()

    def _freed_by(self, lane: Lane, record: RawRecord) -> list[tuple[Lane, int]]:
        """The holes for which others wait until this record, a replay, is through: in the source, and among the replays."""
        if not lane.frees or lane.twin is None:
            return []
        place = self.place_of(record)
        if place is None or place[0] != lane.twin.key:
            return []
        return [(lane.twin, place[1]), *((lane, hole) for hole in self.holes_of(lane, record))]

    def holes_of(self, lane: Lane, record: RawRecord) -> list[int]:
        """The offsets of the holes in this replay partition that the same source record has left there."""
        if not lane.frees or (place := self.place_of(record)) is None:
            return []
        return [hole.offset() for hole in lane.holes_in_line(record.key()) if self.place_of(hole) == place]

    def place_of(self, record: RawRecord) -> tuple[TopicPartition, int] | None:
        """Where the source has a replayed record, by partition and offset; None where nobody says it."""
        said, _ = envelope_of(record, self._translator)
        if said.source_partition is None or said.source_offset is None:
            return None
        return TopicPartition(said.source_topic, said.source_partition), said.source_offset

    def _produce(self, pending: Pending) -> None:
        record, key = pending.record, pending.lane.key
        self.outstanding += 1
        if pending.note is not None:
            self._write(Produce(pending, pending.topic, 0, *pending.note, []))
            return
        if pending.emitted is not None:
            parts = pending.emitted.emissions if pending.emission is None else [pending.emission]
            self._write(*(_written(pending, each) for each in parts))
            return
        # Same number as the source where the counts agree; else the client hashes the key as Java's producers do.
        count = self._partitions.get(pending.topic, 0)
        aligned = count == self._partitions.get(key.topic) and key.partition < count
        self._write(
            Produce(
                pending,
                pending.topic,
                key.partition if aligned else -1,
                record.key(),
                None if pending.headers_only else record.value(),
                # Without its value for want of room, the copy gives up the producer's headers too.
                self._write_headers(None if pending.headers_only else headers_of(record), pending.envelope),
                pending.alone,
            )
        )

    def _write(self, *writes: Produce) -> None:
        if self._transactions is None:
            self._outbox.extend(writes)
        else:
            self._transactions.put(writes)

    def envelope_after(self, failed: Failed, due_ms: int | None) -> Envelope:
        """What is known of a record after this failure: its successor says it."""
        failure, failed_ms = failed.failure, int(failed.failed_ms)
        before = failed.envelope
        return Envelope(
            group=self._group,
            attempt=failed.attempt,
            due_ms=due_ms,
            event_id=before.event_id,
            source_topic=before.source_topic,
            source_partition=before.source_partition,
            source_offset=before.source_offset,
            source_timestamp_ms=before.source_timestamp_ms,
            first_failed_ms=failed_ms if before.first_failed_ms is None else before.first_failed_ms,
            last_failed_ms=failed_ms,
            failure_kind=failure.kind,
            failure_type=failure.type,
            failure_message=failure.message,
            replay_id=before.replay_id,
            replays=before.replays,
        )


def _written(pending: Pending, emission: Emission) -> Produce:
    what = emission.key, emission.value, emission.headers
    return Produce(pending, emission.topic, emission.partition, *what, pending.alone)


def envelope_of(record: RawRecord, translator: Translator) -> tuple[Envelope, int]:
    """What a record on a retry topic says, whoever wrote it, and how many of its headers can't be read."""
    envelope, unreadable = translator.read_hop(headers_of(record))
    return (envelope, len(unreadable)) if envelope.source_topic else stranger(record, translator)


def stranger(record: RawRecord, translator: Translator) -> tuple[Envelope, int]:
    """The same for a record that somebody wrote who doesn't know our headers, or not all of them."""
    said, _, unreadable = translator.read(headers_of(record))
    place = source_envelope(record)
    if not said.source_topic:
        # Its place on the tier is all that is known.
        said = msgspec.structs.replace(
            said,
            source_topic=place.source_topic,
            source_partition=place.source_partition,
            source_offset=place.source_offset,
            source_timestamp_ms=place.source_timestamp_ms,
        )
    return msgspec.structs.replace(said, event_id=said.event_id or place.event_id), len(unreadable)


def source_envelope(record: RawRecord, id_header: str = "") -> Envelope:
    """The envelope of a record of a source topic before its first failure. `id_header`: where its producer puts its id."""
    replayed = NO_ENVELOPE
    headers = headers_of(record)
    for name, _ in headers or ():
        if name == "redrive-replay-id":
            replayed = replay_headers_only(read_envelope(headers)[0])
            break
    return Envelope(
        event_id=replayed.event_id or event_id_of(record, id_header),
        replay_id=replayed.replay_id,
        replays=replayed.replays,
        source_topic=record.topic(),
        source_partition=record.partition(),
        source_offset=record.offset(),
        source_timestamp_ms=record.timestamp()[1],
    )


def _roll(failed: Failed) -> float:
    """Chance without dice: spread evenly over records and attempts, and the same when the same failure is judged again."""
    record = failed.record
    text = f"{record.topic()}/{record.partition()}/{record.offset()}/{failed.attempt}"
    # Not a checksum: offsets that differ in one digit would be rolled side by side.
    return int.from_bytes(hashlib.blake2s(text.encode(), digest_size=4).digest()) / 2**32


def _holds(lane: Lane) -> str:
    """What waits for a dead letter of this lane."""
    policy = lane.listener.plan.policy
    return policy.blocking or "" if policy.after_dead_letter != "release" else ""


def _position(lane: Lane, record: RawRecord) -> dict[str, object]:
    return {"source": lane.key.topic, "partition": lane.key.partition, "offset": record.offset()}


def _failure_fields(lane: Lane, failed: Failed, reason: str) -> dict[str, object]:
    return {
        "listener": lane.listener.plan.name,
        "reason": str(reason),
        "attempt": failed.attempt,
        "type": failed.failure.type,
        "dlq": lane.listener.plan.dlq,
        **_position(lane, failed.record),
    }
