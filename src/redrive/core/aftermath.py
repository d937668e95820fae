"""
What becomes of records that waited for one that became a dead letter, where it isn't that they go on.

**block**: they wait. The dead letter's offset stays open, a *hole* in front of its lane: once its letter is acknowledged, the
commits tell it as a head that died, so the next owner finds it there and lets nothing of its lane run.

**divert**: they follow it, one after another. The record behind the hole becomes a dead letter without having run; once that
letter is acknowledged it is the hole, and the one before is finished. So a key has one hole, however many follow.

**Free again** is a lane when a replay of its hole's letter was handled, or the letter was discarded: either comes by the replay
topic, in the partition of the same number, and says of which record. Only then the hole's offset is closed. While the
source's partition isn't here, nothing of that replay partition runs. After the first replayed record of a key nothing more of it
is diverted: what comes meanwhile waits, so the replay of the rest comes to an end.

What a crash does between any two of these writes:

| crash after | the next owner finds | and does |
|---|---|---|
| the last run failed | a head with the attempts of the last commit | runs it once more |
| the letter was acknowledged, the hole not committed | the same | the same: a second letter |
| the hole was committed | the hole | lets nothing of its lane run |
| the replay was handled, not committed | the hole, the replayed record | runs that once more, then frees the lane |
| the source's offset was committed, the replay's wasn't | no hole, the replayed record | runs that once more, maybe after later records |

Both partitions are committed together, whichever of them a commit is asked for. The last one takes a crash between two requests to
one coordinator, where both are too large for one: then the source's is the first, since without a replay nothing frees a hole.

A policy that says `release` again frees all holes at its first start.
"""

from collections.abc import Mapping

from redrive.core.key_lanes import KeyLane
from redrive.core.lane import Lane
from redrive.core.listener_state import ListenerState
from redrive.core.metadata import Head
from redrive.core.offset_codec import Range
from redrive.core.offsets import merge
from redrive.core.plan import Now
from redrive.core.record import RawRecord, TopicPartition
from redrive.core.starts import Start
from redrive.core.successors import Successors, envelope_of
from redrive.core.translator import Translator


class Aftermath:
    """Holds back, diverts and frees what waits for dead letters. `lanes`: those that are assigned, the engine's own."""

    def __init__(
        self, lanes: dict[TopicPartition, Lane], successors: Successors, translator: Translator
    ) -> None:
        self._lanes = lanes
        self._successors = successors
        self._translator = translator

    def assigned(self) -> None:
        """Partitions came: those of a replay topic find the source's."""
        for lane in self._lanes.values():
            if lane.frees and lane.twin is None:
                lane.twin = self._lanes.get(TopicPartition(lane.listener.plan.source, lane.key.partition))
                if lane.twin is not None:
                    lane.twin.twin = lane
                    lane.make_ready()

    def forget(self, lane: Lane) -> None:
        """A partition was given up."""
        for other in lane.listener.lanes:
            if other.twin is lane:
                other.twin = None

    def dies(self, lane: Lane, record: RawRecord) -> bool:
        """The record's letter is on its way. Whether it stays in front of its lane, as a hole."""
        if lane.tier is not None or lane.listener.plan.policy.after_dead_letter == "release":
            return False
        lane.heads.dying.add(record.offset())
        return True

    def behind(self, lane: Lane, key_lane: KeyLane, now: Now) -> None:
        """Let the next record follow the one that died, where the policy diverts; `key_lane` has a hole in front."""
        queue, heads = key_lane.queue, lane.heads
        if lane.listener.plan.policy.after_dead_letter != "divert" or key_lane.key in lane.recalled:
            return
        while len(queue) > 1 and heads.is_dead(queue[1].offset()):
            if not heads.is_dead(queue[0].offset()):
                return
            lane.drop_front(key_lane)
        if len(queue) < 2 or not heads.is_dead(queue[0].offset()) or queue[1].offset() in heads.dying:
            return
        if lane.writes.are_few:
            heads.dying.add(queue[1].offset())
            self._successors.divert(lane, queue[1], queue[0].offset(), now)

    def arrived(self, lane: Lane, due: list[tuple[int, RawRecord]]) -> list[tuple[int, RawRecord]]:
        """Records of a replay partition have their turn. Gives those that are to run: what only frees a lane is none."""
        runs: list[tuple[int, RawRecord]] = []
        for wake_ms, record in due:
            if envelope_of(record, self._translator)[0].frees:
                self.handled(record)
                lane.finish(record.offset())
                continue
            runs.append((wake_ms, record))
            if lane.twin is not None and lane.twin.is_blocked(record.key()):
                lane.twin.recalled.add(record.key())
        return runs

    def handled(self, record: RawRecord) -> None:
        """A record of a replay partition came to its end: what waited for it goes on."""
        envelope, _ = envelope_of(record, self._translator)
        if envelope.source_partition is None or envelope.source_offset is None:
            return
        source = self._lanes.get(TopicPartition(envelope.source_topic, envelope.source_partition))
        if source is not None:
            source.free(envelope.source_offset, record.key())


def restored_for(listener: ListenerState, start: Start) -> tuple[Mapping[int, Head], tuple[Range, ...]]:
    """What a commit told. Where nothing is to wait for a dead letter any more, those that died are finished."""
    heads, restored = start.heads, start.restored
    if not heads or listener.plan.policy.after_dead_letter != "release":
        return heads, restored
    died = [offset for offset, head in heads.items() if head.is_dead]
    alive = {offset: head for offset, head in heads.items() if not head.is_dead}
    return alive, merge([*restored, *((offset, offset + 1) for offset in died)])
