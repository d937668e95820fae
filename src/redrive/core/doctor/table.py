"""The table of checks, and what runs it."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from redrive.core.doctor import broker_checks, group_checks, topic_checks
from redrive.core.doctor.findings import Finding, Look, NotChecked, Report, Severity, Spotted, Unknown
from redrive.core.doctor.observed import Case, Observed


@dataclass(frozen=True, slots=True)
class Check:
    """
    One line of the table. `severity`, `means`, `mend`: of its findings, where these don't say it themselves.

    `asks`: what is looked at. `needs`: the rights that it takes to look.
    """

    code: str
    name: str
    severity: Severity
    asks: str
    means: str
    mend: str
    needs: str
    look: Callable[[Case, Observed], Look]


_DESCRIBE = "Describe on the topics"
_CONFIGS = "Describe and DescribeConfigs on the topics"
_BROKERS = "DescribeConfigs on the cluster"

CHECKS: tuple[Check, ...] = (
    Check(
        "RD01",
        "topic-missing",
        Severity.ERROR,
        "Are all topics there that the app needs: sources, tiers, dead letters, their states?",
        "the service refuses to start",
        "create it",
        _DESCRIBE,
        topic_checks.look_for_missing,
    ),
    Check(
        "RD02",
        "tier-shared",
        Severity.WARNING,
        "Does another group read a tier of this app?",
        "each group fetches all records of the tier and passes by the other's: twice the traffic, and whoever looks at the "
        "tier can't tell whose records wait",
        'set retry_topic = "{topic}.{group}.retry.{delay}" (or its like in your style) in one of the two apps, and apply; what '
        "waits in the old tier is still run",
        "Describe on the cluster and on all groups",
        topic_checks.look_for_sharers,
    ),
    Check(
        "RD03",
        "tier-orphaned",
        Severity.INFO,
        "Are there tiers of an older policy?",
        "the service still reads them and runs their records when they are due; nothing is written there any more",
        "wait until it is empty; don't delete it before",
        "Describe on the topics and the group",
        topic_checks.look_for_orphans,
    ),
    Check(
        "RD04",
        "tier-retention-short",
        Severity.WARNING,
        "Do tiers keep a record for twice its delay and the longest outage (`tier_outage`), whatever the topic's size?",
        "waiting records are deleted, and nothing tells of it but a counter",
        "raise the topic's retention, or set a shorter tier_outage",
        _CONFIGS,
        topic_checks.look_at_tier_retention,
    ),
    Check(
        "RD05",
        "message-size-small",
        Severity.WARNING,
        "Do tiers and dead-letter topics take the source's largest record with 64 KiB of headers more?",
        "texts of a large record are cut on the way; what is still too large becomes a dead letter of headers only",
        "raise the topic's max.message.bytes",
        _CONFIGS,
        topic_checks.look_at_message_size,
    ),
    Check(
        "RD06",
        "partitions-differ",
        Severity.WARNING,
        "Have tiers and dead-letter topics as many partitions as their source?",
        "retries go to a partition by their key instead of keeping the source's number: records without a key are spread, and "
        "same-numbered partitions may go to different processes",
        "make the counts agree",
        _DESCRIBE,
        topic_checks.look_at_partitions,
    ),
    Check(
        "RD07",
        "replication-low",
        Severity.WARNING,
        "Are there enough replicas, and do writes wait for enough but not too many of them (`min.insync.replicas`)?",
        "records are lost with one broker, or refused while one is away",
        "",
        _CONFIGS,
        topic_checks.look_at_replication,
    ),
    Check(
        "RD08",
        "cleanup-policy-wrong",
        Severity.ERROR,
        "Are tiers and dead-letter topics never compacted, and state topics always?",
        "records that still wait are removed, or those without a key are refused",
        "set the topic's cleanup.policy",
        _CONFIGS,
        topic_checks.look_at_cleanup,
    ),
    Check(
        "RD09",
        "dead-letters-expire",
        Severity.WARNING,
        "Do dead-letter topics keep letters for ever, or at least longer than their source its records?",
        "dead letters are gone before anybody decided about them",
        "set the topic's retention.ms to -1, or to what was decided",
        _CONFIGS,
        topic_checks.look_at_dead_letter_retention,
    ),
    Check(
        "RD10",
        "group-protocol",
        Severity.WARNING,
        "Do the brokers offer the group protocol that is set, with the assignor range, and is every member redrive?",
        "processes can't join, or partitions are shared in a way that costs order and speed",
        "",
        f"{_BROKERS}; Describe on the group",
        group_checks.look_at_protocol,
    ),
    Check(
        "RD11",
        "clock-skew",
        Severity.WARNING,
        "Is this machine's clock within a second of the broker's, and is nothing dated in its future?",
        "due times are compared with the clock of the process that runs the record: a retry comes as much too early or too late "
        "as the clocks differ, and retention is counted by yet another clock",
        "run NTP (chrony) on this machine and on those that write: chronyc tracking",
        "Describe on the topics, and on __consumer_offsets to look there too; with --measure-clock Create, Write and Delete on "
        "the topic redrive.doctor",
        broker_checks.look_at_clocks,
    ),
    Check(
        "RD12",
        "offsets-retention-short",
        Severity.WARNING,
        "Do the brokers keep a stopped group's offsets (`offsets.retention.minutes`) for as long as records may wait?",
        "after the service was down that long its offsets are forgotten: it starts anew at the beginning of all topics, and what "
        "was handled runs again",
        "raise offsets.retention.minutes on the brokers (it takes a restart), or set a shorter tier_outage",
        _BROKERS,
        group_checks.look_at_offsets_retention,
    ),
    Check(
        "RD13",
        "poll-interval-short",
        Severity.WARNING,
        "Does the group wait long enough for a busy process, and a stopping process for its handlers?",
        "the group gives the process up while it commits or drains; another one runs its records once more",
        "",
        "nothing: it looks at the settings",
        group_checks.look_at_poll_interval,
    ),
    Check(
        "RD14",
        "version-old",
        Severity.WARNING,
        "Are client and brokers new enough?",
        "nobody tried redrive with it",
        "update",
        _BROKERS,
        broker_checks.look_at_versions,
    ),
    Check(
        "RD15",
        "stamped-group-idle",
        Severity.WARNING,
        "Do records wait in the tiers for a group that is no longer there? The oldest 20,000 unread of each tier are looked at.",
        "nobody will ever run them, and retention deletes them in the end",
        "if that group is the former name of this app, set accepts_groups to it; else start its service",
        "Read on the tiers, Describe on all groups",
        group_checks.look_at_stamps,
    ),
    Check(
        "RD16",
        "rights-lacking",
        Severity.ERROR,
        "May the user of these settings do what a service does: read, write and describe its topics, join its group?",
        "the service fails there, at its start or at the first failing record",
        "give this user what is lacking",
        "Describe on the topics and the group",
        group_checks.look_at_rights,
    ),
    Check(
        "RD17",
        "commit-metadata-small",
        Severity.WARNING,
        "Do the brokers take as much as redrive has to tell with an offset (`offset.metadata.max.bytes`)?",
        "the first commits are refused until it is known how much passes; after a crash more of what was finished behind a slow "
        "record runs again, and fewer records can wait in their lane",
        "give offset.metadata.max.bytes its default of 4096 back on the brokers (it takes a restart)",
        _BROKERS,
        group_checks.look_at_commit_metadata,
    ),
)


def examine(case: Case, observed: Observed, codes: Collection[str] = ()) -> Report:
    """Make the checks with these codes, all without any. What can't be checked is told apart; it is no finding."""
    findings: list[Finding] = []
    unknown: list[Unknown] = []
    made = [check for check in CHECKS if not codes or check.code in codes]
    for check in made:
        for each in check.look(case, observed):
            if isinstance(each, NotChecked):
                unknown.append(Unknown(check.code, check.name, each.subject, each.why, check.needs))
            else:
                findings.append(_finding(check, each))
    findings.sort(key=lambda finding: finding.severity.rank)
    return Report(len(made), tuple(findings), tuple(_merged(unknown)))


def _finding(check: Check, it: Spotted) -> Finding:
    return Finding(
        check.code,
        check.name,
        it.severity or check.severity,
        it.subject,
        it.seen,
        it.means or check.means,
        it.mend or check.mend,
        it.command,
    )


def _merged(unknown: list[Unknown]) -> Iterator[Unknown]:
    """Each reason of a check once, with all that it holds for: one lacking right hides a setting of every topic."""
    subjects: dict[Unknown, dict[str, None]] = {}
    for each in unknown:
        subjects.setdefault(replace(each, subject=""), {})[each.subject] = None
    for each, those in subjects.items():
        yield replace(each, subject=", ".join(those))
