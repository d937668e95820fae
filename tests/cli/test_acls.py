"""`redrive topics acls`: the rights as a table, as JSON, and as commands of Kafka's own tool."""

import json

import pytest
from typer.testing import CliRunner

from redrive.cli.main import app

SERVICE = """
from redrive import App, RetryPolicy

app = App("payments", settings={"bootstrap_servers": "kafka:9092", "group_protocol": "consumer"})


@app.listener("orders", retry=RetryPolicy("5s"))
def charge(value: bytes) -> None: ...
"""


def _acls(folder, *options):
    (folder / "service.py").write_text(SERVICE)
    return CliRunner().invoke(app, ["topics", "acls", "service:app", "--offline", *options])


def test_a_table_for_people(folder):
    result = _acls(folder, "--for", "service")

    assert result.stdout.splitlines() == [
        "service: redrive run, as User:payments",
        "RIGHT  ON     NAME              WHY",
        "Read   topic  orders            listener charge handles its records",
        "Read   topic  orders.retry.5s   records wait there for their next attempt",
        "Write  topic  orders.retry.5s   records that fail are written there",
        "Write  topic  orders.dlq        records that failed for good are put aside there",
        "Read   topic  orders.dlq.state  what is asked for by `redrive retries` and `redrive worker` stands there",
        "Write  topic  orders.dlq.state  what became of a discarded or skipped record is written there",
        "Read   group  payments          membership and commits",
        "",
        "Each list is complete by itself, but for what is needed besides. Read, Write and Alter bring Describe along.",
        "Brokers before 2.8 also want IdempotentWrite on the cluster of whoever writes.",
    ]


@pytest.mark.parametrize("option", ["--principal", "--operator"])
@pytest.mark.parametrize("user", ["alice", ":alice", "User:", ""])
def test_a_user_without_its_kind_is_a_usage_error(folder, option, user):
    result = _acls(folder, option, user)
    assert (result.exit_code, result.stdout, "its kind" in result.stderr) == (2, "", True)


def test_commands_of_kafkas_own_tool(folder):
    result = _acls(
        folder,
        "--format",
        "kafka-acls",
        "--for",
        "service",
        "--principal",
        "User:CN=pay me",
        "--host",
        "10.0.0.7",
    )

    begin = "kafka-acls.sh --bootstrap-server kafka:9092 --command-config admin.properties --add"
    who = "--allow-principal 'User:CN=pay me' --allow-host 10.0.0.7"
    assert result.stdout.splitlines() == [
        "# An administrator's login is expected in admin.properties.",
        "# Brokers before 2.8 also want IdempotentWrite on the cluster of whoever writes.",
        "# service: redrive run",
        f"{begin} {who} --operation Read --topic orders",
        f"{begin} {who} --operation Read --operation Write --topic orders.retry.5s",
        f"{begin} {who} --operation Write --topic orders.dlq",
        f"{begin} {who} --operation Read --operation Write --topic orders.dlq.state",
        f"{begin} {who} --operation Read --group payments",
    ]


class TestExactlyOnce:
    """The transactional ids of all processes of the group, by their beginning."""

    @pytest.fixture
    def told(self, folder, monkeypatch):
        monkeypatch.setenv("REDRIVE_DELIVERY", "exactly-once")
        return lambda *options: _acls(folder, "--for", "service", *options).stdout

    def test_in_a_table(self, told):
        [line] = [line for line in told().splitlines() if "transactional-id" in line]
        assert line.split()[:4] == ["Write", "transactional-id", "payments-…", "(prefixed)"]

    def test_for_kafkas_own_tool(self, told):
        last = told("--format", "kafka-acls").splitlines()[-1]
        assert last.endswith(
            "--operation Write --transactional-id payments- --resource-pattern-type prefixed"
        )

    def test_for_programs(self, told):
        acls = json.loads(told("--json"))["needs"][0]["acls"]
        assert [(acl["name"], acl["pattern"]) for acl in acls if acl["resource"] == "transactional-id"] == [
            ("payments-", "prefixed")
        ]


def test_one_object_for_programs(folder):
    told = json.loads(_acls(folder, "--json", "--for", "dlq-look", "--operator", "User:ops").stdout)

    assert told == {
        "group": "payments",
        "needs": [
            {
                "for": "dlq-look",
                "commands": "redrive dlq ls, show",
                "principal": "User:ops",
                "acls": [
                    {
                        "operation": "Read",
                        "resource": "topic",
                        "name": topic,
                        "pattern": "literal",
                        "permission": "Allow",
                        "host": "*",
                        "why": why,
                    }
                    for topic, why in {
                        "orders.dlq": "dead letters are there",
                        "orders.dlq.state": "what became of them stands there",
                    }.items()
                ],
            }
        ],
    }


def test_wildcards_are_quoted_for_the_shell(folder):
    result = _acls(folder, "--format", "kafka-acls", "--for", "topics-plan")

    assert result.stdout.splitlines()[-1].endswith("--allow-host '*' --operation Describe --group '*'")


def test_all_needs_are_printed_unless_some_are_named(folder):
    told = json.loads(_acls(folder, "--json").stdout)

    assert [need["for"] for need in told["needs"]] == [
        "service",
        "metrics",
        "topics-plan",
        "topics-apply",
        "dlq-look",
        "dlq-replay",
        "retries",
        "worker",
        "lag",
    ]


def test_an_unknown_need_is_a_usage_error_that_names_those_there_are(folder):
    result = _acls(folder, "--for", "everything")

    assert result.exit_code == 2
    assert "there is only service" in result.output


def test_a_cluster_that_can_not_be_reached_is_told_and_the_rights_are_printed(folder):
    (folder / "service.py").write_text(SERVICE.replace("kafka:9092", "127.0.0.1:1"))
    result = CliRunner().invoke(app, ["topics", "acls", "service:app", "--for", "dlq-look"])

    assert result.exit_code == 0
    assert result.stderr.startswith(
        "not looked for retry topics of older policies: nothing listens at 127.0.0.1:1"
    )
    assert "Read   topic  orders.dlq.state" in result.stdout
