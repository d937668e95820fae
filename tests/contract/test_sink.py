"""What confirmed writing must do, in memory and on a real broker."""

from typing import Any

from confluent_kafka import murmur2

from redrive.core.commands import Produce, Refusal
from redrive.runtime.ports import Sink
from tests.waiting import until


def _answers(sink: Sink, count: int) -> dict[Any, Refusal | None]:
    """So many answers, by token. Fails when a token is answered twice."""
    found: list[tuple[Any, Refusal | None]] = []
    until(lambda: (found.extend(sink.answers()), len(found) >= count)[1], f"{count} answers")
    assert len(dict(found)) == len(found) == count
    return dict(found)


def _produce(token: Any, topic: str, value: bytes | None = b"{}", **more: Any) -> Produce:
    given = {"key": b"k", "partition": 0, "headers": [], **more}
    return Produce(
        token, topic, given["partition"], given["key"], value, given["headers"], more.get("alone", False)
    )


def test_what_is_confirmed_is_stored_as_it_was_given(world):
    topic, sink = world.topic(2), world.sink()
    headers = [("a", b"1"), ("a", b"\xff\x00"), ("b", None), ("c", b"")]
    sink.produce(_produce(1, topic, b"\xfe", key=b"\x00", headers=headers, partition=1))
    sink.produce(_produce(2, topic, None, key=None))
    sink.produce(_produce(3, topic, b"", key=b""))

    assert _answers(sink, 3) == {1: None, 2: None, 3: None}
    assert world.stored(topic) == [
        (0, None, None, []),
        (0, b"", b"", []),
        (1, b"\x00", b"\xfe", headers),
    ]


def test_each_write_is_answered_once_by_its_token(world):
    topic, sink = world.topic(), world.sink()
    tokens = [object() for _ in range(1000)]
    for number, token in enumerate(tokens):
        sink.produce(_produce(token, topic, b"%d" % number))
    assert _answers(sink, 1000) == dict.fromkeys(tokens)
    assert sink.answers() == []
    assert [record.value for record in world.stored(topic)] == [b"%d" % number for number in range(1000)]


def test_a_key_goes_where_javas_producers_send_it(world):
    topic, sink = world.topic(7), world.sink()
    keys = [b"", b"k", b"order-1", "schlüssel".encode(), bytes(range(256)), b"abcd", b"abcde", b"abcdefg"]
    for key in keys:
        sink.produce(_produce(key, topic, key, key=key, partition=-1))
    _answers(sink, len(keys))
    where = {record.key: record.partition for record in world.stored(topic)}
    assert where == {key: murmur2(key, 7) for key in keys}


def test_a_missing_topic_is_told_and_may_come_later(world):
    topic, sink = world.topic(), world.sink()
    sink.produce(_produce(1, f"{topic}-missing"))
    sink.produce(_produce(2, topic))
    answers = _answers(sink, 2)
    assert (answers[1].kind, answers[2]) == ("unavailable", None)


def test_a_missing_partition_is_told(world):
    sink = world.sink()
    sink.produce(_produce(1, world.topic(), partition=9))
    assert _answers(sink, 1)[1].kind == "unavailable"


def test_a_compacted_topic_takes_no_record_without_a_key(world):
    topic, sink = world.topic(**{"cleanup.policy": "compact"}), world.sink()
    sink.produce(_produce(1, topic, key=None, alone=True))
    sink.produce(_produce(2, topic, alone=True))
    answers = _answers(sink, 2)
    assert (answers[1].kind, answers[2]) == ("unavailable", None)


def test_an_oversize_record_spoils_its_batch_and_nobody_when_it_is_alone(world):
    topic, sink = world.topic(**{"max.message.bytes": "20000"}), world.sink()
    values = {1: b"a", 2: b"x" * 30_000, 3: b"c"}
    for token, value in values.items():
        sink.produce(_produce(token, topic, value))
    together = _answers(sink, 3)
    assert {answer.kind for answer in together.values()} == {"too-large"}

    for token, value in values.items():
        sink.produce(_produce(token, topic, value, alone=True))
    apart = _answers(sink, 3)
    assert (apart[1], apart[2].kind, apart[3]) == (None, "too-large", None)
    assert [record.value for record in world.stored(topic)] == [b"a", b"c"]


def test_headers_and_key_count_for_the_size(world):
    topic, sink = world.topic(**{"max.message.bytes": "20000"}), world.sink()
    sink.produce(_produce(1, topic, b"", headers=[("h", b"x" * 21_000)], alone=True))
    sink.produce(_produce(2, topic, b"", key=b"x" * 21_000, alone=True))
    sink.produce(_produce(3, topic, b"x" * 19_000, alone=True))
    answers = _answers(sink, 3)
    assert (answers[1].kind, answers[2].kind, answers[3]) == ("too-large", "too-large", None)


def test_closing_waits_for_what_is_on_its_way(world):
    topic, sink = world.topic(), world.sink()
    for token in range(100):
        sink.produce(_produce(token, topic))
    sink.close(30)
    assert _answers(sink, 100) == dict.fromkeys(range(100))
    assert len(world.stored(topic)) == 100
