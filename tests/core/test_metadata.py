"""What a commit says besides the offset, and how it is read back."""

import base64
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.metadata import (
    HEADS_MOST,
    METADATA_BUDGET_CHARS,
    NO_LEDGER,
    Head,
    Ledger,
    Restored,
    decode_metadata,
    encode_metadata,
    heads_that_fit,
    identity_of,
)
from redrive.core.offsets import OffsetMap
from tests.broker import ROOT

ID = "0a1b2c3d"
NOW_MS = 1_790_000_000_000
WEEK_MS = 7 * 86_400_000


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
times = st.integers(0, 2**45)
ledgers = st.builds(
    Ledger,
    nonce=st.text("0123456789abcdefXYZ_.-", max_size=32),
    crashes=st.integers(0, 9),
    hi=st.integers(0, 2**60),
    ceil=st.integers(-1, 2**60),
    solo=st.integers(-1, 2**60),
)


def heads(base: int, most: int = 60):
    head = st.builds(Head, attempt=st.integers(1, 1000), due_ms=times, first_failed_ms=times)
    return st.dictionaries(st.integers(base, base + 2**33), head, max_size=most)


def finished_above(read: Restored) -> int:
    return sum(end - first for first, end in read.ranges)


def heads_far_apart(count: int, attempts: int = 100, seed: int = 1) -> dict[int, Head]:
    """As spread as `heads_that_fit` takes them to be."""
    roll = random.Random(seed)
    return {
        offset: Head(
            roll.randint(1, attempts), NOW_MS + roll.randrange(WEEK_MS), NOW_MS - roll.randrange(WEEK_MS)
        )
        for offset in sorted(roll.sample(range(2**32), count))
    }


LONGEST_LEDGER = Ledger("f" * 32, 9999, 2**62, 2**62, 2**62)


class TestWhatIsWrittenIsRead:
    @given(bases.flatmap(lambda base: st.tuples(st.just(base), ranges(base, most=50), heads(base))), ledgers)
    def test_map_heads_and_ledger(self, told, ledger):
        base, finished, waiting = told
        text = encode_metadata(base, finished, ID, ledger=ledger, heads=waiting)
        assert decode_metadata(text, base, ID) == Restored(finished, waiting, ledger)
        assert decode_metadata(text + "\0", base, ID) == Restored(
            finished, waiting, ledger
        )  # the client's NUL

    def test_nothing_to_say_is_said_in_a_few_characters(self):
        text = encode_metadata(5, (), ID)
        assert len(text) < 30
        assert decode_metadata(text, 5, ID) == Restored()

    def test_what_an_earlier_version_committed(self):
        text = "r1:5000000:0a1b2c3d:::0icZrpN$3w"
        finished = ((5_000_001, 5_100_001), (5_200_000, 5_200_007))
        assert decode_metadata(text, 5_000_000, ID) == Restored(finished)

    def test_the_example_of_the_reference(self):
        page = (ROOT / "docs" / "reference" / "commit-metadata.md").read_text()
        text = page.split("```")[1].strip()
        assert decode_metadata(text, 90_110, "05c87723") == Restored(
            ((90_111, 90_650), (90_651, 91_200)),
            {
                90_110: Head(2, 1_796_091_132_500, 1_796_091_100_250),
                90_650: Head(1, 1_796_091_140_000, 1_796_091_110_000),
            },
            Ledger("7f3a9c21", 0, 91_200),
        )
        assert f"{HEADS_MOST} heads" in page

    @given(bases.flatmap(lambda base: st.tuples(st.just(base), ranges(base))), st.integers(60, 4095))
    def test_a_text_that_is_cut_to_fit_claims_less_and_never_more(self, told, budget):
        base, finished = told
        text = encode_metadata(base, finished, ID, budget=budget)
        assert len(text.encode("utf-16-le")) // 2 <= budget
        read = decode_metadata(text, base, ID)
        assert read.ignored == ""
        assert finished_above(read) == finished_above(Restored(within(read.ranges, finished)))

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
        offsets.open(range(0, 60_000, 2))
        offsets.settle(60_000)
        frontier, text = offsets.snapshot(ID)
        assert len(text) <= METADATA_BUDGET_CHARS
        read = decode_metadata(text, frontier, ID).ranges
        assert len(read) > 10_000
        assert read == tuple((offset, offset + 1) for offset in range(1, 2 * len(read), 2))


def within(claimed, finished):
    """What of `claimed` lies in a finished range."""
    found, at = [], 0
    for first, end in claimed:
        while at < len(finished) and finished[at][1] < end:
            at += 1
        if at < len(finished) and finished[at][0] <= first:
            found.append((first, end))
    return tuple(found)


class TestOnlyTheMapGivesWay:
    @pytest.mark.parametrize("budget", [0, 60, 300, 999, 4095])
    def test_ledger_and_heads_are_whole_whatever_the_budget(self, budget):
        waiting, ledger = heads_far_apart(20), Ledger("a1", 2, 700, 900, 12)
        text = encode_metadata(0, ((2**33, 2**33 + 9),), ID, ledger=ledger, heads=waiting, budget=budget)
        read = decode_metadata(text, 0, ID)
        assert (read.heads, read.ledger) == (waiting, ledger)

    @pytest.mark.parametrize("budget", [METADATA_BUDGET_CHARS, 2047, 1023, 511])
    def test_the_most_heads_take_three_quarters_of_the_budget_at_their_widest(self, budget):
        most = heads_that_fit(budget)
        for seed in range(5):
            waiting = heads_far_apart(most, seed=seed)
            text = encode_metadata(0, (), ID, ledger=LONGEST_LEDGER, heads=waiting)
            assert len(text) <= budget * 3 // 4
            assert decode_metadata(text, 0, ID).heads == waiting

    def test_the_most_heads_fit_also_where_each_column_costs_what_it_can(self):
        step = 2**32 // HEADS_MOST
        far = {n * step: Head(100, NOW_MS + WEEK_MS, NOW_MS) for n in range(1, HEADS_MOST)}
        waiting = {0: Head(1, NOW_MS, NOW_MS - WEEK_MS)} | far
        text = encode_metadata(0, (), ID, ledger=LONGEST_LEDGER, heads=waiting)
        assert len(text) <= METADATA_BUDGET_CHARS * 3 // 4

    def test_three_hundred_heads_of_an_afternoon_fit_three_quarters_of_the_budget(self):
        roll = random.Random(7)
        waiting = {
            offset: Head(
                roll.randint(1, 8), NOW_MS + roll.randrange(300_000), NOW_MS - roll.randrange(4 * 3_600_000)
            )
            for offset in sorted(roll.sample(range(1_000_000), 300))
        }
        text = encode_metadata(0, (), ID, ledger=LONGEST_LEDGER, heads=waiting)
        assert len(text) <= METADATA_BUDGET_CHARS * 3 // 4
        assert HEADS_MOST > 180

    def test_whatever_stood_in_headers_as_the_time_of_a_failure_is_told_within_bounds(self):
        waiting = {5: Head(1, 10**30, -7), 9: Head(2, -(10**30), 2**63)}
        read = decode_metadata(encode_metadata(0, (), ID, heads=waiting), 0, ID)
        assert read.heads == {5: Head(1, 2**63 - 1, 0), 9: Head(2, 0, 2**63 - 1)}

    def test_heads_below_the_frontier_are_finished(self):
        waiting = {5: Head(1, NOW_MS, NOW_MS), 9: Head(2, NOW_MS, NOW_MS)}
        for base, left in ((6, {9: waiting[9]}), (10, {})):
            assert decode_metadata(encode_metadata(base, (), ID, heads=waiting), base, ID).heads == left

    def test_a_nonce_that_would_break_the_text_is_refused(self):
        with pytest.raises(ValueError, match="nonce"):
            encode_metadata(0, (), ID, ledger=Ledger("a:b"))


class TestWhatCannotBeUsedIsIgnoredAndTold:
    def test_another_offset_cluster_or_topic(self):
        text = encode_metadata(10, ((12, 14),), ID)
        assert decode_metadata(text, 11, ID).ignored.startswith("the map belongs to offset 10")
        assert "another cluster" in decode_metadata(text, 10, "ffffffff").ignored
        assert identity_of("a", "b") != identity_of("a", "c") != identity_of("b", "c")

    def test_no_text_is_no_map(self):
        for text in (None, "", "\0"):
            assert decode_metadata(text, 0, ID) == Restored()

    @pytest.mark.parametrize(
        ("text", "writer"),
        [
            (
                "AgAAAZkz5oAAAAAAAA==",
                "something else",
            ),  # Kafka Streams: version 2, partition time, no processors
            ("bAAP/wMAAQ==", "something else"),  # Confluent's Parallel Consumer, a bitset
            ("host-7.example.com 2026-12-01T10:00:00Z", "something else"),
            ('{"v":1}', "something else"),
            ("\ufffd\ufffd\ud800", "something else"),
            ("r3:10:0a1b2c3d::::", "a newer version of redrive"),
        ],
    )
    def test_what_others_write(self, text, writer):
        assert decode_metadata(text, 10, ID) == Restored(ignored=f"the metadata was written by {writer}")

    @given(
        st.sampled_from(["", "a,1,2,3,4", "a,1", "a,b,c,d,e"]) | st.text(max_size=20),
        st.just(b"") | st.binary(max_size=90),
        st.sampled_from(["r", "s", "b", "x"]),
        st.binary(max_size=90),
    )
    def test_whoever_knows_the_checksum_can_still_say_nothing_absurd(self, ledger, waiting, tag, finished):
        told = f"r2:7:{ID}:{ledger}:{base64.b85encode(waiting).decode()}:{tag}{base64.b85encode(finished).decode()}"
        checksum = base64.b85encode(zlib.crc32(told.encode(errors="replace")).to_bytes(4, "big")).decode()
        read = decode_metadata(f"{told}:{checksum}", 7, ID)
        edges = [edge for pair in read.ranges for edge in pair]
        assert edges == sorted(edges)
        assert all(7 <= offset < 2**63 for offset in (*edges, *read.heads))

    @given(st.text(max_size=200), bases)
    def test_any_text_is_read_without_raising(self, text, base):
        read = decode_metadata(text, base, ID)
        assert (read.ranges, read.heads, read.ledger) == ((), {}, NO_LEDGER)

    def test_a_text_in_which_one_letter_was_changed(self):
        waiting = {11: Head(2, NOW_MS + 500, NOW_MS)}
        text = encode_metadata(10, ((12, 14), (20, 90)), ID, ledger=Ledger("a1", 1, 90), heads=waiting)
        for at in range(len(text)):
            changed = text[:at] + ("1" if text[at] != "1" else "2") + text[at + 1 :]
            assert decode_metadata(changed, 10, ID) == Restored(
                ignored=decode_metadata(changed, 10, ID).ignored
            )

    @given(
        bases.flatmap(lambda base: st.tuples(st.just(base), ranges(base, most=20), heads(base, 5))), st.data()
    )
    def test_a_damaged_text_says_nothing(self, told, data):
        base, finished, waiting = told
        text = encode_metadata(base, finished, ID, heads=waiting)
        at = data.draw(st.integers(0, len(text) - 1))
        damaged = text[:at] + data.draw(st.text(max_size=5)) + text[at + data.draw(st.integers(0, 3)) :]
        if damaged.rstrip("\0") not in (text, ""):
            read = decode_metadata(damaged, base, ID)
            assert (read.ranges, read.heads, read.ledger) == ((), {}, NO_LEDGER)
            assert read.ignored
