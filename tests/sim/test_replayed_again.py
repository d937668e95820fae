"""With "divert", a replay that becomes a dead letter again: later replays of its key follow it, and its key keeps its order."""

import pytest

from tests.sim.test_aftermath import Service


@pytest.fixture
def service(request):
    made = []

    def make(**options):
        made.append(Service("divert", **options))
        return made[-1]

    yield make
    for each in made:
        each.harness.close()


def died_again(service, *numbers, **options):
    """A service where the replay of the first of these records of a key became a dead letter, like itself; the others were diverted."""
    at = service(**options)
    at.bad = {numbers[0]}
    at.send(a=numbers)
    at.harness.advance("2s")
    at.harness.replay(at.harness.dead_letters[0])
    at.harness.advance("3s")
    assert (at.take(), at.letters()) == ([numbers[0]] * 4, [*numbers[1:], numbers[0]])
    return at


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_later_replays_of_its_key_become_dead_letters_again_behind_it_over_restarts_and_crashes(
    service, delivery
):
    at = died_again(service, 1, 2, 3, 4, delivery=delivery)
    at.harness.replay(at.harness.dead_letters[0])
    assert (at.take(), at.letters()) == ([], [3, 4, 1, 2])
    for stop in (at.harness.restart, at.harness.crash):
        at.harness.advance("2s")
        stop()
        at.harness.replay(at.harness.dead_letters[0])
        at.harness.advance("1s")
    assert (at.take(), at.letters()) == ([], [1, 2, 3, 4])
    at.bad.clear()
    at.harness.replay()
    assert (at.take(), at.letters()) == ([1, 2, 3, 4], [])


def test_replays_that_were_under_way_behind_it_follow_it_too(service):
    at = service()
    at.bad = {1}
    at.send(a=[1, 2, 3], b=[4])
    at.harness.advance("2s")
    at.take(), at.take("b")
    at.harness.replay()
    at.harness.advance("3s")
    assert (at.take(), at.letters()) == ([1, 1], [1, 2, 3])
    assert [letter.reason for letter in at.harness.dead_letters] == ["exhausted", "diverted", "diverted"]


def test_its_next_replay_goes_ahead_of_those_that_were_sent_before_it(service):
    at = died_again(service, 1, 2, 3)
    at.bad.clear()
    at.harness.replay()
    assert (at.take(), at.letters()) == ([1, 2, 3], [])


def test_a_discard_of_a_later_letter_waits_until_it_is_through(service):
    at = died_again(service, 1, 2)
    at.send(a=[3])
    at.harness.discard(at.harness.dead_letters[0])
    at.harness.advance("2s")
    at.harness.crash()
    at.harness.advance("2s")
    assert at.take() == []
    at.bad.clear()
    for _ in range(2):
        at.harness.replay()
    assert (at.take(), at.letters()) == ([1, 3], [])


def test_its_discard_lets_the_replays_behind_it_run(service):
    at = died_again(service, 1, 2)
    at.harness.discard(at.harness.dead_letters[1])
    at.harness.replay()
    assert (at.take(), at.letters()) == ([2], [])


def test_other_keys_and_records_without_one_are_replayed_meanwhile(service):
    at = died_again(service, 1, 2)
    at.bad |= {5, 6}
    at.send(b=[5])
    at.harness.send("orders", 6)
    at.harness.advance("2s")
    at.take("b"), at.take(None)
    at.bad -= {5}
    at.harness.replay()
    at.harness.advance("3s")
    assert (at.take(), at.take("b"), at.take(None)) == ([1, 1], [5], [6, 6])
    at.bad.clear()
    at.harness.replay()
    assert (at.take(), at.take(None), at.letters()) == ([1, 2], [6], [])


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_what_its_next_replay_emits_frees_its_key_when_it_is_written(service, delivery):
    at = service(delivery=delivery, emits="receipts")
    at.harness.cluster.create_topic("receipts")
    at.bad = {1}
    at.send(a=[1, 2])
    at.harness.advance("2s")
    for _ in range(2):
        at.harness.replay()
        at.harness.advance("3s")
    at.take()
    at.bad.clear()
    at.harness.cluster.faults.refuse_writes("receipts", 3)
    at.harness.replay()
    at.harness.advance("100ms")
    assert at.take() == [1]
    at.harness.advance("10s")
    at.harness.crash()
    at.send(a=[3])
    at.harness.advance("2s")
    assert (at.take()[-2:], at.letters()) == ([2, 3], [])


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_more_replays_of_a_key_follow_it_than_a_commit_can_tell(service, delivery):
    at = service(delivery=delivery)
    at.harness.cluster.group("payments").metadata_units = 511
    numbers = list(range(1, 61))
    at.bad = {1, 30}
    at.send(a=numbers)
    at.harness.advance("10s")
    at.harness.replay()
    at.harness.advance("10s")
    assert at.letters() == numbers
    at.harness.restart()
    at.bad = {30}
    at.take()
    at.harness.replay()
    at.harness.advance("10s")
    assert (at.take(), at.letters()) == ([*range(1, 31), 30], numbers[29:])
    at.harness.restart()
    at.bad.clear()
    at.harness.replay()
    at.harness.advance("10s")
    assert (at.take(), at.letters()) == (numbers[29:], [])


def test_so_many_keys_can_wait_that_a_commit_tells_half_of_what_it_can_and_their_next_replays_run(service):
    at = service()
    at.harness.cluster.group("payments").metadata_units = 511
    keys = [f"key-{number}" for number in range(40)]
    at.bad = set(range(40))
    at.send(**{key: [number] for number, key in enumerate(keys)})
    for _ in range(3):
        at.harness.advance("60s")
        at.harness.replay()
    at.bad.clear()
    for _ in range(8):
        at.harness.replay()
        at.harness.advance("60s")
    assert at.letters() == []
    assert {run.value for run in at.harness.handled} == set(range(40))
