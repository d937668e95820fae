"""What envelopes look like in headers, and what headers from anywhere are taken for."""

import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.core.dialects import (
    MAX_INSTANT_MS,
    MAX_MESSAGE_BYTES,
    MAX_STACK_BYTES,
    REDRIVE,
    Dialect,
    HeaderField,
    Headers,
    foreign_headers,
    read_due,
    read_envelope,
    replay_headers_only,
    shrink,
    with_envelope,
    write_headers,
)
from redrive.core.envelope import Envelope, is_own_header
from tests.core.envelopes import envelopes

OWN_NAMES = [line.header for line in REDRIVE.fields]
own_names = st.sampled_from([*OWN_NAMES, "redrive-of-tomorrow"])
foreign_names = st.text().filter(lambda name: not is_own_header(name))
values = st.none() | st.binary(max_size=40) | st.integers().map(lambda n: b"%d" % n)
any_headers = st.lists(st.tuples(own_names | foreign_names, values), max_size=30)


class TestReadAndWrite:
    @given(envelopes)
    def test_what_was_written_is_read(self, envelope):
        assert read_envelope(write_headers(envelope)) == (envelope, ())

    @given(envelopes)
    def test_no_header_is_written_twice(self, envelope):
        names = [name for name, _ in write_headers(envelope)]
        assert len(names) == len(set(names))

    def test_the_table_says_each_field_of_an_envelope_once(self):
        assert sorted(line.field for line in REDRIVE.fields) == sorted(Envelope.__struct_fields__)
        assert len(set(OWN_NAMES)) == len(OWN_NAMES)

    def test_all_names_of_the_table_are_known_as_ours(self):
        assert [name for name in OWN_NAMES if not is_own_header(name)] == []

    def test_what_says_nothing_is_left_out_but_for_the_attempt(self):
        assert write_headers(Envelope()) == [("redrive-attempt", b"0")]

    def test_zero_is_a_partition_an_offset_and_a_time(self):
        envelope = Envelope(source_partition=0, source_offset=0, source_timestamp_ms=0, due_ms=0)
        assert sorted(write_headers(envelope)) == [
            ("redrive-attempt", b"0"),
            ("redrive-due-ms", b"0"),
            ("redrive-source-offset", b"0"),
            ("redrive-source-partition", b"0"),
            ("redrive-source-timestamp-ms", b"0"),
        ]

    def test_a_retry_looks_like_this(self):
        envelope = Envelope(
            group="payments",
            attempt=2,
            due_ms=1767225600000,
            event_id="orders/3/12",
            source_topic="orders",
            source_partition=3,
            source_offset=12,
            failure_kind="transient",
            failure_type="TimeoutError",
            failure_message="Zeit überschritten",
            replays=1,
        )
        assert sorted(write_headers(envelope)) == [  # headers of different names have no order that matters
            ("redrive-attempt", b"2"),
            ("redrive-due-ms", b"1767225600000"),
            ("redrive-failure-kind", b"transient"),
            ("redrive-failure-message", "Zeit überschritten".encode()),
            ("redrive-failure-type", b"TimeoutError"),
            ("redrive-group", b"payments"),
            ("redrive-id", b"orders/3/12"),
            ("redrive-replays", b"1"),
            ("redrive-source-offset", b"12"),
            ("redrive-source-partition", b"3"),
            ("redrive-source-topic", b"orders"),
        ]

    def test_another_dialect_is_a_table_that_may_say_less(self):
        terse = Dialect(
            "terse",
            (
                HeaderField("due_ms", "x-due", lambda ms: ms.to_bytes(8), int.from_bytes),
                HeaderField("attempt", "x-attempt", lambda n: bytes([n]), lambda value: value[0]),
            ),
        )
        headers = write_headers(Envelope(attempt=3, due_ms=256, group="payments"), terse)
        assert sorted(headers) == [("x-attempt", b"\3"), ("x-due", b"\0\0\0\0\0\0\1\0")]
        assert read_envelope([*headers, ("redrive-group", b"g")], terse) == (
            Envelope(attempt=3, due_ms=256),
            (),
        )


class TestUnbelievableHeaders:
    @given(any_headers)
    @example([("redrive-attempt", b"9" * 5000)])
    def test_reading_never_raises_and_gives_only_what_can_be_written_again(self, headers):
        envelope, _ = read_envelope(headers)
        assert read_envelope(write_headers(envelope)) == (envelope, ())

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("redrive-attempt", b"10001"),
            ("redrive-attempt", b"-1"),
            ("redrive-attempt", b"NaN"),
            ("redrive-attempt", b"1.5"),
            ("redrive-attempt", b""),
            ("redrive-attempt", None),
            ("redrive-attempt", b"\xff\xfe"),
            ("redrive-attempt", b"9" * 5000),
            ("redrive-attempt", b"\0\0\0\2"),
            ("redrive-due-ms", b"-1"),
            ("redrive-due-ms", b"253402300800000"),
            ("redrive-due-ms", b"inf"),
            ("redrive-source-partition", b"2147483648"),
            ("redrive-source-offset", b"9223372036854775808"),
            ("redrive-source-timestamp-ms", b"-2"),
            ("redrive-replays", b"-1"),
            ("redrive-group", b"\xc3\x28"),
            ("redrive-group", None),
            ("redrive-failure-message", b"\xed\xa0\x80"),
        ],
    )
    def test_it_counts_as_absent_and_is_named(self, name, value):
        assert read_envelope([(name, value)]) == (Envelope(), (name,))

    def test_the_others_are_read_all_the_same(self):
        headers = [("redrive-group", b"payments"), ("redrive-attempt", b"many"), ("redrive-hops", b"4")]
        assert read_envelope(headers) == (Envelope(group="payments", hops=4), ("redrive-attempt",))

    @pytest.mark.parametrize("headers", [None, [], (), [("traceparent", b"00-1"), ("x", None)]])
    def test_no_header_of_ours_is_an_empty_envelope(self, headers):
        assert read_envelope(headers) == (Envelope(), ())

    def test_the_limits_themselves_are_believed(self):
        headers = [("redrive-attempt", b"10000"), ("redrive-due-ms", b"253402300799999")]
        assert read_envelope(headers) == (Envelope(attempt=10_000, due_ms=MAX_INSTANT_MS), ())

    def test_the_last_of_repeated_headers_counts(self):
        assert read_envelope([("redrive-attempt", b"1"), ("redrive-attempt", b"2")]) == (
            Envelope(attempt=2),
            (),
        )

    def test_also_when_the_last_one_is_unreadable(self):
        headers = [("redrive-attempt", b"1"), ("redrive-attempt", b"?"), ("redrive-attempt", b"?")]
        assert read_envelope(headers) == (Envelope(), ("redrive-attempt",))


class TestReadDue:
    @given(any_headers)
    def test_it_gives_what_the_whole_envelope_says(self, headers):
        envelope, _ = read_envelope(headers)
        assert read_due(headers) == (envelope.group, envelope.due_ms)

    @given(envelopes)
    def test_it_reads_what_was_written(self, envelope):
        assert read_due(with_envelope([("x", b"1")], envelope)) == (envelope.group, envelope.due_ms)

    def test_no_headers_say_nothing(self):
        assert read_due(None) == ("", None)


class TestForeignHeaders:
    @given(any_headers, envelopes)
    def test_they_survive_in_order_with_repeats_and_nulls(self, headers, envelope):
        foreign = [header for header in headers if not header[0].startswith("redrive-")]
        written = with_envelope(headers, envelope)
        assert written[: len(foreign)] == foreign
        assert foreign_headers(written) == foreign

    @given(any_headers, envelopes, envelopes)
    def test_ours_are_replaced_on_each_hop(self, headers, first, second):
        assert with_envelope(with_envelope(headers, first), second) == with_envelope(headers, second)

    @given(any_headers, envelopes)
    def test_ours_are_never_there_twice(self, headers, envelope):
        own = [name for name, _ in with_envelope(headers, envelope) if is_own_header(name)]
        assert len(own) == len(set(own))

    @given(any_headers, envelopes)
    def test_the_record_s_own_list_is_left_as_it_was(self, headers, envelope):
        before = list(headers)
        with_envelope(headers, envelope)
        assert headers == before

    def test_a_record_without_headers_gets_ours(self):
        assert with_envelope(None, Envelope(attempt=1)) == [("redrive-attempt", b"1")]


class TestTexts:
    @given(st.text(st.characters(codec="utf-8"), max_size=3000), st.sampled_from(["", "ä", "日", "𝄞"]))
    def test_a_message_is_cut_between_characters(self, text, fill):
        message = text + fill * 600
        envelope, unreadable = read_envelope(write_headers(Envelope(failure_message=message)))
        read = envelope.failure_message
        assert unreadable == ()
        assert message.startswith(read)
        assert len(read.encode()) <= MAX_MESSAGE_BYTES
        assert read == message or len(read.encode()) > MAX_MESSAGE_BYTES - 4

    @given(st.text(st.characters(codec="utf-8"), max_size=3000), st.sampled_from(["", "ä", "日", "𝄞"]))
    def test_a_stack_keeps_its_end(self, text, fill):
        stack = fill * 5000 + text
        read = read_envelope(write_headers(Envelope(failure_stack=stack)))[0].failure_stack
        assert stack.endswith(read)
        assert len(read.encode()) <= MAX_STACK_BYTES
        assert read == stack or len(read.encode()) > MAX_STACK_BYTES - 4

    def test_what_utf_8_cannot_say_does_not_stop_a_dead_letter(self):
        envelope = Envelope(failure_message="caf\udce9", failure_stack="\ud800", attempt=1)
        assert sorted(write_headers(envelope)) == [
            ("redrive-attempt", b"1"),
            ("redrive-failure-message", b"caf?"),
            ("redrive-failure-stack", b"?"),
        ]


class TestOnASourceTopic:
    @given(envelopes.filter(lambda envelope: not envelope.replay_id))
    def test_nothing_counts_without_a_replay(self, envelope):
        assert replay_headers_only(envelope) == Envelope()

    def test_a_replay_keeps_its_ids_and_count_but_forges_no_attempt_and_no_due_time(self):
        envelope = Envelope(
            group="evil",
            attempt=9,
            due_ms=MAX_INSTANT_MS,
            event_id="orders/0/7",
            source_topic="elsewhere",
            first_failed_ms=1,
            replay_id="job-1",
            replays=2,
        )
        assert replay_headers_only(envelope) == Envelope(event_id="orders/0/7", replay_id="job-1", replays=2)


def _size(headers: Headers) -> int:
    return sum(len(name) + len(value or b"") for name, value in headers)


class TestShrink:
    LARGE = Envelope(
        group="payments",
        attempt=4,
        due_ms=1767225600000,
        event_id="orders/3/12",
        source_topic="orders",
        source_partition=3,
        source_offset=12,
        source_timestamp_ms=1767225600000,
        first_failed_ms=1767225500000,
        last_failed_ms=1767225600000,
        failure_kind="permanent",
        failure_type="TypeError",
        failure_message="é" * 400,
        reason="permanent",
        failure_stack="frame\n" * 1000,
        fingerprint="1:abc",
        listener="charge",
        replay_topic="orders.retry.5s",
        replay_id="job-1",
        replays=2,
        hops=1,
    )

    def texts(self, step: int) -> tuple[int, int] | None:
        envelope = shrink(self.LARGE, step)
        return envelope and (len(envelope.failure_stack.encode()), len(envelope.failure_message.encode()))

    def test_first_the_stack_goes_then_the_message(self):
        assert [self.texts(step) for step in range(4)] == [(1024, 800), (0, 800), (0, 100), (0, 0)]

    def test_last_stays_what_later_decisions_and_the_way_back_need(self):
        assert shrink(self.LARGE, 4) == Envelope(
            group="payments",
            attempt=4,
            due_ms=1767225600000,
            event_id="orders/3/12",
            source_topic="orders",
            source_partition=3,
            source_offset=12,
            first_failed_ms=1767225500000,
            reason="permanent",
            listener="charge",
            replay_topic="orders.retry.5s",
            replay_id="job-1",
            replays=2,
            hops=1,
        )

    def test_then_nothing_is_left_to_give(self):
        assert shrink(self.LARGE, 5) is None

    @given(envelopes, st.integers(0, 4))
    def test_it_never_grows_and_a_step_taken_twice_changes_nothing(self, envelope, step):
        shrunk = shrink(envelope, step)
        assert shrunk is not None
        assert _size(write_headers(shrunk)) <= _size(write_headers(envelope))
        assert shrink(shrunk, step) == shrunk

    def test_a_message_that_utf_8_cannot_say_is_shortened_too(self):
        shrunk = shrink(Envelope(failure_message="\ud800" * 200, failure_stack="\ud800"), 2)
        assert shrunk == Envelope(failure_message="?" * 100)


def test_names_of_absurd_lengths_that_somebody_wrote_are_not_kept():
    tracemalloc.start()
    try:
        for number in range(20):
            spelled = write_headers(Envelope(source_topic=f"{number}" * 100_000, listener="orders"))
            assert ("redrive-listener", b"orders") in spelled
        del spelled
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept_bytes < 100_000
