"""What is said about pausing a listener is read as it was written, and nothing else is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.notices import is_for_workers, is_of_retries
from redrive.core.pausing import Pausing, is_pausing, read_pausing, write_pausing
from redrive.deadletters.letters import Position


def pausing(action="pause", **said):
    return Pausing(**{
        "action": action, "group": "shop", "listener": "charge", "who": "ann@host", "when_ms": 1_000, "why": "bank is down",
        **said,
    })  # fmt: skip


KEY, VALUE = write_pausing(pausing())

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50)


@given(action=st.sampled_from(["pause", "resume"]), group=names, listener=names, why=names)
def test_it_is_read_as_it_was_written(action, group, listener, why):
    said = pausing(action, group=group, listener=listener, why=why)
    assert read_pausing(*write_pausing(said)) == said


def test_of_a_listener_there_is_one_key_whatever_is_said_so_that_compaction_keeps_the_last():
    assert write_pausing(pausing("resume", who="bob", why=""))[0] == KEY == b"pause:shop/charge"


def test_no_two_listeners_share_a_key_whatever_their_groups_are_called():
    said = [
        pausing(group="a/b", listener="c"),
        pausing(group="a", listener="b/c"),
        pausing(group="a%2Fb", listener="c"),
    ]
    assert len({write_pausing(each)[0] for each in said}) == 3


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, VALUE),
        (b"", VALUE),
        (b"orders.dlq/0/17", VALUE),
        (KEY, None),
        (KEY, b""),
        (KEY, b"\xff"),
        (KEY, b"null"),
        (KEY, b"[" * 100_000),
        (KEY, VALUE.replace(b'"pause"', b'"stop"')),
        (KEY, write_pausing(pausing(who="w" * 4_001))[1]),
        (KEY, write_pausing(pausing(listener="refund"))[1]),
        (b"pause:other/charge", VALUE),
        (b"pause:\xff/charge", VALUE),
    ],
)
def test_what_says_nothing_of_the_kind_is_passed_over(key, value):
    assert read_pausing(key, value) is None


def test_it_is_for_workers_and_no_state_of_a_dead_letter():
    assert (is_pausing(KEY), is_for_workers(KEY), is_of_retries(KEY)) == (True, True, True)
    assert not is_pausing(str(Position("orders.dlq", 0, 17)).encode())
