"""
When and what is committed: one asynchronous commit at a time, only what changed, offset and map of one moment.

A partition counts as committed when *its snapshot* was confirmed, not when a flag was cleared: what finished while
the commit was on its way is part of the next one.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from redrive.core.commands import Commit
from redrive.core.lane import Lane
from redrive.core.metadata import (
    METADATA_BUDGET_CHARS,
    NO_HEADS,
    NO_LEDGER,
    Head,
    Ledger,
    heads_that_fit,
)
from redrive.core.plan import Now
from redrive.core.record import TopicPartition

#: Larger requests fail as a whole at the broker, with an error that doesn't say why (tried: 250 maps of 4,000
#: characters pass, 260 don't).
CHUNK_CHARS = 500_000
_ENTRY_CHARS = 100
#: While it is found out which partition is refused, the others wait.
REFUSED_PAUSE_MS = 100
#: An answer that takes longer than this will not come: the client gave up without telling.
ANSWER_TIMEOUT_MS = 60_000

#: A commit that records wait for is sent at least so long before their due, and no sooner than this after the last one.
HURRY_BEFORE_MS = 50
HURRY_PAUSE_MS = 20

#: No broker is known to take less than this of metadata; below it a partition's map is left out instead.
LEAST_METADATA_CHARS = 200

Snapshot = tuple[int, str]


class _Said(NamedTuple):
    """What a commit says of one partition: to the broker, and of the records that wait in it."""

    snapshot: Snapshot
    heads: Mapping[int, Head]
    ledger: Ledger


class Commits:
    """
    The commits of one consumer: each `interval_ms`, or sooner when so many `records` have ended. `identity` gives the hash
    that a topic's map carries.

    A partition that is refused again and again (its topic deleted, a right taken away) must not keep the others from
    being committed: it is sent alone from then on, each second time without its map, after the others; of several such
    partitions one at a time.

    Metadata that a broker refuses as too large is halved for all partitions until it passes, and stays so: the broker's
    limit is lower than Kafka's default, and only a restart changes it.
    """

    def __init__(self, interval_ms: int, records: int, identity: Callable[[str], str]) -> None:
        #: Commits that were confirmed, and those of which a partition was refused.
        self.confirmed = 0
        #: Commits that told of a partition at least what it was asked to.
        self.told = 0
        self.refused = 0
        #: The most that is told of a partition besides its offset, and of how many heads.
        self.metadata_chars = METADATA_BUDGET_CHARS
        self.heads_most = heads_that_fit()
        self._interval_ms = interval_ms
        self._records = records
        #: Records that ended since the last round began.
        self._ended = 0
        self._identity = identity
        self._number = 0
        self._sent: dict[TopicPartition, tuple[Lane, _Said]] = {}
        self._sent_mono_ms = 0.0
        self._next_mono_ms = 0.0
        #: Lanes with records that wait for a commit, and when it is sent at the latest.
        self._hurried: dict[Lane, None] = {}
        self._hurry_mono_ms = inf
        self._is_awaited = False
        self._refused_until_mono_ms = 0.0
        self._chunk_chars = CHUNK_CHARS
        #: Refusals in a row of partitions that are sent alone, in the order of their turns.
        self._suspects: dict[TopicPartition, int] = {}
        #: The longest text that the broker took, and sources that were told of before their replays because of a longer one.
        self._taken_chars = 0
        self._went_first: set[TopicPartition] = set()
        self._round: deque[Lane] = deque()

    def ended(self, count: int) -> None:
        """So many records more are finished, or have their successor on its way."""
        self._ended += count

    def hurry(self, lane: Lane, due_in_ms: float, now: Now) -> None:
        """A record of this lane may only run again when a commit has told of its failure: in time for its due."""
        at_ms = max(now.mono_ms + due_in_ms - HURRY_BEFORE_MS, self._sent_mono_ms + HURRY_PAUSE_MS)
        self._hurry_mono_ms = min(self._hurry_mono_ms, at_ms)
        self._hurried[lane] = None

    def hasten(self, lanes: Iterable[Lane], now: Now) -> None:
        """The commit of these lanes is wanted now."""
        self._hurried.update(dict.fromkeys(lanes))
        self._hurry_mono_ms = min(self._hurry_mono_ms, now.mono_ms)

    @property
    def on_its_way(self) -> tuple[TopicPartition, ...]:
        """The partitions of the commit that isn't answered yet."""
        return tuple(self._sent)

    def withdraw(self, snapshot: int | None = None) -> None:
        """The commit of this number (None: whichever is on its way) came to nothing, and was not judged."""
        if snapshot in (None, self._number):
            self._round.extendleft([lane for lane, _ in self._sent.values()][::-1])
            self._sent = {}

    def demand(self, lane: Lane, now: Now) -> None:
        """The lane can't go on without a commit: at once, but after a refusal in its time."""
        self._hurry_mono_ms = min(self._hurry_mono_ms, max(now.mono_ms, self._refused_until_mono_ms))
        self._hurried[lane] = None

    def is_time(self, now: Now) -> bool:
        """Whether a round over all lanes is about to begin."""
        return not self._sent and now.mono_ms >= self._next_mono_ms

    def awaited_in_ms(self, mono_ms: float) -> float:
        """How soon to look after a commit that records wait for; 0: it is on its way."""
        return 0.0 if self._sent and self._is_awaited else self._hurry_mono_ms - mono_ms

    def due(self, lanes: Collection[Lane], now: Now, *, is_last: bool = False) -> Commit | None:
        """
        The next commit, when it is time for one, none is on its way and something changed. `is_last`: the lanes are about to
        be let go.
        """
        is_time = now.mono_ms >= self._next_mono_ms or self._ended >= self._records
        if not is_time and now.mono_ms < self._hurry_mono_ms:
            return None
        if self._sent:
            if now.mono_ms < self._sent_mono_ms + ANSWER_TIMEOUT_MS:
                return None
            self._sent = {}
        if not self._round:
            self._begin_round(lanes if is_time else self._hurried)
        self._fill(lanes if is_last else ())
        # The rest of a round follows as soon as this commit is answered.
        if self._round:
            self._next_mono_ms = now.mono_ms
        elif is_time:
            self._next_mono_ms = now.mono_ms + self._interval_ms
        if not self._sent:
            return None
        self._number += 1
        self._sent_mono_ms = now.mono_ms
        return Commit(self._number, {key: said.snapshot for key, (_, said) in self._sent.items()})

    def _begin_round(self, lanes: Iterable[Lane]) -> None:
        # A round goes over all lanes, the suspects last; large ones take several commits.
        turns = {key: turn for turn, key in enumerate(self._suspects, 1)}
        self._ended = 0
        self._round.extend(sorted(lanes, key=lambda lane: turns.get(lane.key, 0)))
        self._chunk_chars = min(CHUNK_CHARS, 2 * self._chunk_chars)
        self._is_awaited = bool(self._hurried)
        self._hurried, self._hurry_mono_ms = {}, inf

    def answered(
        self, snapshot: int, refused: Iterable[TopicPartition], now: Now, *, is_too_large: bool = False
    ) -> None:
        """
        The broker answered commit number `snapshot`; it refused the partitions named. They are sent again. `is_too_large`:
        the metadata of one of them is.

        Refused as a whole it may have been too large, or one partition spoils it: then it is halved until it passes, or
        that one is alone. The client never says which one it was (confluent-kafka 2.16, tried).
        """
        if snapshot != self._number or not self._sent:
            return
        failed = set(refused)
        for key, (lane, said) in self._sent.items():
            if key not in failed:
                lane.acked, lane.acked_mono_ms = said.snapshot, now.mono_ms
                self._taken_chars = max(self._taken_chars, len(said.snapshot[1]))
                lane.heads.confirm(said.heads)
                if lane.watch is not None:
                    lane.watch.acked(said.ledger, now.mono_ms)
                    lane.limit = lane.watch.limit
                if self._suspects.pop(key, 0):
                    self._next_mono_ms = now.mono_ms  # it was mended: the other suspects may be too
        self.told += not failed.issuperset(self._sent)
        if not failed:
            self.confirmed += 1
        else:
            self.refused += 1
            self._went_first -= failed
            if is_too_large and self._halve():
                self._round.extendleft([lane for lane, _ in self._sent.values()][::-1])
            elif len(self._sent) == 1 or len(failed) < len(self._sent):
                for key in failed:
                    self._suspects[key] = self._suspects.pop(key, 0) + 1
            else:
                self._chunk_chars = _chars_of(said for _, said in self._sent.values()) // 2
                self._round.extendleft([lane for lane, _ in self._sent.values()][::-1])
            pause_ms = REFUSED_PAUSE_MS if self._round else self._interval_ms
            self._next_mono_ms = now.mono_ms + min(pause_ms, self._interval_ms)
            self._refused_until_mono_ms = self._next_mono_ms
        self._sent = {}

    def _halve(self) -> bool:
        """The longest text on its way was too long, whichever it was. Whether less can be told."""
        longest = max(len(said.snapshot[1]) for _, said in self._sent.values())
        # One with more heads than fit says nothing of the broker's limit.
        if not 2 * LEAST_METADATA_CHARS <= longest <= self.metadata_chars:
            return False
        self.metadata_chars = longest // 2
        self.heads_most = heads_that_fit(self.metadata_chars)
        return True

    def final(self, lanes: Iterable[Lane]) -> list[dict[TopicPartition, Snapshot]]:
        """
        What last, synchronous commits of these lanes must say; lanes with nothing new are left out. Twins that stay are told of,
        too, and then once more. Replays come in commits of their own, the last ones.
        """
        chunks: list[dict[TopicPartition, Snapshot]] = []
        chars, is_of_replays = CHUNK_CHARS + 1, False
        going = dict.fromkeys(lanes)
        twins = dict.fromkeys(lane.twin for lane in going if lane.twin is not None)
        for lane in sorted(going | twins, key=lambda lane: lane.frees):
            if (said := self._changed(lane, is_last=lane in going)) is None:
                continue
            snapshot = said.snapshot
            chars += len(snapshot[1]) + _ENTRY_CHARS
            if chars > CHUNK_CHARS or lane.frees > is_of_replays:
                chunks.append({})
                chars = len(snapshot[1]) + _ENTRY_CHARS
            is_of_replays = lane.frees
            chunks[-1][lane.key] = snapshot
        return chunks

    def send_last(
        self, lanes: Sequence[Lane], send: Callable[[dict[TopicPartition, Snapshot]], bool]
    ) -> list[dict[TopicPartition, Snapshot]]:
        """
        Send what `final` says; `send` tells whether the broker took it. Those commits that aren't there: the refused ones, and
        those of replays behind one, since what such replays freed may not be told.
        """
        missing: list[dict[TopicPartition, Snapshot]] = []
        replays = {
            each.key for lane in lanes for each in (lane, lane.twin) if each is not None and each.frees
        }
        for snapshots in self.final(lanes):
            if (missing and not replays.isdisjoint(snapshots)) or not send(snapshots):
                missing.append(snapshots)
                continue
            self.confirmed += 1
            for lane in lanes:
                lane.acked = snapshots.get(lane.key, lane.acked)
        return missing

    def _fill(self, going: Collection[Lane]) -> None:
        """Take lanes from the round that fit into one commit; a suspect goes alone, and ends the round."""
        chars = 0
        while self._round:
            lane = self._round[0]
            told, is_whole = self._told_with_twin(lane, going)
            if told:
                chars += _chars_of(told.values())
                is_suspect = lane.key in self._suspects
                if self._sent and (is_suspect or chars > self._chunk_chars):
                    return
                self._sent.update((each.key, (each, said)) for each, said in told.items())
                if is_suspect:
                    # Each refusal costs an interval: a hundred of them in one round would keep the others waiting.
                    self._round.clear()
                if is_suspect or not is_whole:
                    return
            self._round.popleft()

    def _told_with_twin(self, lane: Lane, going: Collection[Lane]) -> tuple[dict[Lane, _Said], bool]:
        """
        What is to be told of a lane and of its twin, and whether that is all. No replay is told before what it freed in the source,
        else a crash would leave a hole there that nothing frees: both go together; the source first where that may not do, as
        it is too much for one commit, or a longer text than any that the broker took so far; and nothing is told of replays
        while their source is refused.
        """
        twin = lane.twin
        if lane.frees and twin is not None:
            lanes = [] if twin.key in self._suspects else [twin, lane]
        elif twin is None or self._suspects.keys() & {lane.key, twin.key}:
            lanes = [lane]
        else:
            lanes = [lane, twin]
        told = {
            each: said
            for each in lanes
            if each.alive
            and each.key not in self._sent
            and (said := self._changed(each, is_last=each in going)) is not None
        }
        source = lanes[0] if lanes else lane
        if len(told) == 2 and self._goes_first(source, told):
            return {source: told[source]}, False
        return told, True

    def _goes_first(self, source: Lane, told: Mapping[Lane, _Said]) -> bool:
        if _chars_of(told.values()) > self._chunk_chars:
            return True
        # Once, and not as long as it grows: the replays would wait for ever.
        is_longer = len(told[source].snapshot[1]) > self._taken_chars
        is_first = is_longer and source.key not in self._went_first
        (self._went_first.add if is_first else self._went_first.discard)(source.key)
        return is_first

    def _changed(self, lane: Lane, *, is_last: bool = False) -> _Said | None:
        if not lane.offsets.started:
            return None
        watch, ledger = lane.watch, NO_LEDGER
        if watch is not None:
            ledger = watch.closed(lane.offsets) if is_last else watch.ledger(lane.offsets)
        # One more: where they fill a commit, the record at the frontier runs all the same.
        heads = lane.heads.told(self.heads_most + 1) if lane.heads else NO_HEADS
        is_bare = bool(self._suspects.get(lane.key, 0) % 2)
        snapshot = self._snapshot(lane, heads, ledger, is_bare=is_bare)
        if is_bare and snapshot == lane.acked:
            # It would tell nothing new, however long it was waited for: what stands above the frontier may be in the way of it.
            snapshot = self._snapshot(lane, heads, ledger, is_bare=False)
        # What was sent since the last acknowledgement may have arrived: then the same has to be said again.
        is_known = snapshot == lane.acked and (is_last or watch is None or not watch.wants_commit)
        return None if is_known else _Said(snapshot, heads, ledger)

    def _snapshot(self, lane: Lane, heads: Mapping[int, Head], ledger: Ledger, *, is_bare: bool) -> Snapshot:
        identity = self._identity(lane.key.topic)
        return lane.offsets.snapshot(identity, heads, ledger, is_bare=is_bare, budget=self.metadata_chars)


def _chars_of(told: Iterable[_Said]) -> int:
    return sum(len(said.snapshot[1]) + _ENTRY_CHARS for said in told)
