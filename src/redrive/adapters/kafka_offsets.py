"""
What groups have committed, asked, and told, by a consumer that never joins them.

An admin client's question for committed offsets ends the whole process when the coordinator isn't there yet, still loads, or
has just moved: librdkafka (2.16) passes the answer on to a consumer group that an admin client doesn't
have. A consumer has one, and answers with an error that can be waited for.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from redrive.adapters.kafka_errors import lacks, told
from redrive.core.acls import Operation, Resource, Right, on_topic
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.runtime.ports import Committed

NO_COORDINATOR_YET = frozenset(
    [
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError._WAIT_COORD,
    ]
)
_NO_ANSWER_YET = NO_COORDINATOR_YET | {KafkaError._TIMED_OUT}
_AGAIN_AFTER_S = 0.2
#: After so long it is looked why there is no answer.
_SLICE_S = 2.0
#: Each is a client of its own for a moment, with a connection to the group's coordinator.
_AT_ONCE = 8


def committed_of(
    conf: Mapping[str, Any], group: str, keys: Sequence[TopicPartition], timeout_s: float
) -> Mapping[TopicPartition, Committed]:
    """
    Gives what a group has committed for each of `keys`; partitions that aren't told are left out.

    `conf`: of an admin client. Raises PortError; where there is no coordinator for `timeout_s`, too.
    """
    return _committed_of(conf, group, keys, timeout_s, Right(Operation.DESCRIBE, Resource.GROUP, group))


def _committed_of(
    conf: Mapping[str, Any], group: str, keys: Sequence[TopicPartition], timeout_s: float, seeing: Right
) -> Mapping[TopicPartition, Committed]:
    if not keys:
        return {}
    wanted = [ClientPartition(*key) for key in keys]
    with _outsider(conf, group) as client:
        answers = _ask(client, lambda: client.committed(wanted, timeout=_SLICE_S), timeout_s, seeing)
    return {
        TopicPartition(at.topic, at.partition): Committed(
            at.offset if at.offset >= 0 else None, at.metadata or ""
        )
        for at in answers
        if at.error is None
    }


def committed_of_each(
    conf: Mapping[str, Any], groups: Sequence[str], keys: Sequence[TopicPartition], timeout_s: float
) -> Mapping[str, Mapping[TopicPartition, Committed]]:
    """Gives what `committed_of` does, for many groups. Raises PortError when one of them can't be asked."""
    # Whoever asks about all groups wants to see all.
    seeing = Right(Operation.DESCRIBE, Resource.GROUP, "*")
    with ThreadPoolExecutor(_AT_ONCE, "redrive-offsets") as asking:
        answers = asking.map(lambda group: _committed_of(conf, group, keys, timeout_s, seeing), groups)
        return dict(zip(groups, answers, strict=True))


def commit_of(
    conf: Mapping[str, Any], group: str, offsets: Mapping[TopicPartition, int], timeout_s: float
) -> None:
    """
    Commits for a group without members, and waits until it is confirmed. Raises PortError, also when the group has some.
    """
    wanted = [ClientPartition(*key, offset) for key, offset in offsets.items()]
    needed = [Right(Operation.READ, Resource.GROUP, group)]
    needed += [on_topic(Operation.READ, topic) for topic in dict.fromkeys(key.topic for key in offsets)]
    with _outsider(conf, group) as client:
        answers = _ask(client, lambda: client.commit(offsets=wanted, asynchronous=False), timeout_s, *needed)
    for at in answers:
        if at.error is not None:
            why = at.error.str() + lacks(at.error, needed[0], on_topic(Operation.READ, at.topic))
            raise PortError(f"{at.topic}/{at.partition}: {why}", retriable=at.error.retriable())


@contextmanager
def _outsider(conf: Mapping[str, Any], group: str) -> Generator[Any, None, None]:
    """A consumer that names the group and isn't in it."""
    asking = {
        "group.id": group,
        "enable.auto.commit": False,
        # Else a question waits for the end of a transaction of that group, which may take minutes.
        "isolation.level": "read_uncommitted",
        "allow.auto.create.topics": False,
    }
    client: Any = Consumer({**conf, **asking})
    try:
        yield client
    finally:
        client.close()


def _ask(
    client: Any, ask: Callable[[], Iterable[ClientPartition]], timeout_s: float, *needed: Right
) -> Iterable[ClientPartition]:
    waited_s = 0.0
    while True:
        try:
            return ask()
        except KafkaException as error:
            cause = error.args[0]
        # That the group may not be asked for isn't an answer to the question, which finds no coordinator: it is told apart.
        said = client.poll(0 if cause.code() == KafkaError._TIMED_OUT else _AGAIN_AFTER_S)
        if said is not None and said.error() is not None and (why := lacks(said.error(), *needed)):
            raise PortError(f"{said.error().name()}{why}")
        waited_s += _SLICE_S if cause.code() == KafkaError._TIMED_OUT else _AGAIN_AFTER_S
        if cause.code() not in _NO_ANSWER_YET or waited_s >= timeout_s:
            raise PortError(told(cause, *needed), retriable=cause.retriable())
