"""Whatever bytes come: a record is handled, or becomes one dead letter that is as it came, and never stands in the way."""

import warnings
from typing import NamedTuple

import msgspec
import pytest
from confluent_kafka import Consumer, TopicPartition

from redrive import App, Record, RetryPolicy
from redrive.core.record import headers_of
from tests.faults import running
from tests.kafka.shop import Shop
from tests.plain_kafka import Given, Seen, create_topics_of, is_all_committed, read_all, send, unique
from tests.waiting import until

LARGE = 1_000_000
HEADERS = [("trace", b"\x00\xff\xfe"), ("tag", b"a"), ("tag", b"b"), ("none", None), ("", b""), ("tag", b"a")]
FORGED = [
    ("redrive-attempt", b"99"),
    ("redrive-due-ms", b"99999999999999"),
    ("redrive-group", b"somebody-else"),
    ("redrive-id", b"forged"),
    ("redrive-source-topic", b"elsewhere"),
    ("redrive-source-partition", b"7"),
    ("redrive-source-offset", b"7777"),
    ("redrive-first-failed-ms", b"1"),
]
GARBAGE = [
    ("redrive-attempt", b"banana"),
    ("redrive-attempt", None),
    ("redrive-due-ms", b"\xff\xff"),
    ("redrive-group", b"\xc3\x28"),
    ("redrive-source-partition", b"-5"),
    ("redrive-source-offset", b"1e99"),
    ("redrive-first-failed-ms", b""),
    ("redrive-failure-message", b"\x80"),
    ("redrive-hops", b"99999999999999999999"),
]

#: Sent to `typed`, by name.
TYPED = {
    "undecodable bytes": Given(b"\xff\x00\x80{", b"k1", HEADERS),
    "wrong schema": Given(b'{"total": "many"}', b"k2", HEADERS),
    "a null value": Given(None, b"k3", HEADERS),
    "an empty value": Given(b"", b"k4", HEADERS),
    "a null key": Given(b"{", None, HEADERS),
    "an empty key": Given(b"{", b"", HEADERS),
    "a binary key": Given(b"{", b"\x00\xff", HEADERS),
    "no headers": Given(b"{", b"k5", []),
    "a megabyte": Given(b"\xfe" * LARGE, b"k6", HEADERS),
}


class Misnamed(str):
    """A header's name that isn't UTF-8 on the wire: the protocol says it is, no broker checks."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe\x80"


class Order(msgspec.Struct):
    total: int


class Run(NamedTuple):
    listener: str
    value: object
    attempt: int
    event_id: str
    headers: tuple[tuple[str, bytes | None], ...]
    key: bytes | None


class Outcome(NamedTuple):
    """What the service below made of all that was sent to it."""

    sources: dict[str, str]
    runs: list[Run]
    dead: dict[str, list[Seen]]

    def of(self, listener: str) -> list[Run]:
        return [run for run in self.runs if run.listener == listener]


@pytest.fixture(scope="module")
def outcome(kafka) -> Outcome:
    app = App(unique("bad-input"), settings={"bootstrap_servers": kafka.bootstrap})
    sources = {
        name: unique(name) for name in ("typed", "optional", "changing", "tiered", "plain", "misnamed")
    }
    runs: list[Run] = []
    _declare(app, sources, runs)
    create_topics_of(kafka.bootstrap, app)

    send(kafka.bootstrap, sources["typed"], TYPED.values())
    good = b'{"total": 1, "text": "' + b"x" * LARGE + b'"}'
    send(kafka.bootstrap, sources["typed"], [Given(good, None, HEADERS)])
    send(kafka.bootstrap, sources["optional"], [Given(None, b"gone"), Given(b'{"total": 2}'), Given(b"")])
    send(kafka.bootstrap, sources["changing"], [Given(b'{"total": [1, 2]}', b"k", HEADERS)])
    send(
        kafka.bootstrap, sources["plain"], [Given(b"forged", b"k", FORGED), Given(b"garbage", b"k", GARBAGE)]
    )
    send(kafka.bootstrap, sources["tiered"], [Given(b"climbs", b"k", [*HEADERS, *FORGED])])
    send(kafka.bootstrap, f"{sources['tiered']}.retry.200ms", [Given(b"strays", b"k", [*HEADERS, *GARBAGE])])
    _send_misnamed(kafka.bootstrap, sources["misnamed"], b"climbs")
    _send_misnamed(kafka.bootstrap, f"{sources['misnamed']}.retry.250ms", b"strays")
    with running(app):
        topics = [*sources.values(), f"{sources['tiered']}.retry.200ms", f"{sources['tiered']}.retry.300ms"]
        topics.insert(0, f"{sources['misnamed']}.retry.250ms")
        until(lambda: is_all_committed(kafka.bootstrap, app.group, topics[:-2]), "all sources committed")
        until(lambda: len([run for run in runs if run.listener == "tiered"]) == 6, "the ladder climbed twice")
        until(lambda: len([run for run in runs if run.listener == "misnamed"]) == 4, "the short ladder too")
        until(lambda: is_all_committed(kafka.bootstrap, app.group, topics), "all tiers committed")
    return Outcome(
        sources, runs, {name: read_all(kafka.bootstrap, f"{topic}.dlq") for name, topic in sources.items()}
    )


def _send_misnamed(bootstrap: str, topic: str, *values: bytes) -> None:
    """By a client that encodes names itself; its own deprecated calls are not our affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=bootstrap)
        for value in values:
            producer.send(topic, value, b"k", [(Misnamed("x"), b"1"), ("tag", b"2")]).get(30)
        producer.close()


def _declare(app: App, sources: dict[str, str], runs: list[Run]) -> None:
    def note(listener: str, value: object, record: Record) -> None:
        runs.append(Run(listener, value, record.attempt, record.event_id, record.headers, record.key))

    @app.listener(sources["typed"], retry=RetryPolicy())
    def typed(order: Order, record: Record) -> None:
        note("typed", order, record)

    @app.listener(sources["optional"], retry=RetryPolicy())
    def optional(order: Order | None, record: Record) -> None:
        note("optional", order, record)

    @app.listener(sources["changing"], retry=RetryPolicy())
    def changing(order: dict, record: Record) -> None:
        note("changing", dict(order), record)
        order["total"].append(3)
        order["new"] = 1
        raise ZeroDivisionError

    @app.listener(sources["tiered"], retry=RetryPolicy("200ms", "300ms"))
    async def tiered(value: bytes, record: Record) -> None:
        note("tiered", value, record)
        raise ConnectionError

    @app.listener(sources["misnamed"], retry=RetryPolicy("250ms"))
    def misnamed(record: Record) -> None:
        note("misnamed", record.value, record)
        raise ConnectionError

    @app.listener(sources["plain"], retry=RetryPolicy())
    def plain(record: Record) -> None:
        note("plain", record.value, record)


@pytest.mark.parametrize("name", TYPED)
def test_t_ret_10_an_undecodable_record_is_one_dead_letter_as_it_came(outcome, name):
    given, at = TYPED[name], list(TYPED).index(name)

    [letter] = [seen for seen in outcome.dead["typed"] if seen.own["source-offset"] == str(at)]

    assert (letter.key, letter.value, letter.foreign) == (given.key, given.value, given.headers)
    assert (letter.own["reason"], letter.own["attempt"]) == ("poison", "1")


def test_undecodable_records_never_reach_the_handler_and_the_good_one_behind_them_does(outcome):
    [run] = outcome.of("typed")

    assert (run.value.total, run.key, list(run.headers)) == (1, None, HEADERS)
    assert len(outcome.dead["typed"]) == len(TYPED)


def test_a_null_value_is_handled_where_the_annotation_allows_none_and_an_empty_one_is_not_null(outcome):
    assert [run.value for run in outcome.of("optional")] == [None, Order(2)]
    assert [(seen.value, seen.own["reason"]) for seen in outcome.dead["optional"]] == [(b"", "poison")]


def test_a_dead_letter_is_as_it_came_though_the_handler_changed_its_copy(outcome):
    [letter] = outcome.dead["changing"]

    assert (letter.value, letter.key, letter.foreign) == (b'{"total": [1, 2]}', b"k", HEADERS)
    assert (letter.own["reason"], letter.own["failure-type"]) == ("permanent", "ZeroDivisionError")


def test_headers_of_ours_on_a_source_are_ignored_forged_or_garbage(outcome):
    source = outcome.sources["plain"]

    assert [(run.value, run.attempt, run.event_id) for run in outcome.of("plain")] == [
        (b"forged", 1, f"{source}/0/0"),
        (b"garbage", 1, f"{source}/0/1"),
    ]


def test_a_forged_origin_is_not_carried_up_the_ladder(outcome):
    runs = [run for run in outcome.of("tiered") if run.value == b"climbs"]
    [letter] = [seen for seen in outcome.dead["tiered"] if seen.value == b"climbs"]

    assert [run.attempt for run in runs] == [1, 2, 3]
    assert {run.event_id for run in runs} == {f"{outcome.sources['tiered']}/0/0"}
    assert (letter.own["source-topic"], letter.own["id"], letter.own["attempt"], letter.own["reason"]) == (
        outcome.sources["tiered"],
        f"{outcome.sources['tiered']}/0/0",
        "3",
        "exhausted",
    )


def test_garbage_in_our_headers_on_a_tier_means_attempt_one_and_not_poison(outcome):
    runs = [run for run in outcome.of("tiered") if run.value == b"strays"]
    [letter] = [seen for seen in outcome.dead["tiered"] if seen.value == b"strays"]

    assert [run.attempt for run in runs] == [1, 2, 3]
    assert (letter.own["attempt"], letter.own["reason"]) == ("3", "exhausted")


def test_key_and_headers_climb_the_ladder_unchanged(outcome):
    letters = outcome.dead["tiered"]

    assert [(seen.key, seen.foreign) for seen in letters] == [(b"k", HEADERS), (b"k", HEADERS)]
    assert {run.headers for run in outcome.of("tiered")} == {tuple(HEADERS)}


def test_a_header_name_that_is_not_utf_8_takes_the_headers_and_not_the_service(outcome):
    told = ("headers-unreadable", b"a header's name was not UTF-8")

    letters = outcome.dead["misnamed"]

    assert sorted((seen.value, seen.key, *seen.foreign) for seen in letters) == [
        (b"climbs", b"k", told),
        (b"strays", b"k", told),
    ]
    assert {run.headers for run in outcome.of("misnamed")} == {(told,)}


def test_such_headers_are_found_out_also_where_python_has_specialised_the_call(kafka, topic):
    orders = topic("orders")
    send(kafka.bootstrap, orders, [Given(headers=[("tag", b"1")])] * 100)
    _send_misnamed(kafka.bootstrap, orders, b"{}")
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(orders, 0, 0)])

    *plain, misnamed = consumer.consume(101, 20)
    consumer.close()

    assert [headers_of(record) for record in plain] == [[("tag", b"1")]] * 100
    told = [("headers-unreadable", b"a header's name was not UTF-8")]
    assert [headers_of(misnamed), headers_of(misnamed)] == [told, told]


def test_the_commands_read_a_dead_letter_topic_that_holds_such_a_record(kafka):
    shop = Shop(kafka.bootstrap, partitions=1)
    _send_misnamed(kafka.bootstrap, shop.dlq, *[b"{}"] * 30)

    code, counted, _ = shop("ls", shop.dlq)
    assert (code, counted["letters"]) == (0, 30)
    code, shown, _ = shop("show", f"{shop.dlq}/0/29")
    assert (code, shown["headers"]) == (0, [["headers-unreadable", "a header's name was not UTF-8"]])
