"""
A key that is parked keeps its order, whatever crashes between any two writes: the protocol of `core/parking.py`, against a
naive model of two logs, the group's commits, and a worker that forgets all that it didn't write.
"""

from collections import defaultdict, deque

from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core.parking import Parking

KEYS = "ab"
SIDES = ("source", "parked")


class Broker:
    """What survives: the logs (of the source, keys; of the parked one, keys and source offsets), and what was committed."""

    def __init__(self):
        self.source, self.parked = [], []
        self.done = {side: frozenset() for side in SIDES}


class Worker:
    """The owner of both partitions: lanes by key in each of them, of which only the fronts run."""

    def __init__(self, broker):
        self.broker = broker
        self.parking = Parking()
        self.lanes = {side: defaultdict(deque) for side in SIDES}
        self.finished = {side: set(broker.done[side]) for side in SIDES}
        self.next = dict.fromkeys(SIDES, 0)
        self.end = len(broker.parked)
        self.parking.is_complete = not self.end
        #: Copies on their way, by key; and a commit: what it says is finished, of one partition or of both.
        self.writing, self.commit = {}, None
        #: Keys whose copy is in the log, though nobody has said so yet.
        self.arrived = set()
        #: How often the write that is on its way was repeated, by key.
        self.tries = defaultdict(int)

    def fetch(self, side):
        offset = self.next[side]
        self.next[side] = offset + 1
        if side == "source" and offset not in self.finished[side]:
            self.lanes[side][self.broker.source[offset]].append(offset)
        if side == "parked":
            key, source_offset, tries = self.broker.parked[offset]
            if offset not in self.finished[side]:
                if self.parking.found(key, source_offset, offset, tries):
                    self.lanes[side][key].append((offset, source_offset))
                else:
                    self.finished[side].add(offset)
            self.parking.is_complete |= self.next[side] >= self.end

    def wants(self, key):
        lane = self.lanes["source"][key]
        return self.parking.wants(key, lane[0]) if lane else None


class World:  # size: what may happen, a method each
    """All that may happen next is in `possible`; what has happened to a key's records, in `ended`."""

    def __init__(self):
        self.broker = Broker()
        self.worker = Worker(self.broker)
        self.ended = defaultdict(list)
        self.crashes = 0

    def possible(self, *, left_alone=False):
        """The steps that can be made now, most of them by key. Left alone, nothing new comes and nothing goes wrong."""
        worker = self.worker
        for side in SIDES:
            if worker.next[side] < len(getattr(self.broker, side)):
                yield worker.fetch, side
        for key in KEYS:
            yield from self._possible_of(key, left_alone)
        if worker.commit is not None:
            yield self.confirm, None
        elif worker.finished != self.broker.done:
            for sides in [SIDES] if left_alone else [SIDES, ["source"], ["parked"]]:
                yield self.commit, sides
        if not left_alone and len(self.broker.source) < 8:
            yield self.broker.source.append, None
        if not left_alone and self.crashes < 3:
            yield self.crash, None

    def _possible_of(self, key, left_alone):
        wants = self.worker.wants(key)
        if wants == "run":
            yield self.run_from_source, key
        if wants == "park" or (wants == "run" and not left_alone):
            yield self.park, key
        if wants == "pass":
            yield self.pass_by, key
        if self.worker.lanes["parked"][key]:
            yield self.run_from_parked, key
        if key in self.worker.writing:
            yield (self.acknowledge if key in self.worker.arrived else self.arrive), key
            if not left_alone and self.worker.tries[key] < 2:
                yield self.refuse, key

    def make(self, act, what, chance=0):
        if act == self.crash:
            what = chance
        elif act == self.broker.source.append:
            what = "aab"[chance % 3]
        act(what)

    def _end(self, key, source_offset):
        earlier = [at for at in _offsets_of(self, key) if at < source_offset]
        assert set(earlier) <= set(self.ended[key]), f"{source_offset} overtook an earlier record of {key!r}"
        self.ended[key].append(source_offset)

    def run_from_source(self, key):
        offset = self.worker.lanes["source"][key].popleft()
        self._end(key, offset)
        self.worker.finished["source"].add(offset)

    def run_from_parked(self, key):
        offset, source_offset = self.worker.lanes["parked"][key].popleft()
        self._end(key, source_offset)
        self.worker.finished["parked"].add(offset)
        self.worker.parking.finished(key, offset)

    def park(self, key):
        """The front of the source lane has failed, or follows one that is parked."""
        front = self.worker.lanes["source"][key][0]
        self.worker.parking.park(key, front)
        assert key not in self.worker.writing, "two copies of a key on their way may change places"
        self.worker.writing[key] = front

    def arrive(self, key):
        self.worker.arrived.add(key)
        self.broker.parked.append((key, self.worker.writing[key], self.worker.tries[key]))

    def refuse(self, key):
        """Whether or not it is there: it is written once more."""
        self.worker.arrived.discard(key)
        self.worker.tries[key] += 1

    def acknowledge(self, key):
        offset = self.worker.writing.pop(key)
        self.worker.arrived.discard(key)
        self.worker.parking.written(key, self.worker.tries.pop(key, 0))
        assert self.worker.lanes["source"][key].popleft() == offset
        self.worker.finished["source"].add(offset)

    def pass_by(self, key):
        self.worker.finished["source"].add(self.worker.lanes["source"][key].popleft())

    def commit(self, sides):
        self.worker.commit = {side: frozenset(self.worker.finished[side]) for side in sides}

    def confirm(self, _):
        commit, self.worker.commit = self.worker.commit, None
        self.broker.done.update(commit)
        # Also by a commit of the source alone: the last copy may be told before its own acknowledgement came.
        list(self.worker.parking.confirmed(self.broker.done["parked"].__contains__))

    def crash(self, chance):
        """What was on its way has arrived, or not; of a commit, either partition may have."""
        if chance & 1:
            writing = self.worker.writing.items()
            tries = self.worker.tries
            self.broker.parked += [
                (*each, tries[each[0]]) for each in writing if each[0] not in self.worker.arrived
            ]
        for at, side in enumerate(SIDES, 1):
            if chance >> at & 1 and side in (self.worker.commit or {}):
                self.broker.done[side] = self.worker.commit[side]
        self.worker = Worker(self.broker)
        self.crashes += 1

    def work_off(self):
        """Nothing more happens to it: what is left is done."""
        while steps := list(self.possible(left_alone=True)):
            self.make(*steps[0])


def _offsets_of(world, key):
    return [at for at, each in enumerate(world.broker.source) if each == key]


@given(st.lists(st.integers(0, 1 << 16), min_size=20, max_size=90))
@settings(max_examples=400, deadline=None)
def test_parked_keys_keep_their_order_and_lose_nothing(choices):
    world = World()
    for choice in choices:
        if steps := list(world.possible()):
            world.make(*steps[choice % len(steps)], choice // len(steps))
    world.work_off()

    for key in KEYS:
        last = {offset: at for at, offset in enumerate(world.ended[key])}
        assert sorted(last) == _offsets_of(world, key), "lost"
        assert sorted(last, key=last.__getitem__) == _offsets_of(world, key), (
            f"an old one late: {world.ended[key]}"
        )
    assert world.worker.finished == {side: set(range(len(getattr(world.broker, side)))) for side in SIDES}
    assert len(world.worker.parking) == 0


def parked(key, *source_offsets):
    """An account of one key whose copies lie at 0, 1, …, none of them finished."""
    parking = Parking()
    for at, source_offset in enumerate(source_offsets):
        parking.found(key, source_offset, at)
    parking.is_complete = True
    return parking


def test_t_ord_3_nothing_starts_before_the_parked_partition_was_read():
    parking = Parking()
    parking.found("a", 3, 0)
    assert (parking.wants("a", 9), parking.wants("b", 1)) == ("wait", "wait")
    parking.is_complete = True
    assert (parking.wants("a", 9), parking.wants("b", 1)) == ("park", "run")


def test_a_record_that_has_a_copy_is_passed_and_later_ones_follow_it():
    parking = parked("a", 3, 7)
    assert [parking.wants("a", offset) for offset in (2, 3, 7, 8)] == ["pass", "pass", "pass", "park"]


def test_one_copy_of_a_key_is_on_its_way_at_a_time():
    parking = parked("a", 3)
    parking.park("a", 8)
    assert parking.wants("a", 9) == "wait"
    parking.written("a")
    assert (parking.wants("a", 8), parking.wants("a", 9)) == ("pass", "park")


def test_a_key_is_free_when_a_commit_tells_that_its_last_copy_is_finished():
    parking = parked("a", 3, 7)
    parking.finished("a", 0)
    assert list(parking.confirmed({0}.__contains__)) == []
    parking.finished("a", 1)
    assert parking.wants("a", 8) == "wait"
    # That commit was on its way when the last copy ended: it says nothing of it.
    assert list(parking.confirmed({0}.__contains__)) == []
    assert list(parking.confirmed({0, 1}.__contains__)) == ["a"]
    assert parking.wants("a", 8) == "run"


def test_a_copy_that_was_written_and_not_read_back_keeps_its_key_parked():
    parking = parked("a", 3)
    parking.finished("a", 0)
    parking.park("a", 8)
    parking.written("a")
    assert list(parking.confirmed({0}.__contains__)) == []
    parking.found("a", 8, 1)
    parking.finished("a", 1)
    assert list(parking.confirmed({0, 1}.__contains__)) == ["a"]
