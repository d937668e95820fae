"""The thread of a transactional producer: it carries one transaction after another out, and waits until it knows what became of each."""

import contextlib
import threading
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from redrive.adapters.fork import guard
from redrive.adapters.kafka_errors import made, refusal_of, told
from redrive.core.acls import ADVICE, Operation, Resource, Right, on_topic
from redrive.core.commands import Produce, Refusal, Transaction
from redrive.core.record import TopicPartition
from redrive.core.transactions import Aborted, Completed, Fenced, Outcome

_FENCED = frozenset([KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED])
#: The client dropped the write.
_PURGED = frozenset([KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT])
#: What is said of a write that was given up because of something else.
_NOT_ITS_FAULT = (
    _FENCED
    | _PURGED
    | {
        KafkaError._FATAL,
        KafkaError._STATE,
        KafkaError.INVALID_TXN_STATE,
    }
)
#: The commit was refused since the group has moved on: nothing is wrong with any partition.
_MOVED_ON = frozenset(
    [
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.REBALANCE_IN_PROGRESS,
    ]
)
#: What the broker said of offsets, so that no write is looked for that might be to blame.
_OF_OFFSETS = frozenset(
    [
        KafkaError.OFFSET_METADATA_TOO_LARGE,
        KafkaError.INVALID_COMMIT_OFFSET_SIZE,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN,
    ]
)
#: A call to the broker waits in slices, so that a close is noticed.
_SLICE_S = 1.0


class _Unknown(Exception):
    """What became of the transaction can't be found out. `is_final`: nor can another one be begun."""

    def __init__(self, detail: str, *, is_final: bool) -> None:
        super().__init__(detail)
        self.is_final = is_final


class TransactorThread:
    """
    A transactional producer and the thread that uses it; arguments as of `KafkaTransactor`.

    The thread waits for the broker as long as it takes to know the outcome. A transaction that takes longer than the
    broker allows is ended by the broker, and the producer with it: then a new one is made. A producer that is fenced
    sooner has lost its id to another process, for good.
    """

    def __init__(self, conf: Mapping[str, Any], mono_ms: Callable[[], float]) -> None:
        self.problem = ""
        self._conf = {**conf, "error_cb": self._on_error}
        self._id = str(conf["transactional.id"])
        self.timeout_ms = float(conf["transaction.timeout.ms"])
        self._mono_ms = mono_ms
        self._inbox: SimpleQueue[tuple[Transaction, Any] | Fenced | None] = SimpleQueue()
        self._outcomes: SimpleQueue[Outcome] = SimpleQueue()
        self._is_closing = threading.Event()
        #: Since when it waits in the client; None while it doesn't.
        self._called_ms: float | None = None
        #: Until when there may be an answer about the transaction at work.
        self._until_ms = inf
        self._refused: dict[int, KafkaError] = {}
        # Made here, so that settings that the client doesn't take are told to whoever starts it.
        self.client: Any = made(Producer, self._conf)
        self._is_ready = False
        guard(self)
        self._thread = threading.Thread(target=self._work, name="redrive-transactor", daemon=True)
        self._thread.start()

    def submit(self, transaction: Transaction, membership: Any) -> None:
        """Carry it out next."""
        self._inbox.put((transaction, membership))

    def take_over(self, fenced: Fenced) -> None:
        """Say that as soon as nothing of the producers before can arrive any more."""
        self._inbox.put(fenced)

    def outcomes(self) -> list[Outcome]:
        """What became of transactions since the last call."""
        found: list[Outcome] = []
        try:
            while True:
                found.append(self._outcomes.get_nowait())
        except Empty:
            return found

    def hangs(self) -> bool:
        """
        Whether a call, each of which has a second, hasn't come back in the time that a transaction may take at all. (librdkafka
        2.16: `send_offsets_to_transaction` heeds no timeout while the group's coordinator is away, or lost; its issue 5456.)
        """
        called_ms = self._called_ms
        return called_ms is not None and self._mono_ms() - called_ms > self.timeout_ms

    def close(self, timeout_s: float) -> None:
        """Wait at most so long for the transaction on its way, then end."""
        self._inbox.put(None)
        self._thread.join(timeout_s)
        self.leave()
        self._thread.join(_SLICE_S)

    def leave(self) -> None:
        """Wait for nothing more. A call that hangs keeps the thread; should it come back, it does nothing but end."""
        self._is_closing.set()
        self._inbox.put(None)

    # -- the thread ----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        is_usable = True
        with contextlib.suppress(_Unknown):  # said again to the first that asks for anything
            self._become_ready()
        while (asked := self._inbox.get()) is not None and is_usable:
            outcome = self._outcome(asked)
            is_usable = not (isinstance(outcome, Fenced) and outcome.is_final)
            self._outcomes.put(outcome)

    def _outcome(self, asked: tuple[Transaction, Any] | Fenced) -> Outcome:
        try:
            outcome = asked if isinstance(asked, Fenced) else self._attempt(*asked)
            if isinstance(outcome, Fenced) and not outcome.is_final:
                # Before anybody reads what is committed: until then a commit that was sent may still arrive.
                self._become_ready()
        except _Unknown as error:
            return Fenced(_number(asked), str(error), error.is_final)
        except BaseException as error:  # without an outcome the pump would wait for ever
            detail = f"the producer failed and could not be made anew ({type(error).__name__}: {error})"
            return Fenced(_number(asked), detail, is_final=True)
        else:
            return outcome

    def _attempt(self, transaction: Transaction, membership: Any) -> Outcome:
        number, began_ms = transaction.number, self._mono_ms()
        try:
            self._become_ready()
            began_ms = self._mono_ms()  # to get ready takes time in which nobody ends a transaction
            return self._carried_out(transaction, membership)
        except _Unknown as error:
            if not error.is_final:
                self._renew()
            return Fenced(number, str(error), error.is_final)
        except KafkaException as error:
            return self._ended(number, error.args[0], self._mono_ms() - began_ms)
        except:  # noqa: E722  the client may raise what derives from `object` only: nothing else catches it
            self._renew()
            return Fenced(number, "the producer failed and was rebuilt", is_final=False)

    def _become_ready(self) -> None:
        """End what an earlier producer of this id has left open. Whoever else has the id can do nothing from now on."""
        if self._is_ready:
            return
        try:
            self._until_known(self.client.init_transactions)
        except KafkaException as error:
            detail = told(error.args[0], *self._rights)
            if error.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                detail = f"{detail}. {ADVICE}"
            self.problem = detail
            raise _Unknown(detail, is_final=True) from None
        self._is_ready = True
        self.problem = ""

    def _carried_out(self, transaction: Transaction, membership: Any) -> Outcome:
        client, number = self.client, transaction.number
        self._refused, self._until_ms = {}, self._mono_ms() + self.timeout_ms
        client.begin_transaction()
        for place, write in enumerate(transaction.writes):
            self._produce(place, write)
        if self._refused:  # by the client itself, so the transaction could be committed without them
            return self._aborted(transaction, next(iter(self._refused.values())))
        try:
            if transaction.offsets:
                offsets = [
                    ClientPartition(*key, offset, metadata=text)
                    for key, (offset, text) in transaction.offsets.items()
                ]
                self._until_ended(
                    lambda timeout_s: client.send_offsets_to_transaction(offsets, membership, timeout_s)
                )
        except KafkaException as error:
            return self._aborted(transaction, error.args[0], is_of_offsets=True)
        try:
            self._until_ended(client.commit_transaction)
        except KafkaException as error:
            return self._aborted(transaction, error.args[0])
        self.problem = ""
        return Completed(number)

    def _produce(self, place: int, write: Produce) -> None:
        client, report = self.client, partial(self._on_delivery, place)
        is_queued = False
        while not is_queued:
            try:
                client.produce(
                    write.topic, write.value, write.key, write.partition, report, headers=write.headers
                )
                is_queued = True
            except BufferError:
                self._require_time()
                client.poll(_SLICE_S)
            except KafkaException as error:
                if error.args[0].fatal() or error.args[0].code() == KafkaError._FATAL:
                    raise
                self._refused[place] = error.args[0]
                return

    def _aborted(
        self, transaction: Transaction, error: KafkaError, *, is_of_offsets: bool = False
    ) -> Outcome:
        """Abort what can't be committed, and tell why. Raises KafkaException where it can't be aborted either."""
        if error.fatal() or error.code() in _FENCED or error.code() == KafkaError._FATAL:
            raise KafkaException(error)
        self.client.flush(_SLICE_S)  # an abort drops what has no answer yet
        self._until_ended(self.client.abort_transaction)
        if any(why.code() in _PURGED for why in self._refused.values()):
            # One that was sent, and not answered, is among them, perhaps: then the client would give its number to the next write
            # there, which the broker would take for that one once more and drop, saying that it is there (librdkafka 2.16, tried).
            # Another producer begins with numbers of its own: at once, so that who takes the id from now on is the younger one.
            self._renew()
            self._become_ready()
        detail = told(error, *self._rights)
        writes = {
            place: _refusal(why, transaction.writes[place].topic)
            for place, why in self._refused.items()
            if why.code() not in _NOT_ITS_FAULT
        }
        offsets: Mapping[TopicPartition, Refusal] = {}
        if is_of_offsets and error.code() in _OF_OFFSETS and not writes:
            offsets = dict.fromkeys(transaction.offsets, refusal_of(error, detail))
        if error.code() not in _MOVED_ON:
            self.problem = detail
        return Aborted(transaction.number, detail, writes, offsets)

    def _ended(self, number: int, error: KafkaError, took_ms: float) -> Outcome:
        """The producer is of no use any more, or the client says what can't be: a new one begins from what is committed."""
        detail, is_final = told(error, *self._rights), False
        if error.code() in _FENCED or (error.fatal() and "fence" in error.str().lower()):
            # Sooner than that nobody but another producer of this id can have done it.
            is_final = took_ms < self.timeout_ms
            detail = (
                f"another process has taken the transactional id {self._id!r}, so this one may write nothing more: give each "
                f"host, and each supervisor on a host, an instance_id of its own ({error.name()})"
                if is_final
                else f"the transaction took longer than transaction.timeout.ms, so the broker ended it ({error.name()})"
            )
        elif error.fatal():
            is_final = error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        self.problem = detail
        self._renew()
        return Fenced(number, detail, is_final)

    def _renew(self) -> None:
        self._is_ready = False
        self._called_ms = self._mono_ms()  # the end of the one before may hang, too
        try:
            self.client = made(Producer, self._conf)
        finally:
            self._called_ms = None

    def _until_known(self, call: Callable[[float], object]) -> None:
        """Ask until there is an answer: the calls go on where they were. Raises KafkaException when it is no, _Unknown at a close."""
        while not self._is_answered(call):
            pass

    def _until_ended(self, call: Callable[[float], object]) -> None:
        """
        The same within a transaction, for as long as that may take: after a broker and the way to it were lost the client may
        never ask again (2.16, tried). What is still open then, the next producer ends.
        """
        while not self._is_answered(call):
            self._require_time()

    def _is_answered(self, call: Callable[[float], object]) -> bool:
        if self._is_closing.is_set():
            raise _Unknown("closed while the broker didn't answer", is_final=True)
        self._called_ms = self._mono_ms()
        try:
            call(_SLICE_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            self.problem = error.args[0].str()
            return False
        finally:
            self._called_ms = None
        return True

    def _require_time(self) -> None:
        if self._mono_ms() > self._until_ms:
            detail = f"the client had no answer for {self.timeout_ms / 1000:g} s, the time in which the broker ends it"
            raise _Unknown(f"{detail} ({self.problem})", is_final=False)

    @property
    def _rights(self) -> tuple[Right, ...]:
        return (Right(Operation.WRITE, Resource.TRANSACTIONAL_ID, self._id),)

    def _on_delivery(self, place: int, error: KafkaError | None, _: Message | None = None) -> None:
        if error is not None:
            self._refused[place] = error

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.problem = error.str()


def _number(asked: tuple[Transaction, Any] | Fenced) -> int:
    return asked.number if isinstance(asked, Fenced) else asked[0].number


def _refusal(error: KafkaError, topic: str) -> Refusal:
    detail = told(error, on_topic(Operation.WRITE, topic))
    return refusal_of(error, detail)
