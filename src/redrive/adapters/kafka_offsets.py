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
_AGAIN_AFTER_S = 0.2
#: Each is a client of its own for a moment, with a connection to the group's coordinator.
_AT_ONCE = 8


def committed_of(
    conf: Mapping[str, Any], group: str, keys: Sequence[TopicPartition], timeout_s: float
) -> Mapping[TopicPartition, Committed]:
    """
    Gives what a group has committed for each of `keys`; partitions that aren't told are left out.

    `conf`: of an admin client. Raises PortError; where there is no coordinator for `timeout_s`, too.
    """
    if not keys:
        return {}
    wanted = [ClientPartition(*key) for key in keys]
    with _outsider(conf, group) as client:
        answers = _ask(client, lambda: client.committed(wanted, timeout=timeout_s), timeout_s)
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
    with ThreadPoolExecutor(_AT_ONCE, "redrive-offsets") as asking:
        answers = asking.map(lambda group: committed_of(conf, group, keys, timeout_s), groups)
        return dict(zip(groups, answers, strict=True))


def commit_of(
    conf: Mapping[str, Any], group: str, offsets: Mapping[TopicPartition, int], timeout_s: float
) -> None:
    """
    Commits for a group without members, and waits until it is confirmed. Raises PortError, also when the group has some.
    """
    wanted = [ClientPartition(*key, offset) for key, offset in offsets.items()]
    with _outsider(conf, group) as client:
        answers = _ask(client, lambda: client.commit(offsets=wanted, asynchronous=False), timeout_s)
    for at in answers:
        if at.error is not None:
            raise PortError(f"{at.topic}/{at.partition}: {at.error.str()}", retriable=at.error.retriable())


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
    client: Any, ask: Callable[[], Iterable[ClientPartition]], timeout_s: float
) -> Iterable[ClientPartition]:
    waited_s = 0.0
    while True:
        try:
            answers = ask()
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() not in NO_COORDINATOR_YET or waited_s >= timeout_s:
                raise PortError(f"{cause.name()}: {cause.str()}", retriable=cause.retriable()) from error
        else:
            return answers
        client.poll(_AGAIN_AFTER_S)  # there is nothing to come: it waits
        waited_s += _AGAIN_AFTER_S
