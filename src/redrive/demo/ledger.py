"""
What becomes of each order of the demo: told by the handler as it runs, and by what is seen on Kafka's topics.

Both come in by different threads and in any order. A record moves in one direction only, so each piece of news has a
rank, and news of lower rank than what is known changes nothing.
"""

import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum
from typing import Literal, NamedTuple

from redrive.core.dialects import read_envelope
from redrive.core.envelope import Envelope
from redrive.core.record import RawRecord, Record
from redrive.core.router import Reason
from redrive.demo.orders import Order
from redrive.runtime.clock import Clock

MoveKind = Literal["retried", "dead", "replayed", "handled"]


class Move(NamedTuple):
    """One step of one order, as it is shown. `after_s`: since the demo began."""

    after_s: float
    kind: MoveKind
    order: Order
    text: str


class Place(StrEnum):
    """Where an order is."""

    UNDER_WAY = "under way"
    WAITING = "waiting"
    DEAD = "dead"
    HANDLED = "handled"


class Success(NamedTuple):
    """A run of the handler that went well."""

    attempt: int
    is_replay: bool


class Waiting(NamedTuple):
    """An order that waits in a tier until it is due, epoch ms."""

    order: Order
    tier: str
    due_ms: int
    is_replay: bool


class Letter(NamedTuple):
    """A dead letter, as it was seen on its topic. `position`: partition and offset."""

    order_id: str
    position: tuple[int, int]
    reason: str
    failure: str
    attempts: int


_Rank = tuple[bool, int, int]


class _Account:
    """One order. `rank`: replayed or not, runs so far, and whether the copy that follows the last run was seen."""

    __slots__ = ("order", "place", "rank", "successes", "waiting")

    def __init__(self, order: Order) -> None:
        self.order = order
        self.place = Place.UNDER_WAY
        self.rank: _Rank = (False, 0, 0)
        self.waiting: Waiting | None = None
        self.successes: list[Success] = []

    def move(self, rank: _Rank, place: Place, waiting: Waiting | None = None) -> None:
        if rank >= self.rank and self.place is not Place.HANDLED:
            self.rank, self.place, self.waiting = rank, place, waiting


class View(NamedTuple):
    """All that the screen shows, at one instant."""

    sent: int
    at_once: int
    after_retries: int
    after_replay: int
    waiting: list[Waiting]
    letters: list[Letter]
    #: Orders of letters that were sent again, and those of them that were handled since.
    replayed: frozenset[str]
    replay_handled: frozenset[str]

    @property
    def handled(self) -> int:
        """Orders that were handled, whenever."""
        return self.at_once + self.after_retries + self.after_replay


class Ledger:
    """
    One account an order. Any thread. `tell` gets each move that is worth a line; orders that go well at once are not.

    `tiers`: the delay of each tier's topic, as it is shown; `dlq`: the dead-letter topic.
    """

    def __init__(self, clock: Clock, tiers: dict[str, str], dlq: str, tell: Callable[[Move], None]) -> None:
        self.late_ms: list[float] = []
        self.retries: Counter[str] = Counter()
        self._clock = clock
        self._began_ms = clock.mono_ms()
        self._tiers, self._dlq, self._tell = tiers, dlq, tell
        self._accounts: dict[str, _Account] = {}
        self._letters: list[Letter] = []
        self._replayed: set[str] = set()
        self._lock = threading.RLock()

    @property
    def topics(self) -> tuple[str, ...]:
        """What has to be looked at for `saw`."""
        return (*self._tiers, self._dlq)

    def elapsed_s(self) -> float:
        """Since the demo began."""
        return (self._clock.mono_ms() - self._began_ms) / 1000

    # -- news ------------------------------------------------------------------------------------------------------

    def sent(self, order: Order) -> None:
        """An order is about to be written to the source topic."""
        with self._lock:
            self._accounts[order.id] = _Account(order)

    @contextmanager
    def watch(self, record: Record) -> Generator[None]:
        """Round a run of the handler."""
        order_id = (record.key or b"").decode()
        late_ms = self._clock.wall_ms() - (record.due_ms or 0)
        if record.attempt > 1:
            self.late_ms.append(late_ms)
        rank = (record.is_replay, record.attempt, 0)
        try:
            yield
        except Exception:
            with self._lock:
                self._accounts[order_id].move(rank, Place.UNDER_WAY)
            raise
        self._succeeded(order_id, record, rank, late_ms)

    def _succeeded(self, order_id: str, record: Record, rank: _Rank, late_ms: float) -> None:
        with self._lock:
            account = self._accounts[order_id]
            account.move(rank, Place.HANDLED)
            account.successes.append(Success(record.attempt, record.is_replay))
            if record.is_replay:
                self._was_replayed(account, self._tiers[record.position[0]])
                self._say("handled", account, "handled, back from the dead letters")
            elif record.attempt > 1:
                self._say(
                    "handled",
                    account,
                    f"handled at attempt {record.attempt}, {late_ms:.1f} ms after its due time",
                )

    def saw(self, record: RawRecord) -> None:
        """A record was seen on a tier or the dead-letter topic."""
        envelope = read_envelope(record.headers())[0]
        with self._lock:
            account = self._accounts[(record.key() or b"").decode()]
            is_replay = bool(envelope.replay_id)
            rank = (is_replay, envelope.attempt, 1)
            if record.topic() == self._dlq:
                account.move(rank, Place.DEAD)
                self._put_aside(account, record, envelope)
                return
            tier = self._tiers[record.topic()]
            waiting = Waiting(account.order, tier, envelope.due_ms or 0, is_replay)
            account.move(rank, Place.WAITING, waiting)
            if is_replay and not envelope.attempt:
                self._was_replayed(account, tier)
            else:
                self.retries[tier] += 1
                self._say("retried", account, f"{_failure(envelope)}; again in {tier}")

    def _was_replayed(self, account: _Account, tier: str) -> None:
        """Told once: a replay is due at once, so its handler is often quicker than who watches the tier."""
        if account.order.id not in self._replayed:
            self._replayed.add(account.order.id)
            self._say("replayed", account, f"replayed by way of the tier {tier}, due at once")

    def _put_aside(self, account: _Account, record: RawRecord, envelope: Envelope) -> None:
        where = (record.partition(), record.offset())
        letter = Letter(account.order.id, where, envelope.reason, _failure(envelope), envelope.attempt)
        self._letters.append(letter)
        why: dict[str, str] = {
            Reason.POISON: "bytes that are no order; dead letter, byte for byte",
            Reason.EXHAUSTED: f"{_failure(envelope)}; {envelope.attempt} attempts: dead letter",
        }
        self._say(
            "dead", account, why.get(envelope.reason, f"{_failure(envelope)}; a bug, dead letter at once")
        )

    def _say(self, kind: MoveKind, account: _Account, text: str) -> None:
        self._tell(Move(self.elapsed_s(), kind, account.order, text))

    # -- questions -------------------------------------------------------------------------------------------------

    def is_settled(self) -> bool:
        """Whether every order that was sent is handled or a dead letter."""
        with self._lock:
            return all(one.place in {Place.HANDLED, Place.DEAD} for one in self._accounts.values())

    def places(self) -> dict[str, Place]:
        """Where each order is."""
        with self._lock:
            return {order_id: account.place for order_id, account in self._accounts.items()}

    def successes(self) -> dict[str, tuple[Success, ...]]:
        """The runs of each order that went well: one, where nothing goes wrong."""
        with self._lock:
            return {order_id: tuple(account.successes) for order_id, account in self._accounts.items()}

    def letters(self) -> list[Letter]:
        """All dead letters seen so far, oldest first."""
        with self._lock:
            return list(self._letters)

    def view(self) -> View:
        """All at once, for the screen."""
        with self._lock:
            first = [account.successes[0] for account in self._accounts.values() if account.successes]
            after_replay = frozenset(
                order_id
                for order_id, one in self._accounts.items()
                if any(run.is_replay for run in one.successes)
            )
            return View(
                sent=len(self._accounts),
                at_once=sum(run.attempt == 1 and not run.is_replay for run in first),
                after_retries=sum(run.attempt > 1 and not run.is_replay for run in first),
                after_replay=len(after_replay),
                waiting=[one.waiting for one in self._accounts.values() if one.waiting is not None],
                letters=list(self._letters),
                replayed=frozenset(self._replayed),
                replay_handled=after_replay,
            )


def _failure(envelope: Envelope) -> str:
    """The exception as Python prints it, without its module."""
    name = envelope.failure_type.rpartition(".")[2]
    return f"{name}: {envelope.failure_message}" if envelope.failure_message else name
