"""The processes of one app under test."""

from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from redrive.core.commands import Report
from redrive.core.plan import GroupPlan
from redrive.core.settings import Settings
from redrive.runtime.declaration import ResolvedApp
from redrive.runtime.letters import begin_at_end, letter_app
from redrive.sim.cluster import SimCluster
from redrive.sim.loop import VirtualLoop
from redrive.testing.process import STEP_MOST_MS, Process, let_pass, settle


class Worker(NamedTuple):
    """One process. `groups`: what it is in the app's group, and in that of its handlers of dead letters where it has some."""

    number: int
    groups: tuple[Process, ...]


class Workers:
    """
    The processes of one app on a simulated cluster, all in the test's own thread. A `place` is one among those that run, the
    oldest first; ValueError where there is none.

    `make_app` gives what the process of that number runs; `plan` and `letter_plan` are those of its groups.
    """

    def __init__(
        self,
        make_app: Callable[[int], ResolvedApp],
        plan: GroupPlan,
        letter_plan: GroupPlan,
        settings: Settings,
        cluster: SimCluster,
    ) -> None:
        self._make_app, self._plan, self._letter_plan = make_app, plan, letter_plan
        self._settings, self._cluster = settings, cluster
        self._loop = VirtualLoop(cluster.clock)
        self._is_at_work = False
        self._earlier_reports: list[Report] = []
        #: Those that run.
        self.running: list[Worker] = []
        #: Those that the brokers hear nothing of.
        self.unheard: list[Worker] = []
        #: Whether one is being killed: what its handlers do about that isn't done by a process that was.
        self.is_killing = False

    @property
    def reports(self) -> list[Report]:
        """What all of them told their operator, those that have ended first."""
        living = [*self.running, *self.unheard]
        return self._earlier_reports + [one for each in _groups(living) for one in each.reports]

    # -- what happens to them ------------------------------------------------------------------------------------

    def start(self) -> None:
        """A process starts, and joins its group. It has the lowest number that is free. Raises what its lifespan raises."""
        taken = {worker.number for worker in (*self.running, *self.unheard)}
        number = next(each for each in count() if each not in taken)
        app = self._make_app(number)
        main = Process(app, self._plan, self._settings, self._cluster, self._loop, name=str(number))
        groups: tuple[Process, ...] = (main,)
        if app.on_dead_letter:
            beside, plan = letter_app(app), self._letter_plan
            begin_at_end(self._cluster.admin(), beside, plan, self._cluster.counts)
            letters = Process(
                beside, plan, self._settings, self._cluster, self._loop, resources=main.resources
            )
            groups = (main, letters)
        self.running.append(Worker(number, groups))
        self.settle()

    def stop(self, place: int = 0) -> None:
        """A process ends in order: its handlers finish, what is done is committed."""
        self._end(place, Process.stop)

    def kill(self, place: int = 0) -> None:
        """A process ends as by `kill -9`. Its group notices at once."""
        self.is_killing = True
        try:
            self._end(place, Process.kill)
        finally:
            self.is_killing = False

    def lose(self, place: int = 0) -> None:
        """The group gives a process up that lives: it hears of that when it polls next, and joins again."""
        self._require(place)
        for process in self.running[place].groups:
            self._cluster.expel(process.source)

    def cut_off(self, place: int = 0) -> None:
        """
        The brokers hear nothing of a process, nor it of them. After 45 s its group gives it up; what its handlers are at
        goes on.
        """
        self._require(place)
        worker = self.running.pop(place)
        for process in worker.groups:
            self._cluster.kill(process.source)
        self.unheard.append(worker)

    def reconnect(self) -> None:
        """All processes that were cut off are heard of again."""
        for process in _groups(self.unheard):
            if (member := process.source.member) is not None:
                member.killed_mono_ms = None
        self.running += self.unheard
        self.unheard = []

    def close(self, *, in_order: bool = True) -> None:
        """All of them end; none is left. Calling it twice is harmless."""
        self.reconnect()
        try:
            while self.running:
                if in_order:
                    self.stop()
                else:
                    self.kill()
        finally:
            self._loop.close()

    # -- time ----------------------------------------------------------------------------------------------------

    def settle(self) -> bool:
        """Let them do all that can be done at this instant. Whether anything was."""
        if self._is_at_work:  # a handler sends: what it sent is read when it has ended
            return False
        self._is_at_work = True
        try:
            return settle(*_groups(self.running))
        finally:
            self._is_at_work = False

    def advance(self, ms: float, *, step_most_ms: float = STEP_MOST_MS) -> None:
        """
        Let time pass, and them do what becomes due in it, each thing at its time; but commits and back-off, whose time only
        they know, within `step_most_ms`.
        """
        let_pass(ms, self._cluster.clock, lambda: _groups(self.running), self.settle, step_most_ms)

    def known_waits_ms(self) -> list[float]:
        """After how long something is due of which the time is known: a record, and what a coroutine sleeps for."""
        timer_ms = self._loop.idle_for_ms
        dues_ms = [
            process.engine.next_wake_ms - self._cluster.clock.wall_ms() for process in _groups(self.running)
        ]
        return dues_ms if timer_ms is None else [*dues_ms, timer_ms]

    def _require(self, place: int) -> None:
        """Raises ValueError where no process is at that place."""
        if not isinstance(place, int) or not 0 <= place < len(self.running):
            raise ValueError(
                f"no process is at place {place!r}: {len(self.running)} run, and 0 is the oldest one's place"
            )

    def _end(self, place: int, how: Callable[[Process], None]) -> None:
        """That process is no more. The app's lifespan ends last."""
        self._require(place)
        worker = self.running.pop(place)
        try:
            for process in reversed(worker.groups):
                how(process)
        finally:
            self._earlier_reports += [report for process in worker.groups for report in process.reports]


def _groups(workers: list[Worker]) -> list[Process]:
    return [process for worker in workers for process in worker.groups]
