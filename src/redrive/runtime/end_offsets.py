"""Where the assigned partitions end, asked in the background: lag needs it, and a scrape must not wait for a broker."""

import threading
from collections.abc import Callable, Iterable, Mapping

from redrive.core.engine import Engine
from redrive.core.readings import Bounds, copied
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.runtime.clock import Clock
from redrive.runtime.ports import Cluster

#: One question for all partitions costs the cluster about 20 ms for 500 of them.
REFRESH_MS = 30_000.0
#: New assignments are looked for this often.
LOOK_MS = 1_000.0
#: Without an answer for this long, no end is better than an old one.
FORGET_MS = 120_000.0


class EndOffsets:
    """`engines`: those at work now. `bounds` is replaced as a whole, and read by any thread. `look` is one round; `start` makes them in a thread."""

    def __init__(self, engines: Callable[[], Iterable[Engine]], cluster: Cluster, clock: Clock) -> None:
        self.bounds: Mapping[TopicPartition, Bounds] = {}
        self._engines, self._cluster, self._clock = engines, cluster, clock
        self._asked: frozenset[TopicPartition] = frozenset()
        self._answered_mono_ms = clock.mono_ms()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Ask when the last answer is old, or partitions have come since. Waits for the cluster; never raises."""
        lanes = {lane.key: lane for engine in self._engines() for lane in copied(engine.lanes.values())}
        age_ms = self._clock.mono_ms() - self._answered_mono_ms
        if not lanes or (age_ms < REFRESH_MS and lanes.keys() <= self._asked):
            return
        # Where a partition begins only matters until its first record was seen.
        unstarted = [key for key, lane in lanes.items() if not lane.offsets.started]
        try:
            ends = self._cluster.offsets(list(lanes), "latest")
            firsts = self._cluster.offsets(unstarted, "earliest")
        except PortError:
            if age_ms > FORGET_MS:
                self.bounds = {}
            return
        self._asked = frozenset(lanes)
        self._answered_mono_ms = self._clock.mono_ms()
        self.bounds = {key: Bounds(firsts.get(key, 0), end) for key, end in ends.items()}

    def start(self) -> None:
        """Look once a second in a thread of its own, until `close`."""
        self._thread = threading.Thread(target=self._run, name="redrive-end-offsets", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking. A question that is out is not waited for: the thread ends with its answer."""
        self._stop.set()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.look()
                self._clock.wait(self._stop, LOOK_MS)
        finally:
            self.bounds = {}
