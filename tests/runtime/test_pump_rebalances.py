"""What a rebalance may bring at odd moments: records too early, and pauses that should not outlive it."""

from redrive.core.record import TopicPartition
from tests.runtime.at_work import Process, app_of, append, new_cluster

P0 = TopicPartition("orders", 0)


class TooEarly:
    """A consumer whose first poll brings records of a partition before it tells that the partition was assigned."""

    def __init__(self, port, cluster):
        self._port, self._cluster = port, cluster
        self._is_first = True

    def __getattr__(self, name):
        return getattr(self._port, name)

    def poll(self, timeout_s, most):
        if self._is_first:
            self._is_first = False
            return [(P0, list(self._cluster.partition(P0)))]
        return self._port.poll(timeout_s, most)


def test_t_reb_3_records_that_come_before_their_partition_was_assigned_are_left_and_come_again():
    cluster, handled = new_cluster(), []

    def handle(number: int) -> None:
        handled.append(number)

    process = Process(app_of(handle), cluster, source=lambda port: TooEarly(port, cluster))
    append(cluster, 1, 2, 3)
    process.run(3_000)
    assert (handled, process.committed()) == ([1, 2, 3], 3)


def test_t_reb_2_a_partition_that_was_paused_when_it_went_is_fetched_when_it_comes_back():
    cluster, handled = new_cluster(partitions=2), []

    def handle(number: int) -> None:
        handled.append(number)

    ours = Process(app_of(handle), cluster)
    ours.handlers.held = True
    megabyte = b" " * 1_000_000
    for number in range(160):
        cluster.append("orders", megabyte + b"%d" % number, partition=number % 2)
    ours.run(5_000)
    assert any(lane.is_paused for lane in ours.engine.lanes.values())
    other = Process(app_of(handle), cluster)
    other.steps(1)
    ours.run(2_000)  # waits for what its handlers don't end, and lets go
    other.steps(3)
    other.pump.shut_down()
    ours.handlers.held = False
    ours.run(10_000)

    assert not any(lane.is_paused for lane in ours.engine.lanes.values())
    assert (set(handled), ours.is_all_committed()) == (set(range(160)), True)
