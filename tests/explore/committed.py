"""What a group's commits say of single records."""

from collections.abc import Mapping

from redrive.core.metadata import Restored, decode_metadata, identity_of
from redrive.core.record import TopicPartition
from redrive.runtime.ports import Committed
from redrive.sim.cluster import SimCluster

Offsets = Mapping[TopicPartition, Committed]
_NOTHING = Committed(0)


class Reader:
    """Reads the metadata of a cluster's commits."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster

    def said(self, key: TopicPartition, committed: Committed) -> Restored:
        """What stands beside the offset."""
        identity = identity_of("sim", self._cluster.topics[key.topic].topic_id)
        return decode_metadata(committed.metadata or "", committed.offset or 0, identity)

    def is_finished(self, offsets: Offsets, key: TopicPartition, offset: int) -> bool:
        """Whether these commits say that whoever comes next needn't run that record."""
        committed = offsets.get(key, _NOTHING)
        if offset < (committed.offset or 0):
            return True
        return any(first <= offset < end for first, end in self.said(key, committed).ranges)

    def attempts(self, offsets: Offsets, key: TopicPartition, offset: int) -> float:
        """How many attempts they tell of one that isn't finished; without end where it became a dead letter."""
        committed = offsets.get(key, _NOTHING)
        head = self.said(key, committed).heads.get(offset)
        if head is None:
            return 0
        return float("inf") if head.is_dead else head.attempt
