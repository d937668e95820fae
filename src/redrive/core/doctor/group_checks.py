"""Checks of the app's group: how it shares its partitions, what it may do, whose records wait in its tiers."""

from collections.abc import Iterable, Mapping

from redrive.core.acls import Operation, Resource, Right
from redrive.core.doctor.findings import Look, NotChecked, Severity, Spotted, Untold, several
from redrive.core.doctor.observed import Case, Observed, Stamped
from redrive.core.metadata import METADATA_BUDGET_CHARS, heads_that_fit
from redrive.core.units import format_duration

#: The pump may lawfully stand still for so long: 22 s for a commit whose coordinator goes away (tried), 5 s to ask where
#: to begin. What handlers get to end (`shutdown_timeout`) comes on top.
STANDSTILL_MS = 27_000


def look_at_protocol(case: Case, observed: Observed) -> Look:
    """Whether the group can be joined as set, and keeps same-numbered partitions together."""
    if isinstance(observed.brokers, Untold):
        yield NotChecked("brokers", observed.brokers.why)
    else:
        for broker, configs in observed.brokers.items():
            yield from _of_broker(case, f"broker {broker}", configs)
    if isinstance(observed.group, Untold):
        yield NotChecked(case.group, observed.group.why)
    elif observed.group.assignor not in {"", "range"}:
        yield Spotted(
            case.group,
            f"it has {several(observed.group.members, 'member')} and shares partitions by {observed.group.assignor}, not by range",
            means="redrive always asks for range, so a member of this group isn't redrive: it takes records that redrive "
            "never sees, and same-numbered partitions of a source and its tiers go to different processes",
            mend="find that consumer by its client id and host, and give it a group of its own",
            command=f"kafka-consumer-groups.sh --describe --members --group {case.group}",
            severity=Severity.ERROR,
        )


def _of_broker(case: Case, broker: str, configs: Mapping[str, str]) -> Look:
    offered = configs.get("group.coordinator.rebalance.protocols")
    assignors = configs.get("group.consumer.assignors", "range")
    if offered is None:
        yield NotChecked(
            broker, "it doesn't tell which group protocols it offers; before Kafka 3.7 it is classic"
        )
    elif "consumer" not in offered and case.group_protocol == "consumer":
        yield Spotted(
            broker,
            f'group_protocol is "consumer", and it offers: {offered}',
            means="no process can join the group, so nothing is handled",
            mend='set group_protocol = "auto", which takes classic there; or let the brokers offer it '
            "(group.coordinator.rebalance.protocols = classic,consumer)",
            severity=Severity.ERROR,
        )
    elif "consumer" not in offered:
        yield Spotted(
            broker,
            f"offers groups of the protocol {offered} only",
            means="each rebalance stops all processes of the group for a moment, instead of only those whose partitions move",
            mend="let the brokers offer the new protocol (group.coordinator.rebalance.protocols = classic,consumer), which "
            "Kafka has since 4.0; redrive takes it at its next start",
            severity=Severity.INFO,
        )
    elif "range" not in assignors.lower() and case.group_protocol != "classic":
        yield Spotted(
            broker,
            f"its group.consumer.assignors are {assignors}, without range",
            means="no process can join the group by the new protocol, so nothing is handled",
            mend='add range to group.consumer.assignors, or set group_protocol = "classic"',
            severity=Severity.ERROR,
        )


def look_at_offsets_retention(case: Case, observed: Observed) -> Look:
    """Whether committed offsets outlive what records may wait."""
    if isinstance(observed.brokers, Untold):
        yield NotChecked("brokers", observed.brokers.why)
        return
    delays_ms = [topic.delay_ms or 0 for topic in case.wanted] + [tier.delay_ms for tier in case.orphans]
    longest_ms = max(delays_ms, default=0)
    for broker, configs in observed.brokers.items():
        minutes = configs.get("offsets.retention.minutes")
        if minutes is None:
            yield NotChecked(f"broker {broker}", "it doesn't tell its offsets.retention.minutes")
            continue
        kept_ms = int(minutes) * 60_000
        needed_ms, what = max(
            (longest_ms, "the longest tier"), (case.tier_outage_ms, "the longest outage (tier_outage)")
        )
        if kept_ms < needed_ms:
            yield Spotted(
                f"broker {broker}",
                f"offsets.retention.minutes is {minutes} ({format_duration(kept_ms)}), shorter than {what}, "
                f"{format_duration(needed_ms)}",
            )


def look_at_commit_metadata(_: Case, observed: Observed) -> Look:
    """Whether commits have room for what is told besides offsets."""
    if isinstance(observed.brokers, Untold):
        yield NotChecked("brokers", observed.brokers.why)
        return
    for broker, configs in observed.brokers.items():
        most_bytes = configs.get("offset.metadata.max.bytes")
        if most_bytes is None:
            yield NotChecked(f"broker {broker}", "it doesn't tell its offset.metadata.max.bytes")
        elif int(most_bytes) <= METADATA_BUDGET_CHARS:
            heads = heads_that_fit(int(most_bytes) - 1)
            yield Spotted(
                f"broker {broker}",
                f"offset.metadata.max.bytes is {most_bytes}, and {METADATA_BUDGET_CHARS + 1} by default: room for "
                f"{several(heads, 'record')} of a partition that wait",
                severity=Severity.WARNING if heads else Severity.ERROR,
            )


def look_at_poll_interval(case: Case, _: Observed) -> Look:
    """Whether the group's patience is enough for what may lawfully take long."""
    needed_ms = STANDSTILL_MS + case.shutdown_timeout_ms
    if case.max_poll_interval_ms < needed_ms:
        yield Spotted(
            "kafka.max.poll.interval.ms",
            f"is {format_duration(case.max_poll_interval_ms)}, and a process may be busy for {format_duration(needed_ms)} "
            "while a coordinator goes away",
            mend=f'set "max.poll.interval.ms" = "{max(needed_ms, 60_000)}" under [kafka] or more, or leave it out',
        )
    for listener, limit_ms in case.time_limits_ms.items():
        if limit_ms > case.shutdown_timeout_ms:
            yield Spotted(
                f"listener {listener}",
                f"its time_limit is {format_duration(limit_ms)}, and a process that stops waits "
                f"{format_duration(case.shutdown_timeout_ms)} for its handlers",
                means="a handler that takes longer when its process stops, or its partition goes to another one, is left "
                "behind: the record runs once more",
                mend=f'set shutdown_timeout = "{format_duration(limit_ms)}", and give the process as long to end '
                "(terminationGracePeriodSeconds)",
                severity=Severity.INFO,
            )


def look_at_stamps(case: Case, observed: Observed) -> Look:
    """Records in tiers that nobody will run."""
    if isinstance(observed.stamped, Untold):
        yield NotChecked("tiers", observed.stamped.why)
        return
    for stamped in observed.stamped:
        at_least = "at least " if stamped.is_at_least else ""
        waiting = several(stamped.records, "unread record")
        seen = f"{at_least}{waiting} in {', '.join(stamped.topics)} for the group {stamped.group!r}"
        if stamped.is_at_work or (stamped.group in case.own_groups and stamped.group != case.group):
            continue
        yield _idle(case, stamped, seen)


def _idle(case: Case, stamped: Stamped, seen: str) -> Spotted:
    if stamped.group == case.group:
        return Spotted(
            stamped.group,
            f"{seen}, which has no members",
            means="nobody runs them when they are due",
            mend="start the service",
            command=f"redrive run {case.target}",
        )
    if stamped.has_committed:
        return Spotted(
            stamped.group,
            f"{seen}, which has no members now",
            means="they wait until that group's service runs again; this app passes them by",
            mend="nothing, if that service is merely stopped; if it was renamed to this app, set "
            f'accepts_groups = ["{stamped.group}"]',
            severity=Severity.INFO,
        )
    return Spotted(stamped.group, f"{seen}, which has neither members nor committed offsets there")


def look_at_rights(case: Case, observed: Observed) -> Look:
    """What this user may not do, but has to."""
    allowed: dict[Resource, Mapping[str, frozenset[Operation]]] = {}
    if isinstance(observed.rights, Untold):
        yield NotChecked("topics", observed.rights.why)
    else:
        allowed[Resource.TOPIC] = observed.rights
    of_group = observed.group if isinstance(observed.group, Untold) else observed.group.rights
    if isinstance(of_group, Untold):
        yield NotChecked(case.group, of_group.why)
    else:
        allowed[Resource.GROUP] = {case.group: of_group}
    for right in case.service_rights:
        if right.resource is Resource.TRANSACTIONAL_ID:
            yield NotChecked(
                right.name,
                f"brokers don't tell whether this user has the right {right}; a process that lacks it says so and ends",
            )
    acls = f"redrive topics acls {case.target} --format kafka-acls"
    for name, operations in _lacking(case.service_rights, allowed).items():
        yield Spotted(
            name,
            f"this user lacks {', '.join(operations)}",
            command=f"{acls} --for service --principal User:NAME",
        )
    for name, operations in _lacking(case.replay_rights, allowed).items():
        yield Spotted(
            name,
            f"this user lacks {', '.join(operations)} for dead letters",
            means="dead letters can't be looked at or sent back with these settings; the service doesn't need it",
            command=f"{acls} --for dlq-replay --operator User:NAME",
            severity=Severity.INFO,
        )


def _lacking(
    rights: Iterable[Right], allowed: Mapping[Resource, Mapping[str, frozenset[Operation]]]
) -> Mapping[str, list[Operation]]:
    """Which of these rights are lacking, by the topic's or group's name; of others nobody knows."""
    lacking: dict[str, list[Operation]] = {}
    for right in rights:
        has = allowed.get(right.resource, {}).get(right.name)
        if has is not None and right.operation not in has:
            lacking.setdefault(right.name, []).append(right.operation)
    return lacking
