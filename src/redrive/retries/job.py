"""Posts the notices of a plan, and tells what became of the records (the protocol: `core/notices.py`)."""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from redrive.core.notices import RANGES_PER_NOTICE, Notice, overlap, ranges_of, read_end, write_notice
from redrive.core.offset_codec import Range
from redrive.core.offsets import OffsetMap
from redrive.core.record import TopicPartition
from redrive.deadletters.replay import Desk
from redrive.deadletters.states import Author, require_state_topic
from redrive.retries.selection import Plan, Target
from redrive.retries.tiers import OpenTier, done_by
from redrive.runtime.ports import NotWritten, Write, Written

#: How often it is asked what became of the records. Workers look for notices every two seconds.
ASK_MS = 500.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """
    What became of a plan: discarded + ran + waiting + failed + not_found = selected.

    `discarded`: written down as such by a worker. `ran`: finished by the group since, without that; for a discard it came
    too late. `waiting`: asked for, and not seen to be done yet. `failed`: the notice wasn't confirmed, for the reason `why`.
    """

    job: str
    selected: int
    discarded: int = 0
    ran: int = 0
    waiting: int = 0
    failed: int = 0
    not_found: int = 0
    why: str = ""

    @property
    def done(self) -> int:
        """Records that nothing is left to be done with."""
        return self.discarded + self.ran


Tell = Callable[[int], None]
"""Told each time it was asked: how many records are done."""


class Job:
    """One run of a plan. `tiers`: those that it was made with. `stop`: set by whoever doesn't want to wait longer."""

    def __init__(
        self, desk: Desk, plan: Plan, tiers: Sequence[OpenTier], author: Author, stop: threading.Event
    ) -> None:
        self._desk = desk
        self._plan = plan
        self._tiers = {tier.topic: tier for tier in tiers}
        self._author = author
        self._stop = stop
        self._posted: list[Target] = []
        self._failed = 0
        self._why = ""
        self._next: dict[str, int] = {}
        self._discarded: defaultdict[TopicPartition, set[int]] = defaultdict(set)

    def require(self) -> None:
        """Make the state topics where they are missing. Raises TopologyError: nothing was asked of anybody then."""
        for state in sorted({target.state for target in self._plan.targets}):
            tier = next(tier for tier in self._tiers.values() if tier.state == state)
            cluster, log, clock, _ = self._desk
            hint = "; where names have their own templates, name the app by --app"
            require_state_topic(cluster, log, clock, dlq=tier.dlq, state=state, hint=hint)

    def post(self) -> None:
        """Write the notices. What isn't confirmed is counted as failed, though a worker may see it all the same."""
        states = [TopicPartition(state, 0) for state in {target.state for target in self._plan.targets}]
        ends = self._desk.cluster.offsets(states, "latest")
        self._next = {key.topic: ends.get(key, 0) for key in states}
        for target in self._plan.targets:
            parts = [
                msgspec.structs.replace(target, ranges=target.ranges[at : at + RANGES_PER_NOTICE])
                for at in range(0, len(target.ranges), RANGES_PER_NOTICE)
            ]
            answers = self._desk.log.write_many(
                [self._write(part, number) for number, part in enumerate(parts)]
            )
            for part, answer in zip(parts, answers, strict=True):
                if isinstance(answer, Written):
                    self._posted.append(part)
                elif isinstance(answer, NotWritten):
                    self._failed += part.count
                    self._why = f"{target.state}: {answer.detail}"

    def watch(self, wait_ms: float, tell: Tell = lambda _: None) -> Outcome:
        """Ask until all is done, the time is over or a stop was requested. Raises PortError; the notices stay."""
        deadline_ms = self._desk.clock.mono_ms() + wait_ms
        outcome = self._look()
        while outcome.waiting and self._desk.clock.mono_ms() < deadline_ms and not self._stop.is_set():
            self._desk.clock.wait(self._stop, ASK_MS)
            outcome = self._look()
            tell(outcome.done)
        return outcome

    def _write(self, target: Target, number: int) -> Write:
        author = self._author
        notice = Notice(
            self._plan.action,
            target.group,
            target.identity,
            target.ranges,
            author.who,
            int(self._desk.clock.wall_ms()),
            author.job,
            author.why,
        )
        key, value = write_notice(target.partition, notice, number)
        return Write(target.state, key, value, [], 0)

    def _look(self) -> Outcome:
        posted = sum(target.count for target in self._posted)
        ran = 0
        for group, topic in {(target.group, target.partition.topic) for target in self._posted}:
            targets = [one for one in self._posted if (one.group, one.partition.topic) == (group, topic)]
            keys = sorted({one.partition for one in targets})
            done = done_by(self._desk.cluster, group, keys, targets[0].identity)
            finished = {key: _finished(done.get(key.partition)) for key in keys}
            ran += sum(overlap(one.ranges, finished[one.partition]) for one in targets)
            # Read after the commits: what was committed as discarded by then has been written down.
            self._read_ends()
            ran -= sum(overlap([*ranges_of(sorted(self._discarded[key]))], finished[key]) for key in keys)
        discarded = sum(map(len, self._discarded.values()))
        return Outcome(
            job=self._author.job,
            selected=self._plan.count + len(self._plan.missing),
            discarded=discarded,
            ran=ran,
            waiting=posted - discarded - ran,
            failed=self._failed,
            not_found=len(self._plan.missing),
            why=self._why,
        )

    def _read_ends(self) -> None:
        """Note what workers wrote down for this job; after a crash they may have done so twice."""
        cluster, log = self._desk.cluster, self._desk.log
        ends = cluster.offsets([TopicPartition(state, 0) for state in self._next], "latest")
        for key, end in ends.items():
            for record in log.scan(key, self._next[key.topic], end):
                found = read_end(record.key(), record.value())
                if found is not None and found[2].job == self._author.job:
                    self._discarded[found[0]].add(found[1])
            self._next[key.topic] = max(end, self._next[key.topic])


def _finished(done: OffsetMap | None) -> Sequence[Range]:
    return () if done is None else [(0, done.settled), *done.finished_above_frontier()]
