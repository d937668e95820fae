"""How commands reach the cluster: one try, and a reason in plain words where it fails."""

from typing import TYPE_CHECKING

from redrive.errors import PortError

if TYPE_CHECKING:
    from redrive.adapters.kafka_cluster import KafkaCluster
    from redrive.cli.output import Output
    from redrive.core.settings import Settings


def connect(settings: "Settings", client_id: str, output: "Output") -> "KafkaCluster":
    """
    Gives the cluster that the settings name. `client_id`: how brokers log it, usually the group.

    Raises PortError with the reason when it can't be reached: a person waits, who can try again.
    """
    from redrive.adapters.kafka_cluster import KafkaCluster
    from redrive.adapters.kafka_reach import KafkaReach
    from redrive.adapters.kafka_settings import client_conf

    conf = client_conf(settings.client_options(client_id))
    trouble = KafkaReach(conf)()
    if trouble is not None and trouble.prevents_start:
        raise PortError(trouble.text, retriable=True)
    if trouble is not None:
        output.note(trouble.text)
    return KafkaCluster(conf)
