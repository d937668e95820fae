"""What of a partition is finished."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from redrive.core.metadata import METADATA_BUDGET_CHARS, decode_metadata, encode_metadata
from redrive.core.offsets import OffsetMap


class TestTheMapOfOnePartition:
    def test_everything_handed_out_is_finished_unless_it_is_open(self):
        offsets = OffsetMap(10)
        offsets.open([12, 15])
        offsets.settle(20)
        assert (offsets.frontier, offsets.open_count) == (12, 2)
        assert offsets.finished_above_frontier() == ((13, 15), (16, 20))

    def test_closing_the_first_open_one_moves_the_frontier_to_the_next(self):
        offsets = OffsetMap(0)
        offsets.open([0, 5])
        offsets.settle(9)
        offsets.close(0)
        assert offsets.frontier == 5
        offsets.close(5)
        assert (offsets.frontier, offsets.finished_above_frontier()) == (9, ())

    def test_closing_twice_or_what_was_never_open_is_harmless(self):
        offsets = OffsetMap(0)
        offsets.open([1])
        offsets.settle(3)
        offsets.close(1)
        offsets.close(1)
        offsets.close_all([0, 2, 77])
        assert offsets.frontier == 3

    def test_offsets_without_records_are_no_holes(self):
        offsets = OffsetMap(0)
        offsets.settle(4)  # records at 0 and 3, markers between
        offsets.open([9])
        offsets.settle(10)
        assert offsets.frontier == 9

    def test_nothing_is_claimed_above_the_highest_one_handed_out(self):
        offsets = OffsetMap(0)
        offsets.open([0])
        offsets.settle(5)
        assert offsets.finished_above_frontier()[-1][1] == 5

    def test_a_partition_started_at_its_beginning_begins_at_its_first_record(self):
        offsets = OffsetMap(0, started=False)
        offsets.begin(17)
        assert (offsets.started, offsets.frontier) == (True, 17)

    def test_what_the_owner_before_finished_is_known_and_told_on(self):
        offsets = OffsetMap(10, ((12, 14), (20, 30)))
        assert [offsets.was_finished(offset) for offset in (11, 12, 13, 14, 20, 29, 30)] == [
            False, True, True, False, True, True, False,
        ]  # fmt: skip
        assert (offsets.restored_above(29), offsets.restored_above(30)) == (True, False)
        offsets.open([11])
        offsets.settle(15)
        assert offsets.finished_above_frontier() == ((12, 15), (20, 30))

    def test_what_it_finished_and_what_the_owner_before_did_are_one_range_where_they_touch(self):
        offsets = OffsetMap(10, ((15, 18), (20, 30)))
        offsets.open([10])
        offsets.settle(16)
        assert offsets.finished_above_frontier() == ((11, 18), (20, 30))

    @given(st.sets(st.integers(0, 300)), st.integers(0, 301), st.data())
    def test_frontier_and_map_say_exactly_what_is_finished(self, fetched, end, data):
        handed_out = sorted(offset for offset in fetched if offset < end)
        opened = sorted(data.draw(st.sets(st.sampled_from(handed_out)))) if handed_out else []
        closed = data.draw(st.sets(st.sampled_from(opened))) if opened else set()
        offsets = OffsetMap(0)
        offsets.open(opened)
        offsets.settle(end)
        offsets.close_all(closed)

        frontier, above = offsets.frontier, offsets.finished_above_frontier()
        claimed = {
            offset
            for offset in range(301)
            if offset < frontier or any(first <= offset < last for first, last in above)
        }
        assert claimed == set(range(end)) - (set(opened) - closed)


def exists(offset):
    """Whether there is a record at this offset: the rest are transaction markers and what was compacted away."""
    return offset * 2_654_435_761 % 2**32 > 2**30


class AgainstSets(RuleBasedStateMachine):
    """An offset map beside the sets that it stands for, over several owners of the partition."""

    def __init__(self):
        super().__init__()
        self.offsets = OffsetMap(0)
        self.next_offset = 0
        self.open = set()
        self.finished = set()

    @rule(most=st.integers(1, 60))
    def fetch(self, most):
        records = [offset for offset in range(self.next_offset, self.next_offset + most) if exists(offset)]
        if not records:
            return
        self.next_offset = records[-1] + 1
        left = [offset for offset in records if not self.offsets.was_finished(offset)]
        assert left == [offset for offset in records if offset not in self.finished]
        self.offsets.open(left)
        self.offsets.settle(self.next_offset)
        self.open.update(left)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish(self, data):
        done = data.draw(st.sets(st.sampled_from(sorted(self.open)), min_size=1))
        if len(done) == 1:
            self.offsets.close(*done)
        self.offsets.close_all(done)  # again, as a late acknowledgement may
        self.open -= done
        self.finished |= done

    @rule(budget=st.sampled_from([METADATA_BUDGET_CHARS, 60, 45, 0]))
    def change_hands(self, budget):
        frontier = self.offsets.frontier
        text = encode_metadata(frontier, self.offsets.finished_above_frontier(), "id", budget=budget)
        read = decode_metadata(text, frontier, "id")
        kept = claimed(frontier, read.ranges)
        assert kept <= self.finished
        if budget == METADATA_BUDGET_CHARS:
            assert kept == self.finished
        self.offsets, self.next_offset = OffsetMap(frontier, read.ranges), frontier
        self.finished, self.open = kept, set()

    @invariant()
    def the_frontier_is_the_first_unfinished_one(self):
        assert self.offsets.frontier == min(self.open, default=self.offsets.settled)
        assert self.offsets.open_count == len(self.open)

    @invariant()
    def what_is_claimed_is_what_is_finished(self):
        assert claimed(self.offsets.frontier, self.offsets.finished_above_frontier()) == self.finished

    @invariant()
    def ranges_ascend_and_are_apart(self):
        edges = [edge for pair in self.offsets.finished_above_frontier() for edge in pair]
        assert edges == sorted(set(edges))


def claimed(frontier, ranges):
    """The records that a commit claims to be finished."""
    return {offset for pair in ((0, frontier), *ranges) for offset in range(*pair) if exists(offset)}


TestAgainstSets = AgainstSets.TestCase
