"""
The names of processes: what they are called as static members of a group, and as writers of transactions.

Static members of a group (KIP-345): who comes back under the same id gets the same partitions, and nobody else notices.

Only under the classic protocol. Under KIP-848 the broker refuses a new process the id of one that was killed, until the
session of that has ended (45 s by default): a static id would make a crash dearer there, not cheaper.
"""

import re

from redrive.core.settings import Settings
from redrive.errors import SettingsError

#: What brokers accept, as for the names of topics.
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")
_MOST_CHARS = 249


def instance_id(settings: Settings, *, group: str, host: str, worker: int) -> str:
    """
    The `group.instance.id` of a process; empty for a dynamic member. `worker`: its number among those on this host.

    By default client id (else the group) and the host's name, so that equal services on several hosts don't push each
    other out. Raises SettingsError where that makes no id that brokers accept.
    """
    if settings.membership != "static":
        return ""
    stem = settings.instance_id or f"{settings.client_id or group}-{host}"
    found = f"{stem}-{worker}"
    if not _LEGAL.fullmatch(found) or len(found) > _MOST_CHARS:
        what = (
            f"{found!r} can't be a group.instance.id: brokers take letters, digits, dots, dashes and underscores, at most "
            f"{_MOST_CHARS} of them; give an instance_id that differs from host to host"
        )
        raise SettingsError([("instance_id", what)])
    return found


def transactional_id(settings: Settings, *, group: str, host: str, worker: int) -> str:
    """
    The `transactional.id` of a process with delivery `exactly-once`. `worker`: its number among those on this host.

    The same after a restart, so that what a killed process has left open is ended at once and not after its timeout; and
    different from that of any other process, since of two with one id the elder may write nothing more.
    """
    return f"{transactional_prefix(group)}{settings.instance_id or host}-{worker}"


def transactional_prefix(group: str) -> str:
    """Gives how the transactional ids of all processes of a group begin."""
    return f"{group}-"
