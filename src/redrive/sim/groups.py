"""
Consumer groups of the simulated cluster: who is a member, who owns which partition, what is committed.

Modelled on the new group protocol with the `range` assignor: a partition moves only after its owner let go of it,
nobody else is disturbed, and same-numbered partitions of equally sized topics go to one member.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from redrive.core.commands import Refusal
from redrive.core.record import TopicPartition
from redrive.runtime.ports import Committed

#: Kafka's defaults: how long a dead process keeps its partitions, and a living one that doesn't poll.
SESSION_TIMEOUT_MS = 45_000.0
MAX_POLL_INTERVAL_MS = 300_000.0
#: The broker's `offset.metadata.max.bytes` less the NUL that the client adds, in UTF-16 units.
METADATA_UNITS = 4095
#: Larger commit requests fail as a whole.
COMMIT_CHARS = 1_000_000
UNKNOWN_MEMBER = "unknown member"
STALE_EPOCH = "stale member epoch"
METADATA_TOO_LARGE = "offset metadata too large"
NOT_AUTHORISED = "not authorised"


class Member:
    """One consumer in a group, until it leaves or is thrown out."""

    def __init__(self, number: int, topics: Iterable[str], mono_ms: float) -> None:
        self.number = number
        self.topics = frozenset(topics)
        self.owned: set[TopicPartition] = set()
        self.target: set[TopicPartition] = set()
        self.polled_mono_ms = mono_ms
        #: When its process was killed: from then on it is silent.
        self.killed_mono_ms: float | None = None

    def is_silent(self, mono_ms: float) -> bool:
        """Whether the coordinator gives it up now."""
        if self.killed_mono_ms is not None:
            return mono_ms >= self.killed_mono_ms + SESSION_TIMEOUT_MS
        return mono_ms >= self.polled_mono_ms + MAX_POLL_INTERVAL_MS


class Membership(NamedTuple):
    """Who a member was in the epoch in which it polled last; the proof that comes with offsets."""

    group: "Group"
    member: Member | None
    epoch: int


def refusal_of(why: str) -> Refusal:
    """What a client is told when the coordinator refuses an offset."""
    return Refusal("too-large" if why == METADATA_TOO_LARGE else "unavailable", why)


class Group:
    """One group, as its coordinator sees it."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.offsets: dict[TopicPartition, Committed] = {}
        #: Grows with each change of members or partitions.
        self.epoch = 0
        #: The broker's limit of what is told with an offset; a test may lower it.
        self.metadata_units = METADATA_UNITS
        #: Called whenever offsets were committed, for whoever judges them.
        self.on_stored: Callable[[], None] = lambda: None
        #: Commits that came outside of transactions.
        self.plain_commits = 0
        self._numbers = 0
        self._counts: dict[str, int] = {}

    def join(self, topics: Iterable[str], mono_ms: float) -> Member:
        """Add a member. It owns nothing until `changes` says so."""
        self._numbers += 1
        member = Member(self._numbers, topics, mono_ms)
        self.members.append(member)
        self._assign()
        return member

    def remove(self, member: Member) -> None:
        """Take a member out: it left, was thrown out, or has been silent too long."""
        if member in self.members:
            self.members.remove(member)
            self._assign()

    def refresh(self, counts: Mapping[str, int], mono_ms: float) -> None:
        """Give up silent members and take note of topics that appeared or grew."""
        for member in [member for member in self.members if member.is_silent(mono_ms)]:
            self.remove(member)
        if self._counts != counts:
            self._counts = dict(counts)
            self._assign()

    def to_revoke(self, member: Member) -> list[TopicPartition]:
        """What the member has to let go of."""
        return sorted(member.owned - member.target)

    def to_assign(self, member: Member) -> list[TopicPartition]:
        """What the member may take now: its target, without what others still hold."""
        held = {key for other in self.members if other is not member for key in other.owned}
        return sorted(member.target - member.owned - held)

    def refused(
        self, membership: "Membership", offsets: Mapping[TopicPartition, tuple[int, str]]
    ) -> dict[TopicPartition, str]:
        """Which of these offsets the coordinator doesn't take from that member, and why."""
        member, refused = membership.member, dict[TopicPartition, str]()
        if member not in self.members:
            return dict.fromkeys(offsets, UNKNOWN_MEMBER)
        if sum(len(text) + 100 for _, text in offsets.values()) > COMMIT_CHARS:
            return dict.fromkeys(offsets, "unknown broker error")
        for key, (_, text) in offsets.items():
            if membership.epoch != self.epoch and key not in member.owned:
                # Within an epoch nobody asks who owns a partition: real brokers don't either.
                refused[key] = STALE_EPOCH
            elif len(text.encode("utf-16-le")) // 2 > self.metadata_units:
                refused[key] = METADATA_TOO_LARGE
        return refused

    def store(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """These are committed."""
        self.offsets.update((key, Committed(offset, text)) for key, (offset, text) in offsets.items())
        self.on_stored()

    def _assign(self) -> None:
        self.epoch += 1
        for member in self.members:
            member.target = set()
        for topic, count in self._counts.items():
            readers = [member for member in self.members if topic in member.topics]
            for member, numbers in zip(readers, ranges(count, len(readers)), strict=True):
                member.target.update(TopicPartition(topic, number) for number in numbers)


def ranges(count: int, members: int) -> list[range]:
    """Split partitions into one contiguous range a member; the first members get one more where it doesn't come out even."""
    edges = (
        [index * (count // members) + min(index, count % members) for index in range(members + 1)]
        if members
        else [0]
    )
    return [range(first, end) for first, end in pairwise(edges)]
