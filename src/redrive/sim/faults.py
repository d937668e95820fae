"""What goes wrong in a simulated cluster, when it is told to."""

import zlib
from collections import Counter
from collections.abc import Collection

from redrive.core.commands import Refusal
from redrive.core.record import TopicPartition


class Chance:
    """
    Deterministic dice: the same seed gives the same rolls. Without a seed every roll is 0, which always means the
    plain order of things.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._rolls = 0

    def below(self, bound: int) -> int:
        """A whole number in [0, bound)."""
        if self._seed is None or bound <= 1:
            return 0
        self._rolls += 1
        return zlib.crc32(b"%d/%d" % (self._seed, self._rolls)) % bound


class Faults:
    """Switches, all off at first. Counted ones are used up; the others hold until they are set back."""

    def __init__(self) -> None:
        #: Writes are stored, but their answers are kept back while this is set.
        self.acks_are_held = False
        #: Commits stay on their way while this is set: neither stored nor answered.
        self.commits_are_held = False
        #: `committed()` gets no answer for these partitions, as while another member's transaction is open.
        self.uncertain: set[TopicPartition] = set()
        #: Transactions stay open while this is set: their writes are there, and hide what comes behind them.
        self.transactions_are_held = False
        #: Topics of which nothing is read, as while the leaders of their partitions are away.
        self.silent_topics: set[str] = set()
        #: Topics that refuse all writes, and what they answer.
        self.broken_topics: dict[str, str] = {}
        self._aborts: list[str] = []
        self._lost_outcomes = 0
        self._refusals: dict[str, list[Refusal]] = {}
        self._lost_acks: Counter[str] = Counter()
        self._refused_commits: list[str] = []
        self._refused_partitions: Counter[str] = Counter()

    def refuse_writes(
        self, topic: str, count: int, detail: str = "not authorised", *, too_large: bool = False
    ) -> None:
        """Refuse the next `count` writes to a topic."""
        refusal = Refusal("too-large" if too_large else "unavailable", detail)
        self._refusals.setdefault(topic, []).extend([refusal] * count)

    def lose_acks(self, topic: str, count: int) -> None:
        """Store the next `count` writes to a topic, and answer that they timed out."""
        self._lost_acks[topic] += count

    def refuse_commits(self, count: int, why: str = "coordinator not available") -> None:
        """Refuse all partitions of the next `count` commits."""
        self._refused_commits.extend([why] * count)

    def refuse_commits_of(self, topic: str, count: int) -> None:
        """Refuse the partitions of this topic in the next `count` commits that tell of them, and no others."""
        self._refused_partitions[topic] += count

    def abort_transactions(self, count: int, why: str = "coordinator not available") -> None:
        """Abort the next `count` transactions, for a reason that lies with none of their writes."""
        self._aborts.extend([why] * count)

    def lose_outcomes(self, count: int) -> None:
        """Commit the next `count` transactions, and let nobody hear of it."""
        self._lost_outcomes += count

    def next_abort(self) -> str | None:
        """Uses up one abort."""
        return self._aborts.pop(0) if self._aborts else None

    def next_outcome_is_lost(self) -> bool:
        """Uses up one lost outcome."""
        is_lost = self._lost_outcomes > 0
        self._lost_outcomes -= is_lost
        return is_lost

    def next_refusal(self, topic: str) -> Refusal | None:
        """Uses up one refusal of a write, where the topic isn't broken anyway."""
        if topic in self.broken_topics:
            return Refusal("unavailable", self.broken_topics[topic])
        waiting = self._refusals.get(topic)
        return waiting.pop(0) if waiting else None

    def next_ack_is_lost(self, topic: str) -> bool:
        """Uses up one lost acknowledgement."""
        is_lost = self._lost_acks[topic] > 0
        self._lost_acks[topic] -= is_lost
        return is_lost

    def next_commit_refusal(self) -> str | None:
        """Uses up one refusal of a commit."""
        return self._refused_commits.pop(0) if self._refused_commits else None

    def next_refused_topics(self, topics: Collection[str]) -> set[str]:
        """Those of these topics whose partitions a commit is refused for; uses up one refusal of each."""
        refused = {topic for topic in topics if self._refused_partitions[topic] > 0}
        self._refused_partitions.subtract(refused)
        return refused
