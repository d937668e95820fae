"""From listeners and settings to topics: what the engine is to run, and which topics that takes."""

from collections.abc import Collection, Iterator, Mapping

from redrive.core import topic_plan
from redrive.core.plan import FOREVER_MS, MAX_WAIT_MS, Delivery, GroupPlan, ListenerPlan, Tier
from redrive.core.policy import RetryPolicy
from redrive.core.settings import Settings
from redrive.core.topic_plan import WantedTopic
from redrive.core.topology import ListenerTopics, find_orphaned_tiers, name_problems, name_topics
from redrive.errors import ListenerError, TopologyError
from redrive.runtime.declaration import Listener, ResolvedApp
from redrive.runtime.ports import TopicInfo

#: What a topic keeps where nothing was set, Kafka's default.
_DEFAULT_RETENTION_MS = 7 * 86_400_000
_UNKNOWN: Mapping[str, int] = {}


def plan_group(
    app: ResolvedApp,
    settings: Settings,
    existing_topics: Collection[str],
    retentions_ms: Mapping[str, int] = _UNKNOWN,
) -> GroupPlan:
    """
    Gives the plan of an app's group: each listener with its topics, and the bounds that hold for the process.

    `existing_topics`: the cluster's, in which tiers of older policies are found by their names; these are read until
    they are empty, never written to. A replay comes in by the first tier, or by a topic of its own without a ladder.
    `retentions_ms`: how long the topics in which records wait keep them (`waiting_topics`), where the cluster tells it
    (`retentions_of`).

    Raises TopologyError with all names that collide or can't be, and ListenerError for policies that don't fit the delivery.
    """
    delivery = app.delivery or settings.delivery
    if unfit := list(_unfit(app, delivery)):
        raise ListenerError(unfit)
    topics = _topics(app, settings, existing_topics)
    return GroupPlan(
        group=app.group,
        listeners=tuple(
            _plan_listener(listener, its, app.group, settings, existing_topics, retentions_ms)
            for listener, its in zip(app.listeners, topics, strict=True)
        ),
        accepts_groups=_accepted(app, settings),
        delivery=delivery,
        window_bytes=settings.window_bytes,
        commit_interval_ms=settings.commit_interval_ms,
        commit_records=settings.commit_records,
        run_records=settings.run_records,
        translator=settings.translator,
    )


def _unfit(app: ResolvedApp, delivery: Delivery) -> Iterator[tuple[str, str]]:
    """What a transaction can't do yet: a copy is finished by its own acknowledgement."""
    for listener in app.listeners:
        if delivery == "exactly-once" and listener.policy.parks:
            told = f"RetryPolicy(park=True) of listener {listener.name!r} isn't possible with delivery 'exactly-once' yet"
            yield listener.where, f"{told}: leave it out, or use delivery 'at-least-once'"


def _plan_listener(
    listener: Listener,
    its: ListenerTopics,
    group: str,
    settings: Settings,
    existing_topics: Collection[str],
    retentions_ms: Mapping[str, int],
) -> ListenerPlan:
    naming = settings.naming
    tiers = tuple(Tier(name, delay_ms, index) for index, (name, delay_ms) in enumerate(its.tiers))
    orphans = find_orphaned_tiers(existing_topics, its.source, dict(its.tiers), naming, group)
    # Also of a time without a ladder: a replay may have been on its way when the tiers were introduced.
    replay = naming.replay(its.source, group=group)
    has_replay = not tiers or replay in existing_topics
    # Also of a time when the policy parked: what is left there comes before newer records of its key.
    parked = its.parked or naming.parked(its.source, group=group)
    has_parked = bool(its.parked) or (listener.policy.blocking == "key" and parked in existing_topics)
    return ListenerPlan(
        name=listener.name,
        source=its.source,
        parked=parked if has_parked else "",
        id_header=listener.id_header,
        dlq=its.dlq,
        replay=its.replay,
        policy=listener.policy,
        state=its.state,
        tiers=tiers,
        drained=tuple(Tier(*each) for each in ([(replay, 0)] if has_replay else []) + list(orphans)),
        give_up=listener.give_up,
        criticality=listener.criticality,
        order=listener.order,
        concurrency=listener.concurrency,
        brake=settings.brake,
        breaker=settings.breaker,
        has_health=listener.health is not None,
        longest_wait_ms=_longest_wait_ms(_waits_in(listener.policy, its.source, tiers), retentions_ms),
    )


def waiting_topics(plan: GroupPlan) -> tuple[str, ...]:
    """The topics that keep records until their next run: tiers, and the sources of listeners whose policy is blocking."""
    return tuple(
        topic for each in plan.listeners for topic in _waits_in(each.policy, each.source, each.tiers)
    )


def _waits_in(policy: RetryPolicy, source: str, tiers: Collection[Tier]) -> Collection[str]:
    return [source] if policy.blocking else [tier.topic for tier in tiers]


def _longest_wait_ms(topics: Collection[str], retentions_ms: Mapping[str, int]) -> int:
    return min((retentions_ms.get(topic, MAX_WAIT_MS) for topic in topics), default=MAX_WAIT_MS)


def retentions_of(topics: Mapping[str, TopicInfo]) -> Mapping[str, int]:
    """Gives how long topics keep their records, in ms, of those whose configuration the cluster tells."""
    found: dict[str, int] = {}
    for name, topic in topics.items():
        if topic.configs is None:
            continue
        text = topic.configs.get("retention.ms", str(_DEFAULT_RETENTION_MS))
        if text.removeprefix("-").isdecimal():
            found[name] = int(text) if 0 <= int(text) < FOREVER_MS else FOREVER_MS
    return found


def plan_letters(app: ResolvedApp, settings: Settings) -> GroupPlan:
    """
    Gives the plan of the group in which an app's dead letters are handled: it reads the dead-letter topics of the sources
    that are named, handles the letters of the app's group, and writes nothing.
    """
    naming, groups = settings.naming, _accepted(app, settings)
    listeners = [
        ListenerPlan(
            name=each.name,
            source=(dlq := naming.dlq(each.topic, group=app.group)),
            dlq=dlq,
            replay=dlq,
            policy=each.policy,
            give_up=each.give_up,
            concurrency=each.concurrency,
            brake=False,
            breaker=False,
            letters_of=(app.group, *groups),
        )
        for each in app.on_dead_letter
    ]
    return GroupPlan(
        group=letter_group(app.group),
        listeners=tuple(listeners),
        commit_interval_ms=settings.commit_interval_ms,
        commit_records=settings.commit_records,
        run_records=settings.run_records,
    )


def letter_group(group: str) -> str:
    """The consumer group in which the dead letters of a group are handled."""
    return f"{group}.on-dead-letter"


def _accepted(app: ResolvedApp, settings: Settings) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*app.accepts_groups, *settings.accepts_groups]))


def wanted_topics(
    app: ResolvedApp, settings: Settings, existing_topics: Collection[str] = ()
) -> tuple[WantedTopic, ...]:
    """
    Gives the topics that an app needs, as `redrive topics` plans, creates and checks them.

    Raises TopologyError with all names that collide or can't be, also among `existing_topics`.
    """
    return topic_plan.wanted_topics(
        _topics(app, settings, existing_topics),
        replication=settings.replication,
        dlq_partitions=settings.dlq_partitions,
        tier_outage_ms=settings.tier_outage_ms,
    )


def _topics(app: ResolvedApp, settings: Settings, existing_topics: Collection[str]) -> list[ListenerTopics]:
    naming = settings.naming
    topics = [
        name_topics(
            listener.name,
            listener.topic,
            listener.policy.tier_delays_ms,
            group=app.group,
            naming=naming,
            parks=listener.policy.parks,
        )
        for listener in app.listeners
    ]
    problems = name_problems(topics, group=app.group, naming=naming, existing=existing_topics)
    if problems:
        told = [_with_places(problem, app) for problem in problems]
        raise TopologyError(told[0] if len(told) == 1 else "\n  ".join([f"{len(told)} problems:", *told]))
    return topics


def _with_places(problem: str, app: ResolvedApp) -> str:
    """Names tell the listeners; where these are is told here."""
    places = [each.where for each in app.listeners if f"listener {each.name!r}" in problem]
    return ": ".join([", ".join(places), problem]) if places else problem
