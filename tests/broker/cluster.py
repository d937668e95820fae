"""Three real brokers that form one cluster: everything is there three times, and two must have a write."""

import contextlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import KafkaException

from tests.broker import Broker, admin, fetch, free_ports, new_cluster_id
from tests.waiting import until

BROKERS = 3

#: Beside those of a single broker: copies of everything, and timeouts by which a minute sees several elections.
PROPERTIES = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "controller.quorum.election.timeout.ms": "600",
    "controller.quorum.election.backoff.max.ms": "300",
    "controller.quorum.fetch.timeout.ms": "1500",
    "replica.fetch.wait.max.ms": "100",
    # What a killed worker left open is looked for this often (default 10 s).
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}
#: Quick to start rather than quick for hours: two cores start three of them, and again after each kill.
JAVA_OPTIONS = ("-Xms96m", "-Xmx384m", "-XX:TieredStopAtLevel=1")


class Cluster:
    """
    Brokers with the ids 1 to 3, each controller too. `client_ports`: where their listeners for clients are;
    `advertised_ports`: where clients are told to go instead, to a proxy in front of each.

    `direct` is the way past all proxies, for who tests: another listener of the same brokers.
    """

    def __init__(self, folder: Path, client_ports: Iterable[int], advertised_ports: Iterable[int]) -> None:
        advertised = list(advertised_ports)
        internal, controllers = free_ports(BROKERS), free_ports(BROKERS)
        voters = ",".join(f"{at}@127.0.0.1:{port}" for at, port in enumerate(controllers, 1))
        cluster_id = new_cluster_id()
        self.bootstrap = _addresses(advertised)
        self.direct = _addresses(internal)
        self.brokers = [
            Broker(
                folder / f"broker-{at}",
                port=inside,
                cluster_id=cluster_id,
                java_options=JAVA_OPTIONS,
                properties={
                    **PROPERTIES,
                    "node.id": str(at),
                    "controller.quorum.voters": voters,
                    "listeners": f"CLIENT://127.0.0.1:{client},INTERNAL://127.0.0.1:{inside},"
                    f"CONTROLLER://127.0.0.1:{controller}",
                    "advertised.listeners": f"CLIENT://127.0.0.1:{told},INTERNAL://127.0.0.1:{inside}",
                },
            )
            for at, (client, told, inside, controller) in enumerate(
                zip(client_ports, advertised, internal, controllers, strict=True), 1
            )
        ]
        self._client = admin(self.direct)

    def start(self) -> None:
        """Start all at once, and wait until each has joined."""
        fetch()
        with ThreadPoolExecutor(BROKERS) as pool:  # their folders; the brokers would die with its threads
            list(pool.map(Broker.command, self.brokers))
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.await_answer()
        until(self.is_whole, "all brokers in one cluster", within_s=60)

    def is_whole(self) -> bool:
        """Whether all brokers are there, and each partition's copies are up to date: one of them may go now."""
        with contextlib.suppress(KafkaException):
            seen = self._client.list_topics(timeout=2)
            partitions = [one for topic in seen.topics.values() for one in topic.partitions.values()]
            return len(seen.brokers) == BROKERS and all(len(one.isrs) == BROKERS for one in partitions)
        return False

    def kill(self) -> None:
        for broker in self.brokers:
            broker.kill()


def _addresses(ports: Iterable[int]) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in ports)
