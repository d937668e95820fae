"""Transactions of the simulated cluster: the coordinator, and a producer of it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from redrive.core.commands import Produce, Refusal, Transaction
from redrive.core.record import TopicPartition
from redrive.core.transactions import Aborted, Completed, Fenced, Outcome
from redrive.errors import PortError
from redrive.sim.clock import VirtualClock
from redrive.sim.groups import STALE_EPOCH, UNKNOWN_MEMBER, Group, Membership, refusal_of
from redrive.sim.records import SimRecord, size_bytes
from redrive.sim.topics import PartitionLog

if TYPE_CHECKING:
    from redrive.sim.cluster import SimCluster

#: redrive's `transaction.timeout.ms`.
TRANSACTION_TIMEOUT_MS = 10_000.0


class OpenTransaction:
    """What a producer has written and not yet committed."""

    def __init__(self, began_mono_ms: float) -> None:
        self.began_mono_ms = began_mono_ms
        self.records: list[tuple[PartitionLog, SimRecord]] = []
        self.group: Group | None = None
        self.offsets: Mapping[TopicPartition, tuple[int, str]] = {}

    def commit(self) -> None:
        """All of it is there."""
        for log in {log: None for log, _ in self.records}:
            log.end_transaction(self)
        if self.group is not None:
            self.group.store(self.offsets)

    def abort(self) -> None:
        """Nothing of it ever was."""
        for log in {log: None for log, _ in self.records}:
            log.end_transaction(self, [record for its_log, record in self.records if its_log is log])


class Coordinator:
    """Who may write under which transactional id, and what is open. What is open for too long is aborted."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._epochs: dict[str, int] = {}
        self._open: dict[str, OpenTransaction] = {}

    def register(self, transactional_id: str) -> int:
        """A new producer of that id; gives its epoch. Those before it are fenced."""
        if (left := self._open.pop(transactional_id, None)) is not None:
            left.abort()
        self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
        return self._epochs[transactional_id]

    def is_current(self, transactional_id: str, epoch: int) -> bool:
        """Whether a producer of that epoch may still write."""
        self.end_late()
        return self._epochs[transactional_id] == epoch

    def begin(self, transactional_id: str) -> OpenTransaction:
        """Open a transaction."""
        self._open[transactional_id] = OpenTransaction(self._clock.mono_ms())
        return self._open[transactional_id]

    def end(self, transactional_id: str, *, committed: bool) -> None:
        """Commit or abort it."""
        transaction = self._open.pop(transactional_id)
        if committed:
            transaction.commit()
        else:
            transaction.abort()

    def end_late(self) -> None:
        """Abort what is open for longer than producers may, and fence them."""
        latest_ms = self._clock.mono_ms() - TRANSACTION_TIMEOUT_MS
        for transactional_id in [name for name, one in self._open.items() if one.began_mono_ms <= latest_ms]:
            self.register(transactional_id)

    def undecided(self, group: Group) -> set[TopicPartition]:
        """Partitions whose committed offset depends on an open transaction."""
        self.end_late()
        return {key for one in self._open.values() if one.group is group for key in one.offsets}


class SimTransactor:
    """Implements the transactor port. A transaction is carried out by the calls of `outcomes`."""

    problem = ""

    def __init__(self, cluster: "SimCluster", transactional_id: str) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._epoch = cluster.coordinator.register(transactional_id)
        self._asked: tuple[Transaction, Membership | None] | None = None
        self._opened: OpenTransaction | None = None

    def submit(self, transaction: Transaction, membership: Membership | None) -> None:
        self._asked = transaction, membership

    def outcomes(self) -> list[Outcome]:
        if self._asked is None or self._cluster.is_down:
            return []
        outcome = self._carry_out(*self._asked)
        if outcome is None:
            return []
        self._asked = self._opened = None
        return [outcome]

    def close(self, timeout_s: float) -> None:
        self._asked = None

    def _carry_out(self, transaction: Transaction, membership: Membership | None) -> Outcome | None:
        coordinator, faults, number = self._cluster.coordinator, self._cluster.faults, transaction.number
        if not coordinator.is_current(self._id, self._epoch):
            return self._fenced(number)
        if self._opened is None:
            self._opened = coordinator.begin(self._id)
            if (aborted := self._write(self._opened, transaction, membership)) is not None:
                coordinator.end(self._id, committed=False)
                return aborted
        if faults.transactions_are_held or self._cluster.chance.below(2):
            return None
        if (why := faults.next_abort()) is not None:
            coordinator.end(self._id, committed=False)
            return Aborted(number, why)
        coordinator.end(self._id, committed=True)
        if faults.next_outcome_is_lost():
            self._epoch = coordinator.register(self._id)
            return Fenced(number, "no answer in time", is_final=False)
        return Completed(number)

    def _fenced(self, number: int) -> Fenced:
        opened = self._opened
        is_late = opened is not None and (
            self._cluster.clock.mono_ms() - opened.began_mono_ms >= TRANSACTION_TIMEOUT_MS
        )
        if is_late:
            self._epoch = self._cluster.coordinator.register(self._id)
        return Fenced(number, "fenced", is_final=not is_late)

    def _write(
        self, opened: OpenTransaction, transaction: Transaction, membership: Membership | None
    ) -> Aborted | None:
        """All but the commit; gives why it can't be."""
        refused = self._append(opened, transaction.writes)
        if refused:
            return Aborted(transaction.number, next(iter(refused.values())).detail, refused)
        if not transaction.offsets:
            return None
        why = self._cluster.faults.next_commit_refusal()
        if why is not None:
            return Aborted(
                transaction.number, why, offsets=dict.fromkeys(transaction.offsets, refusal_of(why))
            )
        if membership is None:
            return Aborted(transaction.number, UNKNOWN_MEMBER)
        offsets = membership.group.refused(membership, transaction.offsets)
        if {STALE_EPOCH, UNKNOWN_MEMBER} & set(offsets.values()):
            return Aborted(transaction.number, next(iter(offsets.values())))
        if offsets:
            # As the client does, which doesn't say which of them it was.
            why = next(iter(offsets.values()))
            return Aborted(
                transaction.number, why, offsets=dict.fromkeys(transaction.offsets, refusal_of(why))
            )
        opened.group, opened.offsets = membership.group, transaction.offsets
        return None

    def _append(self, opened: OpenTransaction, writes: tuple[Produce, ...]) -> dict[int, Refusal]:
        refused: dict[int, Refusal] = {}
        # One oversize record fails its whole batch.
        poisoned = {_place(write) for write in writes if self._is_too_large(write)}
        for at, write in enumerate(writes):
            topic = self._cluster.topics.get(write.topic)
            if topic is None:
                refused[at] = Refusal("unavailable", f"there is no topic {write.topic}")
            elif _place(write) in poisoned:
                refused[at] = Refusal(
                    "too-large", f"the batch is larger than {topic.max_message_bytes} bytes"
                )
            elif topic.is_compacted and write.key is None:
                refused[at] = Refusal("unavailable", f"{write.topic} is compacted, the record has no key")
            elif (refusal := self._cluster.faults.next_refusal(write.topic)) is not None:
                refused[at] = refusal
            else:
                self._append_one(opened, write, refused, at)
        return refused

    def _append_one(
        self, opened: OpenTransaction, write: Produce, refused: dict[int, Refusal], at: int
    ) -> None:
        try:
            record = self._cluster.append(
                write.topic,
                write.value,
                key=write.key,
                headers=write.headers,
                partition=write.partition,
                transaction=opened,
            )
        except PortError as error:
            refused[at] = Refusal("unavailable", str(error))
            return
        log = self._cluster.partition(TopicPartition(write.topic, record.partition()))
        if log is not None:
            opened.records.append((log, record))

    def _is_too_large(self, write: Produce) -> bool:
        topic = self._cluster.topics.get(write.topic)
        return (
            topic is not None and size_bytes(write.key, write.value, write.headers) > topic.max_message_bytes
        )


def _place(write: Produce) -> TopicPartition:
    return TopicPartition(write.topic, write.partition)
