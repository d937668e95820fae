"""A member of a consumer group on Apache Kafka, as the pump needs it (`runtime/ports.py`, Source)."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import (
    TopicPartition as ClientPartition,
)

from redrive.adapters.fork import guard
from redrive.adapters.kafka_errors import lacks, made, refusal_of
from redrive.core.acls import Operation, Resource, Right, on_topic
from redrive.core.commands import Commit, Refusal
from redrive.core.record import RawRecord, TopicPartition
from redrive.runtime.ports import Committed, Fetched, GroupEvents, SourceProblem

#: With no broker the client tells so twenty times a second; nobody reads more than these between two polls.
_MOST_PROBLEMS = 50
#: With a broker both take milliseconds.
_COMMIT_S = 5.0
_LEAVE_S = 3.0
_topic_of, _partition_of, _error_of = Message.topic, Message.partition, Message.error
_AUTH = frozenset(
    [
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._SSL,
    ]
)
#: The client gives fatal errors one code and tells by their text which they are.
_FENCED = "fenced by other consumer with same group.instance.id"
_NAME_TAKEN = (
    "another process has joined the group as the same static member (group.instance.id). What was in flight here runs again "
    "there; give each host, and each supervisor on a host, an instance_id of its own"
)
_UNREACHABLE = frozenset([KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE])


class KafkaSource:
    """
    One consumer of the client, owned by one thread. `conf` comes from `kafka_settings.consumer_conf`. `tells_membership`:
    a transactor needs it; each poll then asks another thread of the client and waits for it with the GIL held.

    Both group protocols: under the classic one with an eager assignor an assignment is whole, under KIP-848 it comes
    in parts; the events say the same either way.
    """

    def __init__(self, conf: Mapping[str, Any], *, tells_membership: bool = False) -> None:
        self._tells_membership = tells_membership
        self._incremental = conf.get("group.protocol") == "consumer"
        self._membership = Right(Operation.READ, Resource.GROUP, str(conf["group.id"]))
        self._answers: list[tuple[int, dict[TopicPartition, Refusal]]] = []
        self._problems: list[SourceProblem] = []
        self._events: GroupEvents | None = None
        self._broken: BaseException | None = None
        self._starting: dict[TopicPartition, int | None] | None = None
        #: Of partitions that were started: the offset that comes next, None for the beginning.
        self._next: dict[TopicPartition, int | None] = {}
        self._commit_out: Commit | None = None
        self.membership: Any = None
        self._has_joined = False
        self._is_down = False
        self._is_closed = False
        self._is_called_back = False
        self._last_apart: threading.Thread | None = None
        self.client = made(Consumer, {**conf, "on_commit": self._on_commit, "error_cb": self._on_error})
        guard(self)

    def join(self, topics: Sequence[str], events: GroupEvents) -> None:
        self._events = events
        self.client.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, timeout_s: float, most: int) -> Fetched:
        # `consume(n, t)` waits for n records or t: a poll for the first one and what is there besides does not.
        batch: list[Message] = []
        try:
            first = self.client.poll(timeout_s)
            if first is not None:
                batch.append(first)  # kept, whatever the next call raises
                if most > 1:
                    batch += self.client.consume(most - 1, 0)
        except KafkaException as error:
            self._tell(error.args[0])
        if not self._has_joined:
            self._look_whether_joined()
        if self._broken is not None:
            raise self._broken
        if self._tells_membership:
            self.membership = self.client.consumer_group_metadata()
        return self._by_partition(batch) if batch else []

    def problems(self) -> list[SourceProblem]:
        told, self._problems = self._problems, []
        return told

    def committed(
        self, keys: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, Committed]:
        try:
            answers = self.client.committed([ClientPartition(*key) for key in keys], timeout=timeout_s)
        except KafkaException:
            return {}
        return {
            TopicPartition(at.topic, at.partition): Committed(
                at.offset if at.offset >= 0 else None, at.metadata or ""
            )
            for at in answers
            if at.error is None
        }

    def start_at(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        if self._starting is not None:
            self._starting.update(offsets)
            return
        self.resume(offsets)

    def keep_waiting(self, keys: Sequence[TopicPartition]) -> None:
        """Nothing to do: what `on_assigned` doesn't start is assigned paused, and stays so."""

    def pause(self, keys: Iterable[TopicPartition]) -> None:
        self.client.pause([ClientPartition(*key) for key in keys])

    def resume(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        # In this order: a resume alone wakes the fetcher up to a second later, a seek before it does not help.
        self.client.resume([ClientPartition(*key) for key in offsets])
        for key, offset in offsets.items():
            self._next[key] = offset
            try:
                self.client.seek(_at(key, offset))
            except KafkaException:
                # After an offset that was out of range the client has given the partition up for good (tried).
                self._assign_anew(key)

    def commit(self, commit: Commit) -> None:
        self._commit_out = commit
        try:
            self.client.commit(offsets=_told(commit.offsets), asynchronous=True)
        except KafkaException as error:
            self._commit_out = None
            refusal = refusal_of(error.args[0], self._why(error.args[0]))
            self._answers.append((commit.snapshot, dict.fromkeys(commit.offsets, refusal)))

    def commit_answers(self) -> list[tuple[int, dict[TopicPartition, Refusal]]]:
        answers, self._answers = self._answers, []
        return answers

    def commit_now(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> bool:
        # A synchronous commit has no timeout of its own: without a broker it blocks for 10 to 22 s (tried).
        if self._is_down:
            return False
        confirmed: list[bool] = []

        def commit() -> None:
            answers = self.client.commit(offsets=_told(offsets), asynchronous=False)
            confirmed.append(all(at.error is None for at in answers or ()))

        if not self._is_called_back:
            self._apart(commit, _COMMIT_S)
        else:  # another thread could not get in, but the group's coordinator was there a moment ago
            with contextlib.suppress(KafkaException):
                commit()
        return confirmed == [True]

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        # Without a broker the client waits for the answer to its leave for a minute (KIP-848, librdkafka 2.16).
        if not self._apart(self.client.close, _LEAVE_S):
            self._events = None

    def _apart(self, call: Callable[[], object], timeout_s: float) -> bool:
        """
        Make a call that may take long, and wait for it so long; whether it ended. It and the later ones go one after
        another on threads of their own. That works because nobody polls; callbacks run there while this thread waits.
        """
        before = self._last_apart

        def run() -> None:
            if before is not None:
                before.join()
            with contextlib.suppress(KafkaException, RuntimeError):
                call()

        self._last_apart = threading.Thread(target=run, name="redrive-leave", daemon=True)
        self._last_apart.start()
        self._last_apart.join(timeout_s)
        return not self._last_apart.is_alive()

    # -- callbacks: an exception in one of them would lose the records just fetched, so none leaves them ----------

    def _on_assign(self, _: Consumer, partitions: list[ClientPartition]) -> None:
        if self._events is None or self._is_closed:
            return
        keys = _keys(partitions)
        self._has_joined = True
        self._starting = {}
        try:
            self._events.on_assigned(keys)
            self._assign(keys, self._starting)
        except BaseException as error:
            self._broken = error
        finally:
            self._starting = None

    def _look_whether_joined(self) -> None:
        # Under KIP-848 a member for which no partition is left gets no callback at all (tried): the epoch tells.
        if self._incremental and _epoch(self.client.consumer_group_metadata()) > 0:
            self._on_assign(self.client, [])

    def _assign(self, keys: list[TopicPartition], starts: dict[TopicPartition, int | None]) -> None:
        begin = [_at(key, starts[key]) for key in keys if key in starts]
        self._next = {key: at for key, at in self._next.items() if key not in keys} | starts
        # Without a start yet: paused from the outset, so the end that is named here is never read from.
        wait = [ClientPartition(*key, OFFSET_END) for key in keys if key not in starts]
        if self._incremental:
            if keys:
                self.client.incremental_assign(begin + wait)
        else:
            self.client.assign(begin + wait)
        # The paused flag survives a revoke and comes back with the partition.
        self.client.resume(begin)
        self.client.pause(wait)

    def _assign_anew(self, key: TopicPartition) -> None:
        if self._incremental:
            self.client.incremental_unassign([ClientPartition(*key)])
            self.client.incremental_assign([_at(key, self._next[key])])
            return
        # An eager assignment is changed as a whole; paused flags stay.
        whole = _keys(self.client.assignment())
        self.client.assign(
            [
                _at(each, self._next[each]) if each in self._next else ClientPartition(*each, OFFSET_END)
                for each in whole
            ]
        )

    def _on_revoke(self, _: Consumer, partitions: list[ClientPartition]) -> None:
        if self._events is None:
            return
        self._is_called_back = True
        try:
            self._events.on_revoked(_keys(partitions))
        except BaseException as error:
            self._broken = error
        finally:
            self._is_called_back = False

    def _on_lost(self, _: Consumer, partitions: list[ClientPartition]) -> None:
        if self._events is None:
            return
        try:
            self._events.on_lost(_keys(partitions))
        except BaseException as error:
            self._broken = error

    def _on_commit(self, error: KafkaError | None, partitions: list[ClientPartition]) -> None:
        self._is_down = self._is_down and error is not None
        # By what it says: an answer that comes late, when nobody waits for it any more, or never comes, must not count
        # for another commit. One that says the same counts: the same is stored, or refused.
        told = {TopicPartition(at.topic, at.partition): (at.offset, at.metadata or "") for at in partitions}
        commit = self._commit_out
        if commit is None or told != commit.offsets:
            return
        self._commit_out = None
        refused = {
            TopicPartition(at.topic, at.partition): refusal_of(why, self._why(why, at.topic))
            for at in partitions
            if (why := at.error or error)
        }
        self._answers.append((commit.snapshot, refused))

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._is_down = True
        self._tell(error)

    # -- what was fetched ----------------------------------------------------------------------------------------

    def _by_partition(self, batch: list[Message]) -> Fetched:
        count = len(batch)
        self._is_down = False
        # Not by comparing with None: a KafkaError that is compared leaves an exception pending (client 2.16).
        if any(map(_error_of, batch)):
            for message in batch:
                if (error := message.error()) is not None:
                    self._tell(error, message)
            batch = [message for message in batch if message.error() is None]
            count = len(batch)
            if not count:
                return []
        numbers, topics = list(map(_partition_of, batch)), list(map(_topic_of, batch))
        records = cast("list[RawRecord]", batch)
        if numbers.count(numbers[0]) == count and topics.count(topics[0]) == count:
            key = TopicPartition(cast("str", topics[0]), cast("int", numbers[0]))
            self._next[key] = records[-1].offset() + 1
            return [(key, records)]
        runs: Fetched = []
        first = 0
        while first < count:
            topic, number, end = topics[first], numbers[first], first + 1
            while end < count and numbers[end] == number and topics[end] == topic:
                end += 1
            key = TopicPartition(cast("str", topic), cast("int", number))
            self._next[key] = records[end - 1].offset() + 1
            runs.append((key, records[first:end]))
            first = end
        return runs

    def _tell(self, error: KafkaError, message: Message | None = None) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            return
        key = None
        if message is not None and message.topic() is not None:
            key = TopicPartition(cast("str", message.topic()), cast("int", message.partition()))
        problem = _problem(error, key, self._why(error, key.topic if key else ""))
        # What a partition's fetching depends on is told once by the client, so it is never left out.
        if len(self._problems) < _MOST_PROBLEMS or problem.kind in ("out-of-range", "fatal"):
            self._problems.append(problem)

    def _why(self, error: KafkaError, topic: str = "") -> str:
        """What an error says, with the right that is missing where it is about one."""
        of_topic = [on_topic(Operation.READ, topic)] if topic else []
        return error.str().rstrip(".") + lacks(error, *of_topic, self._membership)


def _problem(error: KafkaError, key: TopicPartition | None, detail: str) -> SourceProblem:
    code = error.code()
    if code == KafkaError._AUTO_OFFSET_RESET:
        return SourceProblem("out-of-range", detail, key)
    if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
        return SourceProblem("unknown-topic", detail, key)
    if code in _AUTH:
        return SourceProblem("auth", detail, key)
    if code in _UNREACHABLE:
        return SourceProblem("unreachable", detail, key)
    # `fatal()` is False for some errors that end a consumer (an instance id that is still in use).
    if error.fatal() or code == KafkaError._FATAL:
        detail = _NAME_TAKEN if _FENCED in detail else detail
        return SourceProblem("fatal", detail, key)
    return SourceProblem("other", detail, key)


def _epoch(metadata: Any) -> int:
    """A member's epoch, out of the client's own spelling of it; 0 or less before it has joined."""
    told = bytes(metadata)
    return int.from_bytes(told[7:11], "little", signed=True) if told.startswith(b"CGMDv2:") else 0


def _at(key: TopicPartition, offset: int | None) -> ClientPartition:
    return ClientPartition(*key, OFFSET_BEGINNING if offset is None else offset)


def _keys(partitions: Iterable[ClientPartition]) -> list[TopicPartition]:
    return [TopicPartition(at.topic, at.partition) for at in partitions]


def _told(offsets: Mapping[TopicPartition, tuple[int, str]]) -> list[ClientPartition]:
    return [ClientPartition(*key, offset, metadata=text) for key, (offset, text) in offsets.items()]
