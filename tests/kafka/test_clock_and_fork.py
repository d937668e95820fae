"""A wall clock that steps, and a process that forks."""

import os
import warnings

import pytest

from redrive import App, ForkedHandle, Record, RetryPolicy
from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_sink import KafkaSink
from redrive.adapters.kafka_source import KafkaSource
from tests.faults import SteppingClock, running_with
from tests.plain_kafka import Given, count_all, create_topics_of, is_all_committed, send, unique
from tests.waiting import until

HOUR_MS = 3_600_000


def test_a_clock_that_steps_back_makes_retries_wait_and_never_run_early(kafka):
    clock, orders = SteppingClock(), unique("orders")
    app = App(unique("group"), settings={"bootstrap_servers": kafka.bootstrap, "commit_interval": "100ms"})
    starts: list[tuple[bytes | None, int, float]] = []

    @app.listener(orders, retry=RetryPolicy("300ms"))
    def handle(record: Record) -> None:
        starts.append((record.value, record.attempt, clock.wall_ms() - (record.due_ms or 0)))
        if record.attempt == 1 and record.value != b"sentinel":
            raise ConnectionError

    create_topics_of(kafka.bootstrap, app)
    tier = f"{orders}.retry.300ms"
    send(kafka.bootstrap, orders, [Given(b"before")])
    with running_with(app, clock=clock):
        until(lambda: count_all(kafka.bootstrap, tier) == 1, "it waits in the tier")
        clock.step_ms -= HOUR_MS
        # What fails and comes after the step is due by the new time: it must not wait for what is due in an hour.
        send(kafka.bootstrap, orders, [Given(b"after")])
        until(lambda: (b"after", 2) in [start[:2] for start in starts], "a retry by the new time")
        assert (b"before", 2) not in [start[:2] for start in starts]
        clock.step_ms += HOUR_MS
        until(lambda: (b"before", 2) in [start[:2] for start in starts], "the clock is right again")
        until(lambda: is_all_committed(kafka.bootstrap, app.group, [orders, tier]), "all committed")

    assert sorted(start[:2] for start in starts) == [
        (b"after", 1),
        (b"after", 2),
        (b"before", 1),
        (b"before", 2),
    ]
    assert [late_ms for _, attempt, late_ms in starts if attempt == 2 and late_ms < 0] == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize(
    ("make", "use"),
    [
        (KafkaSink, lambda sink: sink.client.flush(0)),
        (lambda conf: KafkaSource({**conf, "group.id": "g"}), lambda source: source.poll(0, 1)),
        (KafkaCluster, lambda cluster: cluster.describe()),
    ],
    ids=["producer", "consumer", "admin client"],
)
def test_a_connection_made_before_a_fork_says_so_in_the_child(kafka, make, use):
    handle = make({"bootstrap.servers": kafka.bootstrap})
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on: forking with threads
        child = os.fork()
    if child == 0:
        try:
            use(handle)
            told = b"it works"
        except BaseException as error:
            told = type(error).__name__.encode()
        os.write(writer, told)
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reader, 100).decode() == ForkedHandle.__name__
    use(handle)  # in the parent it goes on working
    os.close(reader)
    os.close(writer)
