"""`redrive doctor` on real brokers, each with one fault."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner

from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_inspection import CLOCK_TOPIC, KafkaInspection
from redrive.adapters.kafka_log import KafkaLog
from redrive.adapters.kafka_settings import client_conf
from redrive.cli.loading import load_app
from redrive.cli.main import app
from redrive.core.dialects import write_headers
from redrive.core.doctor.table import CHECKS, examine
from redrive.core.envelope import Envelope
from redrive.core.settings import Settings
from redrive.runtime.clock import SystemClock
from redrive.runtime.examining import Eyes, make_case, observe
from tests.broker import Broker
from tests.kafka.conftest import LOGIN
from tests.plain_kafka import Given, admin_of, create_topics, send
from tests.waiting import until

SERVICE = """
from redrive import App, RetryPolicy

app = App({group!r})


@app.listener({topic!r}, retry=RetryPolicy("5s", "10m"))
async def charge(value: bytes) -> None: ...
"""


class Patient:
    """An app on a source of its own, whose topics are as they should be until a test spoils one."""

    def __init__(self, folder, bootstrap, source, group):
        self.folder, self.bootstrap, self.source, self.group = folder, bootstrap, source, group
        (folder / "service.py").write_text(SERVICE.format(group=group, topic=source))
        self.settings()
        self.short, self.long = f"{source}.retry.5s", f"{source}.retry.10m"
        self.dlq = f"{source}.dlq"

    def settings(self, **values):
        lines = ["replication = 1", *(f"{name} = {value}" for name, value in values.items())]
        (self.folder / "redrive.toml").write_text("\n".join(lines))

    def run(self, *arguments, bootstrap=None):
        result = CliRunner().invoke(app, [*arguments, "--bootstrap-servers", bootstrap or self.bootstrap])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    def apply(self):
        assert self.run("topics", "apply", "service:app").exit_code == 0

    def doctor(self, *options, **where):
        """Exit code, and code and subject of each finding."""
        result = self.run("doctor", "service:app", "--json", *options, **where)
        told = json.loads(result.stdout)
        assert "error" not in told, told
        found = {(each["code"], each["subject"].replace(self.source, "SOURCE")) for each in told["findings"]}
        return result.exit_code, found

    def alter(self, topic, **configs):
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin_of(self.bootstrap).incremental_alter_configs([resource])[resource].result()
        cluster = KafkaCluster({"bootstrap.servers": self.bootstrap})
        wanted = {entry.name: entry.value for entry in entries}
        until(
            lambda: wanted.items() <= dict(cluster.describe([topic], configs=True)[topic].configs).items(),
            "the broker to show it",
        )

    def wait(self, topic, **said):
        """A record waits in a topic."""
        send(self.bootstrap, topic, [Given(b"{}", None, write_headers(Envelope(**said)))])

    def commit(self, group, topic):
        """A group has read nothing yet of a topic, and committed that."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        consumer.close()

    def eyes(self, clock=None, inspection=None):
        user = {"bootstrap.servers": self.bootstrap}
        inspection = inspection or KafkaInspection(user)
        cluster = KafkaCluster(client_conf(user))
        return Eyes(cluster, KafkaLog(user), inspection, clock or SystemClock(), lambda _: None)

    def examine(self, eyes, **options):
        """What is found by other eyes than the command's."""
        settings = Settings(bootstrap_servers=self.bootstrap, replication=1)
        resolved = load_app("service:app", self.folder).resolve()
        case = make_case(resolved, settings, eyes.cluster.describe(), target="service:app")
        found = examine(case, observe(case, eyes, **options)).findings
        eyes.log.close()
        return {(each.code, each.subject) for each in found}


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("service", None)
    yield tmp_path
    sys.modules.pop("service", None)


@pytest.fixture
def patient(workplace, kafka, topic, group):
    patient = Patient(workplace, kafka.bootstrap, topic("orders", partitions=2), group)
    patient.apply()
    return patient


def test_nothing_is_found_where_all_is_well(patient):
    result = patient.run("doctor", "service:app", "--json", "--measure-clock")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["findings"], told["not_checked"]) == (0, [], [])
    assert (told["checks"], CLOCK_TOPIC in admin_of(patient.bootstrap).list_topics().topics) == (17, False)


def test_a_person_reads_what_it_means_and_what_to_run(patient):
    patient.alter(patient.dlq, retention_ms="60000")
    result = patient.run("doctor", "service:app")
    told = result.stdout.replace(patient.source, "SOURCE")
    assert result.exit_code == 4
    assert told.startswith(
        "RD09 WARNING SOURCE.dlq: retention.ms is 60000 (1m), wanted -1 (without end)\n"
        "    so    dead letters would be gone no later than the records of their source, without anybody's decision\n"
        "    mend  set the topic's retention.ms to -1, or to what was decided\n"
        "    run   kafka-configs.sh --alter --entity-type topics --entity-name SOURCE.dlq --add-config retention.ms=-1\n"
    )
    assert told.splitlines()[-1] == "17 checks: 1 warning, 1 not checked"


def test_missing_topics_are_found_and_nothing_is_created(workplace, kafka, topic, group):
    patient = Patient(workplace, kafka.bootstrap, topic("orders"), group)
    missing = {f"SOURCE{end}" for end in (".retry.5s", ".retry.10m", ".dlq", ".dlq.state")}
    for _ in range(2):
        assert patient.doctor() == (4, {("RD01", name) for name in missing})


def test_a_tier_that_another_group_reads_is_found(patient):
    patient.commit(f"other-{patient.group}", patient.short)
    assert patient.doctor() == (4, {("RD02", "SOURCE.retry.5s")})


def test_a_tier_of_an_older_policy_is_found(patient):
    create_topics(patient.bootstrap, [f"{patient.source}.retry.1m"], 2)
    assert patient.doctor() == (4, {("RD03", "SOURCE.retry.1m")})
    patient.wait(f"{patient.source}.retry.1m", due_ms=1)
    told = json.loads(patient.run("doctor", "service:app", "--json").stdout)["findings"]
    assert [(each["code"], each["severity"]) for each in told] == [("RD03", "warning")]
    assert told[0]["seen"] == "no policy of this app has this tier; 1 record still to be read"


@pytest.mark.parametrize(
    ("code", "end", "configs"),
    [
        ("RD04", ".retry.10m", {"retention_ms": "60000"}),
        ("RD05", ".retry.5s", {"max_message_bytes": "1000000"}),
        ("RD07", ".dlq", {"min_insync_replicas": "2"}),
        ("RD08", ".retry.5s", {"cleanup_policy": "compact"}),
        ("RD08", ".dlq.state", {"cleanup_policy": "delete"}),
        ("RD09", ".dlq", {"retention_ms": "60000"}),
    ],
)
def test_a_spoilt_setting_is_found(patient, code, end, configs):
    patient.alter(f"{patient.source}{end}", **configs)
    assert patient.doctor() == (4, {(code, f"SOURCE{end}")})


def test_partitions_that_differ_are_found(workplace, kafka, topic, group):
    patient = Patient(workplace, kafka.bootstrap, topic("orders", partitions=2), group)
    create_topics(
        kafka.bootstrap, [patient.short], 3, **{"max.message.bytes": "1114124", "retention.ms": "-1"}
    )
    assert patient.run("topics", "apply", "service:app").exit_code == 4
    assert patient.doctor() == (4, {("RD06", "SOURCE.retry.5s")})


def test_a_member_that_is_not_redrive_is_found(patient):
    stranger = Consumer(
        {
            "bootstrap.servers": patient.bootstrap,
            "group.id": patient.group,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    stranger.subscribe([patient.source])
    until(lambda: stranger.poll(0.1) is None and stranger.assignment(), "its assignment")
    assert patient.doctor() == (4, {("RD10", patient.group)})
    stranger.close()


class _Shifted(SystemClock):
    """A machine whose clock is so far before everybody else's."""

    def __init__(self, ahead_ms):
        self.ahead_ms = ahead_ms

    def wall_ms(self) -> float:
        return super().wall_ms() + self.ahead_ms


@pytest.mark.parametrize("ahead_ms", [3_000, -3_000])
def test_a_clock_that_differs_is_found_when_it_is_measured(patient, ahead_ms):
    eyes = patient.eyes(_Shifted(ahead_ms))
    assert ("RD11", "this machine") in patient.examine(eyes, measure_clock=True)


def test_a_topic_that_is_there_already_is_not_measured_by_nor_deleted(patient):
    create_topics(patient.bootstrap, [CLOCK_TOPIC])
    told = json.loads(patient.run("doctor", "service:app", "--json", "--measure-clock").stdout)
    try:
        [why] = [each["why"] for each in told["not_checked"]]
        assert why.startswith(f"there is a topic {CLOCK_TOPIC} already: another doctor is measuring")
        assert CLOCK_TOPIC in admin_of(patient.bootstrap).list_topics().topics
    finally:
        admin_of(patient.bootstrap).delete_topics([CLOCK_TOPIC])[CLOCK_TOPIC].result()


def test_records_from_the_future_are_found_by_reading_alone(patient):
    patient.wait(patient.dlq, group=patient.group)
    assert ("RD11", patient.dlq) in patient.examine(patient.eyes(_Shifted(-600_000)))


def test_an_impatient_group_is_found(patient):
    patient.settings(shutdown_timeout='"9s"', kafka='{"max.poll.interval.ms" = "30000"}')
    assert patient.doctor() == (4, {("RD13", "kafka.max.poll.interval.ms")})


class _OldClient(KafkaInspection):
    def client_version(self) -> str:
        return "2.6.0"


def test_an_old_client_is_found(patient):
    eyes = patient.eyes(inspection=_OldClient({"bootstrap.servers": patient.bootstrap}))
    assert patient.examine(eyes) == {("RD14", "confluent-kafka")}


def test_records_of_a_group_that_went_away_are_found(patient):
    patient.wait(patient.long, group="renamed", attempt=1)
    patient.wait(patient.long, group="renamed", attempt=1)
    patient.wait(patient.short, group=patient.group, attempt=1)
    assert patient.doctor() == (4, {("RD15", "renamed"), ("RD15", patient.group)})
    patient.settings(accepts_groups='["renamed"]')
    assert patient.doctor() == (4, {("RD15", patient.group)})


@contextmanager
def _granted(bootstrap, *grants) -> Iterator[None]:
    """Alice may do this and nothing else."""
    bindings = [
        AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
        )
        for kind, name, operation in grants
    ]
    for future in admin_of(bootstrap).create_acls(bindings).values():
        future.result()
    yield


def test_what_a_guarded_broker_does_not_allow_or_tell_is_said(workplace, guarded, group):
    source = f"guarded-{group}"
    create_topics(guarded.plain, [source], 1)
    patient = Patient(workplace, guarded.plain, source, group)
    patient.apply()
    patient.commit(group, source)
    topics = [source, patient.short, patient.long, patient.dlq, f"{patient.dlq}.state"]
    grants = [(ResourceType.TOPIC, name, AclOperation.DESCRIBE) for name in topics]
    with _granted(guarded.plain, *grants, (ResourceType.GROUP, group, AclOperation.DESCRIBE)):
        login = ", ".join(f'"{name}" = "{value}"' for name, value in LOGIN.items())
        patient.settings(kafka=f"{{{login}}}")
        result = patient.run("doctor", "service:app", "--json", bootstrap=guarded.login)
    told = json.loads(result.stdout)
    assert result.exit_code == 4
    assert {(each["code"], each["severity"], each["subject"]) for each in told["findings"]} == {
        ("RD16", "error", source),
        ("RD16", "error", patient.short),
        ("RD16", "error", patient.long),
        ("RD16", "error", patient.dlq),
        ("RD16", "error", f"{patient.dlq}.state"),
        ("RD16", "info", patient.short),
        ("RD16", "info", patient.dlq),
        ("RD16", "info", f"{patient.dlq}.state"),
        ("RD16", "error", group),
    }
    assert {each["code"] for each in told["not_checked"]} >= {
        "RD04",
        "RD05",
        "RD08",
        "RD09",
        "RD10",
        "RD12",
        "RD14",
        "RD17",
    }


def test_brokers_with_other_settings_are_found(workplace, guarded, group):
    """The guarded broker knows only classic groups, forgets offsets within an hour, and takes an eighth of what a commit may say."""
    create_topics(guarded.plain, [f"plain-{group}"], 1)
    patient = Patient(workplace, guarded.plain, f"plain-{group}", group)
    patient.apply()
    assert patient.doctor() == (4, {("RD10", "broker 1"), ("RD12", "broker 1"), ("RD17", "broker 1")})
    patient.settings(group_protocol='"consumer"')
    told = json.loads(patient.run("doctor", "service:app", "--json", "--only", "RD10").stdout)
    assert [each["severity"] for each in told["findings"]] == ["error"]


def test_old_brokers_are_found(workplace, tmp_path, group, kafka):
    broker = Broker(tmp_path / "old", version="3.9.1", quick_rebalances=False)
    broker.start()
    try:
        create_topics(broker.bootstrap, ["orders"], 1)
        patient = Patient(workplace, broker.bootstrap, "orders", group)
        patient.apply()
        # It knows only classic groups, too.
        assert patient.doctor() == (4, {("RD10", "broker 1"), ("RD14", "brokers")})
    finally:
        broker.kill()


def test_a_cluster_that_cannot_be_reached_is_no_finding(workplace, group, kafka):
    patient = Patient(workplace, "127.0.0.1:1", "orders", group)
    assert patient.run("doctor", "service:app").exit_code == 1


def test_an_unknown_check_is_a_usage_error(patient):
    assert patient.run("doctor", "service:app", "--only", "RD99").exit_code == 2
    assert patient.doctor("--only", "rd01") == (0, set())


def test_every_check_has_its_test_here():
    text = Path(__file__).read_text()
    assert [check.code for check in CHECKS if f'"{check.code}"' not in text] == []
