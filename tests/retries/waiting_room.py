"""A simulated cluster on which retries wait, a service that works on them, and a person who looks after them."""

import threading

from redrive import Record, RetryPolicy
from redrive.core.dialects import with_envelope
from redrive.core.envelope import Envelope
from redrive.core.metadata import identity_of
from redrive.deadletters.replay import Desk
from redrive.deadletters.states import Author
from redrive.deadletters.topics import Names
from redrive.retries.job import Job
from redrive.retries.selection import Selection, make_plan
from redrive.retries.survey import survey
from redrive.retries.tiers import Scope, find_tiers, waiting_records
from redrive.runtime.notices import NoticeReader
from redrive.sim.cluster import SimCluster
from tests.runtime.at_work import Process, app_of

TIER, STATE = "orders.retry.30s", "orders.dlq.state"
EVERYTHING = Selection(everything=True)


class Room:
    """`orders` with a tier of 30 s. Whoever reads it is the group `shop`."""

    def __init__(self, *, partitions=1):
        self.cluster = SimCluster()
        self.clock = self.cluster.clock
        for topic in ("orders", TIER, "orders.dlq"):
            self.cluster.create_topic(topic, partitions)
        self.desk = Desk(self.cluster.admin(), self.cluster.log(), self.clock)
        self.jobs = 0

    def wait(self, count=1, *, topic=TIER, key=b"k", partition=0, in_ms=30_000, headers=None, **said):
        """Let records wait, due in so long."""
        for _ in range(count):
            now_ms = int(self.clock.wall_ms())
            envelope = Envelope(
                **{
                    "group": "shop",
                    "attempt": 1,
                    "due_ms": now_ms + in_ms,
                    "event_id": "orders/0/1",
                    "source_topic": "orders",
                    "first_failed_ms": now_ms,
                    "failure_type": "TimeoutError",
                    **said,
                }
            )
            written = with_envelope((), envelope) if headers is None else headers
            self.cluster.append(topic, b"{}", key=key, headers=written, partition=partition)

    def scope(self, **scope):
        return Scope(groups=frozenset(["shop"]), **scope)

    def tiers(self, topics=None, scope=None):
        return find_tiers(self.desk.cluster, Names(), topics, self.scope() if scope is None else scope)

    def rows(self, scope=None):
        scope = self.scope() if scope is None else scope
        tiers = self.tiers(scope=scope)
        return survey(tiers, waiting_records(tiers, self.desk.log, scope), self.clock.wall_ms())

    def plan(self, selection=EVERYTHING, action="discard", **more):
        tiers = self.tiers()
        waiting = waiting_records(tiers, self.desk.log, self.scope())
        return make_plan(selection, waiting, action, self.clock.wall_ms(), **more)

    def job(self, selection=EVERYTHING, action="discard", desk=None):
        """A job whose notices are posted."""
        self.jobs += 1
        author = Author("ann@host", f"job-{self.jobs}", "wrong prices")
        job = Job(desk or self.desk, self.plan(selection, action), self.tiers(), author, threading.Event())
        job.require()
        job.post()
        return job

    def counts(self, outcome):
        return outcome.discarded, outcome.ran, outcome.waiting, outcome.failed, outcome.not_found


class Shop:
    """The service, which notes the offsets of the tier that it ran; its handler fails while `fails`."""

    def __init__(self, room):
        self.room = room
        self.ran = []
        self.fails = False
        #: What the reader of notices told.
        self.reports = []

        def handle(order: dict, record: Record) -> None:
            self.ran.append((record.position, record.attempt))
            if self.fails:
                raise TimeoutError

        self.reader = self._reader()
        self.reader.look()
        app = app_of(handle, retry=RetryPolicy("30s"))
        self.process = Process(app, room.cluster, notices=self.reader.take, identity=self._identity)

    def run(self, ms):
        """Time passes; notices are looked for every two seconds."""
        while ms > 0:
            self.process.run(min(ms, 2_000))
            self.reader.look()
            ms -= 2_000
        self.process.run(1_500)

    def _reader(self):
        cluster = self.room.cluster
        return NoticeReader(
            [STATE],
            group="shop",
            cluster=cluster.admin(),
            log=cluster.log(),
            clock=cluster.clock,
            identity=self._identity,
            report=self.reports.append,
        )

    def _identity(self, topic):
        return identity_of("sim", self.room.cluster.topics[topic].topic_id)
