"""Confirmed writes to Apache Kafka, as the pump needs them (`runtime/ports.py`, Sink)."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from redrive.adapters.fork import guard
from redrive.adapters.kafka_errors import made, refusal_of, told
from redrive.core.acls import Operation, on_topic
from redrive.core.commands import Produce, Refusal

_FATAL = frozenset([KafkaError._FATAL, KafkaError._FENCED])


class KafkaSink:
    """
    The producer of successors, and a second one whose batches hold a single record, for those that must go alone.

    On a fatal error the client runs delivery callbacks with an exception pending: reports get lost, and what it
    raises isn't always an Exception (librdkafka 2.16, tried). So the account of what is outstanding is kept here, and
    whatever escapes `poll` means: nothing outstanding is confirmed, build a new producer. So does an error that calls
    itself fatal, as when the right to write was missing: granted later, only a new producer can use it.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._conf = dict(conf)
        self._answers: list[tuple[Any, Refusal | None]] = []
        #: Token and topic of what has no answer yet; the rest of it the client has copied.
        self._out: dict[int, tuple[Any, str]] = {}
        self._number = 0
        self._is_broken = False
        #: Why, in the words of the broker: reports of a broken producer only say that it is.
        self._fatal: KafkaError | None = None
        self.problem = ""
        self.client: Any = made(Producer, self._conf)
        self._single: _Single | None = None
        guard(self)

    def produce(self, produce: Produce) -> None:
        self._number += 1
        number = self._number
        self._out[number] = produce.token, produce.topic
        client = self._alone() if produce.alone else self.client
        report = partial(self._on_delivery, number)
        try:
            client.produce(
                produce.topic,
                produce.value,
                produce.key,
                produce.partition,
                report,
                headers=produce.headers,
            )
        except BufferError:
            # Not waited for: the pump has other partitions to serve, and the engine repeats it with back-off.
            token, _ = self._out.pop(number)
            self._answers.append((token, Refusal("unavailable", "the client's send queue is full")))
        except KafkaException as error:
            if error.args[0].code() in _FATAL:
                self._guarded(client.poll, 0)  # only this tells the reason
            self._on_delivery(number, error.args[0])

    def answers(self) -> list[tuple[Any, Refusal | None]]:
        self._poll(self.client, 0)
        if self._single is not None:
            self._poll(self._single.client, 0)
        # With nothing left in the client, reports that are still missing got lost.
        lost = self._out and not len(self.client) and not (self._single and len(self._single.client))
        if self._is_broken or lost:
            self._rebuild()
        taken, self._answers = self._answers, []
        return taken

    def close(self, timeout_s: float) -> None:
        self._guarded(self.client.flush, timeout_s)
        if self._single is not None:
            self._guarded(self._single.client.flush, timeout_s)

    def _poll(self, client: Any, timeout_s: float) -> None:
        if not self._guarded(client.poll, timeout_s):
            self._rebuild()

    def _guarded(self, call: Any, timeout_s: float) -> bool:
        try:
            call(timeout_s)
        except KafkaException as error:
            self._fatal = error.args[0]
            return False
        except:  # noqa: E722  the client may raise what derives from `object` only: nothing else catches it
            return False
        return True

    def _rebuild(self) -> None:
        lost, self._out = self._out, {}
        unknown = Refusal("unavailable", "the producer failed and was rebuilt")
        self._answers.extend(
            (token, _refusal(self._fatal, topic) if self._fatal else unknown)
            for token, topic in lost.values()
        )
        self.client = Producer(self._conf)
        self._single = None
        self.problem = f"{self._fatal.name()}: {self._fatal.str()}" if self._fatal else unknown.detail
        self._is_broken, self._fatal = False, None

    def _alone(self) -> Any:
        if self._single is None:
            self._single = _Single({**self._conf, "batch.num.messages": 1, "linger.ms": 0})
        return self._single.client

    def _on_delivery(self, number: int, error: KafkaError | None, _: Message | None = None) -> None:
        written = self._out.pop(number, None)
        if written is None:
            return  # by a producer that was given up: its records were answered as refused
        token, topic = written
        if error is None:
            self.problem = ""
            self._answers.append((token, None))
        elif error.fatal() or error.code() in _FATAL:
            self._is_broken = True
            self._answers.append((token, _refusal(self._fatal or error, topic)))
        else:
            self._answers.append((token, _refusal(error, topic)))


class _Single:
    """A producer handle of its own, so that the fork guard finds it."""

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self.client: Any = Producer(dict(conf))
        guard(self)


def _refusal(error: KafkaError, topic: str) -> Refusal:
    # To a user who may write to no topic at all brokers refuse the whole producer, by the cluster's name.
    detail = told(error, on_topic(Operation.WRITE, topic))
    return refusal_of(error, detail)
