"""What finished is committed within a second or two, whatever becomes of other partitions, and of earlier commits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.commits import ANSWER_TIMEOUT_MS, CHUNK_CHARS, Commits
from redrive.core.crash_guard import CrashGuard
from redrive.core.envelope import Envelope
from redrive.core.lane import Lane
from redrive.core.listener_state import ListenerState
from redrive.core.metadata import METADATA_BUDGET_CHARS, NO_LEDGER, Head, decode_metadata, heads_that_fit
from redrive.core.offsets import OffsetMap
from redrive.core.plan import Now
from redrive.core.record import TopicPartition
from tests.sim.engine_world import plan_of

RECORDS = 1_000
INTERVAL_MS = 1_000
TICK_MS = 50.0
WORK = ListenerState(0, plan_of(), 2_000)


def lane_of(number, *, topic="orders", offset=0):
    return Lane(TopicPartition(topic, number), WORK, None, OffsetMap(offset))


def large_lane(number):
    """A partition with two thousand unfinished records far apart: its map fills a commit's metadata."""
    lane = lane_of(number)
    lane.offsets.open(range(0, 1_000_000, 500))
    lane.offsets.settle(1_000_000)
    return lane


def keys_of(lanes):
    return {lane.key for lane in lanes}


def _size(offsets):
    return sum(len(text) + 100 for _, text in offsets.values())


class Coordinator:
    """
    Takes the commits of some lanes, each answered at the next tick. What it `refuses` of a commit is not stored; `log` holds
    the sizes of the requests.
    """

    def __init__(self, lanes):
        self.lanes = lanes
        self.commits = Commits(INTERVAL_MS, RECORDS, lambda topic: topic)
        self.mono_ms = 0.0
        self.stored = {}
        self.stored_ms = {}
        self.log = []
        self.refuses = lambda offsets: ()
        self.is_too_large = False
        self.before_tick = lambda: None
        self._out = None

    def run(self, ms):
        """Time passes. Gives itself."""
        end_ms = self.mono_ms + ms
        while self.mono_ms < end_ms:
            self.before_tick()
            if self._out is not None:
                commit, self._out = self._out, None
                self.answer(commit)
            self._out = self.commits.due(self.lanes, self.now)
            self.mono_ms += TICK_MS
        return self

    @property
    def now(self):
        return Now(self.mono_ms, self.mono_ms)

    def answer(self, commit):
        refused = set(self.refuses(commit.offsets))
        stored = {key: value for key, value in commit.offsets.items() if key not in refused}
        self.log.append(_size(commit.offsets))
        self.stored.update(stored)
        self.stored_ms.update(dict.fromkeys(stored, self.mono_ms))
        self.commits.answered(commit.snapshot, refused, self.now, is_too_large=self.is_too_large)

    def is_behind(self, lanes):
        """The lanes whose latest state isn't stored."""
        return [
            lane.key for lane in lanes if self.stored.get(lane.key) != lane.offsets.snapshot(lane.key.topic)
        ]


def finishing(coordinator, lanes):
    """In each of these lanes a record finishes in every tick."""

    def finish():
        for lane in lanes:
            lane.offsets.settle(lane.offsets.settled + 1)

    coordinator.before_tick = finish


def slowest_ms(coordinator, good, *, seconds):
    """Run for so long, with all lanes at work. How long one of the `good` ones went without a commit, at most."""
    finishing(coordinator, coordinator.lanes)
    coordinator.run(5_000)
    slowest = 0.0
    for _ in range(seconds):
        coordinator.run(1_000)
        slowest = max(slowest, *(coordinator.mono_ms - coordinator.stored_ms[lane.key] for lane in good))
    return slowest


# -- partitions that are refused -------------------------------------------------------------------------------------


def named(bad):
    """Refuses these partitions, and says which."""
    return lambda offsets: keys_of(bad) & offsets.keys()


def unnamed(bad):
    """Refuses these partitions, and says it of all that were with them, as the client does."""
    return lambda offsets: offsets if keys_of(bad) & offsets.keys() else ()


@pytest.mark.parametrize("refusal", [named, unnamed])
@pytest.mark.parametrize("count", [1, 2, 100])
def test_partitions_that_are_refused_for_good_do_not_keep_others_waiting_for_ever(count, refusal):
    good, bad = [lane_of(number) for number in range(8)], [lane_of(n, topic="gone") for n in range(count)]
    coordinator = Coordinator([*bad[::2], *good, *bad[1::2]])
    coordinator.refuses = refusal(bad)
    finishing(coordinator, coordinator.lanes)
    coordinator.run(5_000 + 250 * count)  # until it is found out which ones

    assert slowest_ms(coordinator, good, seconds=300) <= 2_000
    assert coordinator.stored.keys() == keys_of(good)


def test_the_refused_one_is_tried_all_the_time_and_committed_when_it_can_be():
    good, bad = [lane_of(0)], [lane_of(n, topic="gone") for n in range(50)]
    coordinator = Coordinator([*bad, *good])
    coordinator.refuses = unnamed(bad)
    finishing(coordinator, coordinator.lanes)
    coordinator.run(120_000)

    coordinator.refuses = lambda offsets: ()  # the right is granted again
    coordinator.run(10_000)

    assert coordinator.stored.keys() == keys_of([*good, *bad])


def test_a_partition_of_which_only_the_map_is_refused_gets_its_frontier_committed():
    lane, other = large_lane(0), lane_of(1)
    lane.offsets.close(0)
    coordinator = Coordinator([lane, other])
    coordinator.refuses = lambda offsets: [key for key, (_, text) in offsets.items() if len(text) > 100]

    coordinator.run(10_000)

    offset, text = coordinator.stored[lane.key]
    assert (offset, decode_metadata(text, offset, "orders").ranges) == (lane.offsets.frontier, ())
    assert other.key in coordinator.stored


def test_where_only_the_map_has_news_a_partition_that_was_refused_once_is_told_of_with_it():
    """What finished above its first record may be what that one waits for, as where both are written in one transaction."""
    lane = lane_of(0)
    lane.offsets.open([0])
    lane.offsets.settle(1)
    coordinator = Coordinator([lane]).run(3_000)
    lane.offsets.settle(2)
    coordinator.refuses = lambda offsets: () if coordinator.commits.refused else offsets
    coordinator.run(10_000)

    assert (coordinator.commits.refused, coordinator.is_behind([lane])) == (1, [])


@given(
    bad=st.sets(st.integers(0, 11)),
    whole=st.lists(st.booleans(), max_size=12),
    limit_chars=st.sampled_from([150, 700, 5_000, 10**6]),
    is_named=st.booleans(),
)
def test_whatever_was_refused_before_all_that_can_be_is_committed_in_the_end(
    bad, whole, limit_chars, is_named
):
    lanes = [lane_of(number) for number in range(12)]
    coordinator = Coordinator(lanes)
    failing = iter(whole)

    def refused(offsets):
        is_whole = next(failing, False) or (_size(offsets) > limit_chars and len(offsets) > 1)
        spoilt = [key for key in offsets if key.partition in bad]
        return offsets if is_whole or (spoilt and not is_named) else spoilt

    coordinator.refuses = refused
    finishing(coordinator, lanes)
    coordinator.run(20_000)
    coordinator.before_tick = lambda: None
    coordinator.run(60_000)

    assert coordinator.is_behind([lane for lane in lanes if lane.key.partition not in bad]) == []
    assert not bad & {key.partition for key in coordinator.stored}


# -- large ones ------------------------------------------------------------------------------------------------------


def test_three_hundred_maps_of_four_thousand_characters_are_committed_as_fast_as_they_are_answered():
    lanes = [large_lane(number) for number in range(300)]
    assert 3_900 < len(lanes[0].offsets.snapshot("orders")[1]) <= METADATA_BUDGET_CHARS

    coordinator = Coordinator(lanes).run(4 * TICK_MS)

    assert coordinator.stored.keys() == keys_of(lanes)
    assert len(coordinator.log) == 3
    assert max(coordinator.log) <= CHUNK_CHARS


def test_where_the_broker_takes_less_the_size_is_found_once_and_then_all_are_committed():
    lanes = [large_lane(number) for number in range(60)]
    coordinator = Coordinator(lanes)
    coordinator.refuses = lambda offsets: offsets if _size(offsets) > 50_000 else ()

    coordinator.run(4_000)

    assert coordinator.stored.keys() == keys_of(lanes)
    assert len([size for size in coordinator.log if size > 50_000]) <= 4


# -- a broker that takes less metadata --------------------------------------------------------------------------------


def limited(coordinator, most_chars):
    """A broker with that limit stores what fits of a commit, and refuses all of it in its answer."""

    def refuses(offsets):
        coordinator.is_too_large = any(len(text) > most_chars for _, text in offsets.values())
        coordinator.stored.update((key, at) for key, at in offsets.items() if len(at[1]) <= most_chars)
        return offsets if coordinator.is_too_large else ()

    coordinator.refuses = refuses
    return coordinator


@pytest.mark.parametrize(("most_chars", "refusals"), [(4_095, 0), (2_047, 1), (1_500, 2), (511, 3)])
def test_metadata_is_halved_until_it_passes_and_stays_so(most_chars, refusals):
    lanes = [lane_of(0), large_lane(1), large_lane(2)]
    coordinator = limited(Coordinator(lanes), most_chars)
    finishing(coordinator, [lanes[0]])

    coordinator.run(800)
    assert coordinator.stored.keys() == keys_of(lanes)
    finishing(coordinator, lanes)
    coordinator.run(20_000)
    coordinator.before_tick = lambda: None
    coordinator.run(3_000)

    assert coordinator.commits.refused == refusals
    assert most_chars / 2 < coordinator.commits.metadata_chars <= most_chars
    for lane in lanes[1:]:
        offset, text = coordinator.stored[lane.key]
        read = decode_metadata(text, offset, "orders")
        assert (offset, read.ignored) == (lane.offsets.frontier, "")
        assert len(text) > 0.9 * coordinator.commits.metadata_chars
        assert read.ranges == lane.offsets.finished_above_frontier()[: len(read.ranges)]


def test_heads_are_told_as_many_as_the_smaller_metadata_takes():
    lane = large_lane(0)
    for offset in range(0, 100_000, 500):
        lane.heads.put(offset, Head(1, 60_000 + offset, 5_000), Envelope(), must_tell=False)
    coordinator = limited(Coordinator([lane]), 1_023)
    coordinator.run(2_000)
    offset, text = coordinator.stored[lane.key]
    assert len(decode_metadata(text, offset, "orders").heads) == heads_that_fit(1_023) + 1 > 30


def test_a_partition_with_more_heads_than_fit_does_not_cut_what_others_tell():
    lanes = [large_lane(0), large_lane(1), lane_of(2)]
    for offset in range(0, 1_000_000, 500):
        lanes[0].heads.put(offset, Head(1, 7 * offset, 3 * offset), Envelope(), must_tell=True)
    coordinator = limited(Coordinator(lanes), METADATA_BUDGET_CHARS)
    finishing(coordinator, lanes[1:])
    coordinator.run(20_000)
    assert coordinator.commits.metadata_chars == METADATA_BUDGET_CHARS
    assert coordinator.stored.keys() == keys_of(lanes)


def test_where_even_the_least_is_too_large_the_frontier_of_the_others_is_committed():
    lanes = [lane_of(0), large_lane(1)]
    coordinator = limited(Coordinator(lanes), 40)
    finishing(coordinator, lanes)
    coordinator.run(20_000)
    assert coordinator.stored.keys() == keys_of(lanes)


# -- the last commit -------------------------------------------------------------------------------------------------


def test_the_last_commit_is_cut_into_requests_that_the_broker_takes_and_leaves_nothing_out():
    lanes = [large_lane(number) for number in range(130)]

    chunks = Commits(INTERVAL_MS, RECORDS, lambda topic: topic).final(lanes)

    assert {key: value for chunk in chunks for key, value in chunk.items()} == {
        lane.key: lane.offsets.snapshot("orders") for lane in lanes
    }
    assert max(map(_size, chunks)) <= CHUNK_CHARS


def test_the_last_commit_says_nothing_of_lanes_that_are_committed_already_or_have_not_begun():
    begun, waiting = (
        lane_of(0, offset=7),
        Lane(TopicPartition("orders", 1), WORK, None, OffsetMap(0, started=False)),
    )
    coordinator = Coordinator([begun, waiting]).run(2_000)
    assert coordinator.commits.final([begun, waiting]) == []

    begun.offsets.settle(8)

    assert [
        {key: offset for key, (offset, _) in chunk.items()} for chunk in coordinator.commits.final([begun])
    ] == [{begun.key: 8}]


def test_a_part_of_the_last_commit_that_is_not_confirmed_stays_to_be_done():
    lanes = [large_lane(number) for number in range(130)]
    commits = Commits(INTERVAL_MS, RECORDS, lambda topic: topic)
    first, *others = commits.final(lanes)

    assert commits.send_last(lanes, lambda chunk: chunk == first) == others
    assert {key for chunk in commits.final(lanes) for key in chunk} == {
        key for chunk in others for key in chunk
    }


# -- answers ---------------------------------------------------------------------------------------------------------


def test_t_off_2_what_finished_while_a_commit_was_on_its_way_is_part_of_the_next():
    lane, commits = lane_of(0), Commits(INTERVAL_MS, RECORDS, lambda topic: topic)
    first = commits.due([lane], Now(0, 0))
    lane.offsets.settle(5)
    commits.answered(first.snapshot, (), Now(0, 10))

    second = commits.due([lane], Now(0, 1_000))

    assert (second.snapshot, second.offsets[lane.key][0]) == (first.snapshot + 1, 5)


def test_a_commit_that_is_never_answered_is_given_up_after_a_minute_and_its_late_answer_counts_for_no_other():
    lane, commits = lane_of(0), Commits(INTERVAL_MS, RECORDS, lambda topic: topic)
    old = commits.due([lane], Now(0, 0))
    lane.offsets.settle(5)
    assert commits.due([lane], Now(0, ANSWER_TIMEOUT_MS - 1)) is None
    new = commits.due([lane], Now(0, ANSWER_TIMEOUT_MS))

    commits.answered(old.snapshot, (), Now(0, ANSWER_TIMEOUT_MS + 1))
    assert (lane.acked, commits.confirmed) == (None, 0)

    commits.answered(new.snapshot, (), Now(0, ANSWER_TIMEOUT_MS + 2))
    assert (lane.acked[0], commits.confirmed) == (5, 1)


def test_a_lane_that_went_away_in_the_middle_of_a_round_is_left_out_of_it():
    lanes = [large_lane(number) for number in range(130)]
    commits = Commits(INTERVAL_MS, RECORDS, lambda topic: topic)
    first = commits.due(lanes, Now(0, 0))
    for lane in lanes:
        lane.alive = False
    commits.answered(first.snapshot, (), Now(0, 1))

    assert commits.due([], Now(0, 2)) is None


def test_many_records_are_committed_before_the_interval_is_over_but_not_while_a_commit_is_on_its_way():
    lane, commits = lane_of(0), Commits(INTERVAL_MS, RECORDS, lambda topic: topic)
    told = []
    for mono_ms, ended in enumerate([0, RECORDS - 1, 1, RECORDS]):
        commits.ended(ended)
        lane.offsets.settle(lane.offsets.settled + 1)
        told.append(commits.due([lane], Now(mono_ms, mono_ms)))
        if mono_ms == 0:
            commits.answered(told[0].snapshot, (), Now(0, 0))

    assert [commit is not None for commit in told] == [True, False, True, False]


def test_only_of_partitions_that_are_let_go_it_is_told_that_their_process_ended_cleanly():
    going, staying = lanes = [lane_of(0), lane_of(1)]
    guard = CrashGuard("n1", [])
    for lane in lanes:
        lane.watch = guard.watch(lane.key, NO_LEDGER, 0)
    commits = Commits(INTERVAL_MS, RECORDS, lambda topic: topic)
    commits.due([], Now(0, 0))
    commits.hasten(lanes, Now(1, 1))
    told = commits.due([going], Now(1, 1), is_last=True).offsets
    nonces = {
        key: decode_metadata(text, offset, key.topic).ledger.nonce for key, (offset, text) in told.items()
    }
    assert nonces == {going.key: "", staying.key: "n1"}


def replayed_pair():
    """Two partitions of which the second holds replays that free what waits in the first; both have large maps."""
    listener = ListenerState(0, plan_of(order="key", blocking="key", after_dead_letter="block"), 2_000)
    source = Lane(TopicPartition("orders", 0), listener, None, OffsetMap(0))
    replays = Lane(TopicPartition("orders.replay", 0), listener, listener.plan.drained[0], OffsetMap(0))
    source.twin, replays.twin = replays, source
    for lane in (source, replays):
        lane.offsets.open(range(0, 1_000_000, 500))
        lane.offsets.settle(1_000_000)
    return source, replays


@pytest.mark.parametrize("which", [0, 1])
def test_a_source_and_its_replays_are_in_one_commit_whichever_it_is_sent_for(which):
    pair = replayed_pair()
    at = Coordinator(pair).run(1_000)
    for lane in pair:
        lane.offsets.close(0)
    at.commits.hasten([pair[which]], at.now)
    assert at.commits.due(pair, at.now).offsets.keys() == keys_of(pair)


@pytest.mark.parametrize("which", [0, 1])
def test_where_both_are_too_large_for_one_commit_the_source_is_told_of_first_and_nothing_waits_for_ever(
    which,
):
    pair = replayed_pair()
    at = Coordinator([pair[which], pair[1 - which], lane_of(7)])
    at.refuses = lambda offsets: offsets if len(offsets) > 1 and keys_of(pair) <= offsets.keys() else ()
    at.run(500)
    assert [key.topic for key in at.stored if key.partition == 0] == ["orders", "orders.replay"]
    assert TopicPartition("orders", 7) in at.stored


def test_while_a_source_is_refused_nothing_is_told_of_its_replays():
    source, replays = pair = replayed_pair()
    at = Coordinator([*pair, lane_of(7)])
    at.refuses = lambda offsets: [source.key] if source.key in offsets else ()
    at.run(5_000)
    assert replays.key not in at.stored
    at.refuses = lambda offsets: ()
    at.run(5_000)
    assert at.is_behind(pair) == []


class Replaying(Coordinator):
    """
    At each tick a replay is handled, which frees the record of the same number in the source. `each`: how far apart replays
    are; there is little to tell of those that are side by side.
    """

    def __init__(self, each=500):
        self.source, self.replays = self.pair = replayed_pair()
        self._each = each
        if each == 1:
            self.replays.offsets = OffsetMap(0)
            self.replays.offsets.open(range(2_000))
        super().__init__([self.replays, self.source, lane_of(7)])
        self._numbers = iter(range(2_000))
        self.before_tick = self._handle

    def _handle(self):
        number = next(self._numbers)
        self.source.offsets.close(number * 500)
        self.replays.offsets.close(number * self._each)

    def answer(self, commit):
        super().answer(commit)
        freed = self.stored.get(self.source.key, (0,))[0] // 500
        assert self.stored.get(self.replays.key, (0,))[0] // self._each <= freed, "a hole that nothing frees"

    def is_told(self, ms=10_000):
        """Whether all that was handled is told, at the latest after so long."""
        self.before_tick = lambda: None
        self.run(ms)
        return [self.stored[lane.key][0] == lane.offsets.frontier for lane in self.pair] == [True, True]


@pytest.mark.parametrize("whose", [{"orders.replay"}, {"orders", "orders.replay"}, set()])
def test_no_replay_is_told_before_what_it_freed_whichever_of_both_is_refused_for_a_while(whose):
    at = Replaying()
    for _ in range(3):
        at.refuses = lambda offsets: {key for key in offsets if key.partition == 0 and key.topic in whose}
        at.run(3_000)
        at.refuses = lambda offsets: ()
        at.run(3_000)
    assert at.stored[at.replays.key][0] > 0
    assert at.is_told()


def test_where_a_broker_takes_shorter_texts_only_no_replay_is_told_before_what_it_freed():
    at = Replaying(each=1)
    at.is_too_large = True
    at.refuses = lambda offsets: {key for key, (_, text) in offsets.items() if len(text) > 500}
    at.run(5_000)
    assert at.is_told()


def test_the_last_commits_tell_of_replays_at_the_end_and_by_themselves():
    pairs = []
    for number in range(130):
        source, replays = replayed_pair()
        for lane in (source, replays):
            lane.key = lane.key._replace(partition=number)
        pairs += [replays, source]
    chunks = Commits(INTERVAL_MS, RECORDS, lambda topic: topic).final(pairs)
    topics = [{key.topic for key in chunk} for chunk in chunks]
    assert topics == sorted(topics, key=lambda names: names == {"orders.replay"})
    assert {len(names) for names in topics} == {1}
    assert sum(map(len, chunks)) == 260


@pytest.mark.parametrize("going", ["both", "the source", "the replays"])
def test_the_last_commit_of_replays_is_not_even_sent_where_their_source_is_refused(going):
    source, replays = replayed_pair()
    lanes = {"both": [replays, source], "the source": [source], "the replays": [replays]}[going]
    commits = Commits(INTERVAL_MS, RECORDS, lambda topic: topic)
    sent = []
    missing = commits.send_last(lanes, lambda chunk: sent.append(set(chunk)) or False)
    assert sent == [{source.key}]
    assert [set(chunk) for chunk in missing] == [{source.key}, {replays.key}]
