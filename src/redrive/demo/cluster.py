"""Where the demo runs: on a mock cluster inside this process, or on a real one, which it leaves as it was."""

from typing import Protocol

from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_playground import MockKafka, count_brokers, remove
from redrive.adapters.kafka_settings import client_conf
from redrive.app import App
from redrive.core.settings import Settings
from redrive.errors import TopologyError
from redrive.runtime.clock import Clock
from redrive.runtime.planning import wanted_topics
from redrive.runtime.provisioning import await_carried_out, carry_out, compare, with_source_partitions

PARTITIONS = 4


class Playground(Protocol):
    """
    A cluster to play on. `title`: what it is, for the screen. `group`, `topic`: the app's, used by nobody else.
    """

    title: str
    settings: Settings
    group: str
    topic: str

    def provide(self, app: App) -> None:
        """Create all topics that the app needs. Raises TopologyError, PortError."""
        ...

    def clear(self) -> str:
        """Take away what was created; says so, "" when there is nothing to say."""
        ...


class MockPlayground:
    """One broker inside this process; nothing of it is left when the process ends."""

    title = "a mock Kafka inside this process"
    group = "payments"
    topic = "orders"

    def __init__(self) -> None:
        self._kafka = MockKafka()
        # It doesn't tell what it offers; joining a classic group takes it three seconds.
        self.settings = Settings(
            bootstrap_servers=self._kafka.bootstrap_servers, group_protocol="consumer", replication=1
        )

    def provide(self, app: App) -> None:
        self._kafka.create(topic.name for topic in wanted_topics(app.resolve(), self.settings))

    def clear(self) -> str:
        return ""


class RealPlayground:
    """Topics and a group of its own on a real cluster. `name` begins all their names."""

    def __init__(self, name: str, cluster: KafkaCluster, settings: Settings, clock: Clock) -> None:
        self.title = f"Kafka at {settings.bootstrap_servers}"
        self.group = name
        self.topic = f"{name}.orders"
        self._cluster = cluster
        self._clock = clock
        self._conf = client_conf(settings.client_options(name))
        self._created: tuple[str, ...] = ()
        self.settings = Settings(
            bootstrap_servers=settings.bootstrap_servers,
            kafka=settings.kafka,
            replication=min(3, count_brokers(self._conf)),
        )

    def provide(self, app: App) -> None:
        existing = self._cluster.describe()
        wanted = with_source_partitions(
            wanted_topics(app.resolve(), self.settings, existing), existing, missing=PARTITIONS, by_source={}
        )
        self._created = tuple(topic.name for topic in wanted)
        failed = carry_out(
            self._cluster, compare(self._cluster, wanted), replication=self.settings.replication
        )
        if failed:
            told = "; ".join(f"{name}: {why}" for name, why in failed.items())
            raise TopologyError(f"the demo's topics can't be created: {told}")
        await_carried_out(self._cluster, wanted, self._clock)

    def clear(self) -> str:
        if not self._created:
            return ""
        left = remove(self._conf, self._created, self.group)
        if left:
            names, why = ", ".join(sorted(left)), next(iter(left.values()))
            return f"could not delete these, please do: {names} ({why})"
        return f"deleted the group {self.group} and its {len(self._created)} topics {self.group}.*"
