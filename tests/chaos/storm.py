"""
Faults at random: processes killed, frozen and replaced, brokers killed, the network cut, held and slow, topics altered.

Each fault is a generator that does something, gives the seconds after which it wants to go on, and leaves all as it was. Several
go on at once, but one broker at a time: the next one only when each partition has all its copies again.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.broker.cluster import BROKERS, Cluster
from tests.chaos.faults import AFTER_MS, Fault
from tests.chaos.proxy import Proxies
from tests.chaos.shop import Shop, Worker
from tests.plain_kafka import admin_of

Steps = Generator[float, None, None]

_TICK_S = 0.05
#: The longest one is a restart of a broker on a busy machine, or of all workers while a network is held.
_OVER_WITHIN_S = 300.0
#: Within the group's session, and beyond it.
_STOPPED_S = ((0.3, 4.0), (7.0, 12.0))
#: A crash is a record's own doing, and comes when that is run.
_DEALT = AFTER_MS.keys() - {"crash"}
#: Settings of topics that anybody may change while all goes on.
_CHANGES = (
    {"retention.ms": "86400000"},
    {"retention.ms": "604800000"},
    {"max.message.bytes": "1048588"},
    {"max.message.bytes": "2097164"},
    {"segment.ms": "60000"},
    {"segment.ms": "604800000"},
)


@dataclass
class Doing:
    """A fault that goes on."""

    kind: str
    whom: str
    steps: Steps
    pid: int = 0
    began_ms: float = 0.0
    due_s: float = 0.0


class Storm:
    """
    What happens to a shop on a cluster behind proxies, decided by `seed`. `faults`: what has ended. `ended`: workers that ended by
    themselves otherwise than by the record that kills: there must be none. `loses_answers`: brokers' answers get lost, too.
    """

    def __init__(
        self, shop: Shop, cluster: Cluster, proxies: Proxies, seed: int, *, loses_answers: bool = True
    ) -> None:
        self.faults: list[Fault] = []
        self.ended: list[str] = []
        self.doing: list[Doing] = []
        self._shop, self._cluster, self._proxies = shop, cluster, proxies
        self._dice = random.Random(seed)
        self._loses_answers = loses_answers
        #: When each worker was seen alive the last time.
        self._alive_ms: dict[str, float] = {}
        self._deck: list[Callable[[], Doing | None]] = []

    def counts(self) -> Counter[str]:
        return Counter(fault.kind for fault in (*self.faults, *self.doing))

    def rage(self, seconds: float, pause_s: tuple[float, float], told: Callable[[float], object]) -> None:
        """
        Begin a fault after each pause, for so long, and longer where one of those that cost something hasn't come yet; then wait
        until all of them are over.
        """
        end_s = time.monotonic() + seconds
        next_s = time.monotonic() + self._dice.uniform(*pause_s)
        while (now_s := time.monotonic()) < end_s or self._still_to_come() or self.doing:
            if next_s <= now_s and (now_s < end_s or self._still_to_come()):
                next_s = now_s + self._dice.uniform(*pause_s)
                self._begin_any()
            self.look_after()
            told(end_s - now_s)
            assert now_s < end_s + _OVER_WITHIN_S, (
                f"these faults don't end: {self.doing}, or come: {self._still_to_come()}"
            )
            time.sleep(_TICK_S)

    def _still_to_come(self) -> set[str]:
        dealt = _DEALT if self._loses_answers else _DEALT - {"mute"}
        return dealt - self.counts().keys()

    def look_after(self) -> None:
        """Go on with what goes on, and start workers again that ended by themselves."""
        for worker in self._shop.workers:
            if worker.exit_code is None:
                self._alive_ms[worker.name] = time.time() * 1000
            elif not worker.is_taken:
                # Who looks seldom, as while all is read back, sees it late.
                self._begin(self._ended(worker), self._alive_ms.get(worker.name, 0.0))
        for doing in list(self.doing):
            if time.monotonic() >= doing.due_s:
                self._go_on(doing)

    def _begin_any(self) -> None:
        """Each kind once before any comes again; one that can't be done now is put back."""
        if not self._deck:
            self._deck = list(self._kinds())
            self._dice.shuffle(self._deck)
        for kind in list(self._deck):
            if (doing := kind()) is not None:
                self._deck.remove(kind)
                self._begin(doing)
                return

    def _begin(self, doing: Doing, began_ms: float = 0.0) -> None:
        doing.began_ms = began_ms or time.time() * 1000
        self.doing.append(doing)
        self._go_on(doing)

    def _go_on(self, doing: Doing) -> None:
        try:
            doing.due_s = time.monotonic() + next(doing.steps)
        except StopIteration:
            self.doing.remove(doing)
            self.faults.append(Fault(doing.kind, doing.whom, doing.began_ms, time.time() * 1000, doing.pid))

    # -- kinds: None where it can't be done now ---------------------------------------------------------------------

    def _kinds(self) -> Iterable[Callable[[], Doing | None]]:
        yield lambda: self._to_a_worker("kill", self._kill)
        yield lambda: self._to_a_worker("kill", self._kill)
        yield lambda: self._to_a_worker("stop", lambda worker: self._stop(worker, _STOPPED_S[0]))
        yield lambda: self._to_a_worker("stop", lambda worker: self._stop(worker, _STOPPED_S[1]))
        yield self._to_a_broker
        yield lambda: self._to_ways("cut", (0.1, 4.0), self._proxies.cut)
        yield lambda: self._to_ways("hold", (0.5, 9.0), self._proxies.hold)
        if self._loses_answers:
            yield lambda: self._to_ways("mute", (0.5, 6.0), self._proxies.mute)
        yield lambda: self._to_ways("slow", (2.0, 8.0), self._slow)
        yield self._roll
        yield self._alter

    def _to_a_worker(self, kind: str, steps_of: Callable[[Worker], Steps]) -> Doing | None:
        free = [worker for worker in self._shop.workers if not worker.is_taken and worker.exit_code is None]
        if not free:
            return None
        worker = self._dice.choice(free)
        return Doing(kind, worker.name, steps_of(worker), worker.pid)

    def _kill(self, worker: Worker) -> Steps:
        with _taken(worker):
            worker.kill()
            yield self._dice.uniform(0.0, 3.0)
            worker.start(awaits="")

    def _stop(self, worker: Worker, seconds: tuple[float, float]) -> Steps:
        with _taken(worker):
            worker.signal(signal.SIGSTOP)
            yield self._dice.uniform(*seconds)
            worker.signal(signal.SIGCONT)

    def _ended(self, worker: Worker) -> Doing:
        def steps() -> Steps:
            with _taken(worker):
                yield self._dice.uniform(0.0, 1.0)
                worker.start(awaits="")

        self._judge_end(worker, expected=-signal.SIGKILL)
        return Doing("crash", worker.name, steps(), worker.pid)

    def _judge_end(self, worker: Worker, expected: int) -> None:
        if worker.exit_code != expected:
            self.ended.append(
                f"{worker.name} ended with {worker.exit_code}, not {expected}: {worker.said()[-2000:]}"
            )

    def _to_a_broker(self) -> Doing | None:
        if any(doing.kind == "broker" for doing in self.doing) or not self._cluster.is_whole():
            return None
        broker = self._dice.choice(self._cluster.brokers)

        def steps() -> Steps:
            broker.kill()
            yield self._dice.uniform(0.0, 4.0)
            broker.launch()
            yield 1.0
            while not self._cluster.is_whole():
                yield 0.3

        return Doing("broker", f"broker-{1 + self._cluster.brokers.index(broker)}", steps())

    def _to_ways(
        self, kind: str, seconds: tuple[float, float], do: Callable[[list[int]], object]
    ) -> Doing | None:
        """To one of the ways, or to all of them."""
        if any(doing.kind in ("cut", "hold", "mute", "slow") for doing in self.doing):
            return None
        ways = list(range(BROKERS)) if self._dice.random() < 0.3 else [self._dice.randrange(BROKERS)]

        def steps() -> Steps:
            do(ways)
            yield self._dice.uniform(*seconds)
            if kind == "mute":  # what wasn't answered never is
                self._proxies.cut(ways)
            self._proxies.restore(ways)

        return Doing(kind, "network of " + ", ".join(f"broker-{1 + way}" for way in ways), steps())

    def _slow(self, ways: list[int]) -> None:
        self._proxies.slow(ways, self._dice.uniform(0.01, 0.2))

    def _roll(self) -> Doing | None:
        def steps() -> Steps:
            for worker in self._shop.workers:
                # One that hasn't said a word yet hasn't learned either how to end in order.
                if worker.is_taken or worker.exit_code is not None or not worker.said():
                    continue
                with _taken(worker):
                    worker.signal(signal.SIGTERM)
                    while worker.exit_code is None:
                        yield 0.1
                    if worker.exit_code == -signal.SIGKILL:  # by a record, in the last moment: see look_after
                        continue
                    self._judge_end(worker, expected=0)
                    worker.start(awaits="")
                    while worker.exit_code is None and "assigned" not in worker.said():
                        yield 0.1

        return (
            None if any(doing.kind == "roll" for doing in self.doing) else Doing("roll", "workers", steps())
        )

    def _alter(self) -> Doing:
        topic = self._dice.choice(
            [*self._shop.sources, *self._shop.tiers, *(f"{one}.dlq" for one in self._shop.sources)]
        )
        change = self._dice.choice(_CHANGES)

        def steps() -> Steps:
            entries = [
                ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                for name, value in change.items()
            ]
            resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
            asked = admin_of(self._cluster.direct).incremental_alter_configs([resource])
            while not all(future.done() for future in asked.values()):
                yield 0.1

        return Doing("alter", f"{topic} {change}", steps())


@contextmanager
def _taken(worker: Worker) -> Iterator[None]:
    worker.is_taken = True
    try:
        yield
    finally:
        worker.is_taken = False
