"""Logs that retention cut short under the real client, which then gives partitions up: all are served again, nothing fetched is lost."""

import threading
from contextlib import closing

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from redrive import App, RetryPolicy
from redrive.core.record import TopicPartition
from tests.faults import running_with
from tests.plain_kafka import Given, admin_of, committed, create_topics_of, is_all_committed, send, unique
from tests.waiting import until


class Orders:
    """A topic and a service of it, which takes a moment for each record."""

    def __init__(self, bootstrap, partitions, *, takes_s=0.0):
        self.bootstrap = bootstrap
        self.topic, self.group = unique("orders"), unique("group")
        self.handled = []
        never = threading.Event()
        self.app = App(self.group, settings={"bootstrap_servers": bootstrap, "commit_interval": "100ms"})

        @self.app.listener(self.topic, name="handle", retry=RetryPolicy())
        def handle(number: int) -> None:
            never.wait(takes_s)
            self.handled.append(number)

        create_topics_of(bootstrap, self.app, partitions)

    def send(self, *numbers, partition=lambda number: 0):
        records = [Given(b"%d" % number, partition=partition(number)) for number in numbers]
        send(self.bootstrap, self.topic, records)

    def cut(self, before, *partitions):
        wanted = [ClientPartition(self.topic, number, before) for number in partitions]
        for future in admin_of(self.bootstrap).delete_records(wanted).values():
            future.result()

    def commit(self, offset, *partitions):
        """As a process of the group before did."""
        with closing(Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group})) as consumer:
            consumer.commit(
                offsets=[ClientPartition(self.topic, number, offset) for number in partitions],
                asynchronous=False,
            )


def test_more_partitions_than_the_client_tells_of_one_by_one_are_all_served_again(kafka):
    orders, numbers = Orders(kafka.bootstrap, 60), range(60)
    orders.send(
        *(10 * number + rest for number in numbers for rest in range(5)),
        partition=lambda number: number // 10,
    )
    orders.commit(1, *numbers)
    orders.cut(3, *numbers)

    with running_with(orders.app) as service:
        until(lambda: is_all_committed(kafka.bootstrap, orders.group, [orders.topic]), "all is committed")
        [listener] = service.service.pump.engine.listeners
        told = sum(fields["lost"] for fields in service.told("records-lost"))

    assert sorted(orders.handled) == [10 * number + rest for number in numbers for rest in (3, 4)]
    assert (listener.counters.lost, told) == (120, 120)


def test_records_that_were_fetched_before_their_log_was_cut_are_handled_and_the_lost_ones_counted(kafka):
    orders = Orders(kafka.bootstrap, 1, takes_s=0.001)
    orders.send(*range(6_000))

    with running_with(orders.app) as service:
        lanes = service.service.pump.engine.lanes
        key = TopicPartition(orders.topic, 0)
        until(lambda: key in lanes and lanes[key].is_paused, "the partition is paused")
        fetched = lanes[key].next_offset
        orders.cut(6_000, 0)
        orders.send(*range(6_000, 6_010))
        assert committed(kafka.bootstrap, orders.group, orders.topic).get(0, 0) < fetched

        until(lambda: is_all_committed(kafka.bootstrap, orders.group, [orders.topic]), "all is committed")
        [listener] = service.service.pump.engine.listeners

    assert 0 < fetched < 6_000
    assert orders.handled == [*range(fetched), *range(6_000, 6_010)]
    assert listener.counters.lost == 6_000 - fetched
    assert [fields["offset"] for fields in service.told("records-lost")] == [fetched]
