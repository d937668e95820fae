"""Answers are kept under their keys, for a while and in bounds."""

import pytest

from redrive.console.memory import LIFE_MS, Answer, Memory, fingerprint
from redrive.console.problems import Problem
from redrive.sim.clock import VirtualClock

FIRST = Answer(200, b"{}")


def _status(memory, key, asked=b"a"):
    with pytest.raises(Problem) as raised:
        memory.begin(key, asked)
    return raised.value.status


@pytest.fixture
def clock():
    return VirtualClock()


def test_the_same_request_gets_the_first_answer(clock):
    memory = Memory(clock)
    assert memory.begin("k", b"a") is None
    memory.finish("k", FIRST)
    assert memory.begin("k", b"a") is FIRST


def test_while_the_first_one_is_at_work_the_second_is_told_so(clock):
    memory = Memory(clock)
    memory.begin("k", b"a")
    assert _status(memory, "k") == 409


def test_another_request_with_the_same_key_is_refused_before_and_after_the_answer(clock):
    memory = Memory(clock)
    memory.begin("k", b"a")
    assert _status(memory, "k", b"b") == 422
    memory.finish("k", FIRST)
    assert _status(memory, "k", b"b") == 422


def test_what_was_forgotten_may_be_tried_again(clock):
    memory = Memory(clock)
    memory.begin("k", b"a")
    memory.forget("k")
    assert memory.begin("k", b"b") is None


@pytest.mark.parametrize("key", ["", " ", "a b", "a\n", "ä", "x" * 256])
def test_what_is_no_key_is_refused(clock, key):
    assert _status(Memory(clock), key) == 400


def test_a_key_lives_for_a_day(clock):
    memory = Memory(clock)
    memory.begin("k", b"a")
    memory.finish("k", FIRST)
    clock.advance(LIFE_MS)
    assert memory.begin("k", b"a") is FIRST
    clock.advance(1)
    assert memory.begin("k", b"b") is None


def test_the_oldest_keys_give_way(clock):
    memory = Memory(clock, most_keys=2)
    for key in ("a", "b", "c", "d"):
        memory.begin(key, b"a")
        memory.finish(key, FIRST)
    assert [memory.begin(key, b"a") for key in ("c", "d")] == [FIRST, FIRST]
    assert memory.begin("a", b"a") is None


def test_large_answers_take_a_bounded_room(clock):
    memory = Memory(clock, most_bytes=100)
    for key in ("a", "b", "c"):
        memory.begin(key, b"a")
        memory.finish(key, Answer(200, b"x" * 50))
    assert memory.begin("b", b"a") is not None
    assert memory.begin("a", b"a") is None


def test_what_is_at_work_is_never_forgotten_to_make_room(clock):
    memory = Memory(clock, most_keys=1)
    memory.begin("slow", b"a")
    for key in ("b", "c"):
        memory.begin(key, b"a")
        memory.finish(key, FIRST)
    assert _status(memory, "slow") == 409


def test_requests_are_told_apart_by_all_their_parts():
    assert fingerprint(b"a", b"bc") == fingerprint(b"a", b"bc")
    assert (
        len(
            {
                fingerprint(b"a", b"bc"),
                fingerprint(b"ab", b"c"),
                fingerprint(b"abc"),
                fingerprint(b"a", b"b", b"c"),
            }
        )
        == 4
    )
