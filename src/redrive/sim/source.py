"""A consumer of the simulated cluster."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from redrive.core.commands import Commit, Refusal
from redrive.core.record import RawRecord, TopicPartition
from redrive.runtime.ports import Committed, Fetched, GroupEvents, SourceProblem
from redrive.sim.groups import NOT_AUTHORISED, Group, Member, Membership, refusal_of

if TYPE_CHECKING:
    from redrive.sim.cluster import SimCluster

COMMIT_NOW_TIMEOUT_MS = 5_000.0

Answer = tuple[int, dict[TopicPartition, Refusal]]


class SimSource:
    """
    Implements the source port. What a real client prefetches is left in the log until it is polled: nobody can tell.

    `SimCluster.kill` lets its process die, `SimCluster.expel` lets the group throw it out.
    """

    def __init__(self, cluster: "SimCluster", group: Group) -> None:
        self._cluster = cluster
        self._group = group
        self._events: GroupEvents | None = None
        self._topics: tuple[str, ...] = ()
        self.member: Member | None = None
        #: The next offset of a partition; None while it isn't fetched: kept waiting, or out of range.
        self._positions: dict[TopicPartition, int | None] = {}
        self._paused: set[TopicPartition] = set()
        self._missing: set[str] = set()
        self._turn = -1
        self._problems: list[SourceProblem] = []
        self.membership: Membership | None = None
        #: Commits on their way, with the group's epoch in which they were sent.
        self._commits: deque[tuple[int, Commit]] = deque()
        self._answers: list[Answer] = []

    @property
    def owned(self) -> list[TopicPartition]:
        """The partitions that it was told to have."""
        return sorted(self.member.owned) if self.member else []

    def join(self, topics: Sequence[str], events: GroupEvents) -> None:
        self._topics = tuple(topics)
        self._events = events

    def poll(self, timeout_s: float, most: int) -> Fetched:
        clock = self._cluster.clock
        if self.member is not None:
            self.member.polled_mono_ms = clock.mono_ms()
        if self._events is None:
            return []
        if self._cluster.is_down:
            self._problems.append(SourceProblem("unreachable", "no broker answers"))
            clock.pass_time(timeout_s * 1000)
            return []
        happened = self._meet_group(self._events)
        self.membership = Membership(self._group, self.member, self._group.epoch)
        fetched = self._fetch(most)
        if not fetched and not happened:
            clock.pass_time(timeout_s * 1000)
        return fetched

    def problems(self) -> list[SourceProblem]:
        taken, self._problems = self._problems, []
        return taken

    def committed(
        self, keys: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, Committed]:
        if self._cluster.is_down:
            return {}
        known = self._group.offsets
        uncertain = self._cluster.faults.uncertain | self._cluster.coordinator.undecided(self._group)
        return {key: known.get(key, Committed(None)) for key in keys if key not in uncertain}

    def start_at(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        for key, offset in offsets.items():
            log = self._cluster.partition(key)
            if self._owns(key) and log is not None:
                self._positions[key] = log.start if offset is None else offset
                self._paused.discard(key)

    def keep_waiting(self, keys: Sequence[TopicPartition]) -> None:
        self._positions.update(dict.fromkeys(filter(self._owns, keys)))

    def pause(self, keys: Iterable[TopicPartition]) -> None:
        self._paused.update(keys)

    def resume(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        self.start_at(offsets)

    def commit(self, commit: Commit) -> None:
        self._commits.append((self._group.epoch, commit))

    def commit_answers(self) -> list[Answer]:
        if self._cluster.is_down or self._cluster.faults.commits_are_held:
            return []
        self._arrive()
        answers, self._answers = self._answers, []
        return answers

    def commit_now(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> bool:
        if self._cluster.is_down or self._cluster.faults.commits_are_held:
            self._cluster.clock.pass_time(COMMIT_NOW_TIMEOUT_MS)
            return False
        self._arrive()  # they were sent before, on the same connection
        return not self._store(offsets, self._group.epoch)

    def close(self) -> None:
        if self.member is None or self._events is None:
            return
        self._let_go(self.member.owned, self._events.on_revoked)
        if self._cluster.is_down:
            self._cluster.kill(self)  # the group learns nothing of it
        else:
            self._group.remove(self.member)
        self.member, self._events = None, None

    def _meet_group(self, events: GroupEvents) -> bool:
        """One heartbeat: lose, give and take partitions. True when any of that happened."""
        now_ms = self._cluster.clock.mono_ms()
        lost: set[TopicPartition] = set()
        if self.member is not None and self.member not in self._group.members:
            lost = self.member.owned
            self._let_go(lost, events.on_lost)
            self.member = None
        if self.member is None:
            self.member = self._group.join(self._topics, now_ms)
        self._group.refresh(self._cluster.counts, now_ms)
        self._look_for_topics()
        revoked = self._group.to_revoke(self.member)
        self._let_go(revoked, events.on_revoked)
        assigned = self._group.to_assign(self.member)
        if assigned:
            self.member.owned.update(assigned)
            events.on_assigned(assigned)
            forgotten = [key for key in assigned if key not in self._positions]
            if forgotten:
                raise RuntimeError(f"assigned, but neither started nor kept waiting: {forgotten}")
        return bool(lost or revoked or assigned)

    def _let_go(
        self, keys: Iterable[TopicPartition], tell: Callable[[Sequence[TopicPartition]], None]
    ) -> None:
        keys = sorted(keys)
        if keys and self.member is not None:
            with self._cluster.clock.unbounded():  # handlers may be waited for
                tell(keys)
            self.member.owned.difference_update(keys)
            for key in keys:
                self._positions.pop(key, None)

    def _look_for_topics(self) -> None:
        missing = [topic for topic in self._topics if topic not in self._cluster.topics]
        for topic in missing:
            if topic not in self._missing:
                self._problems.append(
                    SourceProblem("unknown-topic", f"there is no topic {topic}", TopicPartition(topic, -1))
                )
        self._missing = set(missing)

    def _fetch(self, most: int) -> Fetched:
        """From each partition in turn, beginning with another one each time."""
        keys = [
            key
            for key, position in self._positions.items()
            if position is not None
            and key not in self._paused
            and key.topic not in self._cluster.faults.silent_topics
        ]
        self._turn += 1 + self._cluster.chance.below(len(keys))
        fetched: Fetched = []
        for index in range(len(keys)):
            key = keys[(self._turn + index) % len(keys)]
            records = self._read(key, most - self._cluster.chance.below(most)) if most else []
            if records:
                fetched.append((key, records))
                self._positions[key] = records[-1].offset() + 1
                most -= len(records)
        return fetched

    def _read(self, key: TopicPartition, most: int) -> list[RawRecord]:
        log, position = self._cluster.partition(key), self._positions[key]
        if log is None or position is None:
            return []
        if not log.start <= position <= log.end:
            detail = f"offset {position} is not in {log.start}..{log.end}"
            self._problems.append(SourceProblem("out-of-range", detail, key))
            self._positions[key] = None
            return []
        return list(log.read(position, most))

    def _arrive(self) -> None:
        """The commits on their way reach the coordinator, in their order."""
        self._answers += [
            (commit.snapshot, self._store(commit.offsets, epoch)) for epoch, commit in self._commits
        ]
        self._commits.clear()

    def _store(
        self, offsets: Mapping[TopicPartition, tuple[int, str]], epoch: int
    ) -> dict[TopicPartition, Refusal]:
        """What the coordinator does with a commit of that epoch: the refused partitions and why."""
        self._group.plain_commits += 1
        refusal = self._cluster.faults.next_commit_refusal()
        if refusal is not None:
            return dict.fromkeys(offsets, refusal_of(refusal))
        refused = self._group.refused(Membership(self._group, self.member, epoch), offsets)
        topics = self._cluster.faults.next_refused_topics({key.topic for key in offsets})
        refused.update((key, NOT_AUTHORISED) for key in offsets if key.topic in topics)
        self._group.store({key: value for key, value in offsets.items() if key not in refused})
        return {key: refusal_of(why) for key, why in refused.items()}

    def _owns(self, key: TopicPartition) -> bool:
        return self.member is not None and key in self.member.owned
