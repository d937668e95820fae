"""Pauses a listener for its whole group, and lets it go on (what workers make of it: `core/pausing.py`)."""

from collections.abc import Collection, Mapping

from redrive.core.pausing import Pausing, is_pausing, read_pausing, write_pausing
from redrive.core.plan import ListenerPlan
from redrive.core.record import TopicPartition
from redrive.deadletters.replay import Desk
from redrive.deadletters.states import require_state_topic


def say(desk: Desk, listener: ListenerPlan, pausing: Pausing) -> None:
    """
    Have a listener paused or resumed; when this returns it is written, and no crash undoes it.

    Raises TopologyError where the state topic is missing and can't be made, PortError.
    """
    require_state_topic(desk.cluster, desk.log, desk.clock, dlq=listener.dlq, state=listener.state)
    key, value = write_pausing(pausing)
    desk.log.write(listener.state, key, value, [], 0)


def paused_listeners(desk: Desk, listeners: Collection[ListenerPlan], group: str) -> Mapping[str, Pausing]:
    """Gives what paused the listeners of a group that are paused, by their names. Raises PortError."""
    existing = desk.cluster.describe()
    keys = [
        TopicPartition(state, 0) for state in sorted({each.state for each in listeners}) if state in existing
    ]
    found: dict[str, Pausing] = {}
    for key, end in desk.cluster.offsets(keys, "latest").items() if keys else ():
        for record in desk.log.scan(key, 0, end):
            said = read_pausing(record.key(), record.value()) if is_pausing(record.key()) else None
            if said is not None and said.group == group:
                found[said.listener] = said
    return {name: said for name, said in found.items() if said.action == "pause"}
