"""How a run is made of what a partition holds: the next stretch of it, records that are due, or the fronts of its lanes."""

from bisect import bisect_left
from collections.abc import Callable
from math import inf

from redrive.core.aftermath import Aftermath
from redrive.core.commands import Gate, Run
from redrive.core.commits import Commits
from redrive.core.heeding import Heeding
from redrive.core.key_lanes import KeyLane, KeyLanes
from redrive.core.lane import Lane
from redrive.core.parked import Parks
from redrive.core.plan import Now
from redrive.core.record import RawRecord
from redrive.core.resting import Rests
from redrive.core.schedule import NEVER_MS


class Taking:
    """Makes runs. `rests`: where lanes go whose first record may not run yet. `notices`: which records must not run at all."""

    def __init__(
        self, rests: Rests, notices: Heeding, aftermath: Aftermath, parks: Parks, commits: Commits
    ) -> None:
        self._commits = commits
        self._parks = parks
        self._rests = rests
        self._notices = notices
        self._aftermath = aftermath

    def run_of(self, lane: Lane, slot: int, most: int, now: Now) -> Run | None:
        """A run of up to `most` records; None when there is nothing to run after all."""
        if lane.keys is not None:
            return self._of_lanes(lane, slot, most, now)
        if _is_window_next(lane, now):
            return self._of_window(lane, slot, most, now)
        return self._of_queue(lane, slot, most, now) if lane.queue else None

    def lowest(self, lane: Lane, most: int, now: Now) -> int | None:
        """The lowest offset that could start now, if all may; None when none could, or it isn't known without trying."""
        if lane.keys is not None:
            self._fill(lane, lane.keys, most, now)
            rest, is_full = self._rest_in(lane, now), self._is_full(lane)
            return lane.keys.lowest(now.wall_ms, rest, only_heads=is_full, besides=_besides(lane))
        if _is_window_next(lane, now):
            return lane.window.lowest_due(now.wall_ms)
        self._notices.skip_front(lane, now)
        records = lane.queue[0].records if lane.queue else []
        if not records or lane.heads.wait_of(records[0].offset(), now.wall_ms) is not None:
            return None
        return records[0].offset()

    def pull(self, lane: Lane, offset: int) -> RawRecord | None:
        """Take one record out of wherever it waits in a lane of which each record is finished by itself."""
        found = [record for _, record in lane.window.pull(lambda _, record: record.offset() == offset)]
        if lane.keys is not None and not found:
            found = lane.keys.pull(lambda record: record.offset() == offset)
            lane.wakes_ms.pop(offset, None)
            lane.listener.queued -= len(found) if lane.tier is None else 0
        return found[0] if found else None

    def _of_queue(self, lane: Lane, slot: int, most: int, now: Now) -> Run | None:
        self._notices.skip_front(lane, now)
        if not lane.queue:
            return None
        batch = lane.queue[0]
        records, end = batch.records, batch.end
        if records and not (most := min(most, self._notices.count_before_skip(lane, records))):
            return None
        if lane.heads and records:
            most = self._before_head(lane, records, most, now)
            if not most:
                return None
        if records and records[-1].offset() >= lane.limit:
            most = min(most, bisect_left(records, lane.limit, key=lambda record: record.offset()))
            if not most:
                return None
        if len(records) > most:
            records, batch.records = records[:most], records[most:]
            end = batch.records[0].offset()
        else:
            lane.queue.popleft()
        lane.listener.queued -= len(records)
        if records:
            run = Run(lane, slot, records, end, 0)
            run.heads = lane.heads or None
            return run
        # All of them had been finished by the owner before: nothing to run, but the offsets are passed.
        if lane.last_run is not None:
            lane.last_run.end = end
        else:
            lane.offsets.settle(end)
        return self._of_queue(lane, slot, most, now) if lane.queue else None

    def _before_head(self, lane: Lane, records: list[RawRecord], most: int, now: Now) -> int:
        """How many records may run before one that waits; one that needn't wait any more is the first of its run."""
        wake_ms = lane.heads.wait_of(records[0].offset(), now.wall_ms)
        if wake_ms is not None:
            self._rests.until(lane, None, wake_ms)
            return 0
        for at in range(1, min(most, len(records))):
            if records[at].offset() in lane.heads:
                return at
        return most

    def _of_window(self, lane: Lane, slot: int, most: int, now: Now) -> Run | None:
        if lane.limit == inf:
            due = lane.window.take(now.wall_ms, most)
        else:
            due = lane.window.take_below(lane.limit, now.wall_ms, most)
        if not due:
            return None
        run = Run(lane, slot, [record for _, record in due], 0, 0)
        run.is_apart = True
        if lane.tier is not None:
            run.wakes_ms = [wake_ms for wake_ms, _ in due]
        run.heads = lane.heads or None
        return run

    def _of_lanes(self, lane: Lane, slot: int, most: int, now: Now) -> Run | None:
        keys = lane.keys
        if keys is None:
            return None
        self._fill(lane, keys, most, now)
        rest, is_full = self._rest_in(lane, now), self._is_full(lane)
        taken = keys.take(most, now.wall_ms, lane.limit, rest, only_heads=is_full, besides=_besides(lane))
        if not taken.records:
            return None
        run = Run(lane, slot, taken.records, 0, 0)
        # What stops this run early holds up no other one: they have other lanes.
        run.gate = Gate()
        run.divide(taken.lanes)
        if lane.tier is not None:
            run.wakes_ms = [lane.wakes_ms.pop(record.offset(), 0) for record in taken.records]
        else:
            lane.listener.queued -= len(taken.records)
        run.heads = lane.heads or None
        return run

    def _fill(self, lane: Lane, keys: KeyLanes, most: int, now: Now) -> None:
        """Put a tier's due records into line."""
        if lane.tier is None:
            return
        # What waits for a person takes nobody's place.
        still = len(lane.heads) + len(lane.heads.notes) if lane.frees else 0
        if keys.waiting - still < most:
            due = lane.window.take(now.wall_ms, most)
            if lane.frees:
                self._aftermath.arrived(lane, (record for _, record in due))
            lane.wakes_ms.update((record.offset(), wake_ms) for wake_ms, record in due)
            keys.add(record for _, record in due)

    def _is_full(self, lane: Lane) -> bool:
        """
        Each run may leave one more record waiting, and all of them must fit into a commit: beyond that the partition waits.
        Where replays wait for holes of their own partition, half of that is for those of them that close one.
        """
        most = self._commits.heads_most // (2 if lane.frees else 1)
        return lane.listener.plan.policy.blocking is not None and len(lane.heads) + lane.runs >= most

    def _rest_in(self, lane: Lane, now: Now) -> Callable[[KeyLane, int], None]:
        def rest(key_lane: KeyLane, wake_ms: int) -> None:
            if lane.parked is not None and self._parks.rest(lane, key_lane, wake_ms, now):
                return
            if wake_ms == NEVER_MS:
                self._aftermath.behind(lane, key_lane, now)
            else:
                self._rests.until(lane, key_lane, wake_ms)

        return rest


def _besides(lane: Lane) -> int:
    """
    What may run though the heads fill a commit: the first unfinished record, when nothing else is at work. Where all that wait are
    written only with a commit that can't tell of offsets so far above the frontier (exactly-once), they wait for that one.
    """
    return -1 if lane.runs else lane.offsets.frontier


def _is_window_next(lane: Lane, now: Now) -> bool:
    skips_window = lane.skips_window and lane.queue and not lane.listener.breaker.is_closed
    return lane.window.next_wake_ms() <= now.wall_ms and not skips_window
