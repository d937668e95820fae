"""The hash that a topic's offset maps carry, for each topic of a cluster."""

from collections.abc import Callable, Mapping
from functools import cache

from redrive.core.metadata import identity_of
from redrive.runtime.ports import Cluster, TopicInfo


def identities(cluster: Cluster, topics: Mapping[str, TopicInfo]) -> Callable[[str], str]:
    """Gives the hash by a topic's name; where the cluster tells no topic ids, it is made of the name. Raises PortError."""
    cluster_id = cluster.cluster_id()

    @cache
    def identity(topic: str) -> str:
        info = topics.get(topic)
        return identity_of(cluster_id, (info.topic_id if info else "") or topic)

    return identity
