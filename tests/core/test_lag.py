"""How far behind a group is, from offsets and the commit's metadata."""

from hypothesis import given
from hypothesis import strategies as st

from redrive.core.dialects import with_envelope
from redrive.core.envelope import Envelope
from redrive.core.lag import Oldest, TierDue, count_due, look_at_record, measure
from redrive.core.metadata import Head, encode_metadata
from redrive.core.offsets import OffsetMap
from redrive.core.plan import Tier
from redrive.core.record import TopicPartition
from redrive.sim.records import SimRecord

KEY = TopicPartition("orders", 0)
TIER = Tier("orders.retry.5s", 5_000, 0)
OURS = frozenset({"payments", "old"})


def _record(envelope: Envelope, timestamp_ms: int = 1_000) -> SimRecord:
    return SimRecord(TIER.topic, 0, 7, None, b"", with_envelope(None, envelope), timestamp_ms)


@given(st.sets(st.integers(10, 59)), st.integers(60, 70))
def test_the_true_lag_is_what_is_unfinished(finished, end):
    """Whatever finished in whatever order: the commit says what is left, end offset and metadata are all it takes."""
    offsets = OffsetMap(10)
    offsets.open(range(10, 60))
    offsets.settle(60)
    offsets.close_all(finished)
    frontier, metadata = offsets.snapshot("id")

    lag = measure(KEY, 0, end, frontier, metadata, "id")

    assert lag.true_lag == 50 - len(finished) + end - 60
    assert (lag.lag, lag.frontier) == (end - frontier, frontier)
    assert all(lag.was_finished(offset) == (offset in finished) for offset in range(frontier, end))


def test_a_group_that_committed_nothing_is_behind_by_all_there_is():
    lag = measure(KEY, 5, 25, None, "", "id")
    assert (lag.committed, lag.lag, lag.true_lag, lag.lost, lag.frontier) == (None, 20, 20, 0, 5)


def test_what_was_deleted_unread_is_lost_and_no_lag():
    metadata = encode_metadata(10, ((12, 20), (30, 40)), "id")
    lag = measure(KEY, 15, 50, 10, metadata, "id")
    assert (lag.lost, lag.frontier, lag.lag, lag.finished) == (5, 15, 35, ((15, 20), (30, 40)))
    assert lag.true_lag == 20


def test_a_map_of_another_topic_counts_nothing_and_says_so():
    metadata = encode_metadata(10, ((12, 20),), "id")
    lag = measure(KEY, 0, 50, 10, metadata, "other")
    assert (lag.lag, lag.true_lag) == (40, 40)
    assert lag.ignored == "the map belongs to another cluster or an earlier topic of this name"


def test_a_map_beyond_the_end_never_makes_the_lag_negative():
    """A topic can be cut and written anew, with the group's commit of before."""
    metadata = encode_metadata(10, ((12, 500), (600, 700)), "id")
    lag = measure(KEY, 0, 20, 10, metadata, "id")
    assert (lag.lag, lag.finished_above, lag.true_lag) == (10, 8, 2)
    anew = measure(KEY, 0, 5, 10, metadata, "id")
    assert (anew.true_lag, anew.is_beyond_end, lag.is_beyond_end) == (0, True, False)


def test_records_that_wait_in_their_lane_are_left_to_do_and_told():
    heads = {10: Head(2, 9_000, 500), 60: Head(1, 9_500, 600), 200: Head(1, 9_500, 600)}
    metadata = encode_metadata(10, ((11, 60), (61, 70)), "id", heads=heads)
    lag = measure(KEY, 0, 100, 10, metadata, "id")
    assert (lag.true_lag, lag.heads) == (32, {10: heads[10], 60: heads[60]})
    record = SimRecord("orders", 0, 10, None, b"", (), 400)
    assert look_at_record(record, None, OURS, head=lag.heads[10]) == Oldest(10, 500, attempt=3, due_ms=9_000)


def test_a_record_of_a_tier_tells_attempt_due_and_failure():
    said = Envelope(
        group="payments",
        attempt=2,
        due_ms=9_000,
        first_failed_ms=500,
        failure_kind="transient",
        failure_type="TimeoutError",
    )
    assert look_at_record(_record(said), TIER, OURS) == Oldest(
        offset=7, since_ms=500, attempt=3, due_ms=9_000, failure="transient TimeoutError"
    )


def test_a_record_without_headers_is_due_after_the_tier_s_delay():
    assert look_at_record(_record(Envelope()), TIER, OURS) == Oldest(7, 1_000, 1, 6_000)
    absurd = Envelope(due_ms=200_000_000_000_000)
    assert look_at_record(_record(absurd), TIER, OURS).due_ms == 6_000


def test_another_group_s_record_says_so():
    assert not look_at_record(_record(Envelope(group="audit")), TIER, OURS).is_ours
    assert look_at_record(_record(Envelope(group="old")), TIER, OURS).is_ours


def test_headers_on_a_source_say_nothing():
    forged = Envelope(attempt=99, due_ms=9_000, failure_type="Forged", group="audit")
    assert look_at_record(_record(forged), None, OURS) == Oldest(7, 1_000)


def test_what_is_due_in_a_tier_and_how_late_is_counted():
    waiting = [(True, 900), (True, 400), (False, 100), (True, 1_000), (True, 1_600), (True, 1_300)]
    assert count_due(TIER, waiting, 1_000.0) == TierDue(
        TIER.topic, 5_000, waiting=5, due=3, late_ms=600, next_ms=1_300, others=1
    )
    assert count_due(TIER, [], 1_000.0, is_whole=False) == TierDue(TIER.topic, 5_000, is_whole=False)
