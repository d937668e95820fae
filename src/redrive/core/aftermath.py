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

**Again**: where the policy diverts, a replay that becomes a dead letter once more leaves a hole in the replay partition, and the
replays behind it follow it as records of the source did. They stand in line by their places in the source, so one that was sent once
more comes ahead of those that followed it, and closes the hole of its place. Each that followed leaves a hole, too, which tells what
must come before it; when a quarter of what a commit can tell is taken, only a key's first and last one are kept, which
tell it as long as letters are sent back in the order in which they lie. A discard is a note that stands in the same line.

What a crash does between any two of these writes:

| crash after | the next owner finds | and does |
|---|---|---|
| the last run failed | a head with the attempts of the last commit | runs it once more |
| the letter was acknowledged, the hole not committed | the same | the same: a second letter |
| the hole was committed | the hole | lets nothing of its lane run |
| the replay was handled, not committed | the hole, the replayed record | runs that once more, then frees the lane |
| a replay's letter was acknowledged, its hole not committed | the replay, with the attempts of the last commit | runs it once more: a second letter |
| that hole was committed | the hole, the replays behind it | lets them follow, until one of the same place is handled |
| the source's offset was committed, the replay's wasn't | no hole, the replayed record | runs that once more, maybe after later records |

Both partitions are committed together, whichever of them a commit is asked for. The last one takes a crash between two requests to
one coordinator, where both are too large for one, or the source says more than any commit that was taken so far: then the source's is
the first, since without a replay nothing frees a hole (`commits.py`). Only a broker that refuses the source's partition alone, and a
crash before it takes it, leave a hole whose replay counts as handled.

A policy that says `release` again frees all holes at its first start.
"""

from collections.abc import Iterable, Mapping
from itertools import islice

from redrive.core.commits import Commits
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
        self,
        lanes: dict[TopicPartition, Lane],
        successors: Successors,
        commits: Commits,
        translator: Translator,
    ) -> None:
        self._commits = commits
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
            if lane.frees and lane.keys is not None:
                lane.keys.goes_before = self._goes_before

    def forget(self, lane: Lane) -> None:
        """A partition was given up."""
        for other in lane.listener.lanes:
            if other.twin is lane:
                other.twin = None

    def dies(self, lane: Lane, record: RawRecord) -> bool:
        """The record's letter is on its way. Whether it stays in front of its lane, as a hole."""
        # On a replay topic nobody waits for what has no key, and no replay of it would find its hole.
        if not lane.keeps_holes or (lane.frees and record.key() is None):
            return False
        lane.heads.dying.add(record.offset())
        return True

    def behind(self, lane: Lane, key_lane: KeyLane, now: Now) -> None:
        """The first record of a lane doesn't run: it is a note, which is heeded, or a dead one, which may let others by."""
        front, heads = key_lane.queue[0], lane.heads
        if front.offset() in heads.notes:
            lane.drop_front(key_lane)
            self.handled(lane, front)
        elif (
            heads.is_dead(front.offset())
            and front.offset() not in heads.closing
            and not self._lets_by(lane, key_lane)
        ):
            self._follow(lane, key_lane, now)

    def _lets_by(self, lane: Lane, key_lane: KeyLane) -> bool:
        """What is to close the hole in front of its lane, and came behind it since it was sent later, has its turn."""
        queue = key_lane.queue
        if lane.keys is None or not lane.frees:
            return False
        place = self._successors.place_of(queue[0])
        for record in islice(queue, 1, None):
            if place is None or self._successors.place_of(record) != place:
                return False
            if not lane.heads.is_dead(record.offset()):
                lane.keys.bring_forward(key_lane, record)
                return True
        return False

    def _follow(self, lane: Lane, key_lane: KeyLane, now: Now) -> None:
        """Let the next record follow the one that died, where the policy diverts."""
        queue, heads = key_lane.queue, lane.heads
        if lane.listener.plan.policy.after_dead_letter != "divert" or key_lane.key in lane.recalled:
            return
        while lane.tier is None and len(queue) > 1 and heads.is_dead(queue[1].offset()):
            lane.drop_front(key_lane)
        line = list(queue if lane.frees else islice(queue, 2))
        if any(each.offset() in heads.dying for each in line) or not lane.writes.are_few:
            return
        rest = (each for each in line if not (heads.is_dead(each.offset()) or each.offset() in heads.notes))
        if (follower := next(rest, None)) is not None:
            self._successors.divert(lane, follower, queue[0].offset(), now, self._outdated(lane, follower))
            heads.dying.add(follower.offset())

    def _outdated(self, lane: Lane, follower: RawRecord) -> list[int]:
        """The holes in a replay partition that go when a record has followed them: those of its place; where room is scarce, more."""
        if not lane.frees or len(lane.heads) < self._commits.heads_most // 4:
            return self._successors.holes_of(lane, follower)
        return [hole.offset() for hole in lane.holes_in_line(follower.key())[1:]]

    def arrived(self, lane: Lane, records: Iterable[RawRecord]) -> None:
        """Records of a replay partition come into line."""
        for record in records:
            if envelope_of(record, self._translator)[0].frees:
                lane.heads.notes.add(record.offset())
            elif lane.twin is not None and lane.twin.is_blocked(record.key()):
                lane.twin.recalled.add(record.key())

    def _goes_before(self, record: RawRecord, other: RawRecord) -> bool:
        """Replays stand in line by their places in the source: what is sent once more goes ahead of those that followed it."""
        place, its_place = self._successors.place_of(record), self._successors.place_of(other)
        return place is not None and its_place is not None and place[0] == its_place[0] and place < its_place

    def handled(self, lane: Lane, record: RawRecord) -> None:
        """A record of a replay partition came to its end: what waited for it goes on."""
        place = self._successors.place_of(record)
        if place is None:
            return
        partition, offset = place
        if (source := self._lanes.get(partition)) is not None:
            source.free(offset, record.key())
        for hole in self._successors.holes_of(lane, record):
            lane.free(hole, record.key())


def restored_for(listener: ListenerState, start: Start) -> tuple[Mapping[int, Head], tuple[Range, ...]]:
    """What a commit told. Where nothing is to wait for a dead letter any more, those that died are finished."""
    heads, restored = start.heads, start.restored
    if not heads or listener.plan.policy.after_dead_letter != "release":
        return heads, restored
    died = [offset for offset, head in heads.items() if head.is_dead]
    alive = {offset: head for offset, head in heads.items() if not head.is_dead}
    return alive, merge([*restored, *((offset, offset + 1) for offset in died)])
