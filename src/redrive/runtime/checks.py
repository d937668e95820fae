"""What is checked before a group is joined: that Kafka answers, that the topics are there and may be used."""

import threading
from collections.abc import Callable, Collection, Iterable

from redrive.core.acls import ADVICE, Resource, Right, explain_lacking, find_lacking
from redrive.core.connection import Trouble
from redrive.core.startup import explain_missing, find_missing
from redrive.core.topic_plan import WantedTopic
from redrive.core.units import format_duration
from redrive.errors import PortError, TopologyError
from redrive.runtime.clock import Clock
from redrive.runtime.ports import Cluster

#: How often the cause is told while Kafka can't be reached: often enough to be seen, too rarely to hide the rest.
TELL_EVERY_MS = 10_000.0
_ASK_EVERY_MS = 1_000.0


def await_kafka(
    ask: Callable[[], Trouble | None],
    clock: Clock,
    *,
    start_timeout_ms: int,
    tell: Callable[[str], None],
    stop: threading.Event | None = None,
) -> bool:
    """
    Asks until Kafka can be reached: True then, False when `stop` was set first.

    `ask`: one question, which may take some seconds. `tell` gets the cause at once, when it changes, and every ten
    seconds. Raises PortError with the cause after `start_timeout_ms`.
    """
    stop = stop or threading.Event()
    begun_ms = clock.mono_ms()
    told: Trouble | None = None
    told_ms = 0.0
    while (trouble := ask()) is not None:
        now_ms = clock.mono_ms()
        if not trouble.prevents_start:
            tell(trouble.text)
            return True
        left_ms = begun_ms + start_timeout_ms - now_ms
        if left_ms <= 0:
            raise PortError(
                f"{trouble.text} Given up after {format_duration(start_timeout_ms)} (start_timeout).",
                retriable=True,
            )
        if told is None or told.cause is not trouble.cause or now_ms - told_ms >= TELL_EVERY_MS:
            tell(f"{trouble.text} Trying for another {format_duration(_whole_seconds(left_ms))}.")
            told, told_ms = trouble, now_ms
        if clock.wait(stop, min(_ASK_EVERY_MS, left_ms)):
            return False
    return True


def require_topics(wanted: Iterable[WantedTopic], existing: Collection[str], *, target: str) -> None:
    """
    Raises TopologyError when one of the `wanted` topics isn't among the `existing` ones, with the command that creates it.

    `target`: the app as commands take it, `service:app`.
    """
    if missing := find_missing(wanted, existing):
        raise TopologyError(explain_missing(missing, existing, target=target))


def find_lacking_rights(rights: Iterable[Right], cluster: Cluster) -> tuple[Right, ...]:
    """
    Gives which of these rights this user lacks: on topics only, and where the cluster tells. Raises PortError.

    A right on a group shows when the group is asked for.
    """
    rights = tuple(rights)
    topics = dict.fromkeys(right.name for right in rights if right.resource is Resource.TOPIC)
    return find_lacking(rights, cluster.allowed(list(topics)))


def require_rights(rights: Iterable[Right], cluster: Cluster) -> None:
    """Raises PortError when this user lacks one of these rights on topics, naming all that it lacks."""
    if lacking := find_lacking_rights(rights, cluster):
        raise PortError(f"{explain_lacking(lacking)}. {ADVICE}")


def _whole_seconds(ms: float) -> int:
    return max(1, round(ms / 1000)) * 1000
