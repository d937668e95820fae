"""`redrive topics` on a real broker."""

import json
import re
import sys

import pytest
from typer.testing import CliRunner

from redrive.cli.main import app
from tests.broker import admin
from tests.kafka.conftest import LOGIN

SERVICE = """
from redrive import App, RetryPolicy

app = App({group!r})


@app.listener({topic!r}, retry=RetryPolicy("5s", "10m"))
def charge(value: bytes) -> None: ...
"""


class Command:
    """`redrive topics … service:app` for a service on a topic of its own, for one broker."""

    def __init__(self, bootstrap, source):
        self.bootstrap, self.source = bootstrap, source

    def __call__(self, verb, *options, replication=1):
        arguments = ["--bootstrap-servers", self.bootstrap, "--replication", str(replication), *options]
        result = CliRunner().invoke(app, ["topics", verb, "service:app", *arguments])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return (
            result.exit_code,
            result.stdout.replace(self.source, "SOURCE"),
            result.stderr.replace(self.source, "SOURCE"),
        )

    def counts(self):
        topics = admin(self.bootstrap).list_topics(timeout=10).topics
        return {
            name.replace(self.source, "SOURCE"): len(topic.partitions)
            for name, topic in topics.items()
            if name.startswith(self.source)
        }


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("service", None)
    yield tmp_path
    sys.modules.pop("service", None)


@pytest.fixture
def topics(workplace, kafka, topic, group):
    source = topic("orders", partitions=3)
    (workplace / "service.py").write_text(SERVICE.format(group=group, topic=source))
    return Command(kafka.bootstrap, source)


def test_the_plan_shows_what_is_missing_and_ends_with_4(topics):
    keep = "cleanup.policy=delete, retention.bytes=-1, min.insync.replicas=1"
    size = "max.message.bytes=1114124"

    code, out, told = topics("plan")

    assert (code, told) == (4, "")
    assert [re.sub(r"ms=\d+", "ms=N", " ".join(line.split())) for line in out.splitlines()] == [
        "ACTION TOPIC ROLE WHAT",
        "OK SOURCE source",
        f"CREATE SOURCE.retry.5s tier 3 partitions, replication 1, {keep}, retention.ms=N, {size}",
        f"CREATE SOURCE.retry.10m tier 3 partitions, replication 1, {keep}, retention.ms=N, {size}",
        f"CREATE SOURCE.dlq dlq 3 partitions, replication 1, {keep}, retention.ms=-1, {size}",
        "CREATE SOURCE.dlq.state state 1 partition, replication 1, cleanup.policy=compact, min.insync.replicas=1",
        "",
        "4 changes to make: redrive topics apply service:app",
    ]
    assert topics.counts() == {"SOURCE": 3}


def test_apply_creates_it_and_the_plan_has_nothing_more_to_say(topics):
    assert topics("apply") == (
        0,
        (
            "created SOURCE.retry.5s: 3 partitions, replication 1\n"
            "created SOURCE.retry.10m: 3 partitions, replication 1\n"
            "created SOURCE.dlq: 3 partitions, replication 1\n"
            "created SOURCE.dlq.state: 1 partition, replication 1\n"
        ),
        "",
    )
    assert topics.counts() == {
        "SOURCE": 3,
        "SOURCE.retry.5s": 3,
        "SOURCE.retry.10m": 3,
        "SOURCE.dlq": 3,
        "SOURCE.dlq.state": 1,
    }
    assert topics("apply") == (0, "all topics are as wanted; nothing to do\n", "")
    assert topics("plan")[0] == 0


def test_a_source_is_grown_after_its_copies_and_nothing_is_shrunk(topics):
    topics("apply")

    code, out, _ = topics("apply", "--partitions", f"{topics.source}=5")

    assert (code, out.splitlines()[-1]) == (0, "grown SOURCE: 5 partitions")
    assert topics.counts() == {
        "SOURCE": 5,
        "SOURCE.retry.5s": 5,
        "SOURCE.retry.10m": 5,
        "SOURCE.dlq": 5,
        "SOURCE.dlq.state": 1,
    }
    code, out, _ = topics("apply", "--partitions", f"{topics.source}=2")
    assert (code, out.splitlines()[0]) == (
        4,
        "left as it is, SOURCE: partitions is 5, wanted 2: partitions are never taken away: their records would be lost",
    )
    assert topics.counts()["SOURCE"] == 5


def test_a_missing_source_is_created_with_as_many_partitions_as_asked_for(workplace, kafka, group):
    topics = Command(kafka.bootstrap, f"new-{group}")
    (workplace / "service.py").write_text(SERVICE.format(group=group, topic=topics.source))

    code, out, _ = topics("apply")
    assert (code, out.splitlines()[-1]) == (
        4,
        (
            "SOURCE is usually created by its producers; to create it with 4 partitions: "
            "redrive topics apply service:app --create-sources 4"
        ),
    )
    assert topics("apply", "--create-sources", "4")[0] == 0
    assert topics.counts()["SOURCE"] == topics.counts()["SOURCE.retry.5s"] == 4


def test_more_replicas_than_brokers_name_the_option_for_one_broker(topics):
    code, out, told = topics("apply", replication=3)

    assert (code, out) == (1, "")
    assert told.splitlines()[0] == (
        "not created: SOURCE.retry.5s, SOURCE.retry.10m, SOURCE.dlq, SOURCE.dlq.state"
    )
    assert told.splitlines()[1].startswith("  INVALID_REPLICATION_FACTOR: ")
    assert (
        told.splitlines()[2]
        == "  this cluster has fewer brokers than that; for a single broker: --replication 1"
    )


def test_a_user_without_rights_is_told_which_are_lacking(workplace, guarded, group):
    topics = Command(guarded.login, f"forbidden-{group}")
    login = "".join(f'"{name}" = "{value}"\n' for name, value in LOGIN.items())
    (workplace / "redrive.toml").write_text(f"[kafka]\n{login}")
    (workplace / "service.py").write_text(SERVICE.format(group=group, topic=topics.source))

    code, _, told = topics("apply", "--create-sources", "1")

    assert code == 1
    assert told.startswith(
        "this user lacks 14 rights: Describe and DescribeConfigs on topic SOURCE, Create and Alter"
    )


def test_the_plan_is_one_object_for_programs(topics):
    code, out, _ = topics("plan", "--json")

    plan = json.loads(re.sub(r'"retention.ms": "\d+"', '"retention.ms": "N"', out))
    assert (code, plan["changes"], plan["findings"], plan["shared_tiers"]) == (4, 4, 0, {})
    assert plan["topics"][1] == {
        "action": "create",
        "topic": "SOURCE.retry.5s",
        "role": "tier",
        "partitions": 3,
        "replication": 1,
        "configs": {
            "cleanup.policy": "delete",
            "retention.bytes": "-1",
            "min.insync.replicas": "1",
            "retention.ms": "N",
            "max.message.bytes": "1114124",
        },
    }


def test_partitions_for_a_topic_that_is_no_source_are_a_usage_error(topics):
    assert topics("plan", "--partitions", "elsewhere=3")[0] == 2
    assert topics("plan", "--partitions", "elsewhere")[0] == 2
