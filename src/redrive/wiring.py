"""The composition root: puts an app, its settings and the Kafka adapters together."""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from redrive._version import __version__
from redrive.core.acls import service_acls
from redrive.core.commands import Report
from redrive.core.engine import Engine
from redrive.core.inspection import WorkersSeen, WorkerState
from redrive.core.membership import instance_id, transactional_id
from redrive.core.notices import Posted
from redrive.core.pausing import Pausing
from redrive.core.plan import GroupPlan
from redrive.core.readings import Bounds, Depth, Look
from redrive.core.record import TopicPartition
from redrive.core.settings import Settings
from redrive.deadletters.depth import Depths, Reach
from redrive.deadletters.topics import Names
from redrive.errors import PortError, SettingsError
from redrive.runtime.checks import await_kafka, require_rights, require_topics
from redrive.runtime.checkups import checkups_of, ways_of
from redrive.runtime.clock import SystemClock, fresh_nonce
from redrive.runtime.declaration import ResolvedApp
from redrive.runtime.end_offsets import EndOffsets
from redrive.runtime.executors import Executors
from redrive.runtime.handlers import Invoker
from redrive.runtime.health import health_of
from redrive.runtime.identities import identities
from redrive.runtime.letters import LetterService, NothingToWrite, begin_at_end, letter_app
from redrive.runtime.notices import NoticeReader
from redrive.runtime.planning import (
    letter_group,
    plan_group,
    plan_letters,
    retentions_of,
    waiting_topics,
    wanted_topics,
)
from redrive.runtime.ports import Cluster, Sink, TopicInfo, Transactor, Views
from redrive.runtime.pump import Pump, PumpSettings
from redrive.runtime.reporting import Reporter
from redrive.runtime.service import Service
from redrive.runtime.worker_states import state_of

if TYPE_CHECKING:
    from redrive.adapters.kafka_cluster import KafkaCluster

_log = logging.getLogger("redrive")
#: While the pump waits for an answer nothing else goes on; who got none asks again.
_PUMP_ASKS_S = 2.0


class Show(Protocol):
    """How an app is shown while the block runs."""

    def __call__(self, views: Views) -> contextlib.AbstractContextManager[object]: ...


@asynccontextmanager
async def serve(
    resolved: ResolvedApp, settings: Settings, *, worker: int = 0, show: Show | None = None
) -> AsyncGenerator[Service, None]:
    """
    Run an app's listeners on the running event loop while the block runs, then drain.

    `worker`: its number among the processes on this host, for static membership. `show`: instead of the HTTP address
    that the settings name.

    Raises SettingsError, TopologyError or PortError for what is wrong before the group is joined: unreachable brokers
    after `start_timeout`; missing topics at once, with the command that creates them, and missing rights on topics.
    """
    if problems := settings.problems():
        raise SettingsError(problems)
    instance = instance_id(settings, group=resolved.group, host=socket.gethostname(), worker=worker)
    from redrive.adapters.kafka_cluster import KafkaCluster
    from redrive.adapters.kafka_settings import client_conf

    clock = SystemClock()
    conf = client_conf(settings.client_options(resolved.group))
    await _reach(conf, settings, clock)
    cluster = KafkaCluster(conf)
    quick = KafkaCluster(conf, timeout_s=_PUMP_ASKS_S, client=cluster.client)
    parts = await _learned(resolved, settings, cluster, quick, instance)
    name = transactional_id(settings, group=resolved.group, host=socket.gethostname(), worker=worker)
    parts = parts._replace(transactional_id=name)
    reporter = Reporter(clock)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(reporter.flush, at_end=True)
        resources = await stack.enter_async_context(resolved.lifespan()) if resolved.lifespan else None
        _report_orphans(parts.plan, reporter)
        notices = _notices(parts, settings, reporter)
        # Before the group is joined: what was discarded meanwhile must not run first.
        await asyncio.to_thread(notices.look)
        notices.start()
        stack.callback(notices.close)
        parts = parts._replace(notices=notices.take)
        service = _service(resolved, settings, parts, reporter)
        letters = _letters(resolved, settings, parts, reporter) if resolved.on_dead_letter else None
        show = show or (_over_http(settings) if settings.http else None)
        if show is not None:
            stack.enter_context(_observed(show, service, letters, settings, parts, reporter, worker))
        if letters is not None:
            stack.push_async_callback(letters.stop)
            await letters.start(resources)
        service.start(resources)
        try:
            yield service
        finally:
            # A host that is being cancelled still waits for the drain: it is bounded, records in flight are not lost.
            stops = [service.stop()] if letters is None else [service.stop(), letters.stop()]
            await asyncio.shield(asyncio.gather(*stops))


def _plan(
    resolved: ResolvedApp, settings: Settings, cluster: Cluster
) -> tuple[GroupPlan, Mapping[str, TopicInfo]]:
    """What is to be run, and the topics that there are. Raises TopologyError, PortError."""
    topics = cluster.describe()
    wanted = wanted_topics(resolved, settings, topics)
    plan = plan_group(resolved, settings, topics)
    acls = service_acls(plan, wanted, asks_protocols=settings.wanted_protocol == "auto")
    # First: topics that a user may not see look as if they were missing.
    require_rights([acl.right for acl in acls], cluster)
    require_topics(wanted, topics, target=settings.app or "module:app")
    waiting = waiting_topics(plan)
    retentions_ms = retentions_of(cluster.describe(waiting, configs=True)) if waiting else {}
    return plan_group(resolved, settings, topics, retentions_ms), topics


async def _reach(conf: Mapping[str, Any], settings: Settings, clock: SystemClock) -> None:
    from redrive.adapters.kafka_reach import KafkaReach

    stop = threading.Event()
    ask = KafkaReach(conf)
    try:
        await asyncio.to_thread(
            await_kafka, ask, clock, start_timeout_ms=settings.start_timeout_ms, tell=_log.warning, stop=stop
        )
    finally:
        stop.set()


def _protocol(settings: Settings, cluster: "KafkaCluster") -> str:
    """KIP-848 where the brokers have it: a rebalance then moves only what has to move."""
    if settings.wanted_protocol != "auto":
        return settings.wanted_protocol
    try:
        offered = cluster.protocols()
    except PortError as error:
        offered = ""
        _log.warning(
            "The brokers don't tell which group protocols they have: %s. KIP-848 is taken, which brokers since 4.0 have; "
            "for older ones grant that right, or set group_protocol to classic.",
            error,
        )
    protocol = "consumer" if "consumer" in offered or not offered else "classic"
    _log.info("group protocol: %s (brokers offer: %s)", protocol, offered or "not told")
    return protocol


def _report_orphans(plan: GroupPlan, report: Callable[[Report], None]) -> None:
    for listener in plan.listeners:
        for tier in listener.drained:
            if tier.delay_ms:
                report(Report("tier-orphaned", {"tier": tier.topic, "listener": listener.name}))


class Parts(NamedTuple):
    """What was learned from the cluster before the group is joined."""

    plan: GroupPlan
    protocol: str
    instance: str
    cluster: Cluster
    #: The same for who can't wait long for answers: the pumps.
    quick_cluster: Cluster
    topics: Mapping[str, TopicInfo]
    identity: Callable[[str], str]
    notices: Callable[[], Sequence[Posted | Pausing]] = tuple
    transactional_id: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """How many partitions each topic has."""
        return {name: topic.partitions for name, topic in self.topics.items()}


async def _learned(
    resolved: ResolvedApp, settings: Settings, cluster: "KafkaCluster", quick: Cluster, instance: str
) -> Parts:
    """Asks the cluster, and refuses what can't run there."""
    plan, topics = await asyncio.to_thread(_plan, resolved, settings, cluster)
    protocol = await asyncio.to_thread(_protocol, settings, cluster)
    identity = await asyncio.to_thread(identities, cluster, topics)
    return Parts(
        plan=plan,
        protocol=protocol,
        instance=instance,
        cluster=cluster,
        quick_cluster=quick,
        topics=topics,
        identity=identity,
    )


def _notices(parts: Parts, settings: Settings, report: Callable[[Report], None]) -> NoticeReader:
    from redrive.adapters.kafka_log import KafkaLog

    return NoticeReader(
        {listener.state for listener in parts.plan.listeners},
        group=parts.plan.group,
        cluster=parts.cluster,
        log=KafkaLog(settings.client_options(parts.plan.group)),
        clock=SystemClock(),
        identity=parts.identity,
        report=report,
    )


def _service(resolved: ResolvedApp, settings: Settings, parts: Parts, reporter: Reporter) -> Service:
    pump_settings = PumpSettings(
        starts={listener.topic: listener.start for listener in resolved.listeners},
        drain_ms=settings.shutdown_timeout_ms,
    )
    sink, transactor = _writers(settings.client_options(resolved.group), parts)
    return _pumping(
        resolved, settings, parts, reporter, pump_settings=pump_settings, sink=sink, transactor=transactor
    )


def _writers(user: Mapping[str, str], parts: Parts) -> tuple[Sink, Transactor | None]:
    """What writes successors: a producer of their own, or one whose writes and commits are one."""
    from redrive.adapters.kafka_settings import producer_conf, transactor_conf
    from redrive.adapters.kafka_sink import KafkaSink
    from redrive.adapters.kafka_transactor import KafkaTransactor

    if parts.plan.delivery == "at-least-once":
        return KafkaSink(producer_conf(user)), None
    conf = transactor_conf(user, parts.transactional_id)
    return NothingToWrite(), KafkaTransactor(conf, SystemClock().mono_ms)


def _letters(resolved: ResolvedApp, settings: Settings, parts: Parts, reporter: Reporter) -> LetterService:
    """What handles the app's dead letters, beside it."""
    app, plan = letter_app(resolved), plan_letters(resolved, settings)
    its = parts._replace(plan=plan, notices=tuple)  # which are about the app's own group
    # Half of the time that the app's own handlers get: these start together, and must not end last.
    pump_settings = PumpSettings(
        starts={},
        drain_ms=settings.shutdown_timeout_ms / 2,
    )
    return LetterService(
        plan.group,
        begin=lambda: begin_at_end(parts.cluster, app, plan, parts.counts),
        make=lambda: _pumping(
            app,
            settings,
            its,
            reporter,
            pump_settings=pump_settings,
            sink=NothingToWrite(),
            tells_stalls=False,
        ),
        report=reporter,
    )


def _pumping(
    app: ResolvedApp,
    settings: Settings,
    parts: Parts,
    reporter: Reporter,
    *,
    pump_settings: PumpSettings,
    sink: Sink,
    transactor: Transactor | None = None,
    tells_stalls: bool = True,
) -> Service:
    """One group of an app, on the running loop."""
    from redrive.adapters.kafka_settings import consumer_conf
    from redrive.adapters.kafka_source import KafkaSource

    clock = SystemClock()
    stop = threading.Event()
    invokers = [Invoker(listener, clock, stop, parts.plan.translator) for listener in app.listeners]
    user = settings.client_options(app.group)
    conf = consumer_conf(user, group=app.group, protocol=parts.protocol, instance_id=parts.instance)
    pump = Pump(
        engine=Engine(parts.plan, parts.counts, parts.identity, fresh_nonce()),
        source=KafkaSource(conf, tells_membership=transactor is not None),
        sink=sink,
        executor=Executors(invokers, asyncio.get_running_loop()),
        cluster=parts.quick_cluster,
        clock=clock,
        settings=pump_settings,
        identity=parts.identity,
        report=reporter,
        notices=parts.notices,
        transactor=transactor,
        checkups=checkups_of(app.listeners, ways_of(asyncio.get_running_loop()), clock, reporter),
    )
    return Service(
        pump,
        invokers,
        clock,
        watched=reporter.flush,
        start_timeout_ms=settings.start_timeout_ms,
        tells_stalls=tells_stalls,
    )


def _over_http(settings: Settings) -> Show:
    from redrive.adapters.http_probe import Shown, start_probe

    @contextlib.contextmanager
    def show(views: Views) -> Generator[None, None, None]:
        def state() -> bytes:
            return msgspec.json.encode(WorkersSeen(workers=(views.state(),)))

        shown = Shown(views.health, views.metrics, state, settings.http_token)
        with contextlib.closing(start_probe(settings.http, shown)) as probe:
            _log.info("/livez, /readyz and /metrics at port %s (http=%s)", probe.port, settings.http)
            yield

    return show


@contextlib.contextmanager
def _observed(
    show: Show,
    service: Service,
    letters: LetterService | None,
    settings: Settings,
    parts: Parts,
    reporter: Reporter,
    worker: int,
) -> Generator[None, None, None]:
    """Health and state, and metrics where the settings want them, as `show` shows them."""
    clock = SystemClock()

    def state() -> WorkerState:
        pumps = {name: each.pump for name, each in _at_work(parts.plan.group, service, letters).items()}
        return state_of(pumps, parts.plan.translator, worker, clock)

    with contextlib.ExitStack() as stack:
        metrics: Callable[[], bytes] = bytes
        if settings.http:
            metrics = stack.enter_context(_metrics(service, letters, settings, parts, reporter))
        stack.enter_context(show(Views(lambda: health_of(service.pump, clock), metrics, state)))
        yield


@contextlib.contextmanager
def _metrics(
    service: Service,
    letters: LetterService | None,
    settings: Settings,
    parts: Parts,
    reporter: Reporter,
) -> Generator[Callable[[], bytes], None, None]:
    from redrive.adapters.prometheus import Exporter

    clock, pump, group = SystemClock(), service.pump, parts.plan.group

    def services() -> dict[str, Service]:
        return _at_work(group, service, letters)

    ends = EndOffsets(lambda: [each.pump.engine for each in services().values()], parts.cluster, clock)
    depths = _depths(pump.engine, settings, parts, reporter, clock)

    def looks() -> list[tuple[Engine, Look]]:
        known = Known(ends.bounds, depths.depths)
        return [(each.pump.engine, _look(name, each, known, clock)) for name, each in services().items()]

    with (
        contextlib.closing(Exporter(looks, with_aliases=settings.metrics_aliases)) as exporter,
        contextlib.closing(ends),
        contextlib.closing(depths),
    ):
        ends.start()
        depths.start()
        yield exporter.page


def _at_work(group: str, service: Service, letters: LetterService | None) -> dict[str, Service]:
    """All groups of this process that are, or were, at work."""
    beside = letters.service if letters is not None else None
    return {group: service} if beside is None else {group: service, letter_group(group): beside}


class Known(NamedTuple):
    """What is asked of the cluster in the background."""

    bounds: Mapping[TopicPartition, Bounds]
    depths: Mapping[str, Depth]


def _look(group: str, service: Service, known: Known, clock: SystemClock) -> Look:
    return Look(
        group=group,
        version=__version__,
        now_wall_ms=clock.wall_ms(),
        now_mono_ms=clock.mono_ms(),
        stepped_mono_ms=service.pump.stepped_mono_ms,
        bounds=known.bounds,
        depths=known.depths,
        loop_stalls=service.loop_stalls,
    )


def _depths(
    engine: Engine, settings: Settings, parts: Parts, reporter: Reporter, clock: SystemClock
) -> Depths:
    """Counts unresolved letters of the dead-letter topics whose source's first partition is assigned here."""
    from redrive.adapters.kafka_log import KafkaLog

    plan = parts.plan
    # Prefetched by a reader that nobody waits for: little memory rather than the last bit of speed.
    options = {**settings.client_options(plan.group), "queued.max.messages.kbytes": "8192"}
    log = KafkaLog(options)
    reach = Reach(cluster=parts.cluster, log=log, clock=clock, report=reporter, hang_up=log.close)
    return Depths(
        lambda: [each.dlq for each in plan.listeners if TopicPartition(each.source, 0) in engine.lanes],
        reach,
        names=Names((settings.naming,), plan.group),
        groups=(plan.group, *plan.accepts_groups),
        refresh_ms=settings.unresolved_refresh_ms,
    )
