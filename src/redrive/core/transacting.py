"""
Commits with delivery `exactly-once`: each is a transaction, with the writes of the records that it passes.

A commit is made as if the records were finished whose writes go with it. In memory they are finished when the transaction is
committed, not before: nothing has to be undone when it is aborted.
"""

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from redrive.core.commands import Transaction
from redrive.core.commits import Commits, Snapshot
from redrive.core.lane import Lane
from redrive.core.metadata import Head, decode_metadata
from redrive.core.offsets import OffsetMap
from redrive.core.pending import Pending
from redrive.core.plan import Now
from redrive.core.record import TopicPartition
from redrive.core.successors import Successors
from redrive.core.transactions import Aborted, Completed, Transactions, Unit

Lanes = Collection[Lane]


class Transacting:
    """The transactions of one group in one process. `units` is where `successors` puts what is to be written."""

    def __init__(
        self, units: Transactions, commits: Commits, successors: Successors, identity: Callable[[str], str]
    ) -> None:
        self._units = units
        self._commits = commits
        self._successors = successors
        self._identity = identity

    @property
    def is_out(self) -> bool:
        """Whether a transaction is on its way."""
        return self._units.is_out

    @property
    def on_its_way(self) -> Collection[TopicPartition]:
        """
        The partitions of which the transaction on its way tells. One of them may be lost and come back before it has ended, to the
        same member at the same epoch (KIP-848), so that its commit is taken: until then nobody knows where the partition begins.
        """
        return self._commits.on_its_way if self.is_out else ()

    def due(self, lanes: Lanes, now: Now, *, at_once: bool = False) -> Transaction | None:
        """
        The next transaction, when it is time for one and none is on its way. `at_once`: whatever there is to write or to
        commit, since the lanes are about to be let go.
        """
        if not self._units.is_free(now):
            return None
        chosen, answers = self._units.choose(now, at_once=at_once)
        self._successors.answered(answers, now)
        claims: dict[Lane, list[int]] = {}
        for unit in chosen:
            for lane, offset in _claims_of(unit):
                claims.setdefault(lane, []).append(offset)
        if claims or at_once:
            self._commits.hasten([*claims, *(lanes if at_once else ())], now)
        with _as_if_written(claims, int(now.wall_ms)):
            commit = self._commits.due(lanes, now, is_last=at_once)
        if commit is None:
            self._units.put_back(chosen, now)
            return None
        passed = _Passed(commit.offsets, self._identity)
        told = [unit for unit in chosen if all(passed.passes(*claim) for claim in _claims_of(unit))]
        if len(told) < len(chosen):
            sent = set(map(id, told))
            self._units.put_back([unit for unit in chosen if id(unit) not in sent], now)
        return self._units.begin(commit.snapshot, told, commit.offsets)

    def answered(self, outcome: Completed | Aborted, now: Now) -> None:
        """What became of the transaction on its way."""
        if isinstance(outcome, Completed):
            self._commits.answered(outcome.number, (), now)
        elif outcome.offsets:
            is_too_large = any(refusal.kind == "too-large" for refusal in outcome.offsets.values())
            # Whichever was refused, none of them is committed.
            refused = self._commits.on_its_way
            self._commits.answered(outcome.number, refused, now, is_too_large=is_too_large)
        else:
            self._commits.withdraw(outcome.number)
        self._successors.answered(self._units.answered(outcome, now), now)

    def abandon(self) -> None:
        """Nobody knows what became of the transaction on its way, and all lanes were forgotten."""
        self._commits.withdraw()
        self._units.abandon()

    def is_settled(self, lanes: Lanes) -> bool:
        """Whether all that these lanes have finished is committed, and nothing is on its way."""
        if self._units.is_out:
            return False
        keys = {lane.key for lane in lanes}
        return not any(
            keys & said.keys() for said in self._commits.final([lane for lane in lanes if lane.alive])
        )


class _Passed:
    """
    What a commit says is finished, or became a dead letter for which others wait. Metadata is only read where an offset above
    the frontier is asked for.
    """

    def __init__(self, offsets: Mapping[Any, Snapshot], identity: Callable[[str], str]) -> None:
        self._offsets = offsets
        self._identity = identity
        self._said: dict[Lane, tuple[OffsetMap, Mapping[int, Head]]] = {}

    def passes(self, lane: Lane, offset: int) -> bool:
        """Whether whoever begins from this commit won't run that record."""
        if lane.key not in self._offsets:
            return False
        frontier, text = self._offsets[lane.key]
        if offset < frontier:
            return True
        if lane not in self._said:
            said = decode_metadata(text, frontier, self._identity(lane.key.topic))
            self._said[lane] = OffsetMap(frontier, said.ranges), said.heads
        finished, heads = self._said[lane]
        head = heads.get(offset)
        return finished.was_finished(offset) or (head is not None and head.is_dead)


@contextmanager
def _as_if_written(claims: Mapping[Lane, Collection[int]], now_ms: int) -> Generator[None, None, None]:
    """
    While it lasts, lanes say of these records what they will when their writes are there: that they are finished; or that
    they became dead letters for which others wait.
    """
    real = [(lane, lane.offsets, lane.heads) for lane in claims]
    for lane, offsets in claims.items():
        dying = lane.heads.dying
        lane.offsets = lane.offsets.without([offset for offset in offsets if offset not in dying])
        lane.heads = lane.heads.as_written(offsets, now_ms)
    try:
        yield
    finally:
        for lane, offset_map, heads in real:
            lane.offsets, lane.heads = offset_map, heads


def _claims_of(unit: Unit) -> list[tuple[Lane, int]]:
    """What is finished when this is written: its own record, and the holes that it closes."""
    pending: Pending = unit[0].token
    holes = [(lane, hole) for lane, hole in pending.frees if lane.heads.is_dead(hole)]
    return [(pending.lane, pending.record.offset()), *holes]
