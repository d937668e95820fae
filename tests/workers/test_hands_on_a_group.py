"""A person's hands on the processes of a group, by way of its state topic: through restarts, rebalances and crashes."""

import threading

import pytest

from redrive import App, DeadLetterNow, RetryPolicy
from redrive.core.metadata import identity_of
from redrive.core.notices import read_end
from redrive.core.pausing import Pausing
from redrive.core.record import TopicPartition
from redrive.core.settings import Settings
from redrive.deadletters.letters import Position
from redrive.deadletters.replay import Desk
from redrive.deadletters.states import Author, require_state_topic
from redrive.errors import ListenerStopped, TopologyError
from redrive.retries.job import Job
from redrive.runtime.notices import NoticeReader
from redrive.runtime.planning import plan_group
from redrive.sim.cluster import SimCluster
from redrive.workers.pausing import paused_listeners, say
from redrive.workers.skipping import find
from tests.runtime.at_work import Process, append

SETTINGS = Settings(bootstrap_servers="sim:9092")
STATE = "orders.dlq.state"


class Group:
    """`orders` and `refunds`, of which processes handle records; -1 fails for good while `fails`."""

    def __init__(self, *, partitions=2, give_up="dead-letter"):
        self.cluster = SimCluster()
        self.clock = self.cluster.clock
        for topic in ("orders", "refunds"):
            self.cluster.create_topic(topic, partitions)
        self.desk = Desk(self.cluster.admin(), self.cluster.log(), self.clock)
        self.handled = []
        self.fails = True
        self.app = App("shop")
        self.processes = []

        @self.app.listener("orders", name="charge", retry=RetryPolicy("30s"), give_up=give_up)
        def charge(number: int) -> None:
            if number < 0 and self.fails:
                raise DeadLetterNow("as the test wants it")
            self.handled.append(number)

        @self.app.listener("refunds", name="refund")
        def refund(number: int) -> None:
            self.handled.append(number)

    def start(self):
        """Another process of the group: it reads what was said before it joins."""
        reader = NoticeReader(
            ["orders.dlq.state", "refunds.dlq.state"],
            group="shop",
            cluster=self.cluster.admin(),
            log=self.cluster.log(),
            clock=self.clock,
            identity=self._identity,
            report=lambda _: None,
        )
        reader.look()
        process = Process(self.app, self.cluster, notices=reader.take, identity=self._identity)
        process.reader = reader
        self.processes.append(process)
        self.run(1_500)
        return process

    def run(self, ms):
        """Time passes for all processes, which look for what was said every two seconds."""
        while ms > 0:
            for _ in range(20):
                for process in self.processes:
                    process.pump.step()
            self.clock.advance(min(ms, 200))
            ms -= 200
            for process in self.processes:
                process.reader.look()

    def stop(self, process):
        self.processes.remove(process)
        process.pump.shut_down()

    def kill(self, process):
        self.processes.remove(process)
        self.cluster.expel(process.member)

    @property
    def plan(self):
        return plan_group(self.app.resolve(), SETTINGS, self.cluster.topics)

    def say(self, action, listener="charge"):
        plan = next(each for each in self.plan.listeners if each.name == listener)
        say(
            self.desk,
            plan,
            Pausing(action, "shop", listener, "ann", int(self.clock.wall_ms()), "bank is down"),
        )

    def skip(self, text):
        """Asks for a record to be skipped; gives what watches it."""
        found = find(self.desk, self.plan, Position.parse(text))
        assert not isinstance(found, str), found
        listener = found.listener
        require_state_topic(*self.desk[:3], dlq=listener.dlq, state=listener.state)
        job = Job(self.desk, found.plan, (), Author("ann", "job-1", "it is broken"), threading.Event())
        job.post()
        return job

    def committed(self, topic="orders", partition=0):
        at = self.cluster.group("shop").offsets.get(TopicPartition(topic, partition))
        return None if at is None else at.offset

    def ends(self):
        found = [read_end(record.key(), record.value()) for record in self.cluster.records(STATE)]
        return [(key.topic, offset, end.state, end.why) for key, offset, end in filter(None, found)]

    def _identity(self, topic):
        return identity_of("sim", self.cluster.topics[topic].topic_id)


def test_a_pause_is_seen_by_all_processes_and_the_other_listener_goes_on():
    group = Group()
    group.start()
    group.start()
    append(group.cluster, 1, 2, 3, 4)
    group.run(2_000)
    assert sorted(group.handled) == [1, 2, 3, 4]
    group.say("pause")
    group.run(4_000)
    append(group.cluster, 5, 6, 7, 8)
    append(group.cluster, 50, topic="refunds")
    group.run(60_000)
    assert sorted(group.handled) == [1, 2, 3, 4, 50]
    assert [process.engine.listeners[0].paused.who for process in group.processes] == ["ann", "ann"]
    group.say("resume")
    group.run(5_000)
    assert sorted(group.handled) == [1, 2, 3, 4, 5, 6, 7, 8, 50]


def test_a_pause_survives_the_restart_of_all_and_a_process_that_comes_later_never_begins():
    group = Group()
    first = group.start()
    group.say("pause")
    group.run(4_000)
    group.stop(first)
    append(group.cluster, 1, 2)
    group.start()
    group.start()
    group.run(60_000)
    assert group.handled == []
    group.say("resume")
    group.run(5_000)
    assert sorted(group.handled) == [1, 2]


def test_a_pause_survives_rebalances_and_what_came_meanwhile_is_handled_once():
    group = Group()
    first = group.start()
    group.say("pause")
    group.run(4_000)
    append(group.cluster, 1, 2, 3, 4)
    second = group.start()
    group.run(2_000)
    group.stop(first)
    group.run(2_000)
    assert group.handled == []
    group.say("resume")
    group.run(5_000)
    assert sorted(group.handled) == [1, 2, 3, 4]
    assert second.engine.listeners[0].paused is None


def test_what_was_handled_before_a_pause_is_committed_during_it():
    group = Group(partitions=1)
    group.start()
    append(group.cluster, 1, 2)
    group.run(400)
    group.say("pause")
    group.run(5_000)
    assert group.committed() == 2


def test_who_paused_it_can_be_asked_without_any_process():
    group = Group()
    assert paused_listeners(group.desk, group.plan.listeners, "shop") == {}
    process = group.start()
    group.stop(process)
    group.say("pause")
    assert paused_listeners(group.desk, group.plan.listeners, "shop")["charge"].who == "ann"
    assert paused_listeners(group.desk, group.plan.listeners, "billing") == {}
    group.say("resume")
    assert paused_listeners(group.desk, group.plan.listeners, "shop") == {}


def test_another_groups_pause_is_not_heeded():
    group = Group()
    group.start()
    plan = group.plan.listeners[0]
    say(group.desk, plan, Pausing("pause", "billing", "charge", "bob", 1, ""))
    group.run(4_000)
    append(group.cluster, 1)
    group.run(2_000)
    assert group.handled == [1]


def test_what_stops_at_a_record_commits_what_is_before_it_and_ends_with_where_and_why():
    group = Group(partitions=1, give_up="stop")
    process = group.start()
    append(group.cluster, 1, 2, -1, 3)
    append(group.cluster, 50, topic="refunds")
    with pytest.raises(ListenerStopped) as stopped:
        process.pump.run()
    assert (stopped.value.listener, stopped.value.record) == ("charge", "orders/0/2")
    assert "redrive worker skip orders/0/2" in str(stopped.value)
    assert (group.committed(), group.committed("refunds"), sorted(group.handled)) == (2, 1, [1, 2, 50])
    assert group.cluster.records("orders.dlq") == []


def test_t_reb_7_a_commit_never_passes_the_record_at_which_a_listener_stopped_however_often_it_moves():
    group = Group(partitions=1, give_up="stop")
    append(group.cluster, 1, -1, 2, 3)
    for _ in range(3):
        process = group.start()
        group.run(2_000)
        group.stop(process)
        assert group.committed() == 1
    assert group.handled == [1]


def test_started_again_when_it_is_mended_it_goes_on_with_that_record():
    group = Group(partitions=1, give_up="stop")
    append(group.cluster, 1, -1, 2)
    group.stop(group.start())
    group.fails = False
    group.start()
    group.run(2_000)
    assert (group.handled, group.committed()) == ([1, -1, 2], 3)


def test_a_person_gets_past_it_while_no_process_runs():
    group = Group(partitions=1, give_up="stop")
    append(group.cluster, 1, -1, 2)
    group.stop(group.start())
    job = group.skip("orders/0/1")
    assert (job.watch(0).waiting, job.watch(0).discarded) == (1, 0)
    group.start()
    group.run(3_000)
    assert (group.handled, group.committed()) == ([1, 2], 3)
    assert group.ends() == [("orders", 1, "skipped", "it is broken")]
    assert job.watch(0).discarded == 1


def test_what_is_finished_was_deleted_or_is_not_there_yet_is_nothing_to_skip():
    group = Group(partitions=1)
    append(group.cluster, 1, 2)
    group.start()
    group.run(2_000)
    found = [find(group.desk, group.plan, Position("orders", 0, offset)) for offset in (1, 2)]
    assert found == [
        "it is finished already: the group's commit tells so",
        "there is no record yet: orders/0 ends at 2",
    ]


def test_a_partition_that_is_not_there_is_told_and_so_is_a_topic():
    group = Group(partitions=1)  # no process has made its tiers yet
    found = [
        find(group.desk, group.plan, Position(*at)) for at in (("orders", 1, 0), ("orders.retry.30s", 0, 0))
    ]
    assert found == [
        "there is no partition 1 of orders, which has 1",
        "there is no partition 0 of orders.retry.30s, which has 0",
    ]


def test_a_topic_that_the_group_does_not_read_is_refused():
    group = Group()
    group.start()
    with pytest.raises(
        TopologyError, match="'payments' is none of the topics that shop reads: orders, refunds"
    ):
        find(group.desk, group.plan, Position("payments", 0, 1))


def test_a_record_whose_copy_is_parked_is_skipped_there():
    app = App("shop")

    @app.listener("orders", retry=RetryPolicy("1h", blocking="key", park=True), order="key")
    def charge(number: int) -> None:
        pass

    cluster = SimCluster()
    for topic in ("orders", "orders.parked"):
        cluster.create_topic(topic, 1)
    cluster.append("orders.parked", b"7")
    plan = plan_group(app.resolve(), SETTINGS, cluster.topics)
    desk = Desk(cluster.admin(), cluster.log(), cluster.clock)
    found = find(desk, plan, Position("orders.parked", 0, 0))
    assert (found.record.value(), found.listener.source) == (b"7", "orders")


def test_where_the_topics_were_never_made_a_pause_names_what_makes_them():
    group = Group()
    with pytest.raises(
        TopologyError, match=r"'orders.dlq'.* doesn't exist; `redrive topics apply` creates it$"
    ):
        group.say("pause")
