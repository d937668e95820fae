"""What the transactional producer's thread makes of its own trouble."""

import threading
import time

from confluent_kafka import KafkaError, KafkaException

from redrive.adapters.kafka_transactor import KafkaTransactor
from redrive.core.commands import Produce, Transaction
from redrive.core.record import TopicPartition
from redrive.core.transactions import Completed, Fenced
from redrive.sim.clock import VirtualClock
from tests.plain_kafka import create_topics, read_all, unique
from tests.waiting import until


def conf_of(kafka):
    return {
        "bootstrap.servers": kafka.bootstrap,
        "transactional.id": unique("shop"),
        "transaction.timeout.ms": 60_000,
    }


def test_a_producer_that_fails_and_can_not_be_made_anew_is_told(kafka):
    transactor = KafkaTransactor(conf_of(kafka), time.monotonic)
    until(lambda: transactor.thread._is_ready, "it has its id")
    transactor.thread._conf["no.such.setting"] = "x"
    transactor.thread.client = None
    transactor.submit(Transaction(7, (), {}), None)
    [outcome] = until(transactor.outcomes, "it says what became of it")
    assert isinstance(outcome, Fenced)
    assert (outcome.number, outcome.is_final) == (7, True)
    assert "could not be made anew" in outcome.detail
    transactor.close(1)


class Silent:
    """A producer whose commits are never answered, as after a broker and the way to it were lost; each takes its second."""

    def __init__(self, client, clock):
        self._client, self._clock = client, clock

    def commit_transaction(self, timeout_s):
        self._clock.advance(1000 * timeout_s)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))

    def __getattr__(self, name):
        return getattr(self._client, name)


def test_a_transaction_without_an_answer_is_given_up_when_its_time_is_over_and_the_next_one_goes_through(
    kafka,
):
    topic = unique("orders")
    create_topics(kafka.bootstrap, [topic], 1)
    now = VirtualClock()
    transactor = KafkaTransactor(conf_of(kafka), now.mono_ms)
    until(lambda: transactor.thread._is_ready, "it has its id")
    transactor.thread.client = Silent(transactor.thread.client, now)
    transactor.submit(Transaction(1, (), {}), None)
    [outcome] = until(transactor.outcomes, "it is given up")
    assert isinstance(outcome, Fenced)
    assert (outcome.is_final, "no answer for 60 s" in outcome.detail) == (False, True)
    assert transactor.thread._is_ready, "nothing of the producer before can arrive any more"
    transactor.submit(Transaction(2, (Produce(None, topic, 0, b"k", b"v", []),), {}), None)
    assert until(transactor.outcomes, "the next one") == [Completed(2)]
    transactor.close(1)


class Deaf:
    """A producer that heeds no timeout: the client's own, where the group's coordinator is lost."""

    def __init__(self, client, comes_back):
        self._client, self._comes_back = client, comes_back

    def send_offsets_to_transaction(self, *_):
        self._comes_back.wait()

    def __getattr__(self, name):
        return getattr(self._client, name)


def test_a_thread_that_hangs_in_the_client_is_left_behind_and_the_next_transaction_goes_through(kafka):
    topic, now, comes_back = unique("orders"), VirtualClock(), threading.Event()
    create_topics(kafka.bootstrap, [topic], 1)
    transactor = KafkaTransactor(conf_of(kafka), now.mono_ms)
    until(lambda: transactor.thread._is_ready, "it has its id")
    left = transactor.thread
    left.client = Deaf(left.client, comes_back)
    transactor.submit(
        Transaction(1, (Produce(None, topic, 0, b"k", b"1", []),), {TopicPartition(topic, 0): (1, "")}), None
    )
    until(lambda: left._called_ms is not None, "it hangs")
    now.advance(60_001)
    [outcome] = until(transactor.outcomes, "it is given up")
    assert isinstance(outcome, Fenced)
    assert (outcome.is_final, "hangs since more than 60 s" in outcome.detail) == (False, True)
    transactor.submit(Transaction(2, (Produce(None, topic, 0, b"k", b"2", []),), {}), None)
    assert until(transactor.outcomes, "the next one") == [Completed(2)]
    comes_back.set()
    until(lambda: not left._thread.is_alive(), "the one left behind has ended")
    assert [seen.value for seen in read_all(kafka.bootstrap, topic)] == [b"2"]
    transactor.close(1)
