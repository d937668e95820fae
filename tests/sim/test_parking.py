"""Keys that wait in `{topic}.parked`: in their order, whatever crashes between any two writes."""

from collections import defaultdict
from itertools import pairwise

import msgspec
import pytest

from redrive import App, Record, RetryPolicy, Settings
from redrive.core.commands import RunResult
from redrive.core.dialects import write_headers
from redrive.core.envelope import Envelope
from redrive.core.metadata import HEADS_MOST
from redrive.core.notices import Notice, Posted
from redrive.core.record import TopicPartition
from redrive.sim.clock import VirtualClock
from redrive.sim.cluster import SimCluster
from redrive.sim.faults import Faults
from redrive.testing import Harness
from tests.sim.engine_world import World, plan_of


class Service:
    """A listener that parks. `bad`: numbers that fail. `ran`: numbers by key, in the order of runs."""

    def __init__(self, *delays, partitions=1, cluster=None, **policy):
        self.app = App("payments")
        self.bad = set()
        self.ran = defaultdict(list)
        policy = {"hold_at_most": "1s", "park": True, "max_attempts": 3, **policy}

        @self.app.listener(
            "orders", retry=RetryPolicy(*delays, blocking="key", **policy), order="key", concurrency=8
        )
        def handle(number: int, record: Record) -> None:
            self.ran[record.key].append((number, record.attempt))
            if number in self.bad:
                raise TimeoutError(number)

        # Many keys that fail at once would be an outage.
        settings = Settings(bootstrap_servers="sim:9092", breaker=False)
        self.harness = Harness(self.app, partitions=partitions, cluster=cluster, settings=settings)

    def send(self, **numbers):
        for key, values in numbers.items():
            for number in values:
                self.harness.send("orders", number, key=key)

    def skip(self, topic, offset):
        """A person wants to get past a record, and the process reads it."""
        process = self.harness.workers.running[0].groups[0]
        now = self.harness.clock.now()
        notice = Notice(
            "skip",
            "payments",
            process.engine._identity(topic),
            ((offset, offset + 1),),
            "ann",
            int(now.wall_ms),
            "job",
            "",
        )
        process.engine.notices.post([Posted("notice:0", TopicPartition(topic, 0), notice)], now)

    def take(self, key="a"):
        """What ran of a key since the last look."""
        return self.ran.pop(key.encode(), [])

    def parked(self):
        return [int(record.value()) for record in self.harness.cluster.records("orders.parked")]


@pytest.fixture
def service():
    made = []

    def make(*args, **options):
        made.append(Service(*args, **options))
        return made[-1]

    yield make
    for each in made:
        each.harness.close()


def test_a_parked_record_that_is_skipped_lets_those_of_its_key_go_on(service):
    at = service("1m")
    at.bad = {1}
    at.send(a=[1, 2, 3])
    at.harness.advance("3s")
    assert (len(at.take()), at.parked()) == (1, [1, 2, 3])
    at.skip("orders.parked", 0)
    at.harness.advance("10s")
    assert at.take() == [(2, 1), (3, 1)]
    at.send(a=[4])
    at.harness.advance("10s")
    assert (at.take(), at.parked()) == ([(4, 1)], [1, 2, 3])


def test_a_key_is_parked_that_waits_for_longer_than_is_held(service):
    at = service("1m")
    at.bad = {1}
    at.send(a=[1, 2, 3], b=[4])
    assert (at.take(), at.take("b")) == ([(1, 1)], [(4, 1)])
    at.harness.advance("3s")
    assert (at.take(), at.parked()) == ([], [1, 2, 3])
    at.bad.clear()
    at.harness.advance("1m")
    assert at.take() == [(1, 2), (2, 1), (3, 1)]
    at.send(a=[5])
    at.harness.advance("5s")
    assert at.take() == [(5, 1)]
    assert at.parked() == [1, 2, 3]


def test_a_record_whose_copy_is_refused_is_not_committed_and_survives_a_crash(service):
    at = service("1m")
    at.bad = {1}
    at.harness.cluster.faults.refuse_writes("orders.parked", 1_000)
    at.send(a=[1, 2])
    at.harness.advance("30s")
    committed = at.harness.cluster.group("payments").offsets[TopicPartition("orders", 0)].offset
    assert (committed, at.parked()) == (0, [])
    at.harness.cluster.faults = Faults()
    at.harness.crash()
    at.bad.clear()
    at.take()
    at.harness.advance("3m")
    assert at.take() == [(1, 2), (2, 1)]


def test_what_died_before_its_key_was_parked_isn_t_lost_when_its_letter_was_refused(service):
    at = service("1m")
    at.bad = {1}
    at.harness.cluster.faults.refuse_writes("orders.dlq", 1_000)
    at.harness.cluster.append("orders", b"no number", key=b"a")
    at.send(a=[1])
    at.harness.advance("5s")
    at.harness.crash()
    at.harness.cluster.faults = Faults()
    at.harness.advance("3m")
    assert [letter.reason for letter in at.harness.dead_letters] == ["poison", "exhausted"]


class Died(BaseException):
    """The process ends here."""


class Mortal:
    """A port whose process dies at the `at`-th of its fateful moments: before something is stored, or before it hears of it."""

    def __init__(self, moments, port):
        self._moments, self._port = moments, port

    def __getattr__(self, name):
        return getattr(self._port, name)

    def produce(self, produce):
        self._moments.pass_one(f"before {produce.topic} is written")
        self._port.produce(produce)

    def answers(self):
        if answers := self._port.answers():
            self._moments.pass_one("before a write is known to be stored")
        return answers

    def commit(self, commit):
        self._moments.pass_one("before a commit is sent")
        self._port.commit(commit)

    def commit_answers(self):
        if answers := self._port.commit_answers():
            self._moments.pass_one("before a commit is known to be stored")
        return answers


class Moments:
    def __init__(self, at):
        self.left, self.passed = at, []

    def pass_one(self, what):
        self.passed.append(what)
        self.left -= 1
        if self.left == 0:
            raise Died(what)


def _live(moments):
    """A key is parked, fails once more in the parked topic, is free again, and goes on. What was handled of it."""
    cluster = SimCluster(VirtualClock())
    source, sink = cluster.source, cluster.sink
    cluster.source = lambda group: Mortal(moments, source(group))
    cluster.sink = lambda: Mortal(moments, sink())
    at = Service("1m", cluster=cluster)
    at.bad.add(1)
    for number in (1, 2, 3):
        _surviving(at, lambda number=number: at.send(a=[number]))
        _surviving(at, lambda: at.harness.advance("2s"))
    _surviving(at, lambda: at.harness.advance("61s"))
    at.bad.clear()
    _wait(at)
    _surviving(at, lambda: at.send(a=[4]))
    _wait(at)
    at.harness.close()
    return at.take(), cluster


def _wait(at):
    for _ in range(3):
        _surviving(at, lambda: at.harness.advance("61s"))


def _surviving(at, act):
    try:
        act()
    except Died:
        at.harness.crash()


def _unfinished(cluster):
    """What the group's commits don't pass, of both topics."""
    committed = cluster.group("payments").offsets
    ends = {TopicPartition(name, 0): len(list(cluster.records(name))) for name in ("orders", "orders.parked")}
    return {key.topic: end for key, end in ends.items() if committed[key].offset != end}


def test_t_ord_2_a_crash_at_any_write_loses_nothing_and_keeps_the_order():
    whole = Moments(-1)
    runs, cluster = _live(whole)
    assert (runs, _unfinished(cluster)) == ([(1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (4, 1)], {})
    assert len(whole.passed) > 15
    for at in range(1, len(whole.passed) + 1):
        runs, cluster = _live(moments := Moments(at))
        told = f"died {moments.passed[at - 1]}, the {at}th moment: {runs}"
        assert list(dict.fromkeys(number for number, _ in runs)) == [1, 2, 3, 4], told
        # What runs again, runs in its order: a repetition begins somewhere and goes on from there.
        ended = [number for number, attempt in runs if number != 1 or attempt == 3]
        assert all(later <= earlier + 1 for earlier, later in pairwise(ended)), told
        assert [attempt for number, attempt in runs if number == 1] in _ATTEMPTS, told
        assert _unfinished(cluster) == {}, told


#: Of the record that fails twice: a crash may repeat one of its runs.
_ATTEMPTS = ([1, 2, 3], [1, 1, 2, 3], [1, 2, 2, 3], [1, 2, 3, 3])


class Large:
    """A listener that gets large records: their offsets in the order of runs, those of key `a` failing while `is_away`."""

    def __init__(self, *, park, delay="30s"):
        self.app = App("payments")
        self.is_away = True
        self.ran = []
        policy = RetryPolicy(delay, blocking="key", park=park, max_attempts=9)

        @self.app.listener("orders", retry=policy, order="key", concurrency=4)
        def handle(value: bytes, record: Record) -> None:
            if self.is_away and record.key == b"a":
                raise TimeoutError
            self.ran.append((record.key, record.offset))

        self.harness = Harness(self.app)

    def send(self, count, key=b"a"):
        for _ in range(count):
            self.harness.cluster.append("orders", LARGE, key=key)
        self.harness.advance("1s")

    def of(self, key):
        return [offset for each, offset in self.ran if each == key]

    def copies(self):
        return len(list(self.harness.cluster.records("orders.parked")))


LARGE = b"x" * 900_000


@pytest.fixture
def large():
    made = []

    def make(**options):
        made.append(Large(**options))
        return made[-1]

    yield make
    for each in made:
        each.harness.close()


def test_a_key_that_fills_the_memory_is_parked_and_others_go_on(large):
    at = large(park=True)
    at.send(200)
    at.harness.advance("5s")
    at.send(1, key=b"b")
    assert (at.of(b"b"), at.copies()) == ([200], 200)
    # More copies than are kept in memory: the new process notes the rest, and fetches it again later.
    at.harness.crash()
    at.send(1)
    at.is_away = False
    at.harness.advance("3m")
    assert at.of(b"a") == [*range(200), 201]


def test_without_parking_a_full_partition_pauses_and_keeps_its_order(large):
    at = large(park=False)
    at.send(200)
    at.harness.advance("5s")
    at.send(1, key=b"b")
    assert at.of(b"b") == []
    at.is_away = False
    at.harness.advance("3m")
    assert (at.of(b"a"), at.of(b"b")) == (list(range(200)), [200])


def test_a_copy_that_is_too_large_becomes_a_dead_letter_and_its_key_goes_on(service):
    at = service("1m")
    at.bad = {1}
    at.harness.cluster.faults.refuse_writes("orders.parked", 20, too_large=True)
    at.send(a=[1, 2])
    at.harness.advance("5s")
    assert [letter.reason for letter in at.harness.dead_letters] == ["too-large"]
    assert (at.take(), at.parked()) == ([(1, 1), (2, 1)], [])


def test_more_failing_keys_than_a_commit_tells_are_parked(service):
    at = service("1m", hold_at_most="5m")
    keys = [f"key-{number}" for number in range(400)]
    at.bad = {1}
    for key in keys:
        at.send(**{key: [1, 2]})
    at.harness.advance("5s")
    assert len(set(at.parked())) == 2
    assert len(at.parked()) >= 2 * (400 - HEADS_MOST)
    at.bad.clear()
    at.harness.advance("3m")
    assert [at.take(key) for key in keys] == [[(1, 1), (1, 2), (2, 1)]] * 400


def test_what_an_earlier_policy_has_parked_comes_before_newer_records(service):
    at = service("1m")
    at.bad = {1}
    at.send(a=[1, 2])
    at.harness.advance("3s")
    at.harness.close()
    later = service("1m", park=False, cluster=at.harness.cluster)
    later.send(a=[3])
    later.harness.advance("2m")
    assert (later.take(), later.parked()) == ([(1, 2), (2, 1), (3, 1)], [1, 2])


SOURCE, TWIN = TopicPartition("orders", 0), TopicPartition("orders.parked", 0)


def pair():
    """A process that has the source's partition, of which the first record of a key was parked by an earlier one."""
    plan = plan_of("1m", blocking="key", order="key", park=True, hold_at_most="1s")
    world = World(msgspec.structs.replace(plan, parked="orders.parked"), partitions=1)
    for _ in range(2):
        world.cluster.append("orders", b"{}", key=b"a", partition=0)
    envelope = Envelope(
        group="shop", attempt=1, due_ms=1, source_topic="orders", source_partition=0, source_offset=0
    )
    headers = write_headers(envelope)
    world.cluster.append("orders.parked", b"{}", key=b"a", partition=0, headers=headers)
    return world


def test_nothing_starts_before_the_parked_partition_is_here_and_was_read():
    world = pair()
    world.assign(SOURCE)
    world.fetch(SOURCE)
    world.pass_time(1_000)
    assert not world.engine.runs
    world.assign(TWIN)
    world.truth.handled(world.engine.lanes[SOURCE], 0)  # its copy stands for it
    world.pass_time(1_000)
    assert not world.engine.runs
    world.fetch(TWIN)
    world.pass_time(1)
    assert [run.lane.key for run in world.engine.runs] == [TWIN]


def test_a_parked_partition_that_was_made_anew_is_read_to_its_end_too():
    world = pair()
    world.assign(TWIN, SOURCE)
    world.engine.lanes[TWIN].next_offset = 9
    world.engine.log_was_cut(TWIN, 0, end=1)
    world.truth.began(world.engine.lanes[TWIN], 0, ())
    world.truth.handled(world.engine.lanes[SOURCE], 0)  # its copy stands for it
    world.fetch(SOURCE)
    world.pass_time(1_000)
    assert not world.engine.runs
    world.engine.fetched(TWIN, list(world.cluster.partition(TWIN)), world.clock.now())
    assert [run.lane.key for run in world.engine.runs] == [TWIN]


def test_a_key_is_free_when_a_commit_told_of_its_last_copy():
    world = pair()
    world.assign(TWIN, SOURCE)
    world.fetch(TWIN)
    world.truth.handled(world.engine.lanes[SOURCE], 0)  # its copy stands for it
    world.fetch(SOURCE, 1)
    world.pass_time(1)
    world.answer_commit()
    [run] = world.engine.runs
    world.truth.handled(run.lane, 0)
    world.engine.finished(RunResult(run, 1, 0.001), world.clock.now())
    world.fetch(SOURCE)
    # A commit that says nothing of the copy.
    world.engine.commits.told += 1
    world.pass_time(1)
    assert not world.engine.runs
    for _ in range(2):
        world.pass_time(1_000)
        world.answer_commit()
    world.pass_time(1)
    assert [(run.lane.key, run.records[0].offset()) for run in world.engine.runs] == [(SOURCE, 1)]


def test_a_second_copy_of_a_record_is_not_run_and_is_waited_for(service):
    at = service("1m")
    at.bad = {1}
    at.harness.cluster.faults.lose_acks("orders.parked", 2)
    at.send(a=[1, 2])
    at.harness.advance("20s")
    at.bad.clear()
    at.send(a=[3])
    at.harness.advance("2m")
    assert at.parked()[:3] == [1, 1, 1]
    assert at.take() == [(1, 1), (1, 2), (2, 1), (3, 1)]
