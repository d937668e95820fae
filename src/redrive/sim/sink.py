"""A producer for the simulated cluster."""

from collections import deque
from typing import TYPE_CHECKING, Any

from redrive.core.commands import Produce, Refusal
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.sim.records import size_bytes

if TYPE_CHECKING:
    from redrive.sim.cluster import SimCluster

#: How long a write is tried before it is refused.
DELIVERY_TIMEOUT_MS = 30_000.0

Answer = tuple[Any, Refusal | None]


class SimSink:
    """
    Implements the sink port. Writes are sent by the next `answers`; those to one partition that are sent together
    make one batch.
    """

    problem = ""

    def __init__(self, cluster: "SimCluster") -> None:
        self._cluster = cluster
        self._unsent: deque[tuple[float, Produce]] = deque()
        self._answers: deque[Answer] = deque()

    def produce(self, produce: Produce) -> None:
        self._unsent.append((self._cluster.clock.mono_ms(), produce))

    def answers(self) -> list[Answer]:
        self._send()
        if self._cluster.faults.acks_are_held or self._cluster.is_down:
            refused = [answer for answer in self._answers if answer[1] is not None]
            self._answers = deque(answer for answer in self._answers if answer[1] is None)
            return refused
        # Some of them come later when a seed says so.
        ready = len(self._answers) - self._cluster.chance.below(len(self._answers) + 1)
        return [self._answers.popleft() for _ in range(ready)]

    def close(self, timeout_s: float) -> None:
        self._send()
        if self._unsent:
            self._cluster.clock.pass_time(timeout_s * 1000)

    def _send(self) -> None:
        if self._cluster.is_down:
            now_ms = self._cluster.clock.mono_ms()
            while self._unsent and self._unsent[0][0] + DELIVERY_TIMEOUT_MS <= now_ms:
                self._answers.append(
                    (self._unsent.popleft()[1].token, Refusal("unavailable", "no broker answered in time"))
                )
            return
        writes = [produce for _, produce in self._unsent]
        self._unsent.clear()
        # One oversize record fails its whole batch.
        poisoned = {
            _place(produce) for produce in writes if not produce.alone and self._is_too_large(produce)
        }
        for produce in writes:
            is_poisoned = not produce.alone and _place(produce) in poisoned
            self._answers.append((produce.token, self._write(produce, is_poisoned=is_poisoned)))

    def _write(self, produce: Produce, *, is_poisoned: bool) -> Refusal | None:
        faults = self._cluster.faults
        topic = self._cluster.topics.get(produce.topic)
        if topic is None:
            return Refusal("unavailable", f"there is no topic {produce.topic}")
        if is_poisoned or self._is_too_large(produce):
            return Refusal("too-large", f"the batch is larger than {topic.max_message_bytes} bytes")
        if topic.is_compacted and produce.key is None:
            return Refusal("unavailable", f"{produce.topic} is compacted, the record has no key")
        refusal = faults.next_refusal(produce.topic)
        if refusal is not None:
            return refusal
        try:
            self._cluster.append(
                produce.topic,
                produce.value,
                key=produce.key,
                headers=produce.headers,
                partition=produce.partition,
            )
        except PortError as error:
            return Refusal("unavailable", str(error))
        return Refusal("unavailable", "no answer in time") if faults.next_ack_is_lost(produce.topic) else None

    def _is_too_large(self, produce: Produce) -> bool:
        topic = self._cluster.topics.get(produce.topic)
        size = size_bytes(produce.key, produce.value, produce.headers)
        return topic is not None and size > topic.max_message_bytes


def _place(produce: Produce) -> TopicPartition:
    return TopicPartition(produce.topic, produce.partition)
