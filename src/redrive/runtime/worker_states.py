"""What workers are at: of a process itself, and by its supervisor of all."""

import os
import socket
import threading
from collections.abc import Callable, Collection, Mapping

from redrive._version import __version__
from redrive.core.inspection import WorkerState, inspect
from redrive.core.translator import Translator
from redrive.runtime.clock import Clock
from redrive.runtime.health import health_of
from redrive.runtime.ports import Answer
from redrive.runtime.pump import Pump


def state_of(pumps: Mapping[str, Pump], translator: Translator, worker: int, clock: Clock) -> WorkerState:
    """What this process is at now, by any thread. `pumps` by their groups, the app's own first."""
    now = clock.now()
    seen = [inspect(group, pump.engine, translator, now) for group, pump in pumps.items()]
    health = health_of(next(iter(pumps.values())), clock)
    return WorkerState(
        worker=worker,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        now_ms=int(now.wall_ms),
        step_age_s=health.step_age_s,
        is_ready=health.is_ready,
        why=health.why,
        listeners=tuple(each for group in seen for each in group.listeners),
        partitions=tuple(each for group in seen for each in group.partitions),
    )


class WorkerStates:
    """What workers answered that were asked for their state; the last answer of each. All methods: any thread."""

    def __init__(self) -> None:
        self._said: dict[int, Answer] = {}
        self._heard = threading.Condition()

    def told(self, worker: int, answer: Answer) -> None:
        """A worker answered; without a state nothing changes."""
        if answer.state is not None:
            with self._heard:
                self._said[worker] = answer
                self._heard.notify_all()

    def ended(self, worker: int) -> None:
        """A worker's process ended: what it said is of no use any more."""
        with self._heard:
            self._said.pop(worker, None)

    def since(
        self, serial: int, timeout_s: float, *, expected: Callable[[], Collection[int]]
    ) -> Mapping[int, WorkerState]:
        """The states of those that have answered this question or a later one; waits for all that are `expected` to."""
        with self._heard:
            self._heard.wait_for(lambda: self._answered(serial).keys() >= set(expected()), timeout_s)
            return self._answered(serial)

    def _answered(self, serial: int) -> dict[int, WorkerState]:
        return {
            worker: answer.state
            for worker, answer in sorted(self._said.items())
            if answer.serial >= serial and answer.state is not None
        }
