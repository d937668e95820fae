"""Reads partitions of Apache Kafka without a group, and writes with confirmation (`runtime/ports.py`, Log)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from redrive.adapters.fork import guard
from redrive.adapters.kafka_errors import made, told
from redrive.adapters.kafka_settings import Changed, consumer_conf, producer_conf
from redrive.core.acls import Operation, on_topic
from redrive.core.record import RawRecord, TopicPartition
from redrive.errors import PortError
from redrive.runtime.ports import NotWritten, Write, Written

#: What a scan changes beyond any other consumer of ours; nobody's own settings go before these.
SCANNER = (
    Changed(
        "auto.offset.reset",
        "earliest",
        "a scan that begins where retention has passed begins at what is left",
        True,
    ),
    Changed(
        "enable.partition.eof",
        True,
        "the last offsets may hold no record: only this tells that they were passed",
        True,
    ),
    Changed("fetch.message.max.bytes", 8_000_000, "254,000 records/s with headers instead of 150,000", True),
    Changed(
        "queued.min.messages",
        100_000,
        "one partition at a time at full rate; half the memory is no gain here",
        True,
    ),
)

#: What looking at the first record of many partitions changes besides.
FIRSTS = (
    Changed(
        "fetch.message.max.bytes", 32_768, "one record of each partition is wanted, not a window of all", True
    ),
    Changed("queued.min.messages", 1, "the same", True),
)

_BATCH = 10_000
_FIRST_S = 10.0
_POLL_S = 1.0
#: Polls in a row that a producer answers nothing, beyond its own time limit of a minute: its reports got lost.
_SILENT_POLLS = 75

#: Answers after which a record surely isn't there. All others (a timeout, a broken connection) leave it open.
_CERTAIN = frozenset(
    [
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._INVALID_ARG,
        KafkaError._QUEUE_FULL,
        KafkaError._PURGE_QUEUE,
    ]
)
_TOO_LARGE = frozenset([KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE])

Answer = Written | NotWritten
_error_of = Message.error


class KafkaLog:
    """
    One consumer for each scan that is open at a time, kept for the next one, and one producer, made when it is needed.

    `user`: what the user says to the client, with its `bootstrap.servers`. `patience_s`: how long a scan waits for a
    broker that says nothing. Scans and writes may run in several threads, each scan in one.
    """

    def __init__(self, user: Mapping[str, Any], *, patience_s: float = 30.0) -> None:
        conf = consumer_conf(user, group="redrive-scan", protocol="classic")
        self._scanner_conf = {**conf, **{change.name: change.value for change in SCANNER}}
        self._producer_conf = producer_conf(user)
        self._patience_s = patience_s
        self._idle: list[_Handle] = []
        self._producer: _Handle | None = None

    def scan(self, key: TopicPartition, start: int, end: int) -> Iterator[RawRecord]:
        if start >= end:
            return
        scanner = self._idle.pop() if self._idle else _Handle(made(Consumer, self._scanner_conf))
        scanner.learn(key.topic)
        try:
            scanner.client.assign([ClientPartition(*key, max(0, start))])
            yield from self._read(scanner.client, key, end)
        finally:
            scanner.client.unassign()
            self._idle.append(scanner)

    def first_of(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> Mapping[TopicPartition, RawRecord]:
        left = {key: end for key, (start, end) in spans.items() if start < end}
        found: dict[TopicPartition, RawRecord] = {}
        if not left:
            return found
        conf = {**self._scanner_conf, **{change.name: change.value for change in FIRSTS}}
        client: Any = Consumer(conf)
        try:
            client.assign([ClientPartition(*key, max(0, spans[key][0])) for key in left])
            silent_s = 0.0
            while left and silent_s < _FIRST_S:
                message = client.poll(_POLL_S)
                if message is None:
                    silent_s += _POLL_S
                    continue
                key = TopicPartition(message.topic(), message.partition())
                if key not in left:
                    continue
                silent_s = 0.0
                failure = message.error()
                if failure is not None and failure.code() != KafkaError._PARTITION_EOF:
                    raise _cannot_read(key, failure)
                if failure is None and message.offset() < left[key]:
                    found[key] = message
                del left[key]
                client.pause([ClientPartition(*key)])
        finally:
            client.close()
        return found

    def write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
        partition: int = -1,
    ) -> tuple[int, int]:
        [answer] = self.write_many([Write(topic, key, value, headers, partition)])
        if isinstance(answer, NotWritten):
            raise PortError(answer.detail, retriable=not answer.is_certain)
        return answer.partition, answer.offset

    def write_many(self, writes: Sequence[Write]) -> Sequence[Answer]:
        answers: dict[int, Answer | KafkaError] = {}
        numbered = dict(enumerate(writes))
        self._send(numbered, answers)
        # One oversize record fails its whole batch: an innocent one passes when it goes alone.
        for number in [number for number, answer in answers.items() if _is_too_large(answer)]:
            del answers[number]
            self._send({number: numbered[number]}, answers)
        return [_told(answers[number], write.topic) for number, write in numbered.items()]

    def close(self) -> None:
        """End the connections. A scan that is still open ends its own."""
        while self._idle:
            self._idle.pop().client.close()
        self._producer = None

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read(self, client: Any, key: TopicPartition, end: int) -> Iterator[RawRecord]:
        silent_s = 0.0
        while True:
            try:
                # `consume(n, t)` waits for n records or t: a poll for the first one and what is there besides does not.
                first = client.poll(_POLL_S)
                batch: list[Message] = [] if first is None else [first, *client.consume(_BATCH, 0)]
            except KafkaException as error:
                raise _cannot_read(key, error.args[0]) from error
            has_errors = any(map(_error_of, batch))
            if has_errors:
                batch = [message for message in batch if not _is_of_group(message)]
            silent_s = 0.0 if batch else silent_s + _POLL_S
            if silent_s:
                _require_partition(client, key)
            if silent_s >= self._patience_s:
                raise PortError(
                    f"{key.topic} partition {key.partition}: the broker sent nothing for {self._patience_s:.0f} s; "
                    f"is it reachable, and has this user the right {on_topic(Operation.READ, key.topic)}?",
                    retriable=True,
                )
            # Records only, all below the last one that is wanted: they needn't be looked at one by one.
            if batch and not has_errors and cast("int", batch[-1].offset()) < end - 1:
                yield from cast("list[RawRecord]", batch)
                continue
            for message in batch:
                failure = message.error()
                if failure is not None and failure.code() != KafkaError._PARTITION_EOF:
                    raise _cannot_read(key, failure)
                offset = cast(
                    "int", message.offset()
                )  # of the end of the partition where that is what was told
                if offset >= end:
                    return
                if failure is None:
                    yield cast("RawRecord", message)
                    if offset == end - 1:
                        return

    # -- writing ---------------------------------------------------------------------------------------------------

    def _send(self, writes: Mapping[int, Write], answers: dict[int, Answer | KafkaError]) -> None:
        """
        Answer each of `writes`. The account is kept here: after a fatal error the client loses reports, and what it
        raises isn't always an Exception (librdkafka 2.16, tried). Whatever escapes it means that nobody knows.
        """
        if self._producer is None:
            self._producer = _Handle(made(Producer, self._producer_conf))
        client = self._producer.client
        try:
            for number, write in writes.items():
                self._produce(client, number, write, answers)
            _await_answers(client, writes, answers)
        except KeyboardInterrupt:
            raise
        except:  # noqa: E722  the client may raise what derives from `object` only: nothing else catches it
            self._producer = None
        lost = NotWritten(
            "the producer failed; the broker may have taken the record all the same", is_certain=False
        )
        for number in writes:
            answers.setdefault(number, lost)

    def _produce(
        self, client: Any, number: int, write: Write, answers: dict[int, Answer | KafkaError]
    ) -> None:
        more: dict[str, int] = {} if write.partition < 0 else {"partition": write.partition}
        while True:
            try:
                client.produce(
                    write.topic,
                    write.value,
                    write.key,
                    headers=write.headers,
                    on_delivery=partial(_note, answers, number),
                    **more,
                )
            except BufferError:  # full: room comes with the next answer
                client.poll(_POLL_S)
            except KafkaException as error:
                answers[number] = error.args[0]
                return
            else:
                return


class _Handle:
    """A client of its own, so that the fork guard finds it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._topics: Collection[str] = ()
        guard(self)

    def learn(self, topic: str) -> None:
        """
        Ask for the topics that there are, when this is a new one.

        A consumer that is assigned a partition of a topic it hasn't heard of finds its leader after a second; after this
        the first record of each topic comes within 20 ms (measured).
        """
        if topic in self._topics:
            return
        try:
            self._topics = self.client.list_topics(timeout=_POLL_S).topics.keys()
        except KafkaException:
            return  # the scan itself tells what is wrong


def _require_partition(client: Any, key: TopicPartition) -> None:
    """Of a partition that doesn't exist the client says nothing at all. A broker that is away says nothing either."""
    try:
        topics = client.list_topics(
            timeout=_POLL_S
        ).topics  # all: asking for a name would create it on a mock cluster
    except KafkaException:
        return
    if key.topic not in topics or key.partition not in topics[key.topic].partitions:
        raise PortError(f"there is no topic {key.topic} with a partition {key.partition}")


def _is_of_group(message: Message) -> bool:
    """
    Whether it says that this user may not use the scan's group. The client looks for its coordinator unasked, also where
    nothing is ever committed (librdkafka 2.16, tried): a scan takes no right on a group.
    """
    error = message.error()
    return error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def _note(
    answers: dict[int, Answer | KafkaError], number: int, error: KafkaError | None, message: Message
) -> None:
    # Runs in the client's poll, where an exception would lose the reports of others.
    answers[number] = (
        Written(cast("int", message.partition()), cast("int", message.offset())) if error is None else error
    )


def _await_answers(
    client: Any, writes: Mapping[int, Write], answers: Mapping[int, Answer | KafkaError]
) -> None:
    silent = 0
    while silent < _SILENT_POLLS and not writes.keys() <= answers.keys():
        silent = 0 if client.poll(_POLL_S) else silent + 1


def _is_too_large(answer: Answer | KafkaError) -> bool:
    return isinstance(answer, KafkaError) and answer.code() in _TOO_LARGE


def _told(answer: Answer | KafkaError, topic: str) -> Answer:
    if isinstance(answer, KafkaError):
        detail = told(answer, on_topic(Operation.WRITE, topic))
        return NotWritten(detail, is_certain=answer.code() in _CERTAIN)
    return answer


def _cannot_read(key: TopicPartition, error: KafkaError) -> PortError:
    why = told(error, on_topic(Operation.READ, key.topic))
    return PortError(
        f"{key.topic} partition {key.partition} can't be read: {why}",
        retriable=error.retriable(),
    )
