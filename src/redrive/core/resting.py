"""
What waits in its partition for a time: a failed record in front of its lane. One queue for all partitions, so an idle
step of the engine compares one number.
"""

import heapq

from redrive.core.key_lanes import KeyLane
from redrive.core.lane import Lane
from redrive.core.schedule import NEVER_MS


class Rests:
    """Wakes lanes that rest. A partition that is one lane rests as a whole."""

    def __init__(self) -> None:
        self._queue: list[tuple[int, int, Lane, KeyLane | None]] = []
        self._sequence = 0
        #: Those whose due has come, but no commit has told yet what is known of their record.
        self._untold: dict[KeyLane, Lane] = {}

    @property
    def next_wake_ms(self) -> float:
        """When something must be looked at; `NEVER_MS` when nothing rests."""
        return self._queue[0][0] if self._queue else NEVER_MS

    def until(self, lane: Lane, key_lane: KeyLane | None, wake_ms: int) -> None:
        """This one rests until `wake_ms`; -1: until a commit was confirmed."""
        if wake_ms < 0:
            if key_lane is not None:
                self._untold[key_lane] = lane
            return
        if key_lane is None and lane.keys is None:
            lane.rests_until_ms = wake_ms
        self._sequence += 1
        heapq.heappush(self._queue, (wake_ms, self._sequence, lane, key_lane))

    def wake(self, now_ms: float) -> list[Lane]:
        """
        Wake what has rested long enough, and what waited for a commit, to be looked at again. The partitions that may have
        work by that.
        """
        woken: list[Lane] = []
        queue = self._queue
        while queue and queue[0][0] <= now_ms:
            _, _, lane, key_lane = heapq.heappop(queue)
            _wake(lane, key_lane, woken)
        untold, self._untold = self._untold, {}
        for key_lane, lane in untold.items():
            _wake(lane, key_lane, woken)
        return woken

    def forget_dead(self) -> None:
        """Partitions were given up."""
        self._queue = [each for each in self._queue if each[2].alive]
        heapq.heapify(self._queue)
        self._untold = {key_lane: lane for key_lane, lane in self._untold.items() if lane.alive}


def _wake(lane: Lane, key_lane: KeyLane | None, woken: list[Lane]) -> None:
    if not lane.alive:
        return
    if lane.keys is None:
        lane.rests_until_ms = 0.0  # once its time has come: the wall clock may be set back
    elif key_lane is not None:
        lane.keys.wake(key_lane)
    woken.append(lane)
