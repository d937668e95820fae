"""After a dead letter of a blocking listener: what waited for it goes on, waits for a person, or follows it."""

from collections import defaultdict

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redrive import App, Record, RetryPolicy
from redrive.core.metadata import encode_metadata
from redrive.core.record import TopicPartition
from redrive.deadletters.letters import copy_of, read_letter
from redrive.testing import Harness
from tests.sim.engine_world import World, identity, plan_of


class Service:
    """A listener on `orders` that fails while a record's number is in `bad`. `ran`: numbers by key, in the order of runs."""

    def __init__(
        self,
        after,
        *,
        blocking="key",
        order="key",
        delays=("1s",),
        cluster=None,
        delivery="at-least-once",
        emits="",
    ):
        self.app = App("payments", delivery=delivery)
        self.bad = set()
        self.ran = defaultdict(list)
        policy = RetryPolicy(*delays, blocking=blocking, after_dead_letter=after)

        @self.app.listener("orders", retry=policy, order=order, concurrency=1 if order == "partition" else 8)
        def handle(number: int, record: Record) -> None:
            self.ran[record.key].append(number)
            if number in self.bad:
                raise TimeoutError(number)
            if emits:
                record.emit(emits, b"paid")

        self.harness = Harness(self.app, cluster=cluster)

    def send(self, **numbers):
        for key, values in numbers.items():
            for number in values:
                self.harness.send("orders", number, key=key)

    def take(self, key="a"):
        """What ran of a key since the last look."""
        return self.ran.pop(key.encode() if key is not None else None, [])

    def letters(self):
        return [int(letter.value) for letter in self.harness.dead_letters]


@pytest.fixture
def service(request):
    made = []

    def make(*args, **options):
        made.append(Service(*args, **options))
        return made[-1]

    yield make
    for each in made:
        each.harness.close()


def test_released_records_go_on_behind_a_dead_letter(service):
    at = service("release")
    at.bad = {1}
    at.send(a=[1, 2, 3])
    assert at.take() == [1]
    at.harness.advance("1s")
    assert (at.take(), at.letters()) == ([1, 2, 3], [1])


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_t_ord_4_a_blocked_key_waits_over_restarts_and_crashes_while_others_go_on(service, delivery):
    at = service("block", delivery=delivery)
    at.bad = {1}
    at.send(a=[1, 2], b=[3])
    at.harness.advance("2s")
    assert (at.take(), at.take("b"), at.letters()) == ([1, 1], [3], [1])
    for stop in (at.harness.restart, at.harness.crash):
        stop()
        at.send(a=[4], b=[5])
        at.harness.advance("10m")
        assert (at.take(), at.take("b"), at.letters()) == ([], [5], [1])
    at.bad.clear()
    assert at.harness.replay().done == 1
    assert (at.take(), at.letters()) == ([1, 2, 4, 4], [])


def test_what_fails_for_good_at_once_blocks_too(service):
    at = service("block", delays=())
    at.bad = {1}
    at.send(a=[1, 2])
    assert (at.take(), at.letters()) == ([1], [1])


def test_a_replay_that_fails_again_waits_in_front_and_blocks_again(service):
    at = service("block")
    at.bad = {1}
    at.send(a=[1, 2])
    at.harness.advance("2s")
    at.take()
    at.harness.replay()
    assert (at.take(), at.letters()) == ([1], [])
    at.harness.crash()
    at.harness.advance("3s")
    assert (at.take()[-1], at.letters()) == (1, [1])
    at.bad.clear()
    at.harness.replay()
    assert (at.take(), at.letters()) == ([1, 2], [])


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_what_a_replay_emits_is_written_before_its_key_goes_on(service, delivery):
    at = service("block", delivery=delivery, emits="receipts")
    at.bad = {1}
    at.send(a=[1, 2])
    at.harness.advance("2s")
    at.take()
    at.bad.clear()
    at.harness.cluster.create_topic("receipts")
    at.harness.cluster.faults.refuse_writes("receipts", 3)
    at.harness.replay()
    at.harness.advance("100ms")
    assert at.take() == [1]
    at.harness.advance("10s")
    assert at.take() == [2]


def test_a_discarded_letter_frees_its_key_without_a_run(service):
    at = service("block")
    at.bad = {1}
    at.send(a=[1, 2])
    at.harness.advance("2s")
    at.take()
    assert at.harness.discard().done == 1
    assert (at.take(), at.letters()) == ([2], [])
    at.harness.crash()
    at.send(a=[3])
    at.harness.advance("2s")
    assert at.take()[-1] == 3
    assert 1 not in at.take()


@pytest.mark.parametrize("how", ["replay", "discard"])
def test_a_key_is_free_though_its_letter_was_resolved_before_it_was_known_to_be_written(service, how):
    at = service("block")
    at.bad = {1}
    at.harness.cluster.faults.acks_are_held = True
    at.send(a=[1, 2])
    at.harness.advance("2s")
    at.take()
    at.bad.clear()
    assert getattr(at.harness, how)().done == 1
    at.harness.cluster.faults.acks_are_held = False
    at.harness.advance("1s")
    assert (at.take()[-1], at.letters()) == (2, [])


def test_only_the_letter_of_its_own_key_frees_a_key(service):
    at = service("block")
    at.bad = {1, 3}
    at.send(a=[1, 2], b=[3, 4])
    at.harness.advance("2s")
    at.bad.clear()
    at.take(), at.take("b")
    [of_b] = [letter for letter in at.harness.dead_letters if letter.key == b"b"]
    at.harness.replay(of_b)
    assert (at.take(), at.take("b"), at.letters()) == ([], [3, 4], [1])


def test_records_without_a_key_block_nothing_and_can_be_replayed(service):
    at = service("block")
    at.bad = {1}
    for number in (1, 2):
        at.harness.send("orders", number)
    at.harness.advance("2s")
    assert (at.take(None), at.letters()) == ([1, 2, 1], [1])
    at.bad.clear()
    at.harness.replay()
    assert (at.take(None), at.letters()) == ([1], [])


def test_a_whole_partition_can_wait(service):
    at = service("block", blocking="partition", order="partition")
    at.bad = {1}
    at.send(a=[1], b=[2])
    at.harness.advance("2s")
    at.harness.restart()
    assert (at.take(), at.take("b"), at.letters()) == ([1, 1], [], [1])
    at.bad.clear()
    at.harness.replay()
    assert (at.take(), at.take("b")) == ([1], [2])


def test_diverted_records_follow_their_dead_letter_until_all_of_them_are_replayed(service):
    at = service("divert")
    at.bad = {1}
    at.send(a=[1, 2, 3], b=[4])
    at.harness.advance("2s")
    assert (at.take(), at.take("b"), at.letters()) == ([1, 1], [4], [1, 2, 3])
    assert [letter.reason for letter in at.harness.dead_letters] == ["exhausted", "diverted", "diverted"]
    at.harness.crash()
    at.send(a=[5])
    assert (at.take(), at.letters()[-1]) == ([], 5)
    at.bad.clear()
    at.harness.replay(*at.harness.dead_letters[:1])
    at.send(a=[6])
    # The replay has begun: what comes now waits for its rest.
    assert (at.take(), 6 in at.letters()) == ([1], False)
    at.harness.replay()
    assert at.take()[-1] == 6
    assert at.letters() == []


def test_a_policy_that_releases_again_frees_all_at_its_start(service):
    old = service("block")
    old.bad = {1}
    old.send(a=[1, 2])
    old.harness.advance("2s")
    old.harness.close()
    new = service("release", cluster=old.harness.cluster)
    new.harness.advance("1s")
    assert new.take() == [2]


class Anything:
    """A service to which anything happens: `sent` by key, `over` what was discarded."""

    def __init__(self, after, delivery):
        self.at, self.after = Service(after, delivery=delivery), after
        self.sent, self.over = {"a": [], "b": []}, set()
        self._number = 0

    def happen(self, choice):
        at, (rest, act) = self.at, divmod(choice, 10)
        letters = at.harness.dead_letters if act in {7, 8} else []
        if act < 4:
            self._send("ab"[rest % 2], fails=rest % 3 == 0)
        elif act == 4:
            at.harness.crash()
        elif act == 5:
            at.harness.restart()
        elif act == 6 and at.bad:
            at.bad.discard(sorted(at.bad)[rest % len(at.bad)])
        elif act == 7 and letters:
            at.harness.replay(*letters[: 1 + rest % 3])
        elif act == 8 and letters:
            self.over.add(int(letters[0].value))
            at.harness.discard(letters[0])
        else:
            at.harness.advance("700ms")

    def _send(self, key, *, fails):
        self._number += 1
        self.at.bad |= {self._number} if fails else set()
        self.sent[key].append(self._number)
        self.at.send(**{key: [self._number]})

    def work_off(self):
        """Nothing fails any more, and all letters are replayed."""
        self.at.bad.clear()
        for _ in range(6):
            self.at.harness.advance("3s")
            if self.at.harness.dead_letters:
                self.at.harness.replay()
        self.at.harness.advance("3s")

    def handled(self, key):
        """What was handled of a key, each number where it was first."""
        runs = [run.value for run in self.at.harness.handled if run.record.key == key.encode()]
        return list(dict.fromkeys(runs))


@given(
    st.lists(st.integers(0, 1 << 20), max_size=40),
    st.sampled_from(["block", "divert"]),
    st.sampled_from(["at-least-once", "exactly-once"]),
)
@settings(max_examples=60, deadline=None)
@example([0, 0, 7, 7, 27, 9, 9], "divert", "at-least-once")
def test_a_key_keeps_its_order_behind_its_dead_letters_whatever_happens(choices, after, delivery):
    """No record is handled before all earlier ones of its key were, or were discarded; at the end, none is left."""
    world = Anything(after, delivery)
    for choice in choices:
        world.happen(choice)
    world.work_off()

    assert world.at.letters() == []
    for key, numbers in world.sent.items():
        handled = world.handled(key)
        assert {*handled, *world.over} >= set(numbers)
        assert [each for each in handled if each not in world.over] == [
            each for each in numbers if each not in world.over
        ]
    world.at.harness.close()


def test_a_replayed_record_that_fails_holds_back_the_replayed_ones_behind_it(service):
    at = service("divert")
    at.bad = {1}
    at.send(a=[1, 2])
    at.harness.advance("2s")
    at.take()
    at.harness.replay()
    assert at.take() == [1]
    at.bad.clear()
    at.harness.advance("2s")
    assert (at.take(), at.letters()) == ([1, 2], [])


P0, REPLAY = TopicPartition("orders", 0), TopicPartition("orders.replay", 0)


def blocked_world(*delays):
    """One process; the record at offset 0 is a hole that was committed, and a replay of it is in its topic."""
    world = World(plan_of(*delays, blocking="key", order="key", after_dead_letter="block"), partitions=1)
    world.assign(P0)
    world.cluster.append("orders", b"{}", key=b"a", partition=0)
    world.fetch(P0)
    world.work(0, 0, ["permanent"])
    world.answer()
    world.pass_time(1_000)
    world.answer_commit()
    [letter] = world.cluster.partition(TopicPartition("orders.dlq", 0)).read(0, 9)
    headers = copy_of(read_letter(letter), job="j1", now_ms=0).headers
    world.cluster.append("orders.replay", b"{}", key=b"a", partition=0, headers=headers)
    world.let_go(P0)
    return world


def test_a_replay_waits_until_the_partition_is_here_that_it_frees():
    world = blocked_world()
    world.assign(REPLAY)
    world.fetch(REPLAY)
    world.pass_time(5_000)
    assert not world.engine.runs
    world.assign(P0)
    world.fetch(P0)
    world.pass_time(1)
    assert [run.lane.key for run in world.engine.runs] == [REPLAY]


def test_a_hole_that_was_not_fetched_yet_is_freed_all_the_same():
    world = blocked_world()
    world.assign(REPLAY, P0)
    world.fetch(REPLAY)
    world.pass_time(1)
    world.work(0, 0, ["ok"])
    world.truth.handled(world.engine.lanes[P0], 0)  # by its replay
    world.fetch(P0)
    world.pass_time(1_000)
    assert not world.engine.runs
    world.answer_commit()
    assert (world.engine.lanes[P0].acked[0], world.engine.lanes[REPLAY].acked[0]) == (1, 1)


def test_a_replay_that_ends_when_the_source_has_gone_runs_again_where_both_are():
    world = blocked_world()
    world.assign(P0, REPLAY)
    world.fetch(P0)
    world.fetch(REPLAY)
    world.pass_time(1)
    assert [run.lane.key for run in world.engine.runs] == [REPLAY]
    world.let_go(P0)
    world.work(0, 0, ["ok"])
    world.pass_time(6_000)
    world.answer_commit()
    world.let_go(REPLAY)
    world.restart()
    world.assign(P0, REPLAY)
    world.fetch(P0)
    world.fetch(REPLAY)
    world.pass_time(1)
    world.work(0, 0, ["ok"])
    assert world.engine.lanes[P0].heads.is_dead(0) is False


def test_a_second_replay_of_a_letter_doesnt_end_the_diverting_of_its_key(service):
    at = service("divert")
    at.bad = {1}
    at.send(a=[1])
    at.harness.advance("2s")
    at.bad.clear()
    at.harness.replay()
    cluster = at.harness.cluster
    [replayed] = cluster.records("orders.replay")
    cluster.append(
        "orders.replay",
        replayed.value(),
        key=replayed.key(),
        partition=replayed.partition(),
        headers=replayed.headers(),
    )
    at.harness.advance("2s")
    at.bad = {10}
    at.send(a=[10, 11, 12])
    at.harness.advance("5s")
    assert at.letters() == [10, 11, 12]


def test_a_letter_is_resolved_while_an_earlier_record_of_its_key_runs_again():
    """A map that was cut: the record before the hole runs once more."""
    world = World(plan_of(blocking="key", order="key", after_dead_letter="block"), partitions=1)
    world.assign(P0)
    for _ in range(2):
        world.cluster.append("orders", b"{}", key=b"a", partition=0)
    world.fetch(P0)
    world.work(0, 0, ["ok", "permanent"])
    while world.writes:
        world.answer()
    world.pass_time(1_000)
    world.answer_commit()
    heads = world.engine.lanes[P0].heads.copy()
    world.committed[P0] = (0, encode_metadata(0, (), identity("orders"), heads=heads))
    [letter] = world.cluster.partition(TopicPartition("orders.dlq", 0)).read(0, 9)
    headers = copy_of(read_letter(letter), job="j1", now_ms=0).headers
    world.let_go(P0, last_commit="none")
    world.restart()
    world.assign(P0, REPLAY)
    world.fetch(P0)
    world.cluster.append(
        "orders.replay", b"{}", key=b"a", partition=0, headers=[*headers, ("redrive-frees", b"1")]
    )
    world.truth.handled(world.engine.lanes[P0], 1)
    world.truth.handled(world.engine.lanes[REPLAY], 0)
    world.fetch(REPLAY)
    world.pass_time(1)
    world.work(0, 0, ["ok"])
    lane = world.engine.lanes[P0]
    assert (lane.offsets.frontier, len(lane.keys), lane.keys.waiting) == (2, 0, 0)
