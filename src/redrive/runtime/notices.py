"""What people want of a group's workers, read from the state topics in the background and handed to the pump."""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from redrive.core.commands import Report
from redrive.core.notices import Posted, is_for_workers, read_notice
from redrive.core.pausing import Pausing, read_pausing
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.runtime.clock import Clock
from redrive.runtime.ports import Cluster, Log

#: How late a notice may be seen: one question for the ends of some topics costs the cluster less than a millisecond.
LOOK_MS = 2_000.0


class NoticeReader:
    """
    Looks into `topics`, the state topics of a group, for notices of this `group` and for listeners of it that are paused or
    resumed. `identity` tells a tier's topic from an earlier one of its name.

    `look` is one round: the first reads all that is there, so it is made before a worker joins its group. `start` makes
    more in a thread. `take` gives what was found since the last call, to any thread. Nothing here raises: a topic that
    doesn't exist has no notices, and of one that can't be read the operator is told.
    """

    def __init__(
        self,
        topics: Collection[str],
        *,
        group: str,
        cluster: Cluster,
        log: Log,
        clock: Clock,
        identity: Callable[[str], str],
        report: Callable[[Report], None],
    ) -> None:
        self._keys = [TopicPartition(topic, 0) for topic in sorted(set(topics))]
        self._group = group
        self._cluster, self._log, self._clock = cluster, log, clock
        self._identity = identity
        self._report = report
        self._next = dict.fromkeys(self._keys, 0)
        self._found: deque[Posted | Pausing] = deque()
        self._stop = threading.Event()

    def look(self) -> None:
        """Read on to the present ends. Waits for the cluster."""
        try:
            ends = self._cluster.offsets(self._keys, "latest")
        except PortError as error:
            self._report(Report("notices-unread", {"topic": self._keys[0].topic, "error": str(error)}))
            return
        for key, end in ends.items():
            if end < self._next[key]:  # made anew
                self._next[key] = 0
            if end > self._next[key]:
                self._read(key, end)

    def take(self) -> Sequence[Posted | Pausing]:
        """What was found since the last call; of what was said of one listener the later last."""
        return [self._found.popleft() for _ in range(len(self._found))] if self._found else ()

    def start(self) -> None:
        """Look every two seconds in a thread of its own, until `close`."""
        threading.Thread(target=self._run, name="redrive-notices", daemon=True).start()

    def close(self) -> None:
        """Stop looking. A question that is out is not waited for: the thread ends with its answer."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._clock.wait(self._stop, LOOK_MS)
            if not self._stop.is_set():
                self.look()

    def _read(self, key: TopicPartition, end: int) -> None:
        try:
            found: list[Posted] = []
            #: By listener, what was said last.
            pausings: dict[str, Pausing] = {}
            for record in self._log.scan(key, self._next[key], end):
                if not is_for_workers(record.key()):  # most are about dead letters
                    continue
                if (posted := read_notice(record.key(), record.value())) is not None:
                    found.append(posted)
                elif (
                    said := read_pausing(record.key(), record.value())
                ) is not None and said.group == self._group:
                    pausings[said.listener] = said
            unfinished = self._unfinished(found)
            self._found.extend((*pausings.values(), *unfinished))
        except PortError as error:
            self._report(Report("notices-unread", {"topic": key.topic, "error": str(error)}))
        else:
            self._next[key] = end

    def _unfinished(self, found: Iterable[Posted]) -> list[Posted]:
        """Those that are ours and about a record that the group has not committed yet: old ones needn't be kept."""
        ours = [one for one in found if self._is_ours(one)]
        keys = list(dict.fromkeys(one.partition for one in ours))
        committed = self._cluster.committed(self._group, keys) if keys else {}
        frontiers = {key: at.offset or 0 for key, at in committed.items()}
        return [one for one in ours if one.notice.ranges[-1][1] > frontiers.get(one.partition, 0)]

    def _is_ours(self, posted: Posted) -> bool:
        notice = posted.notice
        return notice.group == self._group and notice.identity == self._identity(posted.partition.topic)
