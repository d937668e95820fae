"""How commands reach the cluster: one try, and a reason in plain words where it fails."""

from typing import TYPE_CHECKING

from redrive.errors import PortError

if TYPE_CHECKING:
    from redrive.adapters.kafka_cluster import KafkaCluster
    from redrive.cli.context import MaybeLoaded
    from redrive.cli.output import Output
    from redrive.core.settings import Settings
    from redrive.deadletters.counter import Counter
    from redrive.runtime.declaration import ResolvedApp


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


def open_counter(found: "MaybeLoaded", client_id: str, output: "Output") -> "Counter":
    """
    Gives what works on dead letters need. `client_id`: how brokers log it where there is no app.

    With an app its topic names are used and its groups' letters are meant. Raises PortError, as `connect`.
    """
    from redrive.adapters.kafka_log import KafkaLog
    from redrive.deadletters.counter import Counter
    from redrive.deadletters.replay import Desk
    from redrive.deadletters.topics import ALL_STYLES, Names
    from redrive.runtime.clock import SystemClock

    name = found.app.group if found.app else client_id
    cluster = connect(found.settings, name, output)
    log = KafkaLog(found.settings.client_options(name))
    desk = Desk(cluster, log, SystemClock(), found.settings.translator)
    if found.app is None:
        return Counter(desk, Names((found.settings.naming, *ALL_STYLES)), frozenset())
    _tell_unseen(cluster, found.app, found.settings, output)
    group, naming = found.app.group, found.settings.naming
    groups = {group, *found.app.accepts_groups, *found.settings.accepts_groups}
    own = (naming.dlq(listener.topic, group=group) for listener in found.app.listeners)
    return Counter(desk, Names((naming,), group), frozenset(groups), frozenset(own))


def _tell_unseen(cluster: "KafkaCluster", app: "ResolvedApp", settings: "Settings", output: "Output") -> None:
    """A dead-letter topic that this user may not see is in no list of topics: its letters would just be missing."""
    from redrive.core.acls import ADVICE, Operation, explain_lacking, on_topic
    from redrive.runtime.checks import find_lacking_rights

    naming = settings.naming
    dlqs = [naming.dlq(listener.topic, group=app.group) for listener in app.listeners]
    if lacking := find_lacking_rights([on_topic(Operation.READ, dlq) for dlq in dlqs], cluster):
        output.note(f"not all dead letters are shown: {explain_lacking(lacking)}. {ADVICE}")
