"""Many dialects: what is written in several is read from each, and who wrote a record last is told from its headers."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import dialects
from redrive.core.dialect_tables import ARROYO, CONNECT, FOREIGN, SHARE, SMALLRYE, SPRING, X_DASHED
from redrive.core.dialects import MAX_MESSAGE_BYTES, REDRIVE, read_envelope, with_envelope
from redrive.core.envelope import Envelope, is_own_header
from redrive.core.own_dialects import own_dialect
from redrive.core.translator import PLAIN, SPOKEN_HEADER, Translator, names_of, with_event_id
from tests.core.envelopes import any_headers, envelopes

NEW_YEAR_MS = 1_767_225_600_000
MINE = own_dialect(
    "mine",
    {
        "attempt": {"header": "Mine-Attempt", "encoding": "int32", "counts": "next-run"},
        "due": {"header": "Mine-Due", "encoding": "iso-8601"},
        "group": "Mine-Group",
        "reason": "Mine-Reason",
        "failure_stack": "Mine-Stack",
    },
)
OTHERS = [*FOREIGN.values(), MINE]
SPRINGLY = Translator((REDRIVE, SPRING))


def _sayable(envelope, dialect):
    """What of an envelope a dialect can say: the fields of those lines that it writes, in their precision."""
    on = {"any", "letter" if envelope.reason else "retry"}
    fields = {line.field for line in dialect.fields if line.on in on}
    said = {field: getattr(envelope, field) for field in fields}
    if any(line.encoding == "flag" for line in dialect.fields) and "replays" in said:
        said["replays"] = min(1, said["replays"])
    return with_event_id(Envelope(**said))


class TestReadAndWrite:
    @pytest.mark.parametrize("dialect", OTHERS, ids=lambda dialect: dialect.name)
    @given(envelope=envelopes)
    def test_what_was_written_is_read_as_far_as_the_dialect_can_say_it(self, dialect, envelope):
        translator = Translator((REDRIVE, dialect), known=OTHERS)
        written = [header for header in translator.write(None, envelope) if not is_own_header(header[0])]
        expected = _sayable(envelope, dialect)
        assert translator.read(written).envelope == expected
        assert translator.read(written).dialect == (dialect.name if written else "")

    @given(envelope=envelopes, spoken=st.lists(st.sampled_from(OTHERS), unique_by=id, min_size=1))
    def test_of_several_at_once_ours_says_all_and_each_says_what_it_can(self, envelope, spoken):
        translator = Translator((*spoken, REDRIVE), known=OTHERS)
        written = translator.write([("x", b"1")], envelope)
        assert translator.read_hop(written) == (envelope, ())
        assert read_envelope(written) == (envelope, ())
        for dialect in spoken:
            alone = Translator((REDRIVE, dialect), known=[dialect])
            names = names_of([dialect])
            its = [header for header in written if header[0] in names]
            assert alone.read(its).envelope == _sayable(envelope, dialect)

    @given(envelopes, any_headers)
    def test_with_only_ours_it_is_the_short_way(self, envelope, headers):
        assert PLAIN.read_hop is read_envelope
        assert PLAIN.read_due is dialects.read_due
        assert PLAIN.write(headers, envelope) == with_envelope(headers, envelope)

    @given(any_headers, envelopes, envelopes)
    def test_all_that_is_written_is_replaced_on_each_hop(self, headers, first, second):
        translator = Translator((REDRIVE, *FOREIGN.values()))
        assert translator.write(translator.write(headers, first), second) == translator.write(headers, second)

    @given(any_headers, envelopes)
    def test_nothing_that_is_written_is_there_twice_and_all_else_passes_through(self, headers, envelope):
        written = SPRINGLY.write(headers, envelope)
        ours = names_of([SPRING])
        replaced = [name for name, _ in written if is_own_header(name) or name in ours]
        assert len(replaced) == len(set(replaced))
        passed = [each for each in headers if not is_own_header(each[0]) and each[0] not in ours]
        assert written[: len(passed)] == passed

    def test_what_utf_8_cannot_say_does_not_stop_a_dead_letter(self):
        envelope = Envelope(attempt=1, failure_message="caf\udce9", failure_type="\ud800", reason="permanent")
        said = dict(Translator((REDRIVE, *FOREIGN.values())).write(None, envelope))
        assert (said["kafka_exception-message"], said["__connect.errors.exception.class.name"]) == (
            b"caf?",
            b"?",
        )

    def test_texts_are_cut_in_every_dialect(self):
        envelope = Envelope(attempt=1, failure_message="é" * 2000, failure_stack="frame\n" * 5000, reason="x")
        said = dict(SPRINGLY.write(None, envelope))
        assert said["kafka_exception-message"] == ("é" * (MAX_MESSAGE_BYTES // 2)).encode()
        assert len(said["kafka_exception-stacktrace"]) <= dialects.MAX_STACK_BYTES


class TestAnyBytes:
    @given(any_headers)
    def test_reading_never_raises_and_what_is_read_can_be_written_in_all_dialects(self, headers):
        everything = Translator((REDRIVE, *OTHERS))
        for translator in (PLAIN, everything):
            said = translator.read(headers).envelope
            hop, _ = translator.read_hop(headers)
            assert translator.read_hop(everything.write(headers, said))[0] == said
            assert translator.read_due(headers) == (hop.group, hop.due_ms)
            translator.without_bookkeeping(headers)

    @pytest.mark.parametrize("headers", [None, [], [("traceparent", b"00-1"), ("x", None), ("", b"")]])
    def test_unknown_headers_say_nothing(self, headers):
        assert tuple(PLAIN.read(headers)) == (Envelope(), "", ())

    def test_what_can_t_be_believed_counts_as_absent_and_is_named(self):
        headers = [
            ("retry_topic-attempts", b"\0\0"),
            ("kafka_original-topic", b"orders"),
            ("kafka_original-offset", b"7"),
        ]
        assert tuple(PLAIN.read(headers)) == (
            Envelope(source_topic="orders"),
            "spring",
            ("retry_topic-attempts", "kafka_original-offset"),
        )

    def test_a_null_header_says_that_there_is_nothing(self):
        headers = [("__connect.errors.exception.message", None), ("__connect.errors.topic", b"orders")]
        assert tuple(PLAIN.read(headers)) == (Envelope(source_topic="orders"), "connect", ())


class TestSpring:
    RETRY = Envelope(
        group="payments",
        attempt=1,
        due_ms=NEW_YEAR_MS,
        event_id="orders/3/17",
        source_topic="orders",
        source_partition=3,
        source_offset=17,
        source_timestamp_ms=NEW_YEAR_MS,
        first_failed_ms=NEW_YEAR_MS - 5000,
        failure_kind="transient",
        failure_type="TimeoutError",
        failure_message="no answer",
    )

    def test_a_retry_is_what_spring_s_retry_topics_carry(self):
        said = [header for header in SPRINGLY.write(None, self.RETRY) if not is_own_header(header[0])]
        assert sorted(said) == [
            ("kafka_dlt-original-consumer-group", b"payments"),
            ("kafka_exception-cause-fqcn", b"TimeoutError"),
            ("kafka_exception-fqcn", b"TimeoutError"),
            ("kafka_exception-message", b"no answer"),
            ("kafka_original-offset", bytes.fromhex("0000000000000011")),
            ("kafka_original-partition", bytes.fromhex("00000003")),
            ("kafka_original-timestamp", bytes.fromhex("0000019b76daa800")),
            ("kafka_original-topic", b"orders"),
            ("retry_topic-attempts", bytes.fromhex("00000002")),
            ("retry_topic-backoff-timestamp", bytes.fromhex("019b76daa800")),
            ("retry_topic-original-timestamp", bytes.fromhex("019b76daa800")),
        ]

    def test_a_dead_letter_carries_the_names_of_both_families(self):
        letter = msgspec.structs.replace(
            self.RETRY, due_ms=None, reason="exhausted", failure_stack="Traceback"
        )
        said = dict(SPRINGLY.write(None, letter))
        for family in ("kafka_", "kafka_dlt-"):
            assert (
                said[f"{family}original-topic"],
                said[f"{family}original-partition"].hex(),
                said[f"{family}original-offset"].hex(),
                said[f"{family}exception-fqcn"],
            ) == (b"orders", "00000003", "0000000000000011", b"TimeoutError")
        assert said["kafka_exception-stacktrace"] == b"Traceback"
        assert "retry_topic-backoff-timestamp" not in said

    def test_a_retry_topic_s_record_is_read(self):
        """As Spring 4 writes it on the second hop: it keeps all values of its three, the last one counts."""
        headers = [
            ("trace", b"1"),
            ("kafka_original-topic", b"orders"),
            ("kafka_original-partition", bytes.fromhex("00000003")),
            ("kafka_original-offset", bytes.fromhex("0000000000000011")),
            ("kafka_original-timestamp", bytes.fromhex("0000019b76daa800")),
            ("kafka_original-timestamp-type", b"CreateTime"),
            ("kafka_dlt-original-consumer-group", b"payments"),
            ("retry_topic-original-timestamp", bytes.fromhex("019b76daa800")),
            ("retry_topic-attempts", bytes.fromhex("00000002")),
            ("retry_topic-backoff-timestamp", bytes.fromhex("019b76daa800")),
            ("kafka_exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
            ("kafka_exception-cause-fqcn", b"java.lang.IllegalStateException"),
            ("kafka_exception-message", b"Listener failed; boom"),
            ("kafka_exception-stacktrace", b"at A\nat B"),
            ("retry_topic-original-timestamp", bytes.fromhex("019b76daa800")),
            ("retry_topic-attempts", bytes.fromhex("00000003")),
            ("retry_topic-backoff-timestamp", bytes.fromhex("019b76dabb88")),
        ]
        assert tuple(PLAIN.read(headers)) == (
            Envelope(
                group="payments",
                attempt=2,
                due_ms=NEW_YEAR_MS + 5000,
                event_id="orders/3/17",
                source_topic="orders",
                source_partition=3,
                source_offset=17,
                source_timestamp_ms=NEW_YEAR_MS,
                failure_type="java.lang.IllegalStateException",
                failure_message="Listener failed; boom",
                failure_stack="at A\nat B",
            ),
            "spring",
            (),
        )

    @pytest.mark.parametrize("turn", [1, -1])
    def test_the_cause_counts_and_not_its_wrapper_in_whatever_order_they_come(self, turn):
        headers = [("kafka_exception-cause-fqcn", b"Boom"), ("kafka_exception-fqcn", b"Wrapper")]
        assert PLAIN.read(headers[::turn]).envelope.failure_type == "Boom"

    def test_a_letter_of_a_plain_recoverer_is_read(self):
        headers = [
            ("kafka_dlt-exception-fqcn", b"java.lang.IllegalStateException"),
            ("kafka_dlt-exception-message", b"boom"),
            ("kafka_dlt-exception-stacktrace", b"at A"),
            ("kafka_dlt-original-topic", b"orders"),
            ("kafka_dlt-original-partition", bytes.fromhex("00000000")),
            ("kafka_dlt-original-offset", bytes.fromhex("0000000000000001")),
            ("kafka_dlt-original-timestamp", bytes.fromhex("0000019b76daa800")),
        ]
        said = PLAIN.read(headers).envelope
        assert (
            said.source_topic,
            said.source_offset,
            said.failure_type,
            said.failure_stack,
            said.attempt,
        ) == (
            "orders",
            1,
            "java.lang.IllegalStateException",
            "at A",
            0,
        )


class TestTakeOver:
    """Another framework took a record from a retry topic that we had written to, and failed on it too."""

    OURS = msgspec.structs.replace(TestSpring.RETRY, hops=2, replay_id="job-1", replays=1)
    SPRINGS = (
        ("retry_topic-original-timestamp", bytes.fromhex("019b76daa800")),
        ("retry_topic-attempts", bytes.fromhex("00000003")),
        ("retry_topic-backoff-timestamp", bytes.fromhex("019b76dabb88")),
    )

    def test_attempts_and_due_are_its_own_and_what_it_doesn_t_say_is_kept(self):
        headers = [*SPRINGLY.write([("trace", b"1")], self.OURS), *self.SPRINGS]
        taken, unreadable = SPRINGLY.read_hop(headers)
        assert (taken, unreadable) == (
            msgspec.structs.replace(self.OURS, attempt=2, due_ms=NEW_YEAR_MS + 5000, failure_kind=""),
            (),
        )
        assert SPRINGLY.read_due(headers) == ("payments", NEW_YEAR_MS + 5000)

    def test_also_when_it_changes_its_headers_in_place(self):
        """kafkajs' headers are an object: what is set again stays where it was."""
        dashed = Translator((REDRIVE, X_DASHED))
        headers = [
            (name, {"x-attempt": b"2", "x-ready-at": b"1767225605000"}.get(name, value))
            for name, value in dashed.write(None, self.OURS)
        ]
        taken, _ = dashed.read_hop(headers)
        assert (taken.attempt, taken.due_ms, taken.event_id) == (2, NEW_YEAR_MS + 5000, "orders/3/17")

    def test_its_due_that_can_t_be_read_isn_t_replaced_by_our_old_one(self):
        headers = [*SPRINGLY.write(None, self.OURS), *self.SPRINGS, ("retry_topic-backoff-timestamp", b"")]
        taken, unreadable = SPRINGLY.read_hop(headers)
        assert (taken.attempt, taken.due_ms, unreadable) == (2, None, ("retry_topic-backoff-timestamp",))
        assert SPRINGLY.read_due(headers) == ("payments", None)

    def test_what_we_write_next_counts_again(self):
        headers = [*SPRINGLY.write(None, self.OURS), *self.SPRINGS]
        next_hop = msgspec.structs.replace(self.OURS, attempt=3, due_ms=NEW_YEAR_MS + 90_000)
        assert SPRINGLY.read_hop(SPRINGLY.write(headers, next_hop)) == (next_hop, ())

    @given(attempts=st.binary(max_size=4), due=st.binary(max_size=8))
    def test_a_producer_cannot_forge_attempts_in_a_dialect_that_isn_t_written(self, attempts, due):
        forged = [("retry_topic-attempts", attempts), ("retry_topic-backoff-timestamp", due)]
        assert SPRINGLY.read_hop(with_envelope([*forged, (SPOKEN_HEADER, b"spring")], self.OURS)) == (
            self.OURS,
            (),
        )

    def test_nor_beside_one_that_is(self):
        headers = SPRINGLY.write([("x-attempt", b"9"), ("x-ready-at", b"1")], self.OURS)
        assert SPRINGLY.read_hop(headers) == (self.OURS, ())

    @given(attempts=st.binary(max_size=4), due=st.binary(max_size=8))
    def test_nor_in_one_that_is(self, attempts, due):
        forged = [("retry_topic-attempts", attempts), ("retry_topic-backoff-timestamp", due)]
        assert SPRINGLY.read_hop(SPRINGLY.write([*forged, (SPOKEN_HEADER, b"spring")], self.OURS)) == (
            self.OURS,
            (),
        )


class TestWhoWroteLast:
    def test_we_did_where_our_headers_stand_last(self):
        spring = [("kafka_original-topic", b"elsewhere"), ("retry_topic-attempts", b"\0\0\0\7")]
        ours = Envelope(group="g", attempt=2, reason="exhausted", event_id="orders/0/1")
        assert tuple(PLAIN.read(with_envelope(spring, ours))) == (ours, "redrive", ())

    def test_a_header_behind_ours_that_is_nobody_s_changes_nothing(self):
        ours = Envelope(group="g", attempt=2, reason="exhausted")
        assert PLAIN.read([*with_envelope(None, ours), ("traceparent", b"00-1")]).dialect == "redrive"

    def test_another_system_did_where_its_headers_stand_behind_ours(self):
        ours = Envelope(
            group="g", attempt=2, event_id="orders/0/1", source_topic="orders", reason="exhausted"
        )
        headers = [
            *with_envelope(None, ours),
            ("__connect.errors.topic", b"orders.dlq"),
            ("__connect.errors.offset", b"9"),
        ]
        assert tuple(PLAIN.read(headers)) == (
            Envelope(group="g", event_id="orders/0/1", source_topic="orders.dlq", source_offset=9),
            "connect",
            (),
        )

    def test_a_header_that_two_have_is_that_one_s_which_has_more_of_the_others(self):
        assert PLAIN.read([("x-attempt", b"1"), ("x-original-topic", b"orders")]).dialect == "x-dashed"
        said = PLAIN.read(
            [("X-Retry-Attempts", b"4"), ("x-original-topic", b"orders"), ("dlq-reason", b"timeout")]
        )
        assert (said.dialect, said.envelope) == (
            "x-retry",
            Envelope(attempt=4, source_topic="orders", failure_message="timeout"),
        )

    def test_a_producer_s_own_event_id_makes_no_dialect_but_is_read_with_one(self):
        assert PLAIN.read([("x-event-id", b"e-1")]).dialect == ""
        assert PLAIN.read([("x-event-id", b"e-1"), ("x-attempt", b"1")]).envelope == Envelope(
            event_id="e-1", attempt=1
        )

    def test_a_producer_s_own_event_id_is_neither_written_nor_removed(self):
        dashed = Translator((REDRIVE, X_DASHED))
        written = dashed.write([("x-event-id", b"e-1")], Envelope(attempt=1, event_id="orders/0/1"))
        assert [value for name, value in written if name == "x-event-id"] == [b"e-1"]

    def test_smallrye_counts_retries_and_its_first_retry_is_the_second_run(self):
        headers = [
            ("delayed-retry-count", b"0"),
            ("delayed-retry-topic", b"orders"),
            ("delayed-retry-reason", b"boom"),
        ]
        said = PLAIN.read(headers)
        assert (said.dialect, said.envelope.attempt, said.envelope.failure_message) == ("smallrye", 1, "boom")
        assert (
            dict(Translator((REDRIVE, SMALLRYE)).write(None, Envelope(attempt=1)))["delayed-retry-count"]
            == b"0"
        )

    def test_a_share_group_s_letter_tells_its_deliveries_and_its_source(self):
        headers = [
            ("__dlq.errors.topic", b"orders"),
            ("__dlq.errors.partition", b"2"),
            ("__dlq.errors.offset", b"41"),
            ("__dlq.errors.group", b"shares"),
            ("__dlq.errors.delivery.count", b"5"),
            ("__dlq.errors.message", b"Offset rejected by client."),
        ]
        assert tuple(PLAIN.read(headers)) == (
            Envelope(
                group="shares",
                attempt=5,
                event_id="orders/2/41",
                source_topic="orders",
                source_partition=2,
                source_offset=41,
                failure_message="Offset rejected by client.",
            ),
            SHARE.name,
            (),
        )


class TestAReplay:
    def test_it_keeps_the_producer_s_headers_and_no_bookkeeping_of_the_author_s(self):
        mine = [("trace", b"1"), ("n", None), ("trace", b"2")]
        headers = [*mine, ("kafka_original-topic", b"orders"), *TestTakeOver.SPRINGS]
        assert PLAIN.without_bookkeeping(headers) == mine

    def test_what_we_wrote_besides_our_own_goes_too(self):
        letter = msgspec.structs.replace(TestSpring.RETRY, reason="exhausted")
        assert PLAIN.without_bookkeeping(SPRINGLY.write([("trace", b"1")], letter)) == [("trace", b"1")]

    def test_headers_that_the_source_record_had_stay(self):
        """A listener on a Connect dead-letter topic reads its headers; its own dead letters still have them."""
        connect = [("__connect.errors.topic", b"orders"), ("__connect.errors.stage", b"TASK_PUT")]
        assert (
            PLAIN.without_bookkeeping(with_envelope(connect, Envelope(group="g", reason="permanent")))
            == connect
        )

    def test_but_attempts_and_dues_of_every_dialect_are_reset(self):
        stale = [*TestTakeOver.SPRINGS, ("x-attempt", b"9"), ("micronaut-kafka-retry-due-timestamp", b"1")]
        kept = PLAIN.without_bookkeeping(with_envelope(stale, Envelope(group="g", reason="permanent")))
        assert kept == [stale[0]]


def test_no_two_dialects_write_one_header():
    written = [
        line.header
        for dialect in (REDRIVE, *FOREIGN.values())
        for line in dialect.fields
        if line.on not in {"never", "theirs"}
    ]
    assert len(written) == len(set(written))


def test_a_dialect_that_says_little_is_still_one():
    assert PLAIN.read([("original_partition", b"1"), ("original_offset", b"2")]).dialect == ARROYO.name
    assert CONNECT.name in FOREIGN
