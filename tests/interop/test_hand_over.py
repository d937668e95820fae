"""The commands of docs/how-to/move-from-spring.md hand over offsets, and pass by nothing that waits."""

import os
import re
import subprocess
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.broker import ROOT, fetch
from tests.plain_kafka import Given, committed, create_topics, send, unique

PAGE = ROOT / "docs" / "how-to" / "move-from-spring.md"


def commands() -> list[str]:
    """The page's blocks for the shell: to redrive, and to Spring."""
    blocks = re.findall(r"^( *)```sh\n(.*?)^ *```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return ["\n".join(line.removeprefix(indent) for line in block.splitlines()) for indent, block in blocks]


def run(script: str, folder: Path, topic: str, group: str, bootstrap: str) -> None:
    """As an operator would, with the names of this test."""
    tool = folder / "kafka-consumer-groups.sh"
    main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    tool.write_text(
        f"#!/bin/sh\nexec java -XX:TieredStopAtLevel=1 -cp '{fetch()}/*' {main} \"$@\" 2>/dev/null\n"
    )
    tool.chmod(0o755)
    ours = f"topic={topic} group={group} kafka={bootstrap}"
    script, names = re.subn(r"^topic=orders .*$", ours, script, flags=re.MULTILINE)
    script, ladders = re.subn(r"in retry-5000 .*;", "in retry-5000 retry-10000;", script)
    assert (names, ladders) == (1, 1)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(
        ["sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    client.commit(
        offsets=[TopicPartition(topic, partition, offset) for partition, offset in offsets.items()],
        asynchronous=False,
    )
    client.close()


def test_what_no_group_has_committed_is_not_passed_by_in_either_direction(kafka, tmp_path):
    topic, group = unique("orders"), unique("payments")
    first, second = f"{topic}-retry-5000", f"{topic}-retry-10000"
    create_topics(kafka.bootstrap, [topic, first, second], 2)
    for tier in (first, second):
        send(kafka.bootstrap, tier, [Given(partition=number % 2) for number in range(8)])
    commit(kafka.bootstrap, f"{group}-retry-5000", first, {0: 3})
    commit(kafka.bootstrap, group, topic, {0: 1})
    to_redrive, to_spring = commands()

    run(to_redrive, tmp_path, topic, group, kafka.bootstrap)
    assert committed(kafka.bootstrap, group, first) == {0: 3}, "the other one begins at its first record"
    assert committed(kafka.bootstrap, group, second) == {}
    assert committed(kafka.bootstrap, group, topic) == {0: 1}

    commit(kafka.bootstrap, group, second, {1: 2})
    commit(kafka.bootstrap, group, first, {0: 4})
    run(to_spring, tmp_path, topic, group, kafka.bootstrap)
    assert committed(kafka.bootstrap, f"{group}-retry-5000", first) == {0: 4}
    assert committed(kafka.bootstrap, f"{group}-retry-10000", second) == {1: 2}
