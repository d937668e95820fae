"""Processes whose records wait for the failing ones of their key, and the history of what they did."""

import asyncio
from itertools import count

import msgspec

from redrive import App, Record, RetryPolicy
from redrive.core.dialects import read_envelope
from tests.chaos.faults import of_kills
from tests.chaos.key_order import BEGAN, FAILED, HANDLED, Letter, Sent, Step, Verdict, judge
from tests.sim.fleet import Away, Fleet

MOST_ATTEMPTS = 3
GARBAGE = b"\xff"


class Task(msgspec.Struct):
    """A record's value: how many runs of it fail, and how long each one takes."""

    fails: int = 0
    takes_s: float = 0.0


class OrderedFleet:
    """
    A fleet of one listener with `blocking="key"`; where it `parks`, the second wait of a record is in the parked topic. The history's times are numbers of steps, since in the simulator much
    happens at one instant; what begins before its due is told by `early`.
    """

    def __init__(
        self, *, partitions: int, seed: int | None, is_async: bool, concurrency: int, parks: bool = False
    ) -> None:
        self._parks = parks
        self.steps: list[Step] = []
        self.kills: dict[int, float] = {}
        self.early: list[str] = []
        self._moments = count(1)
        self._is_async, self._concurrency = is_async, concurrency
        self.fleet = Fleet(partitions=partitions, seed=seed, app=self._app())
        self.numbers: list[int] = []
        self._started = count(1)

    def _app(self) -> App:
        app = App("shop")
        policy = RetryPolicy(
            "5s",
            "30s",
            blocking="key",
            max_attempts=MOST_ATTEMPTS,
            park=self._parks,
            hold_at_most="10s" if self._parks else "5m",
        )
        listener = app.listener(
            "orders", name="work", retry=policy, order="key", concurrency=self._concurrency
        )

        async def work(task: Task, record: Record) -> None:
            self._note(record, BEGAN)
            await asyncio.sleep(task.takes_s)
            self._end(task, record)

        def work_at_once(task: Task, record: Record) -> None:
            self._note(record, BEGAN)
            self._end(task, record)

        listener(work if self._is_async else work_at_once)
        return app

    def _end(self, task: Task, record: Record) -> None:
        if record.attempt <= task.fails:
            self._note(record, FAILED)
            raise Away
        self._note(record, HANDLED)

    def _note(self, record: Record, what: str) -> None:
        step = Step(record.event_id, record.attempt, what, record.resources, next(self._moments))
        self.steps.append(step)
        if what == BEGAN and record.due_ms is not None and self.fleet.clock.wall_ms() < record.due_ms:
            self.early.append(f"{step} before {record.due_ms}")

    # -- what happens --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.fleet.start()
        self.numbers.append(next(self._started))

    def stop(self, index: int) -> None:
        self.fleet.stop(index)
        self.numbers.pop(index)

    def kill(self, index: int) -> None:
        self.kills[self.numbers.pop(index)] = next(self._moments)
        self.fleet.kill(index)

    def send(self, key: int, fails: int = 0, takes_s: float = 0.0) -> None:
        value = msgspec.json.encode(Task(fails, takes_s))
        self.fleet.cluster.append("orders", value, key=b"key-%d" % key)

    def send_garbage(self, key: int) -> None:
        self.fleet.cluster.append("orders", GARBAGE, key=b"key-%d" % key)

    # -- what became of it ---------------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        sent, poison = [], set()
        for record in self.fleet.cluster.records("orders"):
            name = f"orders/{record.partition()}/{record.offset()}"
            if record.value() == GARBAGE:
                poison.add(name)
                continue
            fails = msgspec.json.decode(record.value(), type=Task).fails
            dies_at = MOST_ATTEMPTS if fails >= MOST_ATTEMPTS else 0
            sent.append(Sent(name, f"{record.partition()} {record.key()}", dies_at))
        letters = []
        for record in self.fleet.cluster.records("orders.dlq"):
            envelope = read_envelope(record.headers())[0]
            letters.append(Letter(envelope.event_id, envelope.reason))
        return judge(sent, self.steps, of_kills(self.kills), letters, poison=frozenset(poison))
