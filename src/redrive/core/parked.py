"""
The parked partition beside a source's, in the engine: `parking.py` says what is done, this does it to records and lanes.

What is in `{topic}.parked` is read to its end before the source starts, however much it is. Only some of it is kept in memory
meanwhile; of the rest the keys are noted, and it is fetched again when there is room.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping

import msgspec

from redrive.core.commands import Command, Report
from redrive.core.commits import Commits
from redrive.core.dialects import read_due, read_envelope
from redrive.core.key_lanes import KeyLane
from redrive.core.lane import Lane
from redrive.core.listener_state import FETCHED_OVERHEAD_BYTES
from redrive.core.metadata import decode_metadata
from redrive.core.offsets import OffsetMap
from redrive.core.parking import Parking
from redrive.core.pending import Pending
from redrive.core.plan import Now
from redrive.core.record import RawRecord, TopicPartition, headers_of
from redrive.core.resting import Rests
from redrive.core.starts import Start
from redrive.core.successors import Successors, source_envelope

#: Copies that one partition keeps in memory.
KEPT_BYTES = 32 << 20
#: Where too many writes are on their way already, or one of the key's, it is tried again after this.
TRY_AGAIN_MS = 500


class Parked:
    """
    One pair of partitions. `lane`: the parked one's; `source`: the other's, while it is here. `end`: what the parked log ended
    with when it was assigned.
    """

    def __init__(self, lane: Lane, end: int) -> None:
        self.lane = lane
        self.source: Lane | None = None
        self.parking = Parking()
        self.parking.is_complete = (lane.next_offset if lane.offsets.started else 0) >= end
        #: Keys that are parked for want of memory, when their lanes are looked at.
        self.crowded: set[Hashable] = set()
        #: The first copy that was read and not kept.
        self.left_out: int | None = None
        #: Keys of the copies in memory that aren't finished, by their offsets.
        self.copies: dict[int, Hashable] = {}
        self._end = end

    @property
    def is_full(self) -> bool:
        """Whether no more copies are to be kept in memory."""
        return self._kept_bytes() > KEPT_BYTES

    def is_over(self) -> bool:
        """Whether to stop fetching for now. Not before the end was read: what isn't kept until then is let go."""
        return self.parking.is_complete and self.is_full

    @property
    def has_room(self) -> bool:
        """Whether copies may be fetched again."""
        return self._kept_bytes() < KEPT_BYTES / 2

    def _kept_bytes(self) -> float:
        return len(self.copies) * (self.lane.listener.mean_bytes + FETCHED_OVERHEAD_BYTES)

    def read(self, records: list[RawRecord], end: int, groups: Collection[str]) -> list[RawRecord]:
        """Copies were fetched. Gives those to be kept, with their offsets open; another group's are passed by."""
        ours = [record for record in records if read_due(headers_of(record))[0] in groups]
        if ours and self.left_out is None and self.is_full and not self.parking.is_complete:
            self.left_out = ours[0].offset()
        is_kept = self.left_out is None
        to_run = [record for record in ours if self.parking.found(*_origin_of(record), is_kept=is_kept)]
        if is_kept:
            counters = self.lane.listener.counters
            counters.passed_by += len(records) - len(ours)
            counters.duplicates += len(ours) - len(to_run)
            self._keep(to_run, end)
        self.reached(end)
        return to_run if is_kept else []

    def _keep(self, records: list[RawRecord], end: int) -> None:
        lane = self.lane
        lane.offsets.open([record.offset() for record in records])
        lane.offsets.settle(end)
        for record in records:
            offset = record.offset()
            self.copies[offset] = _origin_of(record)[0]
            due_ms = read_due(headers_of(record))[1]
            if due_ms is not None and lane.heads.get(offset) is None:
                lane.heads.dues_ms[offset] = due_ms

    def reached(self, offset: int) -> None:
        """All below this offset was read, or is gone."""
        if self.parking.is_complete or offset < self._end:
            return
        self.parking.is_complete = True
        if self.left_out is not None:
            # Fetched again when there is room, and what comes until then isn't.
            self.lane.next_offset, self.left_out, self.lane.is_rewound = self.left_out, None, True
        if self.source is not None:
            self.attach(self.source)

    def attach(self, source: Lane) -> None:
        """The source's partition is here: nothing of parked keys runs from it."""
        self.parking.let_go()
        self.source, source.parked = source, self
        if source.keys is not None:
            source.keys.held = self.parking
            for key_lane in source.keys.resting():
                source.keys.wake(key_lane)
        source.make_ready()

    def finished(self, offset: int) -> None:
        """A copy ended."""
        if (key := self.copies.pop(offset, None)) is not None:
            self.parking.finished(key, offset)

    def look_at_commit(self, identity: Callable[[str], str]) -> None:
        """Let go of keys whose end the last confirmed commit tells."""
        acked = self.lane.acked
        if acked is None or not self.parking.awaits_commit:
            return
        frontier, text = acked
        said = decode_metadata(text, frontier, identity(self.lane.key.topic))
        told = OffsetMap(frontier, said.ranges)
        for key in self.parking.confirmed(lambda offset: offset < frontier or told.was_finished(offset)):
            self._look_again(key)

    def _look_again(self, key: Hashable) -> None:
        source = self.source
        if source is None or source.keys is None:
            return
        if (key_lane := source.keys.get(key)) is not None:
            source.keys.wake(key_lane)
        source.make_ready()

    def answered(self, pending: Pending) -> None:
        """A copy is written; or the record's dead letter, where it was too large for a copy."""
        lane, record = pending.lane, pending.record
        key = _key_of(record, record.offset())
        if self.source is lane:
            if pending.is_dead_letter:
                self.parking.withdrawn(key)
            else:
                self.parking.written(key, pending.tries)
        key_lane = None if lane.keys is None else lane.keys.get(key)
        if key_lane is not None and key_lane.queue and key_lane.queue[0] is record:
            lane.drop_front(key_lane)
        else:
            lane.finish(record.offset())
        lane.make_ready()


class Parks:
    """Parks keys and lets them go, over all pairs of the group. `lanes`: those that are assigned, the engine's own."""

    def __init__(
        self,
        lanes: Mapping[TopicPartition, Lane],
        successors: Successors,
        rests: Rests,
        outbox: list[Command],
        commits: Commits,
    ) -> None:
        self._commits = commits
        self._lanes = lanes
        self._successors = successors
        self._rests = rests
        self._outbox = outbox
        #: All pairs whose parked partition is here.
        self.all: list[Parked] = []

    def assigned(self, starts: Mapping[TopicPartition, Start]) -> None:
        """These partitions came, and are in lanes."""
        for key, start in starts.items():
            lane = self._lanes[key]
            if key.topic == lane.listener.plan.parked:
                lane.parked = Parked(lane, start.end)
                self.all.append(lane.parked)
        for parked in self.all:
            source_key = TopicPartition(parked.lane.listener.plan.source, parked.lane.key.partition)
            source = self._lanes.get(source_key)
            if source is not None and source is not parked.source:
                parked.attach(source)

    def stop(self, lane: Lane) -> None:
        """A partition is being given up. Without its parked one a source starts nothing more."""
        parked = lane.parked
        if parked is not None and parked.lane is lane and parked.source is not None:
            parked.source.parked = None

    def with_sources(self, lanes: Iterable[Lane]) -> list[Lane]:
        """The same, and the sources of those that are parked ones: copies are on their way from there."""
        found = list(lanes)
        parked = [lane.parked for lane in found if lane.parked is not None and lane.parked.lane is lane]
        return found + [each.source for each in parked if each.source is not None]

    def forget(self, lane: Lane) -> None:
        """A partition was given up: the source of a parked one starts nothing more, and its writes are forgotten."""
        parked = lane.parked
        if parked is None:
            return
        if parked.lane is lane:
            self.all.remove(parked)
            if parked.source is not None and parked.source.parked is parked:
                parked.source.parked = None
        elif parked.source is lane:
            parked.source = None

    def crowd(self, lane: Lane) -> None:
        """Memory is full: of the lanes that wait for a failed record, those that hold most of it are parked."""
        if lane.parked is None or lane.keys is None:
            return
        waiting = [
            each for each in lane.keys.resting() if each.queue and each.queue[0].offset() in lane.heads
        ]
        waiting.sort(key=lambda each: len(each.queue), reverse=True)
        left = lane.keys.waiting // 2
        for key_lane in waiting:
            if left <= 0:
                break
            left -= len(key_lane.queue)
            lane.parked.crowded.add(key_lane.key)
            lane.keys.wake(key_lane)
        lane.make_ready()

    def rest(self, lane: Lane, key_lane: KeyLane, wake_ms: int, now: Now) -> bool:
        """
        The first record of a source lane isn't to run before `wake_ms`. Whether that is seen to here, since the key is parked,
        or is to be.
        """
        parked = lane.parked
        if parked is None or parked.lane is lane:
            return False
        if key_lane.key in parked.parking:
            self._follow(parked, lane, key_lane, now)
            return True
        policy = lane.listener.plan.policy
        record = key_lane.queue[0]
        head = lane.heads.get(record.offset())
        if not policy.park or head is None or head.is_dead or record.offset() in lane.heads.dying:
            return False
        is_long = wake_ms - now.wall_ms > policy.hold_at_most_ms
        # The rest of what a commit can tell is for those whose copies can't be written just now.
        is_crowded = len(lane.heads) > self._commits.heads_most // 2 or key_lane.key in parked.crowded
        if not (is_long or is_crowded):
            return False
        if not parked.parking.has_room:
            return False
        self._park(parked, lane, key_lane, now)
        return True

    def _follow(self, parked: Parked, lane: Lane, key_lane: KeyLane, now: Now) -> None:
        queue = key_lane.queue
        wanted = parked.parking.wants(key_lane.key, queue[0].offset())
        while wanted == "pass":
            lane.drop_front(key_lane)
            if not queue:
                return
            wanted = parked.parking.wants(key_lane.key, queue[0].offset())
        # Where it isn't wanted any more they wait where they are.
        if wanted == "park" and lane.listener.plan.policy.park:
            self._park(parked, lane, key_lane, now)
        elif wanted == "run":
            self._rests.until(lane, key_lane, int(now.wall_ms))

    def _park(self, parked: Parked, lane: Lane, key_lane: KeyLane, now: Now) -> None:
        # What died before it, and has no letter yet, would be taken for handled by whoever finds the copy.
        if not lane.writes.are_few or lane.writes.are_of(key_lane.queue[0].key()):
            self._rests.until(lane, key_lane, int(now.wall_ms) + TRY_AGAIN_MS)
            return
        record = key_lane.queue[0]
        key, offset, plan = key_lane.key, record.offset(), lane.listener.plan
        if key not in parked.parking:
            fields = {"listener": plan.name, "source": lane.key.topic, "partition": lane.key.partition}
            self._outbox.append(Report("key-parked", {**fields, "offset": offset, "parked": plan.parked}))
        parked.crowded.discard(key)
        parked.parking.park(key, offset)
        lane.listener.counters.parked += 1
        envelope = lane.heads.envelope(offset) or source_envelope(record, plan.id_header)
        if (head := lane.heads.get(offset)) is not None:
            envelope = msgspec.structs.replace(
                envelope, attempt=head.attempt, due_ms=head.due_ms, first_failed_ms=head.first_failed_ms
            )
        self._successors.park(lane, record, envelope, parked)

    def look_at_commits(self, identity: Callable[[str], str]) -> None:
        """Commits were confirmed."""
        for parked in self.all:
            parked.look_at_commit(identity)


def _origin_of(record: RawRecord) -> tuple[Hashable, int, int, int]:
    """
    Of which key and source offset this is a copy, where it is, and by which try it was written. What a stranger wrote stands
    for itself, and holds up nobody.
    """
    offset, envelope = record.offset(), read_envelope(headers_of(record))[0]
    if envelope.source_offset is None:
        return ("", offset), 0, offset, 0
    return _key_of(record, envelope.source_offset), envelope.source_offset, offset, envelope.hops


def _key_of(record: RawRecord, source_offset: int) -> Hashable:
    # As in `key_lanes.py`: records without a key are lanes of their own.
    key = record.key()
    return source_offset if key is None else key
