"""A process whose producer failed isn't ready while something waits to be written, and ready again afterwards."""

from redrive import RetryPolicy
from redrive.core.commands import Refusal
from redrive.runtime.health import health_of
from tests.faults import RefusingSink
from tests.runtime.at_work import Process, app_of, append, new_cluster


def test_a_failed_producer_counts_only_while_something_has_to_be_written():
    cluster = new_cluster()
    sinks = []

    def failing(sink):
        sinks.append(
            RefusingSink(sink, lambda _: Refusal("unavailable", "fenced") if sinks[0].problem else None)
        )
        return sinks[0]

    def handle(number: int) -> None:
        if number == 2:
            raise TimeoutError

    process = Process(app_of(handle, retry=RetryPolicy("5s")), cluster, sink=failing)
    process.run(500)
    sinks[0].problem = "fenced"
    append(cluster, 1)
    process.run(500)
    assert health_of(process.pump, cluster.clock).why == ()

    append(cluster, 2)
    process.run(500)
    assert health_of(process.pump, cluster.clock).why == ("it can't write: fenced",)

    sinks[0].problem = ""
    process.run(5_000)
    assert health_of(process.pump, cluster.clock).is_ready
    assert len(cluster.records("orders.retry.5s")) == 1
