"""`redrive dlq` on dead-letter topics of services that never used redrive, on a real broker."""

import pytest

from redrive import App, Record, RetryPolicy
from tests.faults import running
from tests.kafka.shop import Shop
from tests.kafka.test_dlq import Service
from tests.plain_kafka import Given, create_topics, create_topics_of, is_all_committed, read_all, send, unique
from tests.waiting import until

MINE = [("trace", b"\xff"), ("trace", b"1"), ("n", None)]


def _spring(topic, offset):
    return [
        *MINE,
        ("kafka_exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
        ("kafka_exception-cause-fqcn", b"java.lang.IllegalStateException"),
        ("kafka_exception-message", b"Listener failed; boom"),
        ("kafka_exception-stacktrace", b"at com.example.Orders.charge"),
        ("kafka_original-topic", topic.encode()),
        ("kafka_original-partition", (0).to_bytes(4)),
        ("kafka_original-offset", offset.to_bytes(8)),
        ("kafka_dlt-original-consumer-group", b"orders-service"),
        ("retry_topic-original-timestamp", (1_767_225_600_000).to_bytes(6)),
        ("retry_topic-attempts", (4).to_bytes(4)),
        ("retry_topic-backoff-timestamp", (1_767_225_600_000).to_bytes(6)),
    ]


@pytest.fixture
def shop(kafka, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("REDRIVE_APP", "REDRIVE_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    return Shop(kafka.bootstrap)


def test_letters_of_spring_are_counted_shown_sent_back_and_counted_again(kafka, shop, group):
    dlt = f"{shop.source}-dlt"
    create_topics(kafka.bootstrap, [dlt])
    other = Service(kafka.bootstrap, group, shop.source, RetryPolicy())
    create_topics_of(kafka.bootstrap, other.app)
    other.is_fixed = True
    send(kafka.bootstrap, shop.source, [Given(b"before", partition=1)])
    send(kafka.bootstrap, dlt, [Given(b"%d" % n, b"k", _spring(shop.source, n)) for n in range(3)])

    code, counted, noted = shop("ls", dlt)
    [cause] = counted["causes"]
    assert (code, counted["unresolved"], f"{dlt}-state doesn't exist" in noted) == (0, 3, True)
    assert (cause["dialect"], cause["type"], cause["group"]) == (
        "spring",
        "java.lang.IllegalStateException",
        "orders-service",
    )
    assert "(spring)" in shop.text("ls", dlt)
    shown = shop.text("show", f"{dlt}/0/1")
    assert "its headers are those of the dialect spring" in shown
    assert "source:         SOURCE/0/1" in shown
    assert "at com.example.Orders.charge" in shown
    assert ("header:         trace = hex:ff" in shown, "retry_topic-attempts" in shown) == (True, False)

    with running(other.app):
        until(lambda: is_all_committed(kafka.bootstrap, group, [shop.source]), "the group has committed")
        code, planned, _ = shop("replay", dlt, "--all", "--dry-run")
        assert (code, planned["readers"]) == (0, {shop.source: [group]})
        said = shop.text("replay", dlt, "--all", "--dry-run")
        assert f"SOURCE is read by {group}: each of these groups gets the letters" in said
        code, sent, _ = shop("replay", dlt, "--all", "--yes")
        assert (code, sent["sent"]) == (0, 3)
        until(lambda: len(other.handled) == 4, "all are handled")
    copies = [copy for copy in read_all(kafka.bootstrap, shop.source) if copy.partition == 0]
    assert [copy.foreign for copy in copies] == [MINE] * 3
    assert other.handled[1:] == [(f"{shop.source}/0/{n}", 1, True, b"%d" % n, tuple(MINE)) for n in range(3)]
    assert shop("ls", dlt)[1]["unresolved"] == 0


def test_a_topic_with_unknown_headers_is_counted_shown_and_sent_where_a_person_says(kafka, shop):
    strange = unique("errors")
    target = unique("again")
    create_topics(kafka.bootstrap, [strange, target])
    headers = [("error", b"\x1b[31mboom"), ("error", b"\xff\xfe"), ("", None), ("when", b"\0" * 3000)]
    send(kafka.bootstrap, strange, [Given(b"\xff\x00", b"k", headers), Given(None, None, [])])

    code, counted, _ = shop("ls", strange)
    assert (code, counted["unresolved"], [cause["dialect"] for cause in counted["causes"]]) == (0, 2, [""])
    said = shop.text("ls", strange)
    assert ("2 foreign: their headers are no known dialect's" in said, "\x1b" in said) == (True, False)
    assert "its headers are no known dialect's" in shop.text("show", f"{strange}/0/0")

    code, planned, _ = shop("replay", strange, "--all", "--yes")
    assert (code, planned["left_out"]) == (5, {"foreign, doesn't say where to go": 2})
    assert shop("replay", strange, "--all", "--to", target, "--yes")[1]["sent"] == 2
    assert [(copy.value, copy.key, copy.foreign) for copy in read_all(kafka.bootstrap, target)] == [
        (b"\xff\x00", b"k", headers),
        (None, None, []),
    ]
    assert shop("discard", strange, "--all", "--yes")[0] == 5


def test_a_user_s_own_dialect_is_understood_once_its_headers_are_named(kafka, shop, tmp_path):
    strange = unique("errors")
    create_topics(kafka.bootstrap, [strange])
    send(
        kafka.bootstrap,
        strange,
        [Given(b"1", b"k", [("Came-From", shop.source.encode()), ("Tries", b"\0\0\0\3")])],
    )
    (tmp_path / "redrive.toml").write_text(
        '[own_dialects.billing]\nsource_topic = "Came-From"\nattempt = { header = "Tries", encoding = "int32" }\n'
    )
    shown = shop("show", f"{strange}/0/0")[1]
    assert (shown["dialect"], shown["attempts"]) == ("billing", 3)
    assert shop("replay", strange, "--all", "--yes")[1]["sent"] == 1
    assert read_all(kafka.bootstrap, shop.source)[0].value == b"1"


def test_a_service_takes_over_what_waits_in_spring_s_retry_topic(kafka, group):
    source = unique("orders")
    app = App(
        group,
        settings={"bootstrap_servers": kafka.bootstrap, "topic_style": "spring"},
        dialects=["redrive", "spring"],
    )
    runs = []

    @app.listener(source, retry=RetryPolicy("1s", "2s"))
    def charge(value: bytes, record: Record) -> None:
        runs.append((record.attempt, record.event_id))
        raise TimeoutError("no answer")

    names = ("", "-retry-1000", "-retry-2000", "-dlt", "-dlt-state")
    create_topics(kafka.bootstrap, [f"{source}{name}" for name in names])
    headers = [
        each
        for each in _spring(source, 17)
        if each[0] not in {"retry_topic-attempts", "kafka_dlt-original-consumer-group"}
    ]
    headers.append(("retry_topic-attempts", (2).to_bytes(4)))
    send(kafka.bootstrap, f"{source}-retry-1000", [Given(b"1", b"k", headers)])
    with running(app):
        until(lambda: len(read_all(kafka.bootstrap, f"{source}-dlt")) == 1, "a dead letter")
    assert runs == [(2, f"{source}/0/17"), (3, f"{source}/0/17")]
    [letter] = read_all(kafka.bootstrap, f"{source}-dlt")
    said = dict(letter.foreign)
    assert (said["retry_topic-attempts"], said["kafka_original-topic"], letter.own["attempt"]) == (
        b"\0\0\0\4",
        source.encode(),
        "3",
    )
