"""
What redrive tells about itself, as data: every metric, and every event that becomes a log line.

The exporter, the log lines, the pages in `docs/reference`, alert rules and dashboards are made from these two tables,
and a test finds a name that is used but not listed here, or listed and not used.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from redrive.core.counters import DURATION_BOUNDS_S, LATENESS_BOUNDS_S

PREFIX = "redrive_"
#: What may become of a record, as the label `outcome` says it.
OUTCOMES = (
    "handled",
    "retried",
    "dead-lettered",
    "skipped",
    "discarded",
    "skipped-by-operator",
    "given-up",
    "passed-by",
    "duplicate",
    "restored",
    "lost",
)
COMMIT_OUTCOMES = ("confirmed", "refused")


class Metric(msgspec.Struct, frozen=True):
    """
    One metric. `name` is what is exported, `_total` of counters included; `labels` take values from a bounded set
    only (never a key, an offset or a text). `bounds_s`: the upper bounds of a histogram's buckets, in seconds.
    `adds_up`: a gauge whose values of several workers make one, as their shares of the partitions do.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    labels: tuple[str, ...]
    help: str
    bounds_s: tuple[float, ...] = ()
    adds_up: bool = False


class LogEvent(msgspec.Struct, frozen=True):
    """
    One event. `text` is filled in by `%` from the report's fields: what happened, what becomes of the record, what to do.

    Events that agree in the fields of `limit_by` are one stream: its first `at_once` are told as they come, after
    that one line every ten seconds tells the latest and how many there were.
    """

    name: str
    level: Literal["info", "warning", "error"]
    text: str
    limit_by: tuple[str, ...] = ()
    at_once: int = 1


_GROUP = ("group",)
_LISTENER = ("group", "listener")
_SOURCE = ("group", "listener", "topic")
_TIER = ("group", "listener", "tier")

RECORDS = Metric(
    "redrive_records_total",
    "counter",
    "records",
    (*_SOURCE, "outcome"),
    "What became of records; topic is the listener's source topic. handled: the handler returned. retried: written to a "
    "tier. dead-lettered: sent to the dead-letter topic. skipped: the handler raised Skip. discarded: taken off its "
    "tier by `redrive retries discard`. skipped-by-operator: got past by `redrive worker skip`. given-up: dropped by "
    'give_up="skip", or failed by a handler of dead letters. passed-by: another group\'s on a shared tier or dead-letter '
    "topic. duplicate: a second copy of a record that waits on the tier already, left by a crash. restored: finished by the "
    "owner before, not run again. lost: deleted by retention before this group read them.",
)
HANDLER_DURATION = Metric(
    "redrive_handler_duration_seconds",
    "histogram",
    "seconds",
    _LISTENER,
    "How long the handler takes for a record, tries in place included. Records that are handled in one run count with "
    "the mean of their run.",
    DURATION_BOUNDS_S,
)
OLDEST_HANDLER = Metric(
    "redrive_oldest_handler_seconds",
    "gauge",
    "seconds",
    _LISTENER,
    "For how long the handler that runs longest has been at its record, 0 when none runs. Within 0.2 s.",
)
FAILED_RUNS = Metric(
    "redrive_failed_runs_total",
    "counter",
    "runs",
    _LISTENER,
    "Runs of the handler, or decodings, that raised (signals such as Skip included), whatever became of the record.",
)
RETRIES = Metric(
    "redrive_retries_total",
    "counter",
    "records",
    _TIER,
    "Records sent to a tier, to be tried again after its delay.",
)
RETRY_LATENESS = Metric(
    "redrive_retry_lateness_seconds",
    "histogram",
    "seconds",
    _TIER,
    "How long after its due a record of a tier was started.",
    LATENESS_BOUNDS_S,
)
QUEUED = Metric(
    "redrive_queued_records",
    "gauge",
    "records",
    _LISTENER,
    "Fetched records that no handler has yet, heads and what waits behind them included.",
    adds_up=True,
)
HEADS = Metric(
    "redrive_heads",
    "gauge",
    "records",
    _LISTENER,
    "Failing records that wait in front of their lane for their next attempt, or for a person; later ones of it wait behind them.",
    adds_up=True,
)
PARKED_KEYS = Metric(
    "redrive_parked_keys",
    "gauge",
    "keys",
    _LISTENER,
    "Keys whose records wait in the parked topic, of the partitions of this process.",
    adds_up=True,
)
PARKED_RECORDS = Metric(
    "redrive_parked_records_total",
    "counter",
    "records",
    _LISTENER,
    "Records of which a copy was written to wait in the parked topic.",
)
HELD_RECORDS = Metric(
    "redrive_held_records",
    "gauge",
    "records",
    _TIER,
    "Records of a tier that wait in this process's memory for their due.",
    adds_up=True,
)
HELD_BYTES = Metric(
    "redrive_held_bytes",
    "gauge",
    "bytes",
    _TIER,
    "What the held records of a tier cost in memory, by estimate; bounded by the setting window over all tiers.",
    adds_up=True,
)
DEAD_LETTERS = Metric(
    "redrive_dead_letters_total",
    "counter",
    "records",
    (*_SOURCE, "reason"),
    "Records that became dead letters; topic is the listener's source topic. Counted when it is decided; the source's "
    "offset passes only after the letter's write was confirmed.",
)
DEAD_LETTER_WRITE_FAILURES = Metric(
    "redrive_dead_letter_write_failures_total",
    "counter",
    "writes",
    _LISTENER,
    "Writes to the dead-letter topic that were refused. Each is tried again until it is confirmed; its offset is held.",
)
RETRY_WRITE_FAILURES = Metric(
    "redrive_retry_write_failures_total",
    "counter",
    "writes",
    _LISTENER,
    "Writes to a tier that were refused. Each is tried again until it is confirmed; its offset is held.",
)
UNCONFIRMED_WRITES = Metric(
    "redrive_unconfirmed_writes",
    "gauge",
    "writes",
    _LISTENER,
    "Retry copies and dead letters that are sent and not yet confirmed, refused ones that wait for another try included.",
    adds_up=True,
)
_DLQ = ("group", "listener", "dlq")
# Not added up: at a hand-over two workers may tell the same letters for a moment.
UNRESOLVED = Metric(
    "redrive_unresolved_letters",
    "gauge",
    "letters",
    (*_DLQ, "reason"),
    "Dead letters of this group that were neither replayed nor discarded, as the state topic says; dlq is the dead-letter "
    "topic. reason foreign: of a producer that names neither group nor reason; other: of one with a reason of its own. "
    "Counted anew every 30 s (the setting unresolved_refresh). Told by one process, the one that has partition 0 of the "
    "source topic. Missing while nothing is known, and when the topic is deleted.",
)
OLDEST_UNRESOLVED = Metric(
    "redrive_oldest_unresolved_seconds",
    "gauge",
    "seconds",
    _DLQ,
    "For how long the oldest unresolved dead letter has been one, 0 without any. Told by one process, as the count is.",
)
RETENTION_LEFT = Metric(
    "redrive_retention_left_seconds",
    "gauge",
    "seconds",
    _DLQ,
    "Until the topic's retention.ms lets the oldest unresolved dead letter be deleted; below 0 it may go at any moment. "
    "Missing without unresolved ones, and where retention is unlimited. Told by one process, as the count is.",
)
LISTENER_INFO = Metric(
    "redrive_listener_info",
    "gauge",
    "",
    (*_SOURCE, "dlq", "criticality"),
    "Always 1; the topics of a listener, and how much its dead letters matter: money, normal or analytics.",
)
BRAKE = Metric(
    "redrive_brake_on",
    "gauge",
    "",
    _LISTENER,
    "1 while more than half of the last minute's records became dead letters and intake is slowed to one a second.",
)
PAUSED = Metric(
    "redrive_listener_paused",
    "gauge",
    "",
    _LISTENER,
    "1 while a person has paused the listener (`redrive worker pause`) for all processes of its group.",
)
BREAKER_STATES = ("closed", "half-open", "open")
BREAKER = Metric(
    "redrive_breaker_state",
    "gauge",
    "",
    (*_LISTENER, "state"),
    "1 for the state that the breaker is in: closed, all goes as usual; open, nearly all failed, so records are held; "
    "half-open, one of them is being tried.",
)
OUTAGES = Metric(
    "redrive_breaker_opened_total",
    "counter",
    "outages",
    _LISTENER,
    "Outages of what the handler calls that began: times that the breaker opened.",
)
HELD_FAILURES = Metric(
    "redrive_breaker_held_failures_total",
    "counter",
    "runs",
    _LISTENER,
    "Failed runs in an outage whose record was held instead of being moved, and that don't count as attempts.",
)
OUTAGE_RECORDS = Metric(
    "redrive_breaker_held_records",
    "gauge",
    "records",
    _LISTENER,
    "Records that failed in an outage and are held, to run again when it is over. What waits unread isn't among them: see "
    "the lag.",
    adds_up=True,
)
SOURCE_LAG = Metric(
    "redrive_source_lag_records",
    "gauge",
    "records",
    _SOURCE,
    "Records of the source topic that are not finished, over the partitions assigned to this process. From end offsets "
    "at most 30 s old; the markers of transactions and gaps of compaction count until they are passed. Missing while "
    "nothing is assigned or the end offsets aren't known.",
    adds_up=True,
)
TIER_LAG = Metric(
    "redrive_tier_lag_records",
    "gauge",
    "records",
    _TIER,
    "The same for a tier: records that wait for their due or are being retried, fetched or not.",
    adds_up=True,
)
ASSIGNED_PARTITIONS = Metric(
    "redrive_assigned_partitions",
    "gauge",
    "partitions",
    _SOURCE,
    "Partitions assigned to this process, by source topic and tier.",
    adds_up=True,
)
PAUSED_PARTITIONS = Metric(
    "redrive_paused_partitions",
    "gauge",
    "partitions",
    _SOURCE,
    "Assigned partitions that are not fetched at the moment, since enough of their records wait in memory.",
    adds_up=True,
)
ENVELOPE_ERRORS = Metric(
    "redrive_envelope_errors_total",
    "counter",
    "headers",
    _LISTENER,
    "Headers of ours that could not be read or were absurd; such a record is run as at its first attempt.",
)
IGNORED_METADATA = Metric(
    "redrive_commit_metadata_ignored_total",
    "counter",
    "partitions",
    _LISTENER,
    "Partitions that came to this process with a commit whose metadata can't be used: of other software, damaged, or of "
    "another cluster, topic or offset. Only the offset counts then; what was finished above it runs again. The log says why.",
)
UNCLEAN_ENDS = Metric(
    "redrive_unclean_ends_total",
    "counter",
    "partitions",
    _LISTENER,
    "Partitions that came to this process from one that ended without a word: killed, crashed, or cut off from the group. "
    "One death of a process counts for each partition that it had.",
)
CAUTIOUS_PARTITIONS = Metric(
    "redrive_cautious_partitions",
    "gauge",
    "partitions",
    _LISTENER,
    "Partitions of which a process ended uncleanly and the record that may be at fault isn't passed yet. From the second "
    "such end in a row on their suspects run alone in the process, one after another.",
    adds_up=True,
)
CRASH_SUSPECTS = Metric(
    "redrive_crash_suspects",
    "gauge",
    "offsets",
    _LISTENER,
    "Offsets of cautious partitions, from the first unfinished one, among which the record that killed the process must be. "
    "0 when no partition is cautious.",
    adds_up=True,
)
COMMITS = Metric(
    "redrive_commits_total",
    "counter",
    "commits",
    (*_GROUP, "outcome"),
    "Commits that the broker answered. refused: at least one of the partitions was; they are committed again.",
)
PUMP_STEP_AGE = Metric(
    "redrive_pump_step_age_seconds",
    "gauge",
    "seconds",
    _GROUP,
    "Time since the pump's last step. Normally far below a second; up to about 40 s while the broker is away.",
)
LOOP_STALLS = Metric(
    "redrive_loop_stalls_total",
    "counter",
    "stalls",
    _GROUP,
    "How often something blocked the event loop for more than a second, so that coroutine handlers stood still.",
)
BUILD_INFO = Metric("redrive_build_info", "gauge", "", ("version",), "Always 1; says which version runs.")
WORKER_READY = Metric(
    "redrive_worker_ready",
    "gauge",
    "",
    (*_GROUP, "worker"),
    "1 while this worker belongs to its group and can write.",
)
WORKER_RESTARTS = Metric(
    "redrive_worker_restarts_total",
    "counter",
    "restarts",
    (*_GROUP, "worker"),
    "How often this worker was started again: after it had ended by itself, or by a rolling restart.",
)

METRICS = (
    RECORDS,
    HANDLER_DURATION,
    OLDEST_HANDLER,
    FAILED_RUNS,
    RETRIES,
    RETRY_LATENESS,
    QUEUED,
    HEADS,
    PARKED_KEYS,
    PARKED_RECORDS,
    HELD_RECORDS,
    HELD_BYTES,
    DEAD_LETTERS,
    DEAD_LETTER_WRITE_FAILURES,
    RETRY_WRITE_FAILURES,
    UNCONFIRMED_WRITES,
    UNRESOLVED,
    OLDEST_UNRESOLVED,
    RETENTION_LEFT,
    LISTENER_INFO,
    PAUSED,
    BRAKE,
    BREAKER,
    OUTAGES,
    HELD_FAILURES,
    OUTAGE_RECORDS,
    SOURCE_LAG,
    TIER_LAG,
    ASSIGNED_PARTITIONS,
    PAUSED_PARTITIONS,
    ENVELOPE_ERRORS,
    IGNORED_METADATA,
    UNCLEAN_ENDS,
    CAUTIOUS_PARTITIONS,
    CRASH_SUSPECTS,
    COMMITS,
    PUMP_STEP_AGE,
    LOOP_STALLS,
    BUILD_INFO,
)

DLQ_MESSAGES = Metric(
    "kafka_dlq_messages_total",
    "counter",
    "records",
    ("topic",),
    "redrive_dead_letters_total by dead-letter topic, under the name that many alerts use.",
)
DLQ_SIZE = Metric(
    "kafka_dlq_size",
    "gauge",
    "letters",
    ("topic",),
    "redrive_unresolved_letters by dead-letter topic, under the name that many alerts use.",
)
#: Exported besides, where the setting `metrics_aliases` asks for them.
ALIASES = (DLQ_MESSAGES, DLQ_SIZE)
#: What a supervisor (`redrive run --workers`) tells besides.
SUPERVISOR_METRICS = (WORKER_READY, WORKER_RESTARTS)

_AT = "%(source)s/%(partition)s/%(offset)s"

_EVENTS = (
    LogEvent("assigned", "info", "Partitions assigned to this process: %(partitions)s.", at_once=10),
    LogEvent("revoked", "info", "Partitions given back to the group: %(partitions)s.", at_once=10),
    LogEvent(
        "lost",
        "warning",
        "Partitions lost without a hand-over: %(partitions)s. Their next owner runs again what was in flight here. If this "
        "happens again and again, look for a broker that was away or a process that stood still.",
        at_once=10,
    ),
    LogEvent(
        "dead-letter",
        "warning",
        f"Listener %(listener)s failed for good at {_AT} (%(reason)s, attempt %(attempt)s, %(type)s). The record goes to "
        "%(dlq)s; see it and its failure with: redrive dlq show %(dlq)s --event-id %(event_id)s",
        ("listener", "reason"),
        at_once=5,
    ),
    LogEvent(
        "lane-blocked",
        "warning",
        f"The dead letter of {_AT} holds back the later records of its %(blocking)s, over restarts too, until somebody replays "
        "or discards it: redrive dlq replay %(dlq)s --event-id %(event_id)s (or discard), and they %(then)s until then.",
        ("listener",),
        at_once=5,
    ),
    LogEvent(
        "key-parked",
        "info",
        f"The records of a key wait in %(parked)s from {_AT} on: they run from there in their order, before newer ones.",
        ("listener",),
        at_once=1,
    ),
    LogEvent(
        "record-given-up",
        "error",
        f"Listener %(listener)s failed for good at {_AT} (%(reason)s, attempt %(attempt)s, %(type)s). The record is dropped, "
        'as give_up="skip" says: there is no copy of it but the one on its topic.',
        ("listener", "reason"),
        at_once=5,
    ),
    LogEvent(
        "letter-passed-by",
        "error",
        f"The handler %(listener)s of dead letters failed for good at {_AT} (%(reason)s, %(type)s). It goes on with the next "
        "letter; this one stays in its topic, open: redrive dlq show %(source)s/%(partition)s/%(offset)s",
        ("listener", "reason"),
        at_once=5,
    ),
    LogEvent(
        "letters-unhandled",
        "error",
        "The handlers of dead letters (group %(group)s) don't run: %(error)s. Listeners go on, dead letters are kept, and their "
        "handlers get them later: it is tried again in %(wait_s)s s.",
        ("group", "error"),
    ),
    LogEvent(
        "write-refused",
        "error",
        f"The copy of {_AT} for %(topic)s was refused: %(error)s. Nothing is lost: its offset is held and the write tried "
        "again in %(wait_ms)s ms, for as long as it takes; other records go on. A missing topic: redrive topics plan; a missing "
        "right: redrive topics acls",
        ("listener", "topic"),
    ),
    LogEvent(
        "dead-letter-cut",
        "error",
        f"The dead letter of {_AT} is too large for %(topic)s and is written without its value. The value is still at that "
        "place until retention deletes it; raise max.message.bytes of %(topic)s.",
        ("listener", "topic"),
        at_once=5,
    ),
    LogEvent(
        "outage",
        "warning",
        "Listener %(listener)s: %(why)s. It takes that for an outage of what its handler calls: it starts nothing new, records "
        "that fail meanwhile are held and no attempt of theirs counts, none climbs the ladder or becomes a dead letter by it. In "
        "%(wait_s)s s one record is tried, then one after another with growing pauses; all goes on by itself as soon as one comes "
        "through. Bring back what the handler calls; there is nothing to be done here.",
        ("listener",),
    ),
    LogEvent(
        "outage-lasts",
        "warning",
        "Listener %(listener)s: the outage lasts, for %(lasted_s)s s so far. The record that was tried failed (%(type)s) and is "
        "held; the next one is tried in %(wait_s)s s.",
        ("listener",),
    ),
    LogEvent(
        "unhealthy",
        "warning",
        "Listener %(listener)s: no record is tried, since its health function doesn't say that all is well: %(why)s. It is asked "
        "again before each try; this is told once.",
        ("listener",),
    ),
    # As loud as its beginning: who saw that must also see this.
    LogEvent(
        "outage-over",
        "warning",
        "Listener %(listener)s: the outage is over after %(lasted_s)s s: %(why)s. What was held runs again, and all goes on.",
        ("listener",),
    ),
    LogEvent(
        "brake-on",
        "error",
        "Listener %(listener)s: more than half of the last minute's records became dead letters, most of them by "
        "%(cause)s. Intake is slowed to one "
        "record a second, so that they stay on their topic. See the causes with: redrive dlq ls; then deploy the mended "
        "version. The brake releases itself.",
        ("listener",),
    ),
    LogEvent(
        "unresolved-unknown",
        "warning",
        "The unresolved letters of %(dlq)s can't be counted: %(error)s. Nothing is lost, but the metrics tell the last count for "
        "two minutes and then none. It is tried again by itself.",
        ("dlq",),
    ),
    LogEvent(
        "unresolved-too-many",
        "warning",
        "%(dlq)s holds more than %(letters)s dead letters of this group. So many are watched; those behind them aren't counted "
        "until older ones are deleted, so the metrics tell less than there is.",
        ("dlq",),
    ),
    LogEvent(
        "states-lost",
        "error",
        "The state topic %(state)s is missing or was made anew: what became of the letters of %(dlq)s is forgotten. "
        "%(letters)s of them count as unresolved, those that were replayed or discarded before too, and a replay of all would "
        "send these again. If it is missing: redrive topics apply. Then discard what is done with, by --at, --event-id or --type: "
        "redrive dlq discard",
        ("dlq",),
    ),
    LogEvent(
        "tier-orphaned",
        "warning",
        "%(tier)s is a retry topic of an older policy of listener %(listener)s. It is read as well, so each record that still "
        "waits there runs at its due time; nothing new is written to it. Delete the topic when it is empty.",
        ("tier",),
    ),
    LogEvent(
        "retries-hurried",
        "warning",
        "%(count)s records that waited on %(tier)s/%(partition)s are due now, as %(who)s asked (job %(job)s): %(why)s",
        ("tier", "job"),
        at_once=5,
    ),
    LogEvent(
        "retries-discarded",
        "warning",
        "%(count)s records that waited on %(tier)s/%(partition)s are discarded, as %(who)s asked (job %(job)s): %(why)s. They "
        "don't run again; each one is written down in %(state)s, and its copy stays on %(tier)s until retention deletes it.",
        ("tier", "job"),
        at_once=5,
    ),
    LogEvent(
        "listener-stopped",
        "error",
        f'Listener %(listener)s stops at {_AT} (%(reason)s, attempt %(attempt)s, %(type)s), as give_up="stop" says. The record '
        "is not finished, nor is what is behind it; this process drains its other work and ends. Mend it and start again, or "
        "get past it: redrive worker skip %(source)s/%(partition)s/%(offset)s",
        ("listener",),
        at_once=5,
    ),
    LogEvent(
        "listener-paused",
        "warning",
        "Listener %(listener)s is paused in all processes of its group, by %(who)s: %(why)s. No new records are handled and "
        "retries wait; nothing is lost. Go on by: redrive worker resume %(listener)s",
        ("listener",),
        at_once=5,
    ),
    LogEvent(
        "listener-resumed",
        "info",
        "Listener %(listener)s goes on, as %(who)s asked: %(why)s.",
        ("listener",),
        at_once=5,
    ),
    LogEvent(
        "record-skipped",
        "warning",
        "Listener %(listener)s gets past %(topic)s/%(partition)s/%(offset)s without it, as %(who)s asked (job %(job)s): "
        "%(why)s. It doesn't run again and is no dead letter; that stands in %(state)s, the record stays on its topic until "
        "retention deletes it.",
        ("listener",),
        at_once=20,
    ),
    LogEvent(
        "notices-unread",
        "warning",
        "%(topic)s can't be read: %(error)s. What `redrive retries hurry` and `discard`, `redrive worker pause` and `skip` "
        "ask for isn't seen by this process; all else goes on, and it is tried again every two seconds.",
        ("topic", "error"),
    ),
    LogEvent(
        "notices-full",
        "error",
        "%(count)s notices of `redrive retries hurry` or `discard` are too many to keep in memory and are not heeded by this "
        "process. It reads them again when it is started anew, without those that are done by then.",
    ),
    LogEvent(
        "brake-off", "warning", "Listener %(listener)s: the brake is released, all goes on.", ("listener",)
    ),
    LogEvent(
        "map-ignored",
        "warning",
        "The map of finished records in the commit of %(topic)s/%(partition)s can't be used: %(why)s. Records above the "
        "committed offset that were finished are run again.",
        ("topic",),
    ),
    LogEvent(
        "crash-suspected",
        "warning",
        "The process before ended without a word while it worked on %(topic)s/%(partition)s: %(crashes)s times in a row now. One "
        "record below offset %(below)s may have killed it. From the second time on these run alone in the process, one after "
        "another, which is slow; whichever it dies of becomes a dead letter. Look for the end of the process: the system's "
        "out-of-memory killer, a segmentation fault, an eviction.",
        ("topic",),
        at_once=5,
    ),
    LogEvent(
        "crash-named",
        "error",
        "The process died while it ran %(topic)s/%(partition)s/%(offset)s and nothing else, after at least two more deaths on "
        "this partition. The record isn't run again: it becomes a dead letter (crashed).",
        ("topic",),
        at_once=5,
    ),
    LogEvent(
        "crash-suspicion-over",
        "info",
        "All suspects of %(topic)s/%(partition)s are passed: records run at full speed again.",
        ("topic",),
        at_once=5,
    ),
    LogEvent(
        "start-unknown",
        "warning",
        "The cluster doesn't say where partitions begin: %(error)s. They wait, and it is asked again every second.",
    ),
    LogEvent(
        "commit-refused",
        "warning",
        "A commit was refused for %(partitions)s partitions: %(error)s. It is repeated; until one is confirmed, a crash would "
        "run again what finished since the last.",
    ),
    LogEvent(
        "transaction-aborted",
        "warning",
        "A transaction was aborted: %(error)s. Nothing of it is there; its writes and offsets are sent again, and what spoils it "
        "is taken out.",
    ),
    LogEvent(
        "transaction-unknown",
        "warning",
        "Nobody can tell what became of a transaction: %(error)s. %(partitions)s begin again at what the group has committed; what "
        "was in flight runs again, nothing is written twice.",
        at_once=10,
    ),
    LogEvent(
        "metadata-limited",
        "warning",
        "The brokers take less with an offset than Kafka's default (offset.metadata.max.bytes = 4096): from now on at most "
        "%(chars)s characters are told. Nothing is lost; after a crash more of what was finished behind a slow record may run "
        "again, and fewer records can wait in their lane. Give the brokers the default back.",
        at_once=5,
    ),
    LogEvent(
        "last-commit-refused",
        "warning",
        "The last commit before these partitions were given up was not confirmed: %(partitions)s. It can't be repeated; their "
        "next owner runs again what finished since the commit before it, a second's work as a rule.",
        at_once=5,
    ),
    LogEvent(
        "records-lost",
        "error",
        "%(lost)s records of %(topic)s/%(partition)s from offset %(offset)s on were deleted by retention before this group "
        "read them. Nobody can bring them back; it goes on with the earliest there is. Give %(topic)s a longer retention, or "
        "the group more processes.",
        ("topic", "partition"),
    ),
    LogEvent(
        "log-restarted",
        "error",
        "%(topic)s/%(partition)s ends before offset %(offset)s, up to which this group has read it: the topic was made anew, or "
        "its brokers lost records. It is read again from its beginning; what was handled and is still there runs once more.",
        ("topic", "partition"),
    ),
    LogEvent(
        "handlers-left",
        "warning",
        "Handlers were still running after %(seconds)s s and are left behind. Their records were not committed: the next "
        "owner runs them again.",
    ),
    LogEvent(
        "loop-stalled",
        "warning",
        "Something blocked the event loop for %(seconds)s s: coroutine handlers stood still, partitions are kept. Look for calls "
        "that wait without await; a handler that must wait like that is a plain function, which runs in a thread.",
    ),
    # Each of them is told: who did what must be found later.
    LogEvent(
        "console-allowed",
        "info",
        "Console: %(who)s at %(place)s, %(action)s: %(outcome)s",
        at_once=1_000_000_000,
    ),
    LogEvent(
        "console-denied",
        "warning",
        "Console: denied to %(place)s, %(action)s: %(why)s. Nothing was read, sent or marked. If that was none of you, see who "
        "can reach this address.",
        ("address", "why"),
        at_once=20,
    ),
    LogEvent(
        "source-problem",
        "warning",
        "The Kafka consumer tells: %(error)s. Nothing is lost; it tries again by itself.",
        ("kind", "error"),
    ),
    LogEvent(
        "source-problem.unreachable",
        "warning",
        "No broker answers: %(error)s. Nothing is lost; it goes on by itself when one does. If it stays so, look at the "
        "brokers and at bootstrap_servers.",
        ("kind",),
    ),
    LogEvent(
        "source-problem.unknown-topic",
        "error",
        "A topic is missing: %(error)s. Nothing is read from it until it exists; create it with: redrive topics apply",
        ("kind", "error"),
    ),
    LogEvent(
        "source-problem.auth",
        "error",
        "The cluster refuses this service: %(error)s. Nothing is read until it is let in; the rights it needs: redrive topics "
        "acls",
        ("kind", "error"),
    ),
)

_SUPERVISOR_EVENTS = (
    LogEvent("worker-started", "info", "Worker %(worker)s runs as process %(pid)s.", ("worker",), at_once=10),
    LogEvent(
        "worker-drained",
        "info",
        "Worker %(worker)s (process %(pid)s) has ended as asked: %(how)s.",
        ("worker",),
        10,
    ),
    LogEvent(
        "worker-ended",
        "error",
        "Worker %(worker)s (process %(pid)s) ended by itself: %(how)s. Nothing is lost: what it was at runs again, here or in "
        "another worker. It is started again in %(wait_s)s s; the cause stands in its own last lines.",
        ("worker",),
        at_once=5,
    ),
    LogEvent(
        "worker-hung",
        "error",
        "Worker %(worker)s (process %(pid)s) has not moved for %(seconds)s s. It is asked to end and is replaced; what it was at "
        "runs again. Look for a frozen process, or a handler that never lets other threads run.",
        ("worker",),
        at_once=5,
    ),
    LogEvent(
        "worker-killed",
        "error",
        "Worker %(worker)s (process %(pid)s) was asked to end %(seconds)s s ago and is killed. What it had not committed runs "
        "again.",
        ("worker",),
        at_once=5,
    ),
    LogEvent(
        "worker-unusable",
        "error",
        "Worker %(worker)s (process %(pid)s) can't be run like this: %(how)s, before any worker was ready. Another start "
        "would end the same way, so the supervisor ends with that code.",
    ),
    LogEvent(
        "worker-stopped",
        "error",
        'Worker %(worker)s (process %(pid)s) ended because a listener of it stopped at a record, as give_up="stop" says; its '
        "line above names it and tells how to go on. Another start would end the same way: all workers end, and the supervisor "
        "with code 6.",
    ),
    LogEvent(
        "rolling-restart",
        "info",
        "Rolling restart of %(workers)s workers: one at a time ends what it is at and is replaced, the next when the new one "
        "is ready.",
        at_once=5,
    ),
    LogEvent("rolling-restart-over", "info", "All %(workers)s workers were replaced.", at_once=5),
)

EVENTS: Mapping[str, LogEvent] = {event.name: event for event in (*_EVENTS, *_SUPERVISOR_EVENTS)}


def event_of(name: str, fields: Mapping[str, Any]) -> LogEvent | None:
    """The entry for a report: that of its `kind` where there is one, else that of its name; None for an unknown name."""
    return EVENTS.get(f"{name}.{fields.get('kind', '')}") or EVENTS.get(name)
