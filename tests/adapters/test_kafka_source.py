"""A member of a group on librdkafka's mock cluster: nothing it fetched or was told is lost, and answers belong to their commits."""

import contextlib
from functools import partial

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from redrive.adapters.kafka_playground import MockKafka
from redrive.adapters.kafka_settings import consumer_conf
from redrive.adapters.kafka_source import KafkaSource
from redrive.core.commands import Commit
from redrive.core.record import TopicPartition
from tests.adapters.librdkafka import OFFSET_COMMIT, fail_requests
from tests.waiting import until

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
UNKNOWN_MEMBER_ID = 25


class Events:
    """Starts whatever is assigned at its beginning."""

    def __init__(self, source):
        self._source = source
        self.owned = set()

    def on_assigned(self, keys):
        self.owned.update(keys)
        self._source.start_at(dict.fromkeys(keys))

    def on_revoked(self, keys):
        self.owned.difference_update(keys)

    on_lost = on_revoked


class Around:
    """A wrapper round the client's consumer."""

    def __init__(self, client):
        self._client = client

    def __getattr__(self, name):
        return getattr(self._client, name)


class Breaking(Around):
    """Raises where the batch behind the first record is asked for."""

    def consume(self, most, timeout_s):
        raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))


class Delivering(Around):
    """Delivers at once what it was given."""

    def __init__(self, client, messages):
        super().__init__(client)
        self._first, *self._rest = messages

    def poll(self, timeout_s):
        return self._first

    def consume(self, most, timeout_s):
        return self._rest


class Silent(Around):
    """Swallows a commit: it is neither sent nor answered."""

    def commit(self, **_):
        return None


@pytest.fixture(scope="module")
def mock():
    mock = MockKafka()
    mock.create(["orders"])
    return mock


@pytest.fixture
def source(mock, request):
    conf = consumer_conf(
        {"bootstrap.servers": mock.bootstrap_servers}, group=request.node.name, protocol="consumer"
    )
    with contextlib.closing(KafkaSource(conf)) as source:
        yield source


@pytest.fixture
def member(source):
    events = Events(source)
    source.join(["orders"], events)
    until(lambda: source.poll(0.05, 1) or len(events.owned) == 4, "partitions")
    return source


# -- what is fetched and told ----------------------------------------------------------------------------------------


def test_a_record_that_was_delivered_is_kept_when_asking_for_more_raises(mock, source):
    producer = Producer({"bootstrap.servers": mock.bootstrap_servers})
    for value in (b"first", b"second"):
        producer.produce("orders", value, partition=0)
    producer.flush(10)
    client, source.client = source.client, Breaking(source.client)
    source.join(["orders"], Events(source))

    first = until(lambda: source.poll(0.05, 100), "the first record")
    told = source.problems()
    source.client = client
    second = until(lambda: source.poll(0.05, 100), "the second record")

    values = [record.value() for fetched in (first, second) for _, records in fetched for record in records]
    assert values == [b"first", b"second"]
    assert ("unreachable", "1/1 brokers are down") in [(problem.kind, problem.detail) for problem in told]


@pytest.mark.parametrize("noise", [0, 1_000])
def test_each_of_many_partitions_that_are_out_of_range_in_one_poll_is_told(source, noise):
    keys = [TopicPartition("orders", number) for number in range(300)]
    gone = [_failed(KafkaError._AUTO_OFFSET_RESET, key) for key in keys]
    source.client = Delivering(source.client, [_failed(KafkaError._TRANSPORT) for _ in range(noise)] + gone)

    assert source.poll(0, 2_000) == []

    problems = source.problems()
    assert [problem.key for problem in problems if problem.kind == "out-of-range"] == keys
    assert len(problems) <= len(keys) + 50


def test_the_end_of_a_consumer_is_told_however_much_else_was_told_before(source):
    noise = [_failed(KafkaError._TRANSPORT) for _ in range(1_000)]
    source.client = Delivering(source.client, [*noise, _failed(KafkaError._FATAL)])
    source.poll(0, 2_000)
    assert source.problems()[-1].kind == "fatal"


def _failed(code, key=None):
    where = {} if key is None else {"topic": key.topic, "partition": key.partition}
    return Message(error=KafkaError(code, "told"), **where)


# -- commits ---------------------------------------------------------------------------------------------------------


def test_the_late_answer_of_a_commit_that_nobody_waits_for_any_more_does_not_count_for_the_next(mock, member):
    fail_requests(mock.client, OFFSET_COMMIT, UNKNOWN_MEMBER_ID, after_ms=200)
    member.commit(Commit(1, {P0: (5, "map")}))
    member.commit(Commit(2, {P0: (6, "map")}))

    assert _answer_of(member, 2) == {}


@pytest.mark.parametrize(
    "second", [{P0: (6, "map")}, {P0: (5, "other map")}, {P0: (5, "map"), P1: (1, "map")}]
)
def test_a_commit_that_is_never_answered_does_not_take_the_answers_of_later_ones(member, second):
    client, member.client = member.client, Silent(member.client)
    member.commit(Commit(1, {P0: (5, "map")}))
    member.client = client
    member.commit(Commit(2, second))
    assert _answer_of(member, 2) == {}

    member.commit(Commit(3, {P1: (9, "map")}))
    assert _answer_of(member, 3) == {}


def test_a_commit_that_says_what_an_unanswered_one_said_has_its_answer(member):
    client, member.client = member.client, Silent(member.client)
    member.commit(Commit(1, {P0: (5, "map")}))
    member.client = client
    member.commit(Commit(2, {P0: (5, "map")}))
    assert _answer_of(member, 2) == {}


def test_a_synchronous_commit_does_not_answer_the_asynchronous_one_after_it(mock, member):
    assert member.commit_now({P0: (5, "map")})
    fail_requests(mock.client, OFFSET_COMMIT, UNKNOWN_MEMBER_ID)
    member.commit(Commit(1, {P0: (5, "map")}))
    assert "Unknown member" in _answer_of(member, 1)[P0].detail


def test_a_refused_commit_is_answered_with_all_its_partitions(mock, member):
    fail_requests(mock.client, OFFSET_COMMIT, UNKNOWN_MEMBER_ID)
    member.commit(Commit(1, {P0: (5, "map"), P1: (3, "")}))
    assert _answer_of(member, 1).keys() == {P0, P1}


def _answer_of(source, number):
    """What was refused of commit `number`; each commit is answered once at most."""
    answers = []
    until(partial(_collected, source, answers, number), f"the answer of commit {number}", within_s=10)
    assert [snapshot for snapshot, _ in answers].count(number) == 1
    return dict(answers)[number]


def _collected(source, answers, number):
    source.poll(0.02, 1)
    answers += source.commit_answers()
    return number in dict(answers)
