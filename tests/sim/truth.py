"""What really happened to each record, beside what an engine claims of it."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from redrive.core.commands import Failed, Run
from redrive.core.dialects import read_envelope
from redrive.core.failure import Kind
from redrive.core.lane import Lane
from redrive.core.plan import ListenerPlan
from redrive.core.record import RawRecord, TopicPartition
from redrive.sim.cluster import SimCluster


class Truth:
    """
    What really happened, by lane, that is by assignment: where it began, which offsets are known to be finished, which
    failed, and how many successors of each were confirmed.
    """

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._start_of: dict[Lane, int] = {}
        self._last_started: dict[Lane, int] = {}
        self._known: dict[Lane, set[int]] = defaultdict(set)
        #: Records that were found to have killed a process.
        self.crashed: set[tuple[TopicPartition, int]] = set()
        self._failed: dict[Lane, set[int]] = defaultdict(set)
        self._confirmed: dict[Lane, Counter[int]] = defaultdict(Counter)
        #: Those that met an outage, and are to run again at any time.
        self._put_by: dict[Lane, set[int]] = defaultdict(set)
        #: Failed records that wait in front of their lanes.
        self._held: dict[Lane, set[int]] = defaultdict(set)
        self._told: dict[Lane, dict[int, int]] = defaultdict(dict)
        #: What a person wants to get past: it need not run, but until that was written down it isn't finished.
        self.to_skip: set[tuple[TopicPartition, int]] = set()

    def began(self, lane: Lane, start: int, restored: Sequence[tuple[int, int]]) -> None:
        """A partition was assigned; `restored` was finished by its owner before."""
        self._start_of[lane] = start
        self._known[lane].update(offset for first, end in restored for offset in range(first, end))

    def started(self, run: Run, record: RawRecord) -> None:
        """A handler got this record."""
        lane, offset = run.lane, record.offset()
        assert not self._confirmed[lane][offset], f"{lane.key}: {offset} runs though it has a successor"
        if run.key_lanes:
            self._started_in_its_lane(run, record)
        elif not run.is_of_tier:
            self._started_in_its_partition(run, offset)
        # In an outage a failed record may get no successor, but run again.
        self._put_by[lane].discard(offset)
        self._failed[lane].discard(offset)

    def _started_in_its_partition(self, run: Run, offset: int) -> None:
        lane = run.lane
        last = self._last_started.get(lane, self._start_of[lane] - 1)
        if run.is_apart and offset <= last:
            assert offset in self._put_by[lane] | self._failed[lane], f"{lane.key}: {offset} again"
            return
        assert offset > last, f"{lane.key}: {offset} after {last}"
        between = (
            other.offset() for other in self._cluster.partition(lane.key) if last < other.offset() < offset
        )
        skipped = [
            other
            for other in between
            if other not in self._known[lane]
            and (lane.key, other) not in self.to_skip
            and not self._is_dropped(lane, other)
        ]
        assert not skipped, f"{lane.key}: {skipped} skipped"
        self._last_started[lane] = offset

    def _started_in_its_lane(self, run: Run, record: RawRecord) -> None:
        """Of a key one record runs at a time, and with a blocking policy none before those ahead of it are finished."""
        lane, key, offset = run.lane, record.key(), record.offset()
        plan = lane.listener.plan
        if run.is_of_tier or plan.order == "none" or (key is None and plan.order == "key"):
            return
        line = [
            other.offset()
            for other in self._cluster.partition(lane.key)
            if self._start_of[lane] <= other.offset() < offset
            and (plan.order == "partition" or other.key() == key)
            and other.offset() not in self._known[lane]
        ]
        failed = self._failed[lane] - self._held[lane]
        ahead = [other for other in line if other not in failed and (lane.key, other) not in self.to_skip]
        assert not ahead, f"{lane.key}: {offset} before {ahead}"

    def told(self, lane: Lane, offset: int, attempt: int) -> None:
        """A commit told that this record failed so often."""
        self._told[lane][offset] = attempt

    def handled(self, lane: Lane, offset: int) -> None:
        """A handler was content with it."""
        self._known[lane].add(offset)

    def met_outage(self, run: Run, offset: int) -> None:
        """A handler can't do it now: it will be tried again, if it must be before those behind it or not."""
        if run.is_apart or run.lane.listener.plan.policy.blocking is None:
            self._put_by[run.lane].add(offset)
        else:
            self._last_started[run.lane] = offset - 1

    def tries_again(self, run: Run, offset: int) -> None:
        """A handler is to have another try in place."""
        if run.is_apart:
            self._put_by[run.lane].add(offset)
        else:
            self._last_started[run.lane] = offset - 1

    def failed(self, plan: ListenerPlan, lane: Lane, failed: Failed) -> None:
        """A handler failed: the record waits for a successor, or gets none."""
        ends = failed.failure.kind is not Kind.TRANSIENT or plan.policy.is_last(failed.attempt)
        assert failed.attempt <= plan.policy.max_attempts
        offset = failed.record.offset()
        if plan.policy.blocking and offset in self._held[lane]:
            told = self._told[lane].get(offset, 0)
            assert told >= failed.attempt - 1, f"{lane.key}: {offset} ran before attempt {told + 1} was told"
        if plan.policy.blocking and not ends and failed.signal in {"", "retry-later"}:
            self._held[lane].add(offset)
            return
        self._held[lane].discard(offset)
        if failed.signal == "skip" or (plan.give_up == "skip" and ends):
            self._known[lane].add(failed.record.offset())
        else:
            self._failed[lane].add(failed.record.offset())

    def confirmed(self, lane: Lane, offset: int) -> None:
        """A successor was confirmed."""
        self._known[lane].add(offset)
        self._confirmed[lane][offset] += 1
        assert self._confirmed[lane][offset] == 1, f"{lane.key}: a second successor of {offset}"

    def check_claim(self, lane: Lane, frontier: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Whoever starts from this commit runs none of the records that it names: they must be finished."""
        known, start = self._known[lane], self._start_of[lane]
        for record in self._cluster.partition(lane.key):
            offset = record.offset()
            is_claimed = offset < frontier or any(first <= offset < end for first, end in ranges)
            if is_claimed and offset >= start and offset not in known:
                is_done = _is_of_others(lane, record) or self._is_second_copy(lane, record)
                assert is_done or self._is_dropped(lane, offset), (
                    f"{lane.key}: {offset} claimed, {frontier} {ranges}"
                )

    def _is_dropped(self, lane: Lane, offset: int) -> bool:
        """Whether it killed processes, and the policy wants no letter of it."""
        return lane.listener.plan.give_up == "skip" and (lane.key, offset) in self.crashed

    def _is_second_copy(self, lane: Lane, record: RawRecord) -> bool:
        """Whether the same failure has another copy on the tier, before this one: that one is looked after."""
        before = (one for one in self._cluster.partition(lane.key) if one.offset() < record.offset())
        return lane.tier is not None and any(_failure(one) == _failure(record) for one in before)

    def check_end(self, lane: Lane) -> None:
        """Nothing is left: each failed record has its successor, and the frontier passes all."""
        assert not has_left(lane), f"{lane.key}: something is left"
        assert lane.offsets.frontier >= end_of(self._cluster, lane.key), (
            f"{lane.key}: stuck at {lane.offsets.frontier}"
        )
        assert lane.writes.size_bytes == lane.window.held_bytes == lane.reposts.held_bytes == 0
        assert set(self._confirmed[lane]) >= self._failed[lane]


def _failure(record: RawRecord) -> tuple[object, ...]:
    """Of which source record a copy is, and for which attempt; of a record without that, itself."""
    said = read_envelope(record.headers())[0]
    place = (said.source_topic, said.source_partition, said.source_offset)
    return (*place, said.attempt) if said.source_topic else (record.offset(),)


def _is_of_others(lane: Lane, record: RawRecord) -> bool:
    return lane.tier is not None and read_envelope(record.headers())[0].group not in {"shop", ""}


def end_of(cluster: SimCluster, key: TopicPartition) -> int:
    """The offset behind the last record of a partition."""
    records = list(cluster.partition(key))
    return records[-1].offset() + 1 if records else 0


def has_left(lane: Lane) -> bool:
    """Whether anything of a lane is still to be done."""
    held = len(lane.window) + len(lane.reposts) + (lane.keys.waiting if lane.keys is not None else 0)
    return bool(lane.writes.count or lane.queue or lane.returned or held or lane.runs)
