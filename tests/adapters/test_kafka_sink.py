"""The producer of successors on librdkafka's mock cluster: every write is answered once, whatever becomes of the producer."""

import weakref

import pytest
from confluent_kafka import KafkaError

from redrive.adapters.kafka_settings import producer_conf
from redrive.adapters.kafka_sink import KafkaSink
from redrive.core.commands import Produce
from tests.adapters.librdkafka import break_producer
from tests.waiting import until

CONF = {**producer_conf({}), "test.mock.num.brokers": 1, "log_level": 0}


@pytest.fixture
def sink():
    sink = KafkaSink(CONF)
    yield sink
    sink.close(1)


def write(sink, *tokens, alone=False):
    for token in tokens:
        sink.produce(Produce(token, "orders.dlq", -1, b"k", b"v", [], alone))


def answered(sink, count=1):
    """The answers of so many writes, by token."""
    answers = []

    def are_there():
        answers.extend(sink.answers())
        return len(answers) >= count

    until(are_there, "answers")
    assert len(answers) == len(dict(answers)) == count
    return dict(answers)


class Around:
    """A wrapper round the client's producer."""

    def __init__(self, client):
        self.client = client

    def __getattr__(self, name):
        return getattr(self.client, name)

    def __len__(self):
        return len(self.client)


class Forgetful(Around):
    """Writes, and forgets to report."""

    def produce(self, topic, value, key, partition, report, headers):
        self.client.produce(topic, value, key, partition, headers=headers)


class Late(Around):
    """Leaves it to the test to report."""

    def produce(self, topic, value, key, partition, report, headers):
        self.report = report


class Full(Around):
    """Has no room left."""

    waits = 0

    def produce(self, *args, **kwargs):
        raise BufferError("Local: Queue full")

    def poll(self, timeout_s=-1):
        self.waits += timeout_s != 0
        return self.client.poll(0)


class Blind(Around):
    """Breaks off with what is no Exception, as the client does when a callback runs with an exception pending."""

    def poll(self, timeout_s=-1):
        raise SystemExit("from within a callback")


@pytest.mark.parametrize("alone", [False, True])
def test_a_producer_that_broke_while_nothing_was_outstanding_is_replaced_and_the_write_after_it_goes_through(
    sink, alone
):
    write(sink, "before", alone=alone)
    assert answered(sink) == {"before": None}
    break_producer(sink._single.client if alone else sink.client, "it was fenced")

    write(sink, "refused", alone=alone)
    refused = answered(sink)["refused"]
    write(sink, "after", alone=alone)

    assert (refused.kind, refused.detail) == (
        "unavailable",
        "INVALID_PRODUCER_EPOCH: test_fatal_error: it was fenced",
    )
    assert answered(sink) == {"after": None}


def test_a_producer_that_broke_is_replaced_though_nobody_writes(sink):
    write(sink, "before")
    answered(sink)
    broken = sink.client
    break_producer(broken, "it was fenced")

    until(lambda: sink.answers() or sink.client is not broken, "a new producer")

    write(sink, "after")
    assert answered(sink) == {"after": None}


def test_of_what_was_on_its_way_when_the_producer_broke_each_write_is_answered_once(sink):
    write(sink, *range(50))
    break_producer(sink.client, "it was fenced")
    write(sink, *range(50, 100))

    answers = answered(sink, 100)

    assert answers.keys() == set(range(100))
    write(sink, "after")
    assert answered(sink) == {"after": None}


def test_reports_that_got_lost_are_answered_as_refused(sink):
    sink.client = Forgetful(sink.client)
    write(sink, "lost", "lost too")

    answers = answered(sink, 2)

    assert {refusal.kind for refusal in answers.values()} == {"unavailable"}
    write(sink, "after")
    assert answered(sink) == {"after": None}


def test_a_later_loss_is_not_told_with_the_reason_of_an_earlier_one(sink):
    break_producer(sink.client, "it was fenced")
    write(sink, "refused")
    answered(sink)
    sink.client = Forgetful(sink.client)
    write(sink, "lost")
    assert answered(sink)["lost"].detail == "the producer failed and was rebuilt"


def test_a_producer_that_failed_is_a_problem_until_it_has_confirmed_a_write(sink):
    assert sink.problem == ""
    break_producer(sink.client, "it was fenced")
    write(sink, "refused")
    answered(sink)
    assert sink.problem == "INVALID_PRODUCER_EPOCH: test_fatal_error: it was fenced"

    write(sink, "after")
    answered(sink)
    assert sink.problem == ""


def test_whatever_the_client_raises_the_producer_is_replaced(sink):
    sink.client = Blind(sink.client)
    write(sink, "lost")
    assert answered(sink)["lost"].kind == "unavailable"
    write(sink, "after")
    assert answered(sink) == {"after": None}


@pytest.mark.parametrize("error", [None, KafkaError(KafkaError._FATAL, fatal=True)])
def test_a_late_report_of_a_producer_that_was_given_up_neither_answers_again_nor_breaks_the_new_one(
    sink, error
):
    sink.client = old = Late(sink.client)
    write(sink, "first")
    old.poll = Blind.poll.__get__(old)
    assert answered(sink)["first"].kind == "unavailable"
    new = sink.client

    old.report(error, None)

    assert sink.answers() == []
    assert sink.client is new


def test_a_full_queue_is_told_at_once_since_the_pump_has_others_to_serve(sink):
    sink.client = full = Full(sink.client)
    write(sink, *range(10))
    assert {refusal.detail for refusal in answered(sink, 10).values()} == {"the client's send queue is full"}
    assert full.waits == 0


class Mortal(list):
    """Headers whose end can be seen."""


def test_what_the_client_has_copied_is_not_kept_until_it_is_answered(sink):
    headers = Mortal([("redrive-attempt", b"1")])
    end = weakref.ref(headers)
    sink.client = Late(sink.client)
    sink.produce(Produce("written", "orders.dlq", -1, b"k", b"v", headers))
    del headers

    assert end() is None
