"""
An app running in the test's process, and faults for it that a real broker doesn't produce on demand.

A fault is a wrapper round a port: nothing of redrive is patched.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from redrive import App
from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_settings import client_conf, consumer_conf, producer_conf
from redrive.adapters.kafka_sink import KafkaSink
from redrive.adapters.kafka_source import KafkaSource
from redrive.core.commands import Produce, Refusal, Report
from redrive.core.engine import Engine
from redrive.core.plan import Now
from redrive.runtime.clock import Clock, SystemClock, fresh_nonce
from redrive.runtime.executors import Executors
from redrive.runtime.handlers import Invoker
from redrive.runtime.identities import identities
from redrive.runtime.planning import plan_group
from redrive.runtime.ports import Sink, Source
from redrive.runtime.pump import Pump, PumpSettings
from redrive.runtime.service import Service

_END = object()


class Running:
    """An app at work on a thread of its own. `service` and `reports` only where it was started with wrappers."""

    def __init__(self, serve: Callable[[], Any]) -> None:
        self.service: Service | None = None
        self.reports: list[Report] = []
        self._serve = serve
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="app-under-test")

    def start(self) -> None:
        """Start it, and wait until it serves."""
        self._thread.start()
        self._started.wait(60)
        if self._error is not None:
            self._thread.join()
            raise self._error

    def stop(self, *, within_s: float = 60.0) -> None:
        """Stop it in order. Raises what it ended with."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(within_s)
        assert not self._thread.is_alive(), f"it did not stop within {within_s:g} s"
        if self._error is not None:
            raise self._error

    @property
    def has_ended(self) -> bool:
        """Whether it serves no more, by itself or since it was stopped."""
        return not self._thread.is_alive()

    def told(self, event: str) -> list[dict[str, Any]]:
        """The fields of all reports of one event so far."""
        return [report.fields for report in list(self.reports) if report.event == event]

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            self._error = error
        self._started.set()

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with self._serve() as serving:
            self._started.set()
            stop = asyncio.ensure_future(self._stop.wait())
            ended = asyncio.ensure_future(serving.stopped())
            await asyncio.wait([stop, ended], return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            if ended.done():
                await ended
            ended.cancel()


@contextmanager
def running(app: App) -> Iterator[Running]:
    """Serve an app as it is, on a thread with an event loop of its own, while the block runs."""
    yield from _while_running(Running(app.serving))


@contextmanager
def running_with(
    app: App,
    *,
    source: Callable[[Source], Source] = lambda port: port,
    sink: Callable[[Sink], Sink] = lambda port: port,
    clock: Clock | None = None,
) -> Iterator[Running]:
    """The same with ports wrapped, or by another clock."""
    running = Running(lambda: _Serving(running, app, source, sink, clock or SystemClock()))
    yield from _while_running(running)


def _while_running(running: Running) -> Iterator[Running]:
    running.start()
    try:
        yield running
    finally:
        running.stop()


class _Serving:
    """What `wiring.serve` does, with the wrappers put in between, and no checks before the start."""

    def __init__(self, running: Running, app: App, source: Any, sink: Any, clock: Clock) -> None:
        resolved, settings = app.resolve(), app.load_settings()
        user = settings.client_options(app.group)
        cluster = KafkaCluster(client_conf(user))
        topics = cluster.describe()
        identity = identities(cluster, topics)
        plan = plan_group(resolved, settings, topics)
        engine = Engine(
            plan,
            {name: one.partitions for name, one in topics.items()},
            identity,
            fresh_nonce(),
        )
        invokers = [
            Invoker(listener, clock, threading.Event(), plan.translator) for listener in resolved.listeners
        ]
        pump = Pump(
            engine=engine,
            source=source(KafkaSource(consumer_conf(user, group=app.group, protocol="consumer"))),
            sink=sink(KafkaSink(producer_conf(user))),
            executor=Executors(invokers, asyncio.get_running_loop()),
            cluster=cluster,
            clock=clock,
            settings=PumpSettings(starts={}, drain_ms=settings.shutdown_timeout_ms),
            identity=identity,
            report=running.reports.append,
        )
        self._service = running.service = Service(
            pump, invokers, clock, watched=lambda: None, start_timeout_ms=settings.start_timeout_ms
        )

    async def __aenter__(self) -> Service:
        self._service.start(None)
        return self._service

    async def __aexit__(self, *_: object) -> None:
        await self._service.stop()


class RefusingSink:
    """A sink that refuses what `refuses` names, without asking the broker; the rest goes through."""

    def __init__(self, sink: Sink, refuses: Callable[[Produce], Refusal | None]) -> None:
        self._sink = sink
        self._refuses = refuses
        self._refused: list[tuple[Any, Refusal | None]] = []
        self.refusals = 0
        self.problem = ""

    def produce(self, produce: Produce) -> None:
        refusal = self._refuses(produce)
        if refusal is None:
            self._sink.produce(produce)
            return
        self.refusals += 1
        self._refused.append((produce.token, refusal))

    def answers(self) -> list[tuple[Any, Refusal | None]]:
        refused, self._refused = self._refused, []
        return [*refused, *self._sink.answers()]

    def close(self, timeout_s: float) -> None:
        self._sink.close(timeout_s)


class SteppingClock(SystemClock):
    """The machine's clocks, with a wall clock that a test may step."""

    def __init__(self) -> None:
        self.step_ms = 0.0

    def now(self) -> Now:
        real = super().now()
        return Now(real.wall_ms + self.step_ms, real.mono_ms)

    def wall_ms(self) -> float:
        return super().wall_ms() + self.step_ms
