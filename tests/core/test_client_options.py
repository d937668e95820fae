"""Which settings of the Kafka client may be passed through, and that secrets don't show."""

import pytest

from redrive.core.client_options import ClientOptions, is_secret, option_problems


def _problems(options: dict[str, str], group_protocol: str = "auto") -> dict[str, str]:
    return dict(option_problems(options, group_protocol=group_protocol))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("enable.auto.commit", "true", "redrive commits an offset when"),
        ("enable.auto.commit", "yes", "redrive commits an offset when"),
        ("Enable.Auto.Commit", "TRUE", "redrive commits an offset when"),
        ("enable.auto.offset.store", "true", "redrive commits an offset when"),
        ("auto.commit.interval.ms", "100", "give commit_interval instead"),
        ("auto.offset.reset", "latest", "could skip records"),
        ("auto.offset.reset", "earliest", "could skip records"),
        ("isolation.level", "read_uncommitted", "aborted transactions"),
        ("acks", "1", "all in-sync replicas"),
        ("request.required.acks", "0", "all in-sync replicas"),
        ("enable.idempotence", "false", "second retry"),
        ("partitioner", "consistent_random", "Java's producers"),
        ("group.id", "payments", 'App("payments")'),
        ("group.protocol", "consumer", "give group_protocol instead"),
        ("group.remote.assignor", "uniform", "only range"),
        ("partition.assignment.strategy", "cooperative-sticky", "only range"),
        ("group.instance.id", "worker-1", "shut each other out"),
        ("bootstrap.servers", "kafka:9092", "give bootstrap_servers instead"),
        ("metadata.broker.list", "kafka:9092", "give bootstrap_servers instead"),
        ("client.id", "x", "give client_id instead"),
        ("transactional.id", "x", "fences all but one"),
        ("delivery.report.only.error", "true", "never come"),
        ("message.max.bytes", "1000000", "cut dead letters to their headers"),
        ("message.max.bytes", "100000000", "cut dead letters to their headers"),
        ("Message.Max.Bytes", "1000000", "cut dead letters to their headers"),
        ("topic.blacklist", "^orders", "leave topics unread"),
        ("enable.partition.eof", "true", "among the records"),
        ("allow.auto.create.topics", "true", "mistyped topic"),
        ("fetch.wait.max.ms", "500", "give fetch_wait instead"),
        ("queued.min.messages", "1", "give prefetch_records instead"),
        ("error_cb", "print", "a callback can't be given"),
        ("stats.cb", "print", "a callback can't be given"),
        ("on_commit", "print", "a callback can't be given"),
        ("logger", "root", "a callback can't be given"),
    ],
)
def test_what_would_break_a_promise_is_refused_with_the_reason(name, value, reason):
    problems = _problems({name: value})
    assert list(problems) == [name]
    assert problems[name].startswith("leave it out: ")
    assert reason in problems[name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable.auto.commit", "false"),
        ("auto.offset.reset", "error"),
        ("isolation.level", "READ_COMMITTED"),
        ("acks", "all"),
        ("acks", "-1"),
        ("enable.idempotence", "true"),
        ("partitioner", "murmur2_random"),
        ("security.protocol", "SSL"),
        ("compression.type", "lz4"),
        ("log_level", "3"),
        ("linger.ms", "20"),
    ],
)
def test_what_changes_no_promise_is_taken(name, value):
    assert _problems({name: value}) == {}


def test_session_settings_belong_to_the_classic_protocol():
    options = {"session.timeout.ms": "10000", "heartbeat.interval.ms": "300"}
    assert list(_problems(options)) == list(_problems(options, "consumer")) == list(options)
    assert _problems(options, "classic") == {}


def test_credentials_that_nobody_would_send_are_told():
    credentials = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    assert list(_problems(credentials)) == ["sasl.mechanism"]
    assert list(_problems({**credentials, "security.protocol": "ssl"})) == ["sasl.mechanism"]
    assert _problems({**credentials, "security.protocol": "sasl_ssl"}) == {}


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.key.pem",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.jaas.config",
        "basic.auth.user.info",
    ],
)
def test_secrets_never_show(name):
    assert is_secret(name)
    shown = repr(ClientOptions({name: "hunter2", "sasl.username": "me"}))
    assert "hunter2" not in shown
    assert "'sasl.username': 'me'" in shown


@pytest.mark.parametrize(
    "name", ["sasl.username", "ssl.key.location", "security.protocol", "sasl.oauthbearer.scope"]
)
def test_other_settings_do(name):
    assert not is_secret(name)


def test_options_are_a_mapping_that_nobody_changes():
    given = {"acks": "all"}
    options = ClientOptions(given)
    given["acks"] = "0"
    assert options == {"acks": "all"}
    assert dict(options) == {"acks": "all"}
    with pytest.raises(TypeError):
        options["acks"] = "0"  # type: ignore[index]
