"""Apps whose retry topics other frameworks write to as well: attempts and due times are kept, both ways."""

import pytest

from redrive import App, RetryPolicy
from redrive.core.dialects import read_envelope
from redrive.core.envelope import is_own_header
from redrive.testing import Harness

TIER, LAST_TIER = "orders.retry.5s", "orders.retry.1m"


def _attempts(number):
    return ("retry_topic-attempts", number.to_bytes(4))


def _backoff(due_ms):
    return ("retry_topic-backoff-timestamp", int(due_ms).to_bytes(6))


ORIGIN = [
    ("kafka_original-topic", b"orders"),
    ("kafka_original-partition", (0).to_bytes(4)),
    ("kafka_original-offset", (17).to_bytes(8)),
    ("kafka_dlt-original-consumer-group", b"shop"),
]


class Shop:
    """An app with a ladder whose handler fails until it is fixed."""

    def __init__(self, harness_of, **options):
        self.is_fixed = True
        app = App("shop", **options)

        @app.listener("orders", retry=RetryPolicy("5s", "1m"))
        def charge(value: bytes) -> None:
            if not self.is_fixed:
                raise TimeoutError("no answer")

        self.harness = harness_of(app)

    def in_ms(self, ms):
        """So many milliseconds from now."""
        return int(self.harness.clock.wall_ms()) + ms

    def runs(self):
        """Attempt, source and event id of each run."""
        runs = [*self.harness.handled, *self.harness.failed]
        return [
            (run.attempt, run.record.topic, run.record.event_id)
            for run in sorted(runs, key=lambda run: run.at_ms)
        ]

    def copies(self, topic):
        """The headers of a topic's records."""
        return [record.headers() for record in self.harness.cluster.records(topic)]

    @property
    def unreadable(self):
        """How many headers weren't believed."""
        return self.harness.workers.running[0].groups[0].engine.listeners[0].counters.envelope_errors


@pytest.fixture
def shop(redrive_harness):
    return Shop(redrive_harness)


@pytest.fixture
def springly(redrive_harness):
    return Shop(redrive_harness, dialects=["redrive", "spring"])


class TestSpringWrote:
    def test_its_record_waits_for_its_own_due_and_keeps_its_attempts(self, shop):
        shop.harness.send(TIER, b"1", headers=[*ORIGIN, _attempts(3), _backoff(shop.in_ms(3_000))])
        shop.harness.advance("2999ms")
        assert shop.runs() == []
        shop.harness.advance("1ms")
        assert shop.runs() == [(3, "orders", "orders/0/17")]

    def test_a_due_is_believed_that_is_later_than_the_tier_s(self, shop):
        shop.harness.send(TIER, b"1", headers=[*ORIGIN, _attempts(2), _backoff(shop.in_ms(20_000))])
        shop.harness.advance("19999ms")
        assert shop.runs() == []
        shop.harness.advance("1ms")
        assert shop.runs() == [(2, "orders", "orders/0/17")]

    def test_one_that_waits_much_longer_than_its_tier_is_posted_on_as_it_is(self, shop):
        shop.harness.send(TIER, b"1", headers=[*ORIGIN, _attempts(2), _backoff(shop.in_ms(600_000))])
        shop.harness.advance("599999ms")
        assert (shop.runs(), len(shop.copies(LAST_TIER)) > 0) == ([], True)
        shop.harness.advance("1ms")
        assert shop.runs() == [(2, "orders", "orders/0/17")]

    def test_its_copies_have_the_source_s_timestamp_and_are_not_early_for_that(self, shop):
        """Spring hands the timestamp of the record on: a backlog's may be weeks old."""
        weeks_ago = shop.in_ms(-30 * 24 * 3600 * 1000)
        headers = [*ORIGIN, _attempts(2), _backoff(shop.in_ms(4_000))]
        shop.harness.cluster.append(TIER, b"1", headers=headers, timestamp_ms=weeks_ago)
        shop.harness.advance("3999ms")
        assert (shop.runs(), shop.unreadable) == ([], 0)
        shop.harness.advance("1ms")
        assert shop.runs() == [(2, "orders", "orders/0/17")]

    def test_a_failure_goes_on_where_it_stood(self, shop):
        shop.is_fixed = False
        headers = [("trace", b"1"), *ORIGIN, _attempts(2), _backoff(shop.in_ms(1_000))]
        shop.harness.send(TIER, b"1", headers=headers)
        shop.harness.advance("1s")
        [copy] = shop.copies(LAST_TIER)
        said, _ = read_envelope(copy)
        assert (said.attempt, said.source_topic, said.source_offset, said.group, said.event_id) == (
            2,
            "orders",
            17,
            "shop",
            "orders/0/17",
        )
        assert [each for each in copy if not is_own_header(each[0])] == headers
        shop.harness.advance("1m")
        assert [letter.envelope.attempt for letter in shop.harness.dead_letters] == [3]

    def test_another_group_s_is_passed_by(self, shop):
        headers = [("kafka_dlt-original-consumer-group", b"mails"), _attempts(2), _backoff(shop.in_ms(0))]
        shop.harness.send(TIER, b"1", headers=headers)
        shop.harness.advance("1h")
        assert shop.runs() == []

    def test_without_a_due_it_is_the_copy_s_timestamp_and_the_tier_s_delay(self, shop):
        shop.harness.send(TIER, b"1", headers=[("x-attempt", b"1")])
        shop.harness.advance("4999ms")
        assert shop.runs() == []
        shop.harness.advance("1ms")
        assert shop.runs() == [(2, TIER, f"{TIER}/0/0")]

    @pytest.mark.parametrize(
        "due",
        [b"", b"\xff", b"\x7f" * 8, (253_402_300_799_999).to_bytes(6), b"\x00" * 9, None],
        ids=["empty", "negative", "year 290 million", "year 9999", "too long", "null"],
    )
    def test_a_due_that_can_t_be_true_is_the_tier_s_delay_and_no_poison(self, shop, due):
        headers = [*ORIGIN, _attempts(2), ("retry_topic-backoff-timestamp", due)]
        shop.harness.send(TIER, b"1", headers=headers)
        shop.harness.advance("4999ms")
        assert shop.runs() == []
        shop.harness.advance("1ms")
        assert (shop.runs(), shop.harness.dead_letters) == ([(2, "orders", "orders/0/17")], [])

    @pytest.mark.parametrize(
        "attempts", [b"", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0" * 5, b"two"]
    )
    def test_attempts_that_can_t_be_true_count_as_none_and_are_counted(self, shop, attempts):
        headers = [*ORIGIN, ("retry_topic-attempts", attempts), _backoff(shop.in_ms(1_000))]
        shop.harness.send(TIER, b"1", headers=headers)
        shop.harness.advance("1s")
        shop.harness.advance("1s")
        assert (shop.runs(), shop.unreadable) == ([(1, "orders", "orders/0/17")], 1)

    def test_unknown_headers_say_nothing(self, shop):
        shop.harness.send(TIER, b"1", headers=[("what", b"\xff"), ("", None)])
        shop.harness.advance("5s")
        assert shop.runs() == [(1, TIER, f"{TIER}/0/0")]


class TestSpringReads:
    def test_a_retry_carries_what_spring_needs(self, springly):
        springly.is_fixed = False
        springly.harness.send("orders", b"1", headers=[("trace", b"1")])
        due_ms = springly.in_ms(5_000)
        [copy] = springly.copies(TIER)
        said = dict(copy)
        assert (said["retry_topic-attempts"], said["retry_topic-backoff-timestamp"]) == (
            b"\0\0\0\2",
            due_ms.to_bytes(6),
        )
        assert (said["kafka_original-topic"], said["trace"]) == (b"orders", b"1")

    def test_what_spring_made_of_it_is_believed(self, springly, redrive_harness):
        """It took the record, failed too, and wrote it to the next topic: all headers kept, its own appended."""
        springly.is_fixed = False
        springly.harness.send("orders", b"1")
        [ours] = springly.copies(TIER)
        springly.is_fixed = True
        taken = Shop(redrive_harness, dialects=["redrive", "spring"])
        headers = [*ours, _attempts(3), _backoff(taken.in_ms(60_000))]
        taken.harness.send(LAST_TIER, b"1", headers=headers)
        taken.harness.advance("59999ms")
        assert taken.runs() == []
        taken.harness.advance("1ms")
        assert taken.runs() == [(3, "orders", "orders/0/0")]

    def test_on_a_source_topic_they_count_for_nothing(self, springly):
        springly.is_fixed = False
        forged = [*ORIGIN, _attempts(100), _backoff(springly.in_ms(10**9)), ("redrive-dialects", b"spring")]
        springly.harness.send("orders", b"1", headers=forged)
        assert springly.runs() == [(1, "orders", "orders/0/0")]
        springly.harness.advance("5s")
        assert springly.runs()[1:] == [(2, "orders", "orders/0/0")]

    def test_nor_in_a_dialect_that_isn_t_written(self, shop):
        shop.is_fixed = False
        shop.harness.send("orders", b"1", headers=[*ORIGIN, _attempts(100), ("redrive-dialects", b"spring")])
        shop.harness.advance("5s")
        assert [attempt for attempt, *_ in shop.runs()] == [1, 2]

    def test_no_header_grows_from_hop_to_hop(self, springly):
        springly.is_fixed = False
        springly.harness.send("orders", b"1", headers=[("trace", b"1")])
        springly.harness.advance("2m")
        [letter] = springly.copies("orders.dlq")
        names = [name for name, _ in letter]
        assert len(names) == len(set(names))
        assert dict(letter)["kafka_dlt-original-topic"] == b"orders"
        assert dict(letter)["retry_topic-attempts"] == b"\0\0\0\4"

    def test_a_replay_is_a_first_attempt_in_every_dialect(self, springly):
        springly.is_fixed = False
        springly.harness.send("orders", b"1", headers=[("trace", b"1")])
        springly.harness.advance("2m")
        springly.is_fixed = True
        assert springly.harness.replay().done == 1
        assert springly.runs()[-1] == (1, "orders", "orders/0/0")
        copy = springly.copies(TIER)[-1]
        assert [each for each in copy if not is_own_header(each[0])] == [("trace", b"1")]


def test_an_app_s_dialects_and_the_setting_s_are_told_when_they_can_t_be_meant():
    with pytest.raises(Exception, match="lacks 'redrive'"):
        Shop(Harness, dialects=["spring"])
    with pytest.raises(Exception, match="is no list of dialects"):
        Shop(Harness, dialects="spring")
