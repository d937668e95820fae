"""Checks of an app's topics. What is wanted of each is the plan's affair (`core/topic_plan.py`); here it gets its weight."""

from collections.abc import Collection, Iterator

from redrive.core.doctor.findings import Look, NotChecked, Severity, Spotted, Untold, several
from redrive.core.doctor.observed import Case, Observed
from redrive.core.topic_plan import Action, PlanItem, plan_topics
from redrive.core.topology import Role
from redrive.core.units import format_duration

_WAITING = {Role.TIER, Role.REPLAY, Role.PARKED}


def look_for_missing(case: Case, observed: Observed) -> Look:
    """Topics that aren't there."""
    apply = f"redrive topics apply {case.target}"
    for item in _items(case, observed):
        if item.action not in {Action.CREATE, Action.MISSING}:
            continue
        if item.role is Role.SOURCE:
            yield Spotted(
                item.topic,
                "the source topic doesn't exist, or this user may not see it",
                mend="its producers usually create it; or create it with as many partitions as they need",
                command=f"{apply} --create-sources 4",
            )
        else:
            yield Spotted(
                item.topic, f"the {item.role} topic doesn't exist, or this user may not see it", command=apply
            )


def look_for_sharers(case: Case, observed: Observed) -> Look:
    """Tiers that other groups read."""
    if isinstance(observed.readers, Untold):
        yield NotChecked("tiers", observed.readers.why)
        return
    for tier in case.tiers:
        others = [group for group in observed.readers.get(tier, ()) if group not in case.own_groups]
        if others:
            yield Spotted(tier, f"read by {_listed(others)} too")


def look_for_orphans(case: Case, observed: Observed) -> Look:
    """Tiers that an older policy left behind."""
    for tier in case.orphans:
        seen = "no policy of this app has this tier"
        if isinstance(observed.unread, Untold):
            yield NotChecked(
                tier.topic, f"{seen}; whether records still wait there isn't told: {observed.unread.why}"
            )
            continue
        left = observed.unread.get(tier.topic, 0)
        if left:
            yield Spotted(
                tier.topic, f"{seen}; {several(left, 'record')} still to be read", severity=Severity.WARNING
            )
            continue
        readers = observed.readers if not isinstance(observed.readers, Untold) else {}
        others = [group for group in readers.get(tier.topic, ()) if group not in case.own_groups]
        yield Spotted(
            tier.topic,
            f"{seen}, and all its records are done",
            means=f"it costs partitions and a subscription, nothing else{_also_of(others)}",
            mend="leave it alone while those groups use it"
            if others
            else "delete it, after the last process of the old policy has ended",
            command="" if others else f"kafka-topics.sh --delete --topic {tier.topic}",
        )


def look_at_tier_retention(case: Case, observed: Observed) -> Look:
    """Topics that delete records which still wait."""
    delays = {topic.name: topic.delay_ms or 0 for topic in case.wanted}
    for item in _of(case, observed, _WAITING, {"retention.ms", "retention.bytes"}):
        if isinstance(item, NotChecked):
            yield item
            continue
        is_lost_before_due = item.setting == "retention.ms" and int(item.have) < delays[item.topic]
        yield _differs(item, Severity.ERROR if is_lost_before_due else None)


def look_at_message_size(case: Case, observed: Observed) -> Look:
    """Topics whose records must be smaller than the source's with our headers."""
    for item in _of(case, observed, {*_WAITING, Role.DLQ}, {"max.message.bytes"}):
        yield item if isinstance(item, NotChecked) else _differs(item)


def look_at_partitions(case: Case, observed: Observed) -> Look:
    """Topics that have not as many partitions as their source."""
    for item in _items(case, observed):
        if item.action is Action.GROW:
            yield Spotted(
                item.topic,
                f"has {several(int(item.have), 'partition')} instead of {item.partitions}",
                mend="add what is missing; records keep their partition from then on",
                command=f"redrive topics apply {case.target}",
            )
        elif item.setting == "partitions":
            source = next(topic.source for topic in case.wanted if topic.name == item.topic)
            is_aligned = item.mend.startswith("grow")
            yield Spotted(
                item.topic,
                f"has {several(int(item.have), 'partition')} instead of {item.wanted}",
                mend=f"{item.mend}; partitions are never taken away",
                command=f"redrive topics apply {case.target} --partitions {source}={item.have}"
                if is_aligned
                else "",
            )


def look_at_replication(case: Case, observed: Observed) -> Look:
    """Topics that lose records with one broker, or refuse them."""
    for item in _of(case, observed, set(Role), {"replication", "min.insync.replicas"}):
        yield item if isinstance(item, NotChecked) else _differs(item)


def look_at_cleanup(case: Case, observed: Observed) -> Look:
    """Topics that remove records by their key, and states that don't."""
    for item in _of(case, observed, set(Role), {"cleanup.policy"}):
        yield item if isinstance(item, NotChecked) else _differs(item)


def look_at_dead_letter_retention(case: Case, observed: Observed) -> Look:
    """Dead letters that are deleted by themselves."""
    for item in _of(case, observed, {Role.DLQ}, {"retention.ms", "retention.bytes"}):
        yield item if isinstance(item, NotChecked) else _differs(item)


def _items(case: Case, observed: Observed) -> tuple[PlanItem, ...]:
    return plan_topics(case.wanted, observed.topics.values()).items


def _of(
    case: Case, observed: Observed, roles: Collection[Role], settings: Collection[str]
) -> Iterator[PlanItem | NotChecked]:
    """What the plan says of these settings."""
    for item in _items(case, observed):
        if item.role not in roles:
            continue
        if item.action is Action.DIFFERS and item.setting in settings:
            yield item
        elif item.action is Action.NOT_CHECKED and (item.setting in settings or _holds(item, settings)):
            yield NotChecked(item.topic, item.why or "the cluster doesn't tell it")


def _holds(item: PlanItem, settings: Collection[str]) -> bool:
    """Whether nothing at all is told of the topic's configuration, and these settings are wanted of it."""
    return item.setting == "configuration" and any(f"{setting}=" in item.wanted for setting in settings)


def _differs(item: PlanItem, severity: Severity | None = None) -> Spotted:
    have = _shown(item.setting, item.have)
    return Spotted(
        item.topic,
        f"{item.setting} is {have}, wanted {_shown(item.setting, item.wanted)}",
        means=item.why,
        mend="" if item.mend.startswith("kafka-configs.sh") else item.mend,
        command=item.mend if item.mend.startswith("kafka-configs.sh") else "",
        severity=severity,
    )


def _shown(setting: str, value: str) -> str:
    if setting == "retention.ms" and value.isdecimal():
        return f"{value} ({format_duration(int(value))})"
    return f"{value} (without end)" if value == "-1" else value


def _listed(names: Collection[str]) -> str:
    return ", ".join(names)


def _also_of(groups: Collection[str]) -> str:
    return f"; {_listed(groups)} read it too" if groups else ""
