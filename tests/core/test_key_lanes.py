"""Lanes by key: only the front of a lane runs, lanes take turns, and a lane exists as long as it has something."""

from collections import defaultdict, deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from redrive.core.envelope import Envelope
from redrive.core.heads import Heads
from redrive.core.key_lanes import KeyLanes, lane_key
from redrive.core.metadata import Head
from redrive.sim.records import SimRecord

ENVELOPE = Envelope()


def record_of(offset, key):
    return SimRecord("orders", 0, offset, key, b"{}", (), 0)


def offsets_of(taken):
    return [record.offset() for record in taken.records]


def lanes_by(order="key", blocking=None, heads=None):
    return KeyLanes(lane_key(order, blocking), Heads({}) if heads is None else heads)


def take(lanes, most=1_000, now_ms=0.0, may_start=float("inf"), rested=None, **options):
    rested = [] if rested is None else rested
    return lanes.take(most, now_ms, may_start, lambda lane, due_ms: rested.append((lane, due_ms)), **options)


def test_records_of_a_key_are_taken_in_their_order_and_those_of_others_beside_them():
    lanes = lanes_by()
    lanes.add([record_of(0, b"a"), record_of(1, b"b"), record_of(2, b"a")])
    assert offsets_of(take(lanes)) == [0, 2, 1]


def test_a_lane_of_which_a_worker_has_records_has_no_turn():
    lanes = lanes_by()
    lanes.add([record_of(0, b"a"), record_of(1, b"a"), record_of(2, b"b")])
    first = take(lanes, 1)
    assert offsets_of(first) == [0]
    assert offsets_of(take(lanes)) == [2]
    assert offsets_of(take(lanes)) == []
    lanes.home(first.lanes)
    assert offsets_of(take(lanes)) == [1]


def test_t_key_1_the_same_bytes_are_the_same_key_and_records_without_a_key_have_none():
    lanes = lanes_by()
    lanes.add(
        [record_of(0, bytes([1, 2])), record_of(1, None), record_of(2, bytes([1, 2])), record_of(3, None)]
    )
    assert [offsets_of(take(lanes, 1)) for _ in range(4)] == [[0], [1], [3], []]


def test_an_empty_key_is_a_key():
    lanes = lanes_by()
    lanes.add([record_of(0, b""), record_of(1, b"")])
    assert [offsets_of(take(lanes, 1)) for _ in range(2)] == [[0], []]


@pytest.mark.parametrize(("order", "blocking", "turns"), [("none", None, 3), ("partition", "partition", 1)])
def test_without_order_each_record_is_its_own_lane_and_a_blocking_partition_is_one(order, blocking, turns):
    lanes = lanes_by(order, blocking)
    lanes.add([record_of(offset, b"a") for offset in range(3)])
    assert sum(bool(offsets_of(take(lanes, 1))) for _ in range(3)) == turns


def test_t_key_3_one_key_with_a_hundred_thousand_records_lets_each_other_key_have_its_turn():
    lanes = lanes_by()
    lanes.add([record_of(offset, b"hot") for offset in range(100_000)])
    lanes.add([record_of(100_000 + number, b"%d" % number) for number in range(50)])
    seen = []
    for _ in range(51):
        taken = take(lanes, 10)
        seen += taken.records
        lanes.home(taken.lanes)
    assert {record.key() for record in seen} == {b"hot"} | {b"%d" % number for number in range(50)}


def test_a_turn_looks_at_no_more_lanes_than_it_takes_however_many_there_are():
    lanes = lanes_by()
    lanes.add([record_of(offset, b"%d" % offset) for offset in range(100_000)])
    take(lanes, 10)
    assert lanes.ready_count == 99_990


def test_what_was_not_run_stands_first_again_in_its_lane():
    lanes = lanes_by()
    lanes.add([record_of(0, b"a"), record_of(1, b"b"), record_of(2, b"a"), record_of(3, b"a")])
    taken = take(lanes, 3)
    assert offsets_of(taken) == [0, 2, 3]
    lanes.put_back(taken.records[1:], taken.lanes[1:])
    lanes.home(taken.lanes)
    assert offsets_of(take(lanes)) == [1, 2, 3]


def test_a_lane_whose_first_record_waits_rests_until_it_is_woken_and_others_go_on():
    heads = Heads({})
    lanes = lanes_by(heads=heads)
    lanes.add([record_of(0, b"a"), record_of(1, b"a"), record_of(2, b"b")])
    heads.put(0, Head(1, 5_000, 0), ENVELOPE, must_tell=False)
    rested = []
    assert offsets_of(take(lanes, rested=rested)) == [2]
    assert [due_ms for _, due_ms in rested] == [5_000]
    assert offsets_of(take(lanes, now_ms=6_000)) == []
    lanes.wake(rested[0][0])
    assert offsets_of(take(lanes, now_ms=6_000)) == [0, 1]


def test_while_only_failed_records_may_run_the_lane_of_a_parked_key_is_looked_at_all_the_same():
    lanes, rested = lanes_by(blocking="key"), []
    lanes.held = {b"parked"}
    lanes.add([record_of(0, b"new"), record_of(1, b"parked")])
    assert offsets_of(take(lanes, rested=rested, only_heads=True)) == []
    assert [lane.key for lane, _ in rested] == [b"parked"]


def test_while_only_failed_records_may_run_the_one_besides_may_too_and_nothing_behind_it():
    """Where those that failed fill a commit, and are written only with one that can't tell of them before the first one is through."""
    heads = Heads({})
    lanes = lanes_by(blocking="key", heads=heads)
    lanes.add([record_of(0, b"a"), record_of(1, b"a"), record_of(2, b"b"), record_of(3, b"c")])
    heads.put(3, Head(1, 0, 0), ENVELOPE, must_tell=False)
    rest = lambda *_: None
    assert lanes.lowest(1.0, rest, only_heads=True) == 3
    assert lanes.lowest(1.0, rest, only_heads=True, besides=0) == 0
    assert offsets_of(take(lanes, now_ms=1.0, only_heads=True, besides=0)) == [0, 3]


def test_what_has_to_be_told_rests_after_its_due_until_a_commit_told_of_this_very_attempt():
    heads = Heads({})
    lanes = lanes_by(heads=heads)
    lanes.add([record_of(0, b"a")])
    head = Head(2, 5_000, 0)
    heads.put(0, head, ENVELOPE, must_tell=True)
    heads.confirm({0: Head(1, 5_000, 0)})
    rested = []
    assert offsets_of(take(lanes, now_ms=6_000, rested=rested)) == []
    assert [due_ms for _, due_ms in rested] == [-1]
    heads.confirm(heads.told())
    lanes.wake(rested[0][0])
    assert offsets_of(take(lanes, now_ms=6_000)) == [0]


def test_a_record_that_failed_before_is_not_taken_behind_others_of_its_lane():
    heads = Heads({})
    lanes = lanes_by(heads=heads)
    lanes.add([record_of(0, b"a"), record_of(1, b"a")])
    heads.put(1, Head(1, 0, 0), ENVELOPE, must_tell=False)
    assert offsets_of(take(lanes, now_ms=1)) == [0]


def test_nothing_at_or_above_the_limit_is_taken():
    lanes = lanes_by()
    lanes.add([record_of(0, b"a"), record_of(1, b"b"), record_of(2, b"a")])
    assert offsets_of(take(lanes, may_start=1)) == [0]
    assert offsets_of(take(lanes, may_start=2)) == [1]


def test_of_lanes_without_records_nothing_is_kept():
    lanes = lanes_by()
    for start in range(0, 10_000, 100):
        lanes.add([record_of(start + number, b"%d" % (start + number)) for number in range(100)])
        taken = take(lanes)
        lanes.home(taken.lanes)
    assert (len(lanes), lanes.waiting, lanes.ready_count) == (0, 0, 0)


class Machine(RuleBasedStateMachine):
    """Beside a list for each key."""

    def __init__(self):
        super().__init__()
        self.heads = Heads({})
        self.lanes = lanes_by(heads=self.heads)
        self.lines = defaultdict(deque)
        self.out = []
        self.resting = {}
        self.next_offset = 0
        self.now_ms = 0.0

    @rule(keys=st.lists(st.sampled_from([b"a", b"b", b"c", None]), min_size=1, max_size=12))
    def records_come(self, keys):
        records = [record_of(self.next_offset + at, key) for at, key in enumerate(keys)]
        self.next_offset += len(records)
        self.lanes.add(records)
        for record in records:
            self.lines[record.key() or record.offset()].append(record.offset())

    @rule(most=st.integers(1, 6))
    def a_worker_takes(self, most):
        rested = []
        taken = take(self.lanes, most, self.now_ms, rested=rested)
        self.resting.update(rested)
        busy = {record.key() or record.offset() for run in self.out for record in run[0]}
        mine = defaultdict(list)
        for record in taken.records:
            mine[record.key() or record.offset()].append(record.offset())
        for key, offsets in mine.items():
            assert key not in busy
            assert offsets == list(self.lines[key])[: len(offsets)]
            head = self.heads.get(offsets[0])
            assert head is None or head.due_ms <= self.now_ms
        assert len(taken.records) <= most
        if taken.records:
            self.out.append((taken.records, taken.lanes))

    @rule(data=st.data(), fails=st.booleans())
    def a_worker_ends(self, data, fails):
        if not self.out:
            return
        records, lanes = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        done = data.draw(st.integers(0, len(records)))
        for record in records[:done]:
            self.lines[record.key() or record.offset()].popleft()
            self.heads.drop(record.offset())
        if fails and done < len(records):
            due_ms = int(self.now_ms) + data.draw(st.integers(1, 50))
            self.heads.put(records[done].offset(), Head(1, due_ms, 0), ENVELOPE, must_tell=False)
        self.lanes.put_back(records[done:], lanes[done:])
        self.lanes.home(lanes)

    @rule(ms=st.integers(1, 60))
    def time_passes(self, ms):
        self.now_ms += ms
        for lane, due_ms in list(self.resting.items()):
            if due_ms <= self.now_ms:
                del self.resting[lane]
                self.lanes.wake(lane)

    @invariant()
    def counts_are_right(self):
        out = sum(len(records) for records, _ in self.out)
        assert self.lanes.waiting == sum(map(len, self.lines.values())) - out
        assert len(self.lanes) == sum(bool(line) for line in self.lines.values())
        assert self.lanes.resting_count == len(self.resting)

    def teardown(self):
        while self.out:
            records, lanes = self.out.pop()
            self.lanes.put_back(records, lanes)
            self.lanes.home(lanes)
        self.now_ms += 100
        self.time_passes(1)
        ran = []
        while (taken := take(self.lanes, 3, self.now_ms)).records:
            ran += offsets_of(taken)
            for record in taken.records:
                self.lines[record.key() or record.offset()].popleft()
            self.lanes.home(taken.lanes)
        assert not any(self.lines.values())
        assert len(self.lanes) == 0


TestKeyLanes = Machine.TestCase
TestKeyLanes.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
