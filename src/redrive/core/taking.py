"""How a run is made of what a partition holds: the next stretch of it, records that are due, or the fronts of its lanes."""

from bisect import bisect_left

from redrive.core.aftermath import Aftermath
from redrive.core.commands import Gate, Run
from redrive.core.heeding import Heeding
from redrive.core.key_lanes import KeyLane
from redrive.core.lane import Lane
from redrive.core.metadata import HEADS_MOST
from redrive.core.parked import Parks
from redrive.core.plan import Now
from redrive.core.record import RawRecord
from redrive.core.resting import Rests
from redrive.core.schedule import NEVER_MS


class Taking:
    """Makes runs. `rests`: where lanes go whose first record may not run yet. `notices`: which records must not run at all."""

    def __init__(self, rests: Rests, notices: Heeding, aftermath: Aftermath, parks: Parks) -> None:
        self._parks = parks
        self._rests = rests
        self._notices = notices
        self._aftermath = aftermath

    def run_of(self, lane: Lane, slot: int, most: int, now: Now) -> Run | None:
        """A run of up to `most` records; None when there is nothing to run after all."""
        if lane.keys is not None:
            return self._of_lanes(lane, slot, most, now)
        skips_window = lane.skips_window and lane.queue and not lane.listener.breaker.is_closed
        if lane.window.next_wake_ms() <= now.wall_ms and not skips_window:
            return self._of_window(lane, slot, most, now)
        return self._of_queue(lane, slot, most, now) if lane.queue else None

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
        due = lane.window.take(now.wall_ms, most)
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
        if lane.tier is not None and keys.waiting < most:
            due = lane.window.take(now.wall_ms, most)
            if lane.frees:
                due = self._aftermath.arrived(lane, due)
            lane.wakes_ms.update((record.offset(), wake_ms) for wake_ms, record in due)
            keys.add(record for _, record in due)

        def rest(key_lane: KeyLane, wake_ms: int) -> None:
            if lane.parked is not None and self._parks.rest(lane, key_lane, wake_ms, now):
                return
            if wake_ms == NEVER_MS:
                self._aftermath.behind(lane, key_lane, now)
            else:
                self._rests.until(lane, key_lane, wake_ms)

        # Each run may leave one more record waiting, and all of them must fit into a commit: beyond that the partition waits.
        is_full = lane.listener.plan.policy.blocking is not None and len(lane.heads) + lane.runs >= HEADS_MOST
        taken = keys.take(most, now.wall_ms, lane.limit, rest, only_heads=is_full)
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
