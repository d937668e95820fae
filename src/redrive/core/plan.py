"""What is to be run, as values: the listeners of an app with every topic name resolved."""

from typing import Literal

import msgspec

from redrive.core.policy import Criticality, GiveUp, Order, RetryPolicy
from redrive.core.translator import PLAIN, Translator

#: The longest that a handler or the other side may ask to wait where nobody knows how long tiers keep their records.
MAX_WAIT_MS = 7 * 24 * 3600 * 1000
#: The same where they keep them for ever: an instant further away is no plan.
FOREVER_MS = 3650 * 24 * 3600 * 1000
#: `exactly-once`: what is written for a record, and the commit that passes it, are one transaction.
Delivery = Literal["at-least-once", "exactly-once"]


class Now(msgspec.Struct, frozen=True, gc=False):
    """
    One reading of both clocks, in milliseconds.

    `wall_ms` (epoch, UTC) is what dues are compared with; it may step. `mono_ms` never goes back and measures
    intervals: commits, back-off, the brake.
    """

    wall_ms: float
    mono_ms: float


class Tier(msgspec.Struct, frozen=True):
    """
    A topic whose records wait: a retry tier, or with `delay_ms` 0 the replay topic.

    `index` is its place on the ladder; -1 for the replay topic and for tiers of an older policy (orphaned), which are
    drained but never written to.
    """

    topic: str
    delay_ms: int
    index: int = -1


class ListenerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One listener, resolved: what the engine has to know of it."""

    name: str
    source: str
    dlq: str
    #: Where a replay for this group goes: the first tier, or a topic of its own where there is no ladder.
    replay: str
    policy: RetryPolicy
    #: The compacted topic beside `dlq`: states of dead letters, and notices about waiting retries. "": nobody reads it.
    state: str = ""
    #: Where keys are parked; "": nowhere.
    parked: str = ""
    #: The header in which producers put an id.
    id_header: str = ""
    tiers: tuple[Tier, ...] = ()
    #: Read and drained, never written: the replay topic and orphaned tiers.
    drained: tuple[Tier, ...] = ()
    give_up: GiveUp = "dead-letter"
    criticality: Criticality = "normal"
    order: Order = "partition"
    concurrency: int = 1
    brake: bool = True
    #: Whether an outage is concluded from failures. One that an exception tells by itself always holds the listener.
    breaker: bool = True
    #: Whether a health function is asked before a record is tried in an outage.
    has_health: bool = False
    #: Of a listener to dead letters, whose source is a dead-letter topic: the groups whose letters it handles. What it
    #: fails for good is passed by.
    letters_of: tuple[str, ...] = ()
    #: What is asked to wait longer (RetryLater, Retry-After) is a dead letter (`expired`): how long the tiers keep records,
    #: or the source where a record waits in its place.
    longest_wait_ms: int = MAX_WAIT_MS


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All listeners of one consumer group, and the bounds that hold for the whole process."""

    group: str
    listeners: tuple[ListenerPlan, ...]
    #: Groups whose stamped records are ours too: after a rename.
    accepts_groups: tuple[str, ...] = ()
    delivery: Delivery = "at-least-once"
    window_bytes: int = 64 << 20
    commit_interval_ms: int = 1000
    commit_records: int = 100_000
    #: The first write of a transaction waits so long for others: a transaction costs some 5 ms, whatever is in it.
    transaction_linger_ms: float = 5.0
    #: Records in a run, at most.
    run_records: int = 1_000
    #: What reads and writes the headers of retries and dead letters.
    translator: Translator = PLAIN

    @property
    def topics(self) -> tuple[str, ...]:
        """All that the group subscribes to, sources first."""
        tiers = [tier.topic for plan in self.listeners for tier in (*plan.tiers, *plan.drained)]
        parked = [plan.parked for plan in self.listeners if plan.parked]
        return tuple(dict.fromkeys([*(plan.source for plan in self.listeners), *tiers, *parked]))
