"""Letters of other systems: what they say, how they are counted, and where their copies go."""

import pytest

from redrive.core.dialects import read_envelope, with_envelope
from redrive.core.envelope import Envelope, is_own_header
from redrive.core.own_dialects import translator_of
from redrive.deadletters.letters import glance, read_letter
from redrive.deadletters.portrait import portray
from redrive.deadletters.selection import Selection, make_plan
from redrive.deadletters.summary import count_letters
from redrive.sim.records import SimRecord
from tests.deadletters.desks import ALL, Office, envelope

MINE = [("trace", b"\xff"), ("n", None), ("trace", b"1")]
SPRING = [
    *MINE,
    ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
    ("kafka_dlt-exception-message", b"boom"),
    ("kafka_dlt-exception-stacktrace", b"at A"),
    ("kafka_dlt-original-topic", b"orders"),
    ("kafka_dlt-original-partition", (0).to_bytes(4)),
    ("kafka_dlt-original-offset", (17).to_bytes(8)),
    ("kafka_dlt-original-consumer-group", b"orders-service"),
    ("retry_topic-attempts", (4).to_bytes(4)),
    ("retry_topic-backoff-timestamp", (1_767_225_600_000).to_bytes(6)),
]
CONNECT = [
    ("__connect.errors.topic", b"orders"),
    ("__connect.errors.partition", b"0"),
    ("__connect.errors.offset", b"18"),
    ("__connect.errors.connector.name", b"to-s3"),
    ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
    ("__connect.errors.exception.message", None),
]
SHARE = [
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"0"),
    ("__dlq.errors.offset", b"19"),
    ("__dlq.errors.group", b"shares"),
]
ARROYO = [("original_partition", b"0"), ("original_offset", b"20")]
UNKNOWN = [("error", b"boom"), ("\xfe", b"\xff"), ("", None), ("redrive-of-tomorrow", b"?")]


def _letter(headers, value=b"v"):
    return read_letter(SimRecord("orders.dlq", 0, 3, b"k", value, headers, 1_700_000_009_000))


@pytest.mark.parametrize(
    ("headers", "dialect"),
    [
        (SPRING, "spring"),
        (CONNECT, "connect"),
        (SHARE, "share"),
        (ARROYO, "arroyo"),
        (UNKNOWN, ""),
        ([], ""),
        (with_envelope(SPRING, envelope(1)), "redrive"),
        ([*with_envelope(None, envelope(1)), *CONNECT], "connect"),
        # A record of a retry topic that somebody copied by hand is no letter of ours.
        (with_envelope(None, Envelope(attempt=3)), ""),
    ],
)
def test_a_letter_is_that_of_who_wrote_it_last(headers, dialect):
    assert (_letter(headers).dialect, glance(headers).dialect) == (dialect, dialect)


@pytest.mark.parametrize(
    "headers", [SPRING, CONNECT, SHARE, ARROYO, UNKNOWN, [], with_envelope(MINE, envelope(1))]
)
def test_a_glance_sees_what_the_whole_letter_says(headers):
    said, seen = _letter(headers).envelope, glance(headers)
    assert (seen.group, seen.failure_type, seen.event_id) == (said.group, said.failure_type, said.event_id)


def test_they_are_counted_by_who_wrote_them_and_why():
    office = Office()
    for headers in (SPRING, SPRING, CONNECT, UNKNOWN):
        office.letter(headers=headers)
    office.letter(1)
    rows = count_letters(Selection(), office.books(), office.desk.log)
    assert [(row.dialect, row.failure_type, row.group, row.letters) for row in rows] == [
        ("spring", "java.lang.IllegalStateException", "orders-service", 2),
        ("redrive", "KeyError", "payments", 1),
        ("", "", "", 1),
        ("connect", "org.apache.kafka.connect.errors.DataException", "", 1),
    ]


def test_a_letter_is_told_in_its_words():
    values = portray(_letter(SPRING), None, [])
    assert (values["foreign"], values["dialect"], values["group"], values["attempts"]) == (
        True,
        "spring",
        "orders-service",
        3,
    )
    assert values["source"] == {"topic": "orders", "partition": 0, "offset": 17}
    assert values["event_id"] == "orders/0/17"
    assert values["failure"]["stack"] == "at A"
    assert len(values["headers"]) == len(SPRING)


def test_they_go_to_the_topic_that_they_came_from_and_whoever_reads_it_is_to_be_told():
    office = Office()
    office.letter(headers=SPRING)
    office.letter(headers=CONNECT)
    office.letter(1)
    plan = office.plan()
    assert plan.routes() == {
        ("orders.dlq", "orders"): {"spring": 1, "connect": 1},
        ("orders.dlq", "orders.retry.5s"): {"permanent": 1},
    }
    assert plan.shared_targets() == ["orders"]


@pytest.mark.parametrize(
    ("headers", "value", "why"),
    [
        (ARROYO, b"v", "foreign, doesn't say where to go"),
        (UNKNOWN, b"v", "foreign, doesn't say where to go"),
        (SHARE, None, "without its value, which its share group didn't copy"),
        ([("x-original-topic", b"orders.dlq")], b"v", "says that it came from this dead-letter topic"),
    ],
)
def test_what_can_t_go_back_is_left_out_and_says_why(headers, value, why):
    office = Office()
    office.letter(headers=headers, value=value)
    assert (office.plan().entries, dict(office.plan().left_out)) == ((), {why: 1})


def test_a_null_value_that_its_producer_wrote_goes_back():
    office = Office()
    office.letter(headers=SPRING, value=None)
    assert len(office.plan().entries) == 1


def test_a_copy_carries_the_producer_s_headers_and_nobody_s_bookkeeping_but_ours():
    office = Office()
    at = office.letter(headers=SPRING, key=b"\0k", value=b"\xff")

    report = office.replay()

    [copy] = office.cluster.records("orders")
    said, _ = read_envelope(copy.headers())
    assert (report.done, copy.key(), copy.value()) == (1, b"\0k", b"\xff")
    assert [each for each in copy.headers() if not is_own_header(each[0])] == MINE
    assert (said.event_id, said.replay_id, said.replays, said.attempt) == ("orders/0/17", "job-1", 1, 0)
    # Another system's group: where the copy is taken from a retry topic of ours, it would be passed by.
    assert said.group == ""
    assert office.states() == {str(at): "replayed"}


def test_the_same_letter_isn_t_sent_twice_and_may_be_discarded():
    office = Office()
    office.letter(headers=SPRING)
    office.letter(headers=UNKNOWN)
    office.replay()
    assert dict(office.plan().left_out) == {"replayed already": 1, "foreign, doesn't say where to go": 1}
    assert office.discard().done == 1


def test_they_are_selected_by_what_they_say():
    office = Office()
    office.letter(headers=SPRING)
    office.letter(headers=CONNECT)
    for selection in (
        Selection(groups=frozenset(["orders-service"])),
        Selection(types=frozenset(["java.lang.IllegalStateException"])),
        Selection(event_ids=frozenset(["orders/0/17"])),
    ):
        assert [entry.position.offset for entry in office.plan(selection).entries] == [0]


def test_a_dialect_of_the_user_s_own_is_understood():
    mine = translator_of(("redrive",), {"mine": {"source_topic": "Came-From", "failure_type": "Went-Wrong"}})
    office = Office()
    office.letter(headers=[("Came-From", b"orders"), ("Went-Wrong", b"Timeout")])
    plan = make_plan(ALL, office.books(), office.desk.log, kind="replay", translator=mine)
    assert plan.routes() == {("orders.dlq", "orders"): {"mine": 1}}
    assert office.plan().entries == ()
