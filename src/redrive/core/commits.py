"""
When and what is committed: one asynchronous commit at a time, only what changed, offset and map of one moment.

A partition counts as committed when *its snapshot* was confirmed, not when a flag was cleared: what finished while
the commit was on its way is part of the next one.
"""

from collections.abc import Callable, Iterable

from redrive.core.commands import Commit
from redrive.core.lane import Lane
from redrive.core.offsets import encode_metadata
from redrive.core.plan import Now
from redrive.core.record import TopicPartition

#: Larger requests fail as a whole at the broker, with an error that doesn't say why (tried: 250 maps of 4,000
#: characters pass, 260 don't).
CHUNK_CHARS = 500_000
_ENTRY_CHARS = 100
#: An answer that takes longer than this will not come: the client gave up without telling.
ANSWER_TIMEOUT_MS = 60_000

Snapshot = tuple[int, str]


class Commits:
    """The commits of one consumer. `identity` gives the hash that a topic's map carries."""

    def __init__(self, interval_ms: int, identity: Callable[[str], str]) -> None:
        #: Commits that were confirmed, and those of which a partition was refused.
        self.confirmed = 0
        self.refused = 0
        self._interval_ms = interval_ms
        self._identity = identity
        self._number = 0
        self._sent: dict[TopicPartition, tuple[Lane, Snapshot]] = {}
        self._sent_mono_ms = 0.0
        self._next_mono_ms = 0.0
        self._chunk_chars = CHUNK_CHARS
        self._with_maps = True

    def due(self, lanes: Iterable[Lane], now: Now) -> Commit | None:
        """The next commit, when it is time for one, none is on its way and something changed."""
        if now.mono_ms < self._next_mono_ms:
            return None
        if self._sent:
            if now.mono_ms < self._sent_mono_ms + ANSWER_TIMEOUT_MS:
                return None
            self._sent = {}
        self._next_mono_ms = now.mono_ms + self._interval_ms
        chars = 0
        for lane in lanes:
            snapshot = self._changed(lane)
            if snapshot is None:
                continue
            chars += len(snapshot[1]) + _ENTRY_CHARS
            if self._sent and chars > self._chunk_chars:
                self._next_mono_ms = now.mono_ms  # the rest follows as soon as this one is confirmed
                break
            self._sent[lane.key] = (lane, snapshot)
        if not self._sent:
            return None
        self._number += 1
        self._sent_mono_ms = now.mono_ms
        return Commit(self._number, {key: snapshot for key, (_, snapshot) in self._sent.items()})

    def answered(self, snapshot: int, refused: Iterable[TopicPartition], now: Now) -> None:
        """
        The broker answered commit number `snapshot`; it refused the partitions named.

        Refused ones are sent again, in smaller requests, at last without maps: the frontier matters most.
        """
        if snapshot != self._number or not self._sent:
            return
        failed = set(refused)
        for key, (lane, value) in self._sent.items():
            if lane.alive and key not in failed:
                lane.acked = value
        if failed:
            self.refused += 1
            self._with_maps = len(self._sent) > 1
            self._chunk_chars = max(1, min(self._chunk_chars, _ENTRY_CHARS * len(self._sent)) // 2)
            self._next_mono_ms = now.mono_ms + self._interval_ms
        else:
            self.confirmed += 1
            self._with_maps = True
            self._chunk_chars = CHUNK_CHARS
        self._sent = {}

    def final(self, lanes: Iterable[Lane]) -> dict[TopicPartition, Snapshot]:
        """What a last, synchronous commit of these lanes must say; lanes with nothing new are left out."""
        snapshots = ((lane, self._changed(lane)) for lane in lanes)
        return {lane.key: snapshot for lane, snapshot in snapshots if snapshot is not None}

    def confirm(self, lanes: Iterable[Lane], snapshots: dict[TopicPartition, Snapshot]) -> None:
        """The synchronous commit of `final` was confirmed."""
        self.confirmed += 1
        for lane in lanes:
            lane.acked = snapshots.get(lane.key, lane.acked)

    def _changed(self, lane: Lane) -> Snapshot | None:
        if not lane.offsets.started:
            return None
        identity = self._identity(lane.key.topic)
        snapshot = lane.offsets.snapshot(identity)
        if not self._with_maps:
            snapshot = (snapshot[0], encode_metadata(snapshot[0], (), identity))
        return None if snapshot == lane.acked else snapshot
