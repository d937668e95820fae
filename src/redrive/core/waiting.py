"""
The tier partitions of a group: which of their records are ours, how long each waits, and when to look again.

Each lane's window holds its records (`schedule.py`); this looks over all of them, so that an idle step of the engine
compares one number, however many partitions wait.
"""

from collections.abc import Collection
from itertools import accumulate

from redrive.core.dialects import mark_of
from redrive.core.lane import Lane
from redrive.core.plan import MAX_WAIT_MS, Now, Tier
from redrive.core.record import RawRecord, headers_of
from redrive.core.schedule import NEVER_MS, RECORD_OVERHEAD_BYTES, wake_of
from redrive.core.translator import PLAIN, Translator

#: While workers are busy, due records are looked for no more often: fewer and longer runs.
PACE_MS = 2.0
#: So many marks of records that are gone may be kept.
MARKS_KEPT = 1_000


class WaitingRoom:
    """
    What waits in the tiers. `groups`: whose records are ours. `window_bytes`: memory for all of them together, shared
    evenly among the partitions. `translator` reads their headers. `next_wake_ms`: the wall time at which some lane must
    be looked at.
    """

    def __init__(self, groups: Collection[str], window_bytes: int, translator: Translator = PLAIN) -> None:
        self.next_wake_ms: float = NEVER_MS
        self.lanes: list[Lane] = []
        self._groups = frozenset((*groups, ""))
        self._window_bytes = window_bytes
        self._translator = translator
        self._woken_mono_ms = 0.0
        #: Of each lane: what waits there by `mark_of`, with its wake time. Before that it can't have been taken out.
        self._marks: dict[Lane, dict[int, int]] = {}
        self._seen_wall_ms = 0.0

    def hold(self, lane: Lane, tier: Tier, records: list[RawRecord], end: int, now: Now) -> None:
        """
        Take fetched records in; another group's are passed by. `end`: the offset behind them.

        A second copy of a record that waits already, for the same attempt, is left out: whoever owned its source died between
        its writing and the commit, or never heard that it was written. The first copy is at hand, and has the earlier due.
        """
        counters, window, ours = lane.listener.counters, lane.window, self._groups
        held: list[int] = []
        read_due = self._translator.read_due
        # What an earlier configuration let wait for longer must not run early.
        longest_ms = max(MAX_WAIT_MS, lane.listener.plan.longest_wait_ms) + 2 * tier.delay_ms
        self._look_at_clock(now)
        marks = self._marks_of(lane, now)
        for record in records:
            headers = headers_of(record)
            group, due_ms = read_due(headers)
            timestamp_ms = record.timestamp()[1]
            if due_ms is None and not group:
                said = self._translator.read(headers).envelope
                group, due_ms = said.group, said.due_ms
                if due_ms is not None:
                    # Other frameworks hand the source's timestamp on, which says nothing of when the copy was written.
                    timestamp_ms = max(timestamp_ms, int(now.wall_ms))
            if group not in ours:
                counters.passed_by += 1
                continue
            if due_ms is None or due_ms > timestamp_ms + longest_ms:
                counters.envelope_errors += due_ms is not None
                due_ms = timestamp_ms + tier.delay_ms
            is_simple = due_ms <= timestamp_ms + tier.delay_ms  # nearly all
            wake_ms = due_ms if is_simple else wake_of(due_ms, timestamp_ms, tier.delay_ms)
            mark = mark_of(headers)
            if mark is not None:
                if marks.get(mark, 0) > now.wall_ms:
                    counters.duplicates += 1
                    continue
                marks[mark] = wake_ms
            room = window if wake_ms == due_ms else lane.reposts
            # Replays come as they were sent, whatever the clocks of their senders said.
            room.hold(max(wake_ms, room.latest_ms) if lane.frees else wake_ms, record)
            held.append(record.offset())
        lane.offsets.open(held)
        lane.offsets.settle(end)
        self.expect(lane)

    def expect(self, lane: Lane) -> None:
        """Don't sleep beyond what this lane waits for."""
        # It is looked at again when its source comes.
        wake_ms = NEVER_MS if lane.misses_source else lane.window.next_wake_ms()
        self.next_wake_ms = min(self.next_wake_ms, wake_ms, lane.reposts.next_wake_ms())

    def is_over(self, lane: Lane) -> bool:
        """Whether a lane holds more than its share of memory, so that fetching it has to pause."""
        return _held_bytes(lane) > self._share_bytes()

    def fitting(self, lane: Lane, records: list[RawRecord], end: int) -> tuple[list[RawRecord], int]:
        """
        Those of these records that may be taken in, the first ones, and the offset behind them; the others are fetched again
        when there is room. A lane may exceed its share by what one fetch brings, but not when others have done so already:
        hundreds of them would multiply the memory.
        """
        held_bytes, share_bytes = _held_bytes(lane), self._share_bytes()
        fetched_bytes = sum(map(len, records)) + RECORD_OVERHEAD_BYTES * len(records)
        if held_bytes + fetched_bytes <= share_bytes:
            return records, end
        if sum(map(_held_bytes, self.lanes)) + fetched_bytes <= self._window_bytes:
            return records, end
        ends = accumulate((len(record) + RECORD_OVERHEAD_BYTES for record in records), initial=held_bytes)
        fitting = max(sum(end_bytes <= share_bytes for end_bytes in ends) - 1, 0 if held_bytes else 1)
        if fitting < len(records):
            records, end = records[:fitting], records[fitting].offset()
            # What comes until it is fetched again comes too early.
            lane.next_offset, lane.is_rewound = end, True
        return records, end

    def has_room(self, lane: Lane) -> bool:
        """Whether a paused lane is down to half of its share: fetching anew takes a while."""
        return _held_bytes(lane) < self._share_bytes() / 2

    def is_time(self, now: Now, *, are_workers_busy: bool) -> bool:
        """Whether to look for due records now."""
        self._look_at_clock(now)
        if now.wall_ms < self.next_wake_ms:
            return False
        return not are_workers_busy or now.mono_ms >= self._woken_mono_ms + PACE_MS

    def wake(self, now: Now, most: int) -> tuple[list[Lane], list[tuple[Lane, RawRecord]]]:
        """Lanes with due records that are not in turn yet, and at most so many records a lane to be posted on."""
        self._woken_mono_ms = now.mono_ms
        due: list[Lane] = []
        posted_on: list[tuple[Lane, RawRecord]] = []
        next_ms: float = NEVER_MS
        for lane in self.lanes:
            if len(lane.reposts):
                posted_on.extend((lane, record) for _, record in lane.reposts.take(now.wall_ms, most))
                next_ms = min(next_ms, lane.reposts.next_wake_ms())
            if lane.is_ready or lane.gate.is_shut:
                continue  # looked at again when its turn, or its runs, are over
            wake_ms = lane.window.next_wake_ms()
            if wake_ms <= now.wall_ms:
                due.append(lane)
            else:
                next_ms = min(next_ms, wake_ms)
        self.next_wake_ms = next_ms
        return due, posted_on

    def forget_dead(self) -> None:
        """Partitions were given up."""
        self.lanes = [lane for lane in self.lanes if lane.alive]
        self._marks = {lane: marks for lane, marks in self._marks.items() if lane.alive}

    def _look_at_clock(self, now: Now) -> None:
        if now.wall_ms < self._seen_wall_ms:
            # What is not yet due by a clock that was put back may have been taken out by what it said before.
            self._marks.clear()
        self._seen_wall_ms = now.wall_ms

    def _marks_of(self, lane: Lane, now: Now) -> dict[int, int]:
        marks = self._marks.setdefault(lane, {})
        if len(marks) > 2 * (len(lane.window) + len(lane.reposts)) + MARKS_KEPT:
            marks = self._marks[lane] = {mark: wake for mark, wake in marks.items() if wake > now.wall_ms}
        return marks

    def _share_bytes(self) -> float:
        return self._window_bytes / max(1, len(self.lanes))


def _held_bytes(lane: Lane) -> int:
    return lane.window.held_bytes + lane.reposts.held_bytes
