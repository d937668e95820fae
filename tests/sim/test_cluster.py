"""What the simulated cluster does that a real one can't be made to do on demand."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.commands import Commit, Produce
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.sim.clock import VirtualClock
from redrive.sim.cluster import SimCluster
from redrive.sim.groups import MAX_POLL_INTERVAL_MS, SESSION_TIMEOUT_MS, ranges
from redrive.sim.sink import DELIVERY_TIMEOUT_MS
from tests.contract.worlds import Member, SimWorld


def _produce(token: object, topic: str = "t") -> Produce:
    return Produce(token, topic, 0, b"k", b"{}", [])


def _cluster(**options) -> SimCluster:
    cluster = SimCluster(**options)
    cluster.create_topic("t", 4)
    return cluster


def _world_of(cluster: SimCluster) -> SimWorld:
    world = SimWorld()
    world.sim = cluster
    return world


def _member(cluster: SimCluster) -> Member:
    return Member(_world_of(cluster), "g", ["t"])


class TestClock:
    def test_it_stands_still_until_it_is_moved(self):
        clock = VirtualClock()
        before = clock.now()
        assert clock.now() == before
        clock.advance(250)
        assert (clock.wall_ms() - before.wall_ms, clock.mono_ms() - before.mono_ms) == (250, 250)

    def test_a_wait_takes_its_time_unless_the_event_is_set_or_the_horizon_is_near(self):
        clock, event = VirtualClock(), threading.Event()
        assert clock.wait(event, 100) is False
        clock.horizon_mono_ms = 130
        clock.wait(event, 100)
        assert clock.mono_ms() == 130
        with clock.unbounded():
            clock.wait(event, 100)
        assert clock.mono_ms() == 230
        event.set()
        assert clock.wait(event, 100) is True
        assert clock.mono_ms() == 230

    def test_only_the_wall_clock_can_be_stepped(self):
        clock = VirtualClock(wall_ms=1_000.0)
        clock.step_wall(-400)
        assert (clock.wall_ms(), clock.mono_ms()) == (600, 0)
        with pytest.raises(ValueError, match="forward"):
            clock.advance(-1)


class TestGroups:
    def test_a_killed_process_keeps_its_partitions_until_its_session_ends(self):
        cluster = _cluster()
        dead, alive = _member(cluster), _member(cluster)
        for member in (dead, alive, dead, alive):
            member.poll()
        assert (len(dead.owned), len(alive.owned)) == (2, 2)
        cluster.kill(dead.source)
        began_ms = cluster.clock.mono_ms()
        while len(alive.owned) < 4:
            alive.poll()
        waited_ms = cluster.clock.mono_ms() - began_ms
        assert SESSION_TIMEOUT_MS <= waited_ms < SESSION_TIMEOUT_MS + 100

    def test_who_does_not_poll_for_minutes_is_given_up(self):
        cluster = _cluster()
        silent, other = _member(cluster), _member(cluster)
        silent.poll()
        cluster.clock.advance(MAX_POLL_INTERVAL_MS)
        other.poll()
        assert len(other.owned) == 4
        silent.poll()
        assert len(silent.events("lost")) == 4

    def test_a_commit_of_an_older_epoch_counts_only_for_what_is_still_owned(self):
        cluster = _cluster()
        first = _member(cluster)
        first.poll()
        cluster.faults.commits_are_held = True
        keys = [TopicPartition("t", number) for number in range(4)]
        first.source.commit(Commit(1, dict.fromkeys(keys, (0, "late"))))
        second = _member(cluster)
        for member in (second, first, second):
            member.poll()
        cluster.faults.commits_are_held = False
        [(_, refused)] = first.source.commit_answers()
        assert set(refused) == second.owned

    def test_a_partition_that_nobody_starts_is_an_error(self):
        cluster = _cluster()

        class Careless(Member):
            def on_assigned(self, keys):
                pass

        world = SimWorld()
        world.sim = cluster
        with pytest.raises(RuntimeError, match="neither started nor kept waiting"):
            Careless(world, "g", ["t"]).poll()

    @given(st.integers(0, 50), st.integers(1, 10))
    def test_ranges_are_even_whole_and_in_order(self, count, members):
        split = ranges(count, members)
        assert [number for each in split for number in each] == list(range(count))
        sizes = [len(each) for each in split]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)


class TestFaults:
    def test_refused_writes_are_not_stored_and_then_it_is_over(self):
        cluster = _cluster()
        cluster.faults.refuse_writes("t", 2, "not authorised")
        sink = cluster.sink()
        for token in range(3):
            sink.produce(_produce(token))
        assert [refusal and refusal.detail for _, refusal in sink.answers()] == ["not authorised"] * 2 + [
            None
        ]
        assert len(cluster.records("t")) == 1

    def test_a_lost_acknowledgement_is_of_a_stored_record(self):
        cluster = _cluster()
        cluster.faults.lose_acks("t", 1)
        sink = cluster.sink()
        sink.produce(_produce(1))
        [(_, refusal)] = sink.answers()
        assert (refusal.kind, len(cluster.records("t"))) == ("unavailable", 1)

    def test_held_acknowledgements_come_later(self):
        cluster = _cluster()
        cluster.faults.acks_are_held = True
        sink = cluster.sink()
        sink.produce(_produce(1))
        assert (sink.answers(), len(cluster.records("t"))) == ([], 1)
        cluster.faults.acks_are_held = False
        assert sink.answers() == [(1, None)]

    def test_without_a_broker_writes_wait_and_are_refused_in_the_end(self):
        cluster = _cluster()
        cluster.is_down = True
        sink = cluster.sink()
        sink.produce(_produce(1))
        cluster.clock.advance(DELIVERY_TIMEOUT_MS - 1)
        sink.produce(_produce(2))
        assert sink.answers() == []
        cluster.clock.advance(1)
        assert [token for token, refusal in sink.answers() if refusal] == [1]
        cluster.is_down = False
        assert sink.answers() == [(2, None)]

    def test_without_a_broker_nothing_comes_and_nothing_is_answered(self):
        cluster = _cluster()
        member = _member(cluster)
        member.poll()
        cluster.append("t", b"{}")
        cluster.is_down = True
        member.poll()
        assert member.records == []
        assert [problem.kind for problem in member.problems] == ["unreachable"]
        assert member.source.committed([TopicPartition("t", 0)], 1.0) == {}
        assert member.source.commit_now({TopicPartition("t", 0): (1, "")}) is False
        with pytest.raises(PortError) as refused:
            cluster.admin().describe()
        assert refused.value.retriable
        cluster.is_down = False
        member.poll()
        assert len(member.records) == 1

    def test_of_a_silent_topic_nothing_is_read_until_it_speaks_again(self):
        cluster = _cluster()
        member = _member(cluster)
        member.poll()
        cluster.append("t", b"{}")
        cluster.faults.silent_topics.add("t")
        member.poll()
        assert member.records == []
        cluster.faults.silent_topics.clear()
        member.poll()
        assert len(member.records) == 1

    def test_a_commit_may_be_refused_for_one_topic_and_stored_for_others(self):
        cluster = _cluster()
        cluster.create_topic("u", 1)
        member = Member(_world_of(cluster), "g", ["t", "u"])
        member.poll()
        cluster.faults.refuse_commits_of("t", 1)
        offsets = {TopicPartition("t", 0): (1, ""), TopicPartition("u", 0): (2, "")}
        assert member.source.commit_now(offsets) is False
        assert cluster.group("g").offsets.keys() == {TopicPartition("u", 0)}
        assert member.source.commit_now(offsets) is True

    def test_the_same_seed_gives_the_same_order_and_another_one_another(self):
        def order(seed: int | None) -> list[tuple[int, int]]:
            cluster = _cluster(seed=seed)
            for number in range(40):
                cluster.append("t", b"{}", partition=number % 4)
            member = _member(cluster)
            while len(member.records) < 40:
                member.poll(most=7)
            return [(key.partition, record.offset()) for key, record in member.records]

        assert order(1) == order(1)
        assert len({tuple(order(seed)) for seed in (None, 1, 2, 3)}) > 2
        assert sorted(order(3)) == sorted(order(None))


def test_holes_retention_and_a_topic_made_anew():
    cluster = _cluster()
    for _ in range(6):
        cluster.append("t", b"{}", partition=0)
    log = cluster.topics["t"].partitions[0]
    log.punch([2, 3])
    log.delete_before(1)
    log.append_marker(2)
    assert ([record.offset() for record in log], log.start, log.end) == ([1, 4, 5], 1, 8)

    member = _member(cluster)
    member.poll()
    assert member.source.commit_now({TopicPartition("t", 0): (5, "")})
    before = cluster.topics["t"].topic_id
    cluster.delete_topic("t")
    cluster.create_topic("t", 1)
    assert cluster.topics["t"].topic_id != before
    assert cluster.group("g").offsets == {}
