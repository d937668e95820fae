"""
What the runtime needs of the outside, with the obligations of whoever provides it.

Two provide it: `adapters/` on a real cluster, `sim/` in memory. Both pass the same tests (`tests/contract`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from redrive.core.acls import Operation
from redrive.core.commands import Commit, Produce, Refusal, Run, RunResult, Transaction
from redrive.core.doctor.observed import ObservedGroup, Skew
from redrive.core.health import Health
from redrive.core.inspection import WorkerState
from redrive.core.record import RawRecord, TopicPartition
from redrive.core.transactions import Outcome

Fetched = list[tuple[TopicPartition, list[RawRecord]]]
"""Records by partition, ascending within each; a partition may come more than once."""


class Committed(msgspec.Struct, frozen=True):
    """What a group has committed for a partition; `offset` None: nothing."""

    offset: int | None
    metadata: str = ""


class SourceProblem(msgspec.Struct, frozen=True):
    """
    Something that the consumer tells while it is polled.

    `out-of-range`: the wanted offset no longer exists. `unknown-topic`: a subscribed topic is missing. `auth`: the
    cluster refuses us. `unreachable`: no broker answers (told again and again). `fatal`: this consumer is of no use
    any more.
    """

    kind: Literal["out-of-range", "unknown-topic", "auth", "unreachable", "fatal", "other"]
    detail: str
    key: TopicPartition | None = None


class GroupEvents(Protocol):
    """Told by a source from within `poll` and `close`, on the calling thread. They never raise."""

    def on_assigned(self, keys: Sequence[TopicPartition]) -> None:
        """These partitions are ours from now on. Every one of them is started by `start_at` or `keep_waiting`."""
        ...

    def on_revoked(self, keys: Sequence[TopicPartition]) -> None:
        """These partitions go to somebody else when this returns; until then commits for them are still accepted."""
        ...

    def on_lost(self, keys: Sequence[TopicPartition]) -> None:
        """These partitions are no longer ours, perhaps for long. Nothing may be committed for them."""
        ...


class Source(Protocol):
    """
    A member of a consumer group. Every method is called by one thread only, the pump.

    Nothing it does may skip a record by itself: partitions start where `start_at` says, and errors come as problems.

    `membership`: what proves to the group, for a transactor, that what was polled so far is ours. It is of the moment when
    the last `poll` ended: one of a later moment would pass offsets of partitions that have gone to others since.
    """

    membership: Any

    def join(self, topics: Sequence[str], events: GroupEvents) -> None:
        """Subscribe. Returns at once; assignments come from `poll`."""
        ...

    def poll(self, timeout_s: float, most: int) -> Fetched:
        """
        Up to `most` records; waits at most so long for the first and not at all for more. Runs `GroupEvents`.
        """
        ...

    def problems(self) -> list[SourceProblem]:
        """What went wrong since the last call. Never raises."""
        ...

    def committed(
        self, keys: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, Committed]:
        """
        What the group has committed. Partitions for which the broker gave no answer in time are left out: they have
        to be asked again. May be called in `on_assigned`.
        """
        ...

    def start_at(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Begin to fetch assigned partitions at these offsets, None: at their beginning. Lifts any pause."""
        ...

    def keep_waiting(self, keys: Sequence[TopicPartition]) -> None:
        """Accept assigned partitions without fetching them, until `start_at`."""
        ...

    def pause(self, keys: Iterable[TopicPartition]) -> None:
        """Stop fetching. Prefetched records of these partitions are dropped and not delivered later."""
        ...

    def resume(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Fetch again, from these offsets on, without delay; None: from the beginning."""
        ...

    def commit(self, commit: Commit) -> None:
        """Send a commit without waiting. Its answer comes from `commit_answers`, or never."""
        ...

    def commit_answers(self) -> list[tuple[int, dict[TopicPartition, Refusal]]]:
        """
        Snapshot numbers answered since the last call, with the refused partitions and why. One that is refused may spoil
        the answer of all that were sent with it.
        """
        ...

    def commit_now(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> bool:
        """
        Commit and wait for the answer. True when all of it was confirmed. Never raises.

        Usually milliseconds; where the group's coordinator goes away at this very moment, up to 22 s: the client gives
        a synchronous commit no timeout of its own.
        """
        ...

    def close(self) -> None:
        """Leave the group: `on_revoked` runs first. Calling it twice is harmless."""
        ...


class Sink(Protocol):
    """
    Confirmed writes: all in-sync replicas have a record before it counts. Called by the pump only.

    Its memory of what is outstanding is not trusted: after a fatal error everything that has no answer yet is
    answered as refused, though some of it may have been written.

    `problem`: why the producer as a whole failed, until it has confirmed a write since; empty when it didn't. Read by any
    thread.
    """

    problem: str

    def produce(self, produce: Produce) -> None:
        """Send a record. Never raises; every call is answered exactly once."""
        ...

    def answers(self) -> list[tuple[Any, Refusal | None]]:
        """Tokens answered since the last call, None for confirmed ones. Does not wait."""
        ...

    def close(self, timeout_s: float) -> None:
        """Wait for what is on its way, then end. What is left unanswered is not confirmed."""
        ...


class Transactor(Protocol):
    """
    Writes, and the offsets they belong to, in one transaction. Called by the pump only; it waits for nothing.
    """

    @property
    def problem(self) -> str:
        """Why it can't work for now; empty when it can. Read by any thread."""
        ...

    def submit(self, transaction: Transaction, membership: Any) -> None:
        """
        Carry out a transaction, the only one that is on its way. `membership`: what the source gave after it was polled for
        the records that this is about; offsets of partitions that have gone to others since are refused.
        """
        ...

    def outcomes(self) -> list[Outcome]:
        """What became of the transaction, once it is known for certain; each is told once."""
        ...

    def close(self, timeout_s: float) -> None:
        """Wait at most so long for the transaction on its way, then end. What is unknown by then stays unknown."""
        ...


class Executor(Protocol):
    """Runs handlers, in threads, on an event loop, or in the simulator. Called by the pump only."""

    def submit(self, run: Run) -> None:
        """Queue a run in its slot; runs of one slot go one after another. Does not wait."""
        ...

    def results(self, timeout_s: float) -> list[RunResult]:
        """Results since the last call; waits at most so long for the first."""
        ...

    def close(self, timeout_s: float) -> bool:
        """Wait at most so long for the handlers to end. False when some are still running: they are left behind."""
        ...


class TopicInfo(msgspec.Struct, frozen=True):
    """A topic as the cluster shows it. `configs` None and `replication` 0: the cluster doesn't tell."""

    name: str
    partitions: int
    replication: int = 0
    topic_id: str = ""
    configs: Mapping[str, str] | None = None


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to be created, with its configuration."""

    name: str
    partitions: int
    replication: int
    configs: Mapping[str, str]


class Cluster(Protocol):
    """Questions to the cluster and changes of topics. Raises PortError; may wait some seconds. Any thread."""

    def cluster_id(self) -> str:
        """Empty when the cluster doesn't tell."""
        ...

    def describe(
        self, topics: Sequence[str] | None = None, *, configs: bool = False
    ) -> Mapping[str, TopicInfo]:
        """The topics that exist among those asked for, or all. Asking never creates one."""
        ...

    def create(self, topics: Sequence[NewTopic]) -> Mapping[str, str]:
        """Create topics; existing ones are left alone. The answer maps topics that failed to why."""
        ...

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions, up to this many in all."""
        ...

    def offsets(
        self, keys: Sequence[TopicPartition], which: Literal["earliest", "latest"]
    ) -> Mapping[TopicPartition, int]:
        """First or end offset of partitions; partitions that don't exist are left out. Raises PortError where a leader doesn't tell."""
        ...

    def committed(self, group: str, keys: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        """What another group has committed."""
        ...

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit for a group that has no members now; one that has is refused. All of it was confirmed on return."""
        ...

    def readers(self, topics: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """
        Groups that have committed offsets of each topic: who would see what is written to it. Share groups aren't told.

        Raises PortError also where this user may not see all groups.
        """
        ...

    def allowed(self, topics: Sequence[str]) -> Mapping[str, frozenset[Operation]]:
        """
        What this user may do with topics. Nothing at all: the topic may exist or not, brokers don't tell. Left out:
        topics that don't exist, and all where the cluster doesn't tell. Asking never creates one.
        """
        ...


class Inspection(Protocol):
    """
    What only `redrive doctor` asks of a cluster. Raises PortError, with the reason, where it isn't told; may wait some
    seconds. Only a real cluster has answers: in memory nobody lacks rights or time.
    """

    def client_version(self) -> str:
        """Of the client library, `2.13.2`."""
        ...

    def brokers(self) -> Mapping[str, Mapping[str, str]]:
        """Each broker's configuration, by its number."""
        ...

    def groups(self, names: Sequence[str]) -> Mapping[str, ObservedGroup]:
        """Groups as their coordinators see them; one that doesn't exist has no members."""
        ...

    def newest_ms(self, keys: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The newest timestamp of each partition, epoch ms; empty ones are left out, and those that aren't told."""
        ...

    def measure_clock(self, wall_ms: Callable[[], float]) -> Skew:
        """Compare this machine's clock with a broker's, by a topic that is made for it and deleted again."""
        ...


class Write(msgspec.Struct, frozen=True):
    """A record to be written; `partition` -1: as its key says."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int = -1


class Written(msgspec.Struct, frozen=True):
    """Where a record is; all in-sync replicas have it."""

    partition: int
    offset: int


class NotWritten(msgspec.Struct, frozen=True):
    """
    Why a record was not confirmed. `is_certain`: it isn't there and never will be; else nobody knows, as when the
    broker went away before it answered.
    """

    detail: str
    is_certain: bool


class Reading(Protocol):
    """Reading partitions without a group, and nothing else: what is needed to tell how far behind a group is."""

    def scan(self, key: TopicPartition, start: int, end: int) -> Iterator[RawRecord]:
        """As `Log.scan`."""
        ...

    def first_of(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> Mapping[TopicPartition, RawRecord]:
        """
        The first record in each span [start, end) of offsets, of all partitions at once. Left out are partitions without
        one there, and those that say nothing for ten seconds.
        """
        ...


class Log(Protocol):
    """Reading partitions without a group, and writing with confirmation: what dead-letter operations need."""

    def scan(self, key: TopicPartition, start: int, end: int) -> Iterator[RawRecord]:
        """
        The records in [start, end), ascending. Ends at `end` also where the last offsets hold no record (transaction
        markers, compaction). Raises PortError when the broker is away for long. Scans may run inside each other.
        """
        ...

    def write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int = -1,
    ) -> tuple[int, int]:
        """Write one record and wait until all in-sync replicas have it: partition and offset. Raises PortError."""
        ...

    def write_many(self, writes: Sequence[Write]) -> Sequence[Written | NotWritten]:
        """
        Write records in their order, without a round trip for each, and wait for all answers; one answer each, in the
        same order. Never raises for a single record: one that is refused doesn't hold up the others.
        """
        ...


class Answer(msgspec.Struct, frozen=True):
    """
    What a worker says to the question with this number, 0: unasked, at its end. `health` None while it is starting;
    `page` empty where its metrics weren't asked for, `state` None where that wasn't.
    """

    serial: int
    health: Health | None = None
    page: bytes = b""
    state: WorkerState | None = None


Question = Literal["health", "metrics", "state"]
"""What a worker can be asked. Whatever it is, its answer has its health too."""


class Views(NamedTuple):
    """How a process shows itself, by any thread: how it is, its page of metrics, what it is at."""

    health: Callable[[], Health]
    metrics: Callable[[], bytes]
    state: Callable[[], WorkerState]


class WorkerTold(msgspec.Struct, frozen=True):
    """A worker answered."""

    worker: int
    answer: Answer


class WorkerEnded(msgspec.Struct, frozen=True):
    """A worker's process ended, and has said all that it had to say. `code` as its parent sees it; `how` in words."""

    worker: int
    code: int
    how: str


WorkerEvent = WorkerTold | WorkerEnded


class Workers(Protocol):
    """Worker processes, by their numbers; of each number at most one at a time."""

    def start(self, worker: int) -> int:
        """Start a process; gives its id. Raises PortError where the machine has no room for it."""
        ...

    def ask(self, worker: int, serial: int, question: Question) -> None:
        """Ask for an `Answer`. Does not wait, never raises; any thread. One that is frozen or gone answers nothing."""
        ...

    def drain(self, worker: int) -> None:
        """Ask it to finish what it is at and to end, as often as one likes. Never raises."""
        ...

    def kill(self, worker: int) -> None:
        """End it at once. Never raises."""
        ...

    def events(self, timeout_s: float) -> list[WorkerEvent]:
        """What happened since the last call; waits at most so long for the first, and until `wake`."""
        ...

    def wake(self) -> None:
        """Let `events` return. Any thread, also within a signal handler."""
        ...
