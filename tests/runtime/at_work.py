"""
One process of an app: the real engine, pump and invokers on the simulated cluster, with handlers that run in the test's thread.

Nothing happens between two steps, and time passes only where somebody waits or a handler takes it.
"""

import json
import threading
from collections import deque

from redrive import App, RetryPolicy
from redrive.core.engine import Engine
from redrive.core.record import TopicPartition
from redrive.core.settings import Settings
from redrive.runtime.clock import fresh_nonce
from redrive.runtime.handlers import Invoker
from redrive.runtime.planning import plan_group, wanted_topics
from redrive.runtime.ports import NewTopic
from redrive.runtime.provisioning import compare
from redrive.runtime.pump import Pump, PumpSettings
from redrive.sim.cluster import SimCluster
from redrive.sim.transactor import SimTransactor

#: More steps than this in a second of virtual time are a spin: the pump is to wait a millisecond or two at least.
STEPS_A_SECOND = 2_100
SETTINGS = Settings(bootstrap_servers="sim:9092")


def new_cluster(*, partitions=1, topic="orders"):
    """A cluster with one source topic."""
    cluster = SimCluster()
    cluster.create_topic(topic, partitions)
    return cluster


def app_of(handler, topic="orders", **options):
    """An app with one listener, named as its topic."""
    app = App("shop")
    options.setdefault("retry", RetryPolicy())
    app.listener(topic, name=topic, **options)(handler)
    return app


class InTurn:
    """Runs what it was given when results are asked for, unless it is `held`; without a result, asking takes time."""

    def __init__(self, invokers, clock):
        self._invokers = invokers
        self._clock = clock
        self._runs = deque()
        self.held = False
        self.is_closed = False

    def submit(self, run):
        self._runs.append(run)

    def results(self, timeout_s):
        results = []
        while self._runs and not self.held:
            run = self._runs.popleft()
            results.append(self._invokers[run.listener].run(run))
        if not results:
            self._clock.pass_time(timeout_s * 1000)
        return results

    def close(self, timeout_s):
        self.is_closed = True
        return not self._runs


def same(port):
    return port


class Process:
    """
    `app` at work on `cluster`, whose topics besides the source are created. `source`, `sink`, `admin` and `executor` put a
    wrapper round a port.
    """

    def __init__(
        self,
        app,
        cluster,
        *,
        source=same,
        sink=same,
        admin=same,
        executor=same,
        settings=SETTINGS,
        notices=tuple,
        identity=str,
    ):
        self.cluster, self.clock = cluster, cluster.clock
        resolved = app.resolve()
        create_topics(resolved, cluster)
        self.reports = []
        self.member = cluster.source("shop")
        invokers = [Invoker(listener, self.clock, threading.Event()) for listener in resolved.listeners]
        self.handlers = InTurn(invokers, self.clock)
        plan = plan_group(resolved, settings, cluster.topics)
        self.engine = Engine(plan, cluster.counts, identity, fresh_nonce())
        self.pump = Pump(
            engine=self.engine,
            source=source(self.member),
            sink=sink(cluster.sink()),
            executor=executor(self.handlers),
            transactor=None if self.engine.transacting is None else SimTransactor(cluster, plan.group),
            cluster=admin(cluster.admin()),
            clock=self.clock,
            settings=PumpSettings(
                starts={listener.topic: listener.start for listener in resolved.listeners},
                drain_ms=settings.shutdown_timeout_ms,
            ),
            identity=identity,
            report=self.reports.append,
            notices=notices,
        )
        self.pump.join()

    def steps(self, count):
        for _ in range(count):
            self.pump.step()
        return self

    def run(self, ms):
        """Step until so much time has passed. Fails when it doesn't."""
        end_ms, steps = self.clock.mono_ms() + ms, 0
        while self.clock.mono_ms() < end_ms:
            self.pump.step()
            steps += 1
            assert steps <= 1_000 + STEPS_A_SECOND * ms / 1000, "it spins"
        return self

    def told(self, event):
        """The fields of all reports of an event."""
        return [report.fields for report in self.reports if report.event == event]

    def counters(self, listener=0):
        return self.engine.listeners[listener].counters

    def committed(self, topic="orders", partition=0):
        """The group's committed offset; None for none."""
        at = self.cluster.group("shop").offsets.get(TopicPartition(topic, partition))
        return at and at.offset

    def is_all_committed(self):
        """Whether the group has nothing left to do."""
        logs = (
            (TopicPartition(topic, log.number), log)
            for topic in self.engine.topics
            for log in self.cluster.topics[topic].partitions
        )
        return all((self.committed(*key) or 0) >= log.end for key, log in logs)


def create_topics(resolved, cluster):
    """What `redrive topics apply` creates."""
    admin = cluster.admin()
    for change in compare(admin, wanted_topics(resolved, SETTINGS)).changes:
        admin.create([NewTopic(change.topic, change.partitions, 1, change.configs)])


def append(cluster, *values, topic="orders", partition=0, key=None):
    """Write records with these values, as JSON."""
    for value in values:
        cluster.append(topic, json.dumps(value).encode(), partition=partition, key=key)


def values(cluster, topic):
    """The values of all records of a topic, partition by partition."""
    return [json.loads(record.value()) for record in cluster.records(topic)]
