"""What was done to a service and its cluster, and which repetitions that explains: values, and functions of them."""

from collections.abc import Iterable
from typing import NamedTuple

#: By kind, how long after its end a fault may still take a worker's partitions or its last commit away: heartbeats and reconnects
#: take turns, and a transaction has ten seconds, until which a client may hang that lost its broker.
#: What isn't named here explains nothing: a rolling restart, a change of a topic's settings, a slow network.
AFTER_MS = {"kill": 0, "crash": 0, "stop": 5_000, "broker": 15_000, "cut": 15_000, "hold": 15_000}
#: By somebody; by a record.
_KILLS = ("kill", "crash")


class Fault(NamedTuple):
    """`pid`: the process that it was done to; 0: it concerns all. `ended_ms` of a kill is when it was done, at the latest."""

    kind: str
    whom: str
    began_ms: float
    ended_ms: float
    pid: int = 0


class Faults:
    """`kills`: when each process was killed, or ended by its own doing, at the earliest."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.all = sorted(faults, key=lambda fault: fault.began_ms)
        self.kills = {fault.pid: fault.began_ms for fault in self.all if fault.kind in _KILLS}
        self._shakes = [
            (fault.pid, fault.began_ms, fault.ended_ms + AFTER_MS[fault.kind])
            for fault in self.all
            if fault.kind in AFTER_MS and fault.kind not in _KILLS
        ]

    def shook(self, pid: int, from_ms: float, to_ms: float) -> bool:
        """Whether between these times something, but for a kill, may have cost the process its partitions or its last commit."""
        return any(
            whom in (0, pid) and began_ms <= to_ms and ended_ms >= from_ms
            for whom, began_ms, ended_ms in self._shakes
        )

    def explain(self, from_ms: float, to_ms: float) -> bool:
        """Whether anything between these times may have made some process do again what another had done."""
        return any(
            fault.kind in AFTER_MS
            and fault.began_ms <= to_ms
            and fault.ended_ms + AFTER_MS[fault.kind] >= from_ms
            for fault in self.all
        )


def of_kills(kills: dict[int, float]) -> Faults:
    """Faults that are kills only: process and time."""
    return Faults(Fault("kill", str(pid), at_ms, at_ms, pid) for pid, at_ms in kills.items())
