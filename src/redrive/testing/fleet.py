"""Several processes of one app on one simulated cluster, and time for all of them."""

from collections.abc import Callable
from itertools import count

from redrive.app import App
from redrive.core.settings import Settings
from redrive.errors import TopologyError
from redrive.runtime.planning import plan_group, wanted_topics
from redrive.runtime.provisioning import carry_out, compare, with_source_partitions
from redrive.sim.cluster import SimCluster
from redrive.sim.faults import Faults
from redrive.sim.loop import VirtualLoop
from redrive.testing.process import Process, let_pass, settle

#: How often calm time is given to what is left to do.
_CALM_STEPS = 200
_CALM_STEP_MS = 60_000.0


class Fleet:
    """
    Processes of an app, by their numbers, 1 for the first. `seed` decides what may come in any order; `partitions` of
    each source topic. The handlers find the number of their process as `record.resources`.
    """

    def __init__(
        self, app: App, *, partitions: int = 3, seed: int | None = None, settings: Settings | None = None
    ) -> None:
        self.cluster = SimCluster(seed=seed)
        self.clock = self.cluster.clock
        self._app = app.resolve()
        self._settings = settings or Settings(bootstrap_servers="sim:9092")
        wanted = with_source_partitions(
            wanted_topics(self._app, self._settings), {}, missing=partitions, by_source={}
        )
        admin = self.cluster.admin()
        if failed := carry_out(admin, compare(admin, wanted), replication=1):
            raise TopologyError("; ".join(f"{topic}: {why}" for topic, why in failed.items()))
        self.plan = plan_group(self._app, self._settings, self.cluster.topics)
        self._loop = VirtualLoop(self.clock)
        self.processes: dict[int, Process] = {}
        #: Stopped as by SIGSTOP: nothing of them moves.
        self.frozen: set[int] = set()
        #: All that ever lived.
        self.everyone: dict[int, Process] = {}
        self._numbers = count(1)

    # -- processes -----------------------------------------------------------------------------------------------

    def start(self) -> int:
        """One more process. Gives its number."""
        number = next(self._numbers)
        process = Process(
            self._app,
            self.plan,
            self._settings,
            self.cluster,
            self._loop,
            resources=number,
            name=str(number),
        )
        self.processes[number] = self.everyone[number] = process
        return number

    def stop(self, number: int) -> None:
        """End one in order, as by SIGTERM. A frozen one goes on first."""
        self.thaw(number)
        self.processes.pop(number).stop()

    def kill(self, number: int) -> None:
        """End one as by SIGKILL, and let the group know at once."""
        self.frozen.discard(number)
        self.processes.pop(number).kill()

    def lose(self, number: int) -> None:
        """The group gives one up although it lives: it hears of that when it polls next."""
        self.cluster.expel(self.processes[number].source)

    def freeze(self, number: int) -> None:
        """Stop one as by SIGSTOP. After its session has ended its partitions go to others."""
        self.frozen.add(number)
        self.cluster.kill(self.processes[number].source)

    def thaw(self, number: int) -> None:
        """Let a frozen one go on."""
        if number in self.frozen:
            self.frozen.discard(number)
            if (member := self.processes[number].source.member) is not None:
                member.killed_mono_ms = None

    # -- time ----------------------------------------------------------------------------------------------------

    def advance(self, ms: float) -> None:
        """Time passes, and every process does what becomes due in it."""
        let_pass(ms, self.clock, self._moving, lambda: settle(*self._moving()))

    def calm_down(self, is_done: Callable[[], bool]) -> None:
        """All faults are over; time passes until it `is_done`, but not for ever."""
        self.cluster.is_down, self.cluster.faults = False, Faults()
        for number in tuple(self.frozen):
            self.thaw(number)
        if not self.processes:
            self.start()
        for _ in range(_CALM_STEPS):
            self.advance(_CALM_STEP_MS)
            if is_done():
                break

    def close(self) -> None:
        """End what is left at once."""
        for number in tuple(self.processes):
            self.kill(number)
        self._loop.close()

    def _moving(self) -> list[Process]:
        return [process for number, process in self.processes.items() if number not in self.frozen]
