"""What happens in the demo, act by act. Everything is done as a user of redrive does it; only the orders are made up."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_log import KafkaLog
from redrive.adapters.kafka_settings import client_conf
from redrive.adapters.kafka_tail import KafkaTail
from redrive.app import App
from redrive.core.record import TopicPartition
from redrive.core.units import parse_duration_ms
from redrive.deadletters.replay import Desk, Job, Report
from redrive.deadletters.selection import Selection, make_plan
from redrive.deadletters.states import Author, StateBook
from redrive.deadletters.summary import list_letters
from redrive.deadletters.topics import Names, open_dlqs
from redrive.demo.cluster import PARTITIONS, Playground
from redrive.demo.ledger import Ledger, Move, Place
from redrive.demo.orders import COUNT, PER_S, Trouble, fate, order, value_of
from redrive.demo.service import TIERS, make_app
from redrive.demo.summary import OPEN, Facts, FinalLetter, Summary, summarize
from redrive.errors import PortError
from redrive.runtime.clock import Clock

REPLAYS_PER_S = 2.0
#: Far more than anything here takes; what is not over by then shows in the counts.
_PATIENCE_S = 60.0

#: The first act: from which second on what is told.
_OPENING = (
    (0, "Orders come in, ten a second.", "Most are handled at the first attempt. Some meet a gateway that hangs up."),
    (4, "A failed order climbs the ladder: again in 1 s, 3 s, 8 s.", "It waits in a retry topic, out of the way: no other order waits for it."),
    (9, "What can't succeed is not retried.", "Gift cards hit a bug, and some bytes are no order: dead letters at once."),
    (14, "Northbank gives no answer at all.", "When its orders have been through all tiers, they are dead letters too."),
)  # fmt: skip


class Stage(Protocol):
    """What the audience sees. Called by several threads."""

    def open(self, title: str, ledger: Ledger) -> None:
        """Before all else: where it runs, and where the numbers are."""
        ...

    def scene(self, act: int, headline: str, detail: str) -> None:
        """What is going on now; acts count from 1."""
        ...

    def move(self, move: Move) -> None:
        """An order made a step."""
        ...


class Story:
    """One performance. `play` once; `summary` at any time, also after an interruption."""

    def __init__(self, playground: Playground, stage: Stage, clock: Clock) -> None:
        naming, self._topic, self._group = playground.settings.naming, playground.topic, playground.group
        tiers = {
            naming.tier(self._topic, group=self._group, delay_ms=parse_duration_ms(delay), index=index): delay
            for index, delay in enumerate(TIERS)
        }
        self._dlq = naming.dlq(self._topic, group=self._group)
        self.ledger = Ledger(clock, tiers, self._dlq, stage.move)
        self._playground, self._stage, self._clock = playground, stage, clock
        self._stop = threading.Event()
        self._jobs: list[Future[None]] = []
        self._report: Report | None = None
        self._final: Sequence[FinalLetter] | None = None
        stage.open(playground.title, self.ledger)

    async def play(self) -> None:
        """All four acts. Raises RedriveError when Kafka or the service fails."""
        self._stage.scene(
            1, "The service starts.", f"It has one listener, with retries after {', '.join(TIERS)}."
        )
        await asyncio.to_thread(self._playground.provide, self._app(release=1))
        user = self._playground.settings.client_options(self._group)
        keys = [TopicPartition(topic, number) for topic in self.ledger.topics for number in range(PARTITIONS)]
        log, tail = KafkaLog(user), KafkaTail(user, keys)
        desk = Desk(KafkaCluster(client_conf(user)), log, self._clock)
        with contextlib.closing(log), contextlib.closing(tail), self._threads() as start:
            async with self._running(release=1):
                start(lambda: self._follow(tail))
                start(lambda: self._feed(log))
                await self._fail()
            async with self._running(release=2):
                await self._fix()
                await self._replay(desk, start)
                await self._prove(desk)

    def summary(self, *, is_whole: bool = True) -> Summary:
        """What has become of all orders so far; without `is_whole` some may be under way."""
        places, letters = self.ledger.places(), self.ledger.letters()
        seen = [
            FinalLetter(one.order_id, one.reason, OPEN if places[one.order_id] is Place.DEAD else "replayed")
            for one in letters
        ]
        return summarize(
            Facts(
                sent=frozenset(places),
                successes=self.ledger.successes(),
                letters=tuple(seen if self._final is None else self._final),
                retries={tier: self.ledger.retries[tier] for tier in TIERS},
                late_ms=tuple(self.ledger.late_ms),
                replay=self._report,
                is_whole=is_whole,
            )
        )

    # -- the acts --------------------------------------------------------------------------------------------------

    async def _fail(self) -> None:
        ends_s = [*(begin_s for begin_s, _, _ in _OPENING[1:]), 0]
        for end_s, (_, headline, detail) in zip(ends_s, _OPENING, strict=True):
            self._stage.scene(1, headline, detail)
            await self._pass(end_s - self.ledger.elapsed_s())
        await self._until(self._are_slow_ones_dead)
        await self._pass(1)
        self._stage.scene(
            2,
            "The fix is deployed: release 1 stops.",
            "What waits in a tier stays in Kafka, and keeps its time.",
        )
        await self._pass(2)

    async def _fix(self) -> None:
        self._stage.scene(2, "Release 2 runs.", "It knows gift cards, and Northbank's new address.")
        await self._pass(3)

    async def _replay(self, desk: Desk, start: "_Start") -> None:
        book = await asyncio.to_thread(self._book, desk)
        plan = await asyncio.to_thread(make_plan, Selection(everything=True), [book], desk.log, kind="replay")
        left = sum(plan.left_out.values())
        self._stage.scene(
            3,
            f"{plan.selected} dead letters are replayed, two a second.",
            f"They go back to this group only, by its first tier; {left} that are poison stay.",
        )
        job = Job(desk, plan, [book], Author("redrive demo", "demo"), self._stop)

        def run() -> None:
            self._report = job.replay(per_s=REPLAYS_PER_S)

        await self._until(start(run).done)

    async def _prove(self, desk: Desk) -> None:
        self._stage.scene(
            4, "The last orders come in.", "Then every single one is looked up: where did it end?"
        )
        await self._until(self._is_over)
        self._final = await asyncio.to_thread(self._letters, desk)
        now = self.summary()
        proof = "Every order is in one place, and in one only." if now.adds_up else "The counts don't add up."
        self._stage.scene(
            4, proof, f"{now.sent} sent = {now.handled} handled + {now.left} left as dead letters."
        )
        await self._pass(5)

    def _are_slow_ones_dead(self) -> bool:
        places = self.ledger.places()
        slow = (order(number).id for number in range(1, COUNT + 1) if fate(number).trouble is Trouble.SLOW)
        return all(places.get(order_id) is Place.DEAD for order_id in slow)

    def _is_over(self) -> bool:
        view = self.ledger.view()
        done = self._report.done if self._report else 0
        return view.sent == COUNT and self.ledger.is_settled() and len(view.replay_handled) >= done

    def _book(self, desk: Desk) -> StateBook:
        """The dead letters there are by now, with their states."""
        names = Names((self._playground.settings.naming,), self._group)
        [dlq] = open_dlqs(desk.cluster, [self._dlq], names)
        book = StateBook(desk.cluster, desk.log, desk.clock, dlq)
        book.read()
        return book

    def _letters(self, desk: Desk) -> list[FinalLetter]:
        order_ids = {letter.position: letter.order_id for letter in self.ledger.letters()}
        return [
            FinalLetter(
                order_ids.get(one.position[1:], str(one.position)),  # nobody's: the counts will tell
                one.seen.reason,
                one.mark.shown if one.mark else OPEN,
            )
            for one in list_letters(Selection(everything=True), [self._book(desk)], desk.log)
        ]

    # -- what goes on beside ---------------------------------------------------------------------------------------

    def _app(self, release: int) -> App:
        settings = self._playground.settings
        return make_app(
            self._group, self._topic, release, self.ledger.watch, settings=settings, clock=self._clock
        )

    @contextlib.asynccontextmanager
    async def _running(self, release: int) -> AsyncGenerator[None, None]:
        async with self._app(release).serving() as service:
            self._ended = asyncio.ensure_future(service.stopped())
            try:
                yield
            finally:
                self._ended.cancel()

    @contextlib.contextmanager
    def _threads(self) -> Generator["_Start", None, None]:
        """Gives what starts work in a thread; all of it is stopped at the end, and waited for."""
        with ThreadPoolExecutor(thread_name_prefix="redrive-demo") as pool:

            def start(work: Callable[[], None]) -> Future[None]:
                self._jobs.append(pool.submit(work))
                return self._jobs[-1]

            try:
                yield start
            finally:
                self._stop.set()

    def _feed(self, log: KafkaLog) -> None:
        began_ms = self._clock.mono_ms()
        for number in range(1, COUNT + 1):
            wait_ms = began_ms + (number - 1) * 1000 / PER_S - self._clock.mono_ms()
            if self._clock.wait(self._stop, max(0.0, wait_ms)):
                return
            sent = order(number)
            self.ledger.sent(sent)
            try:
                log.write(self._topic, sent.id.encode(), value_of(number), [])
            except PortError as error:
                raise PortError(
                    f"{sent.id} can't be written to {self._topic}: {error}. Is Kafka still there?",
                    retriable=error.retriable,
                ) from error

    def _follow(self, tail: KafkaTail) -> None:
        while not self._stop.is_set():
            for record in tail.read(0.1):
                self.ledger.saw(record)

    async def _until(self, is_so: Callable[[], bool], at_most_s: float = _PATIENCE_S) -> None:
        """Wait. Raises what ended the service, or one of the threads."""
        until_s = self.ledger.elapsed_s() + at_most_s
        while not is_so() and self.ledger.elapsed_s() < until_s:
            await asyncio.wait([self._ended], timeout=0.05)
            if self._ended.done():
                self._ended.result()
                raise PortError("the service ended by itself", retriable=False)
            for job in self._jobs:
                if job.done():
                    job.result()

    async def _pass(self, seconds: float) -> None:
        await self._until(lambda: False, seconds)


_Start = Callable[[Callable[[], None]], Future[None]]
