"""After fork() a connection made before says so in the child, ends neither process, and goes on in the parent."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

TEXT = "this Kafka connection was made before fork() and doesn't work in the child process"

#: Run in a process of its own: `use` in the child tells what each connection raised, and then the child ends by `end`.
SCRIPT = """
import gc, os, sys
from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_playground import MockKafka
from redrive.adapters.kafka_settings import client_conf, consumer_conf, producer_conf
from redrive.adapters.kafka_sink import KafkaSink
from redrive.adapters.kafka_source import KafkaSource
from redrive.core.commands import Produce
from redrive.core.record import TopicPartition
from tests.waiting import until

end = sys.argv[1]
mock = MockKafka()
mock.create(["t"])
user = {"bootstrap.servers": mock.bootstrap_servers}
sink, cluster = KafkaSink(producer_conf(user)), KafkaCluster(client_conf(user))
source = KafkaSource(consumer_conf(user, group="g", protocol="consumer"))
written = lambda alone=False: Produce("written", "t", 0, None, b"v", [], alone)
uses = {
    "produce": lambda: sink.produce(written()),
    "produce alone": lambda: sink.produce(written(True)),
    "answers": lambda: sink.answers(),
    "close the sink": lambda: sink.close(1),
    "poll": lambda: source.poll(0, 1),
    "committed": lambda: source.committed([TopicPartition("t", 0)], 1),
    "close the source": lambda: source.close(),
    "describe": lambda: cluster.describe(),
    "create": lambda: mock.create(["u"]),
}
sink.produce(written(True))
until(sink.answers, "an answer")
child = os.fork()
if child == 0:
    for name, use in uses.items():
        try:
            use()
            print(name, "did something", flush=True)
        except Exception as error:
            print(name, type(error).__name__, str(error), sep="|", flush=True)
    if end == "drop":
        del sink, cluster, source, mock, uses
        gc.collect()
        print("dropped", flush=True)
    if end == "exit":
        sys.exit(7)
    os._exit(7)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status))
for alone in (False, True):
    sink.produce(written(alone))
    until(sink.answers, "an answer")
print("parent wrote, and sees", sorted(cluster.describe()))
source.close()
"""


@pytest.mark.parametrize("end", ["exit", "_exit", "drop"])
def test_a_child_is_told_and_ends_and_its_parent_goes_on(end):
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, end], capture_output=True, check=False, text=True, timeout=60
    )

    assert ran.returncode == 0, ran.stderr
    *told, child, parent = ran.stdout.splitlines()
    told = [line for line in told if line != "dropped"]
    assert [line for line in told if f"|ForkedHandle|{TEXT}" not in line] == []
    assert len(told) == 9
    assert (child, parent) == ("child 7", "parent wrote, and sees ['t']")
