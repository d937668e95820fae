"""What of a partition is finished, and how that is told and read back."""

from hypothesis import given
from hypothesis import strategies as st

from redrive.core.offsets import (
    METADATA_BUDGET_CHARS,
    OffsetMap,
    Restored,
    decode_metadata,
    encode_metadata,
    identity_of,
)

ID = "0a1b2c3d"


@st.composite
def ranges(draw, base: int = 0, most: int = 2_000):
    """Ranges above `base`, ascending, with room between them."""
    steps = draw(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), max_size=most))
    found, at = [], base
    for gap, length in steps:
        found.append((at + gap, at + gap + length))
        at += gap + length
    return tuple(found)


bases = st.integers(0, 2**40)


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


class TestTheTextOfACommit:
    @given(bases.flatmap(lambda base: st.tuples(st.just(base), ranges(base, most=50))))
    def test_what_is_written_is_read(self, told):
        base, finished = told
        text = encode_metadata(base, finished, ID)
        assert decode_metadata(text, base, ID) == Restored(finished)
        assert decode_metadata(text + "\0", base, ID) == Restored(finished)  # the client's NUL

    @given(bases.flatmap(lambda base: st.tuples(st.just(base), ranges(base))), st.integers(60, 4095))
    def test_a_text_that_is_cut_to_fit_claims_less_and_never_more(self, told, budget):
        base, finished = told
        text = encode_metadata(base, finished, ID, budget)
        assert len(text.encode("utf-16-le")) // 2 <= budget
        read = decode_metadata(text, base, ID).ranges
        assert read == finished[: len(read)]

    def test_a_hundred_thousand_finished_behind_a_stuck_one_take_less_than_a_hundred_bytes(self):
        offsets = OffsetMap(5_000_000)
        offsets.open([5_000_000])
        offsets.settle(5_100_001)
        frontier, text = offsets.snapshot(ID)
        assert frontier == 5_000_000
        assert len(text) < 100
        assert decode_metadata(text, frontier, ID).ranges == ((5_000_001, 5_100_001),)

    def test_every_second_one_open_still_fits_and_keeps_what_is_near_the_frontier(self):
        offsets = OffsetMap(0)
        offsets.open(range(0, 20_000, 2))
        offsets.settle(20_000)
        frontier, text = offsets.snapshot(ID)
        assert len(text) <= METADATA_BUDGET_CHARS
        read = decode_metadata(text, frontier, ID).ranges
        assert len(read) > 1000
        assert read == tuple((offset, offset + 1) for offset in range(1, 2 * len(read), 2))

    def test_a_map_of_another_offset_cluster_or_topic_is_ignored_and_told(self):
        text = encode_metadata(10, ((12, 14),), ID)
        assert decode_metadata(text, 11, ID).ignored.startswith("the map belongs to offset 10")
        assert "another cluster" in decode_metadata(text, 10, "ffffffff").ignored
        assert identity_of("a", "b") != identity_of("a", "c") != identity_of("b", "c")

    def test_no_text_is_no_map(self):
        for text in (None, "", "\0"):
            assert decode_metadata(text, 0, ID) == Restored()

    @given(st.text(max_size=200), bases)
    def test_any_text_is_read_without_raising(self, text, base):
        read = decode_metadata(text, base, ID)
        assert read.ranges == ()

    @given(bases.flatmap(lambda base: st.tuples(st.just(base), ranges(base, most=20))), st.data())
    def test_a_damaged_text_gives_ranges_in_order_or_is_ignored(self, told, data):
        base, finished = told
        text = encode_metadata(base, finished, ID)
        at = data.draw(st.integers(0, len(text)))
        damaged = text[:at] + data.draw(st.text(max_size=5)) + text[at + data.draw(st.integers(0, 3)) :]
        read = decode_metadata(damaged, base, ID).ranges
        edges = [edge for pair in read for edge in pair]
        assert edges == sorted(edges)
        assert all(base <= edge < 1 << 63 for edge in edges)
