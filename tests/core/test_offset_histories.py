"""
Histories of one partition, made by dice and checked against sets: what a commit claims is what was finished when it was made.

Sets of offsets are kept as the bits of one number here, from the first offset of the history on.
"""

import random
import time

import pytest

from redrive.core.metadata import METADATA_BUDGET_CHARS, Head, Ledger, decode_metadata, encode_metadata
from redrive.core.offsets import OffsetMap

ID = "0a1b2c3d"
SMALL = 100_000
FIRST_OFFSETS = (0, 1, 2**15 - 7, 2**16 - 3, 2**31 - 9, 2**32 - 5, 2**53 - 3, 2**53 + 1, 2**62)


def bits_of(first, ranges):
    bits = 0
    for start, end in ranges:
        bits |= ((1 << (end - start)) - 1) << (start - first)
    return bits


def claimed_by(first, offset, text):
    """The offsets that a commit claims to be finished, as bits; and what else it says."""
    read = decode_metadata(text, offset, ID)
    assert read.ignored == ""
    assert all(start >= offset for start, _ in read.ranges)
    return ((1 << (offset - first)) - 1) | bits_of(first, read.ranges), read


def is_said(roll, *, one_in):
    return roll.random() * one_in < 1


def fetch(roll, offsets, end, most):
    """Hand out offsets from `end` on, some of which don't exist. Gives those that do, and the new end."""
    records = [offset for offset in range(end, end + roll.randint(1, most)) if not is_said(roll, one_in=9)]
    offsets.open(records)
    end = records[-1] + 1 + is_said(roll, one_in=4) if records else end + 1
    offsets.settle(end)
    return records, end


def test_a_hundred_thousand_small_histories_are_told_as_they_were():
    roll = random.Random(20_261_201)
    for _ in range(SMALL):
        first = end = roll.choice(FIRST_OFFSETS)
        offsets = OffsetMap(first)
        waiting = []
        for _ in range(roll.randint(1, 3)):
            records, end = fetch(roll, offsets, end, most=16)
            waiting += records
            roll.shuffle(waiting)
            done = waiting[: roll.randint(0, len(waiting))]
            del waiting[: len(done)]
            offsets.close_all(done)
        frontier, above = offsets.frontier, offsets.finished_above_frontier()
        finished = ((1 << (end - first)) - 1) & ~bits_of(first, [(one, one + 1) for one in waiting])

        text = encode_metadata(frontier, above, ID)
        offsets.close_all(waiting)  # what finishes while the commit is on its way isn't part of it

        assert claimed_by(first, frontier, text)[0] == finished


def test_heads_and_ledger_are_told_with_the_map():
    roll = random.Random(2)
    for _ in range(2_000):
        first = roll.choice(FIRST_OFFSETS)
        offsets = OffsetMap(first)
        records, end = fetch(roll, offsets, first, most=200)
        heads = {
            offset: Head(roll.randint(1, 20), roll.randrange(2**42), roll.randrange(2**42))
            for offset in records
            if is_said(roll, one_in=8)
        }
        offsets.close_all(offset for offset in records if offset not in heads)
        ledger = Ledger(f"{roll.randrange(2**32):x}", roll.randint(0, 3), end, end + 1000, first)
        frontier = offsets.frontier

        text = encode_metadata(frontier, offsets.finished_above_frontier(), ID, ledger=ledger, heads=heads)

        claimed, read = claimed_by(first, frontier, text)
        assert (read.heads, read.ledger) == (heads, ledger)
        assert claimed & bits_of(first, [(offset, offset + 1) for offset in heads]) == 0


PATTERNS = {
    "every second one": lambda roll, width: range(0, width, 2),
    "all but every second one": lambda roll, width: range(1, width, 2),
    "in pairs": lambda roll, width: (offset for offset in range(width) if offset % 4 < 2),
    "one in three by chance": lambda roll, width: (o for o in range(width) if is_said(roll, one_in=3)),
    "one in fifty by chance": lambda roll, width: (o for o in range(width) if is_said(roll, one_in=50)),
    "nearly all": lambda roll, width: (o for o in range(width) if not is_said(roll, one_in=50)),
    "one at the beginning": lambda roll, width: (0,),
    "one at the end": lambda roll, width: (width - 1,),
    "long stretches": lambda roll, width: (o for o in range(width) if o // 3_000 % 2 == 0),
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("first", [2**31 - 40_000, 2**53 - 40_000])
def test_t_off_3_long_ranges_claim_what_is_finished_or_less_of_it_within_the_budget(pattern, first):
    roll = random.Random(f"{pattern} {first}")
    for width in (32_767, 32_768, 65_536, roll.randint(32_766, 70_000)):
        unfinished = [first + offset for offset in PATTERNS[pattern](roll, width)]
        offsets = OffsetMap(first)
        offsets.open(unfinished)
        offsets.settle(first + width)
        finished = ((1 << width) - 1) & ~bits_of(first, [(one, one + 1) for one in unfinished])
        frontier, above = offsets.frontier, offsets.finished_above_frontier()
        for budget in (METADATA_BUDGET_CHARS, 511):
            text = encode_metadata(frontier, above, ID, budget=budget)
            assert len(text) <= budget
            claimed, _ = claimed_by(first, frontier, text)
            assert not claimed & ~finished
            told = above[: (budget - 60) // 8]  # a range takes six bytes at most here
            assert claimed.bit_count() >= frontier - first + sum(end - start for start, end in told)
            if told == above:
                assert claimed == finished


@pytest.mark.parametrize(
    ("every", "chars"), [(1_000_000, 40), (100_000, 70), (1_000, 2_600), (10, 4_095), (2, 4_095)]
)
def test_what_the_map_of_a_million_takes(every, chars):
    offsets = OffsetMap(7_000_000)
    offsets.open(range(7_000_000, 8_000_000, every))
    offsets.settle(8_000_000)
    assert len(offsets.snapshot(ID)[1]) <= chars


# Ten times and more of what it takes (benchmarks/README.md), so that no busy machine turns it red: it finds another order of growth.
@pytest.mark.realtime
@pytest.mark.parametrize(
    ("every", "most_ms"),
    [
        pytest.param(200_000, 50, id="a range of a million with five holes"),
        pytest.param(50, 250, id="twenty thousand holes in a million"),
        pytest.param(2, 250, id="half a million holes, of which no commit can tell"),
    ],
)
def test_t_off_6_a_commit_is_encoded_in_time_by_its_holes_and_never_by_the_range(every, most_ms):
    offsets = OffsetMap(10**9)
    offsets.open(range(10**9, 10**9 + 1_000_000, every))
    offsets.settle(10**9 + 1_000_000)
    took_ms = []
    for _ in range(10):
        began = time.perf_counter()
        offsets.snapshot(ID)
        took_ms.append(1_000 * (time.perf_counter() - began))
    assert min(took_ms) < most_ms
