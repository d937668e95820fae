"""An admin client of the simulated cluster."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from redrive.core.acls import Operation
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.runtime.ports import Committed, NewTopic, TopicInfo
from redrive.sim.topics import Topic

if TYPE_CHECKING:
    from redrive.sim.cluster import SimCluster


class SimAdmin:
    """Implements the cluster port."""

    def __init__(self, cluster: "SimCluster") -> None:
        self._cluster = cluster

    def cluster_id(self) -> str:
        self._require_broker()
        return "sim"

    def describe(
        self, topics: Sequence[str] | None = None, *, configs: bool = False
    ) -> Mapping[str, TopicInfo]:
        self._require_broker()
        known = self._cluster.topics
        names = known if topics is None else [name for name in topics if name in known]
        return {name: _info(known[name], with_configs=configs) for name in names}

    def create(self, topics: Sequence[NewTopic]) -> Mapping[str, str]:
        self._require_broker()
        failed: dict[str, str] = {}
        for topic in topics:
            if topic.name in self._cluster.topics:
                continue
            try:
                self._cluster.create_topic(
                    topic.name, topic.partitions, replication=topic.replication, configs=topic.configs
                )
            except PortError as error:
                failed[topic.name] = str(error)
        return failed

    def grow(self, topic: str, partitions: int) -> None:
        self._require_broker()
        known = self._cluster.topics.get(topic)
        if known is None:
            raise PortError(f"there is no topic {topic}")
        if partitions <= len(known.partitions):
            raise PortError(f"{topic} has {len(known.partitions)} partitions already")
        known.grow(partitions)

    def offsets(
        self, keys: Sequence[TopicPartition], which: Literal["earliest", "latest"]
    ) -> Mapping[TopicPartition, int]:
        self._require_broker()
        logs = ((key, self._cluster.partition(key)) for key in keys)
        return {key: log.start if which == "earliest" else log.end for key, log in logs if log is not None}

    def committed(self, group: str, keys: Sequence[TopicPartition]) -> Mapping[TopicPartition, Committed]:
        self._require_broker()
        known = self._cluster.groups.get(group)
        return {key: known.offsets.get(key, Committed(None)) if known else Committed(None) for key in keys}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._require_broker()
        known = self._cluster.group(group)
        if known.members:
            raise PortError(f"the group {group} has members")
        if missing := [key for key in offsets if self._cluster.partition(key) is None]:
            raise PortError(f"there is no {missing[0].topic}/{missing[0].partition}")
        known.offsets.update((key, Committed(offset)) for key, offset in offsets.items())

    def readers(self, topics: Sequence[str]) -> Mapping[str, Sequence[str]]:
        self._require_broker()
        groups = sorted(self._cluster.groups.items())
        return {
            topic: [name for name, group in groups if any(key.topic == topic for key in group.offsets)]
            for topic in topics
        }

    def allowed(self, topics: Sequence[str]) -> Mapping[str, frozenset[Operation]]:
        self._require_broker()
        everything = frozenset(Operation)
        return {name: everything for name in topics if name in self._cluster.topics}

    def _require_broker(self) -> None:
        if self._cluster.is_down:
            raise PortError("no broker answers", retriable=True)


def _info(topic: Topic, *, with_configs: bool) -> TopicInfo:
    configs = dict(topic.configs) if with_configs else None
    return TopicInfo(topic.name, len(topic.partitions), topic.replication, topic.topic_id, configs)
