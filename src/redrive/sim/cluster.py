"""
One Kafka cluster in memory, for tests: topics, groups, committed offsets, and faults on demand.

Deterministic: nothing runs by itself, and what may come in any order on a real cluster comes in an order that `seed`
decides (without one: the plainest). Consumers, producers and admin clients of it implement the runtime's ports and pass
the same tests as those of a real cluster.
"""

import re
from collections.abc import Mapping, Sequence

from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.sim.admin import SimAdmin
from redrive.sim.clock import VirtualClock
from redrive.sim.faults import Chance, Faults
from redrive.sim.groups import Group
from redrive.sim.log import SimLog
from redrive.sim.partitioner import partition_of
from redrive.sim.records import Header, SimRecord
from redrive.sim.sink import SimSink
from redrive.sim.source import SimSource
from redrive.sim.topics import PartitionLog, Topic
from redrive.sim.transactor import Coordinator, OpenTransaction

_LEGAL_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")


class SimCluster:
    """
    The cluster, and what its tests do to it.

    `is_down`: no broker answers while it is set; what was on its way goes on afterwards. `brokers` bounds replication.
    """

    def __init__(
        self, clock: VirtualClock | None = None, *, seed: int | None = None, brokers: int = 3
    ) -> None:
        self.clock = clock or VirtualClock()
        self.chance = Chance(seed)
        self.faults = Faults()
        self.brokers = brokers
        self.is_down = False
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, Group] = {}
        self.coordinator = Coordinator(self.clock)
        self._topics_made = 0
        self._keyless = 0

    @property
    def counts(self) -> dict[str, int]:
        """How many partitions each topic has."""
        return {name: len(topic.partitions) for name, topic in self.topics.items()}

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic. Raises PortError, as a broker would refuse it."""
        if name in self.topics:
            raise PortError(f"topic {name} exists already")
        if not _LEGAL_NAME.fullmatch(name):
            raise PortError(f"{name!r} is no legal topic name")
        twin = next(
            (other for other in self.topics if other.replace(".", "_") == name.replace(".", "_")), None
        )
        if twin is not None:
            raise PortError(f"{name} collides with {twin}: a dot and an underscore count as the same")
        if not 1 <= replication <= self.brokers:
            raise PortError(f"replication {replication}, but there are {self.brokers} brokers")
        if partitions < 1:
            raise PortError(f"{partitions} partitions")
        self._topics_made += 1
        self.topics[name] = Topic(name, partitions, replication, f"topic-{self._topics_made}", configs or {})

    def delete_topic(self, name: str) -> None:
        """Remove a topic with its records; groups lose what they committed for it."""
        del self.topics[name]
        for group in self.groups.values():
            group.offsets = {key: value for key, value in group.offsets.items() if key.topic != name}

    def partition(self, key: TopicPartition) -> PartitionLog | None:
        """The log of a partition, None when there is no such."""
        topic = self.topics.get(key.topic)
        return (
            topic.partitions[key.partition] if topic and 0 <= key.partition < len(topic.partitions) else None
        )

    def append(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int = -1,
        timestamp_ms: int | None = None,
        transaction: OpenTransaction | None = None,
    ) -> SimRecord:
        """
        Store a record as any client's producer would; in a transaction it is seen when that is committed. Raises PortError when the topic
        or partition is missing.
        """
        known = self.topics.get(topic)
        if known is not None and partition == -1:
            partition = self._choose(key, len(known.partitions))
        log = self.partition(TopicPartition(topic, partition))
        if log is None:
            raise PortError(f"there is no topic {topic} with a partition {partition}")
        at_ms = int(self.clock.wall_ms()) if timestamp_ms is None else timestamp_ms
        return log.append(key, value, headers, at_ms, transaction)

    def records(self, topic: str) -> list[SimRecord]:
        """All records of a topic, partition by partition."""
        return [record for log in self.topics[topic].partitions for record in log]

    def group(self, name: str) -> Group:
        """A consumer group, made when it is first named."""
        return self.groups.setdefault(name, Group())

    def source(self, group: str) -> SimSource:
        """A consumer of that group, not yet joined."""
        return SimSource(self, self.group(group))

    def sink(self) -> SimSink:
        """A producer."""
        return SimSink(self)

    def admin(self) -> SimAdmin:
        """An admin client."""
        return SimAdmin(self)

    def log(self) -> SimLog:
        """A reader without a group."""
        return SimLog(self)

    def kill(self, source: SimSource) -> None:
        """
        The consumer's process is no more: it says nothing from now on, and its partitions move after the session
        timeout. Whoever calls this lets go of the consumer, and of the producer of the same process.
        """
        if source.member is not None:
            source.member.killed_mono_ms = self.clock.mono_ms()

    def expel(self, source: SimSource) -> None:
        """The group gives the consumer up although it lives: it hears of its loss when it polls next."""
        for group in self.groups.values():
            if source.member in group.members:
                group.remove(source.member)

    def _choose(self, key: bytes | None, partitions: int) -> int:
        if key is not None:
            return partition_of(key, partitions)
        self._keyless += 1
        return (self._keyless - 1) % partitions
