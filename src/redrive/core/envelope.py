"""
What redrive's headers mean, whatever they are called on the wire (`dialects.py` knows the names).

The envelope travels with a record from its first failure to its last replay. Fields that a header did not carry are
None, or empty for texts.
"""

import msgspec

OWN_PREFIX = "redrive-"


def is_own_header(name: str) -> bool:
    """Whether a header is redrive's: such headers are replaced on every hop, all others pass through untouched."""
    return name[:8] == OWN_PREFIX


class Envelope(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """
    The state of one record between two runs of its handler.

    Times are epoch milliseconds UTC. `attempt` counts the runs so far (0: none), so the next run has attempt + 1.
    """

    group: str = ""
    attempt: int = 0
    due_ms: int | None = None
    event_id: str = ""
    source_topic: str = ""
    source_partition: int | None = None
    source_offset: int | None = None
    source_timestamp_ms: int | None = None
    first_failed_ms: int | None = None
    last_failed_ms: int | None = None
    failure_kind: str = ""
    failure_type: str = ""
    failure_message: str = ""
    #: Only on dead letters: why it became one (a `Reason`), and what a person needs to understand it.
    reason: str = ""
    failure_stack: str = ""
    fingerprint: str = ""
    listener: str = ""
    replay_topic: str = ""
    #: What waits until the letter was replayed or resolved: later records of its `key`, or of its `partition`; else "".
    holds: str = ""
    #: Only on replayed records and what becomes of them: the job or call that sent it, and how often it was replayed.
    replay_id: str = ""
    replays: int = 0
    #: Moves of a delayed record towards its due time.
    hops: int = 0
    #: Of what isn't to run, and only says that a dead letter was resolved: the job that did.
    frees: str = ""
