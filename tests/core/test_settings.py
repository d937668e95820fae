"""The defaults, and all contradictions at once."""

from dataclasses import fields, replace

import pytest

from redrive.core.client_options import ClientOptions
from redrive.core.settings import PATHS, ConsoleSettings, Settings
from redrive.core.topology import Naming
from redrive.errors import TopologyError

GOOD = Settings(bootstrap_servers="kafka:9092")


def _wrong(**changes: object) -> list[tuple[str, str]]:
    return [tuple(problem) for problem in replace(GOOD, **changes).problems()]


def _paths(**changes: object) -> list[str]:
    return [path for path, _ in _wrong(**changes)]


class TestDefaults:
    def test_only_the_brokers_have_to_be_named(self):
        assert GOOD.problems() == ()
        assert [problem.where for problem in Settings().problems()] == ["bootstrap_servers"]

    def test_who_forgot_them_reads_how_to_set_them(self):
        (problem,) = Settings(bootstrap_servers=" ").problems()
        assert str(problem) == (
            "bootstrap_servers: not set, so nobody knows where Kafka is: set REDRIVE_BOOTSTRAP_SERVERS=host:9092, "
            'bootstrap_servers = "host:9092" in redrive.toml, or --bootstrap-servers. To see redrive without a Kafka: redrive demo'
        )

    def test_a_path_has_no_unit_and_no_two_fields_share_one(self):
        assert len(PATHS) == len(fields(Settings))
        assert (PATHS["commit_interval"], PATHS["window"], PATHS["brake"]) == (
            "commit_interval_ms",
            "window_bytes",
            "brake",
        )

    def test_topics_are_dotted(self):
        assert GOOD.naming == Naming()


class TestClientOptions:
    def test_they_are_the_user_s_own_and_the_settings_that_have_a_name_here(self):
        settings = replace(GOOD, kafka=ClientOptions({"security.protocol": "SSL"}), fetch_wait_ms=20)
        assert settings.client_options("payments") == {
            "security.protocol": "SSL",
            "bootstrap.servers": "kafka:9092",
            "client.id": "payments",
            "fetch.wait.max.ms": "20",
            "queued.min.messages": "20000",
        }

    def test_a_client_id_of_one_s_own(self):
        assert replace(GOOD, client_id="pay-1").client_options("payments")["client.id"] == "pay-1"

    def test_secrets_do_not_show_in_settings(self):
        settings = replace(GOOD, kafka=ClientOptions({"sasl.password": "hunter2"}))
        assert "hunter2" not in repr(settings)
        assert "hunter2" not in str(settings.problems())


class TestServers:
    @pytest.mark.parametrize(
        "servers",
        ["kafka:9092", "kafka", "a:1, b:65535", "10.0.0.1:9092", "[::1]:9092", "SASL_SSL://kafka:9093"],
    )
    def test_addresses(self, servers):
        assert _wrong(bootstrap_servers=servers) == []

    @pytest.mark.parametrize(
        "servers",
        [
            "kafka:",
            "kafka:0",
            "kafka:65536",
            "kafka:port",
            "a:1,,b:2",
            "a:1 b:2",
            "a:1;b:2",
            "kafka:9092/x",
            "::1:9092",
            "..:9092",
            f"{'k' * 64}:9092",
            "kafka\udcff:9092",
        ],
    )
    def test_no_addresses(self, servers):
        assert set(_paths(bootstrap_servers=servers)) == {"bootstrap_servers"}

    def test_a_web_address_is_none_of_kafka(self):
        assert _wrong(bootstrap_servers="http://kafka:8080") == [
            (
                "bootstrap_servers",
                "'http://kafka:8080' is a web address; Kafka's is host:port, usually port 9092",
            )
        ]


class TestRanges:
    @pytest.mark.parametrize(
        ("changes", "path", "what"),
        [
            ({"start_timeout_ms": 1}, "start_timeout", "1ms is not between 1s and 1h"),
            ({"shutdown_timeout_ms": 0}, "shutdown_timeout", "0s is not between 100ms and 30m"),
            ({"commit_interval_ms": 61_000}, "commit_interval", "1m1s is not between 10ms and 1m"),
            ({"window_bytes": 64}, "window", "64B is not between 1MB and 1TiB"),
            ({"fetch_wait_ms": 0}, "fetch_wait", "0s is not between 1ms and 500ms"),
            ({"run_records": 0}, "run_records", "0 is not between 1 and 100000"),
            ({"prefetch_records": -1}, "prefetch_records", "-1 is not between"),
            ({"replication": 0}, "replication", "0 is not between 1 and 100"),
            ({"dlq_partitions": 0}, "dlq_partitions", "0 is not between 1 and 10000"),
            ({"tier_outage_ms": 0}, "tier_outage", "0s is not between 1m and 36500d"),
        ],
    )
    def test_what_makes_no_sense_is_told_with_its_bounds(self, changes, path, what):
        assert [(found, text) for found, text in _wrong(**changes) if found == path and what in text] != []


class TestContradictions:
    def test_a_choice_that_there_is_not(self):
        assert _wrong(group_protocol="eager", log_level="LOUD") == [
            ("group_protocol", "'eager' is none of auto, consumer, classic"),
            ("log_level", "'LOUD' is none of DEBUG, INFO, WARNING, ERROR"),
        ]

    def test_client_settings_have_their_names_as_paths(self):
        options = ClientOptions({"acks": "1", "security.protocol": "SSL", "session.timeout.ms": "6000"})
        assert _paths(kafka=options) == ["kafka.acks", "kafka.session.timeout.ms"]
        assert _paths(kafka=options, group_protocol="classic") == ["kafka.acks"]

    def test_a_run_that_can_never_be_filled(self):
        assert _paths(prefetch_records=100) == ["prefetch_records"]
        assert _paths(prefetch_records=100, run_records=100) == []

    def test_a_shut_down_that_outlives_its_membership(self):
        assert _paths(shutdown_timeout_ms=100_000) == []
        assert _wrong(shutdown_timeout_ms=100_001) == [
            (
                "shutdown_timeout",
                (
                    "1m40s1ms is more than a third of kafka.max.poll.interval.ms (300000): the group would give this "
                    "process up while it waits for its handlers; lower it, or raise that to 300003"
                ),
            )
        ]
        longer = ClientOptions({"max.poll.interval.ms": "600000"})
        assert _paths(shutdown_timeout_ms=100_001, kafka=longer) == []
        assert _paths(kafka=ClientOptions({"max.poll.interval.ms": "long"})) == ["kafka.max.poll.interval.ms"]

    def test_groups_to_accept(self):
        assert _paths(accepts_groups=("old", "older")) == []
        assert _paths(accepts_groups=("old", "", "old")) == ["accepts_groups", "accepts_groups"]

    @pytest.mark.parametrize(
        "http",
        ["", "127.0.0.1:9600", "0.0.0.0:0", "[::]:9600", "localhost:80", "a.host.:80", "l" * 63 + ".net:80"],
    )
    def test_addresses_to_serve_at(self, http):
        assert _wrong(http=http) == []

    @pytest.mark.parametrize(
        "http",
        [
            "9600",
            ":9600",
            "localhost",
            "localhost:99999",
            "http://localhost:80",
            "..:80",
            "\udcff:80",
            "l" * 64 + ":80",
        ],
    )
    def test_no_addresses_to_serve_at(self, http):
        assert _paths(http=http) == ["http"]


class TestNaming:
    def test_a_style_with_a_template(self):
        settings = replace(GOOD, topic_style="dashed", retry_topic="{topic}.{group}.{delay}")
        assert settings.problems() == ()
        assert settings.naming == Naming.of("dashed", retry="{topic}.{group}.{delay}")

    def test_problems_have_the_settings_paths(self):
        assert _paths(topic_style="camel") == ["topic_style"]
        assert _paths(retry_topic="retry", dlq_topic="dlq", replay_topic="x", parked_topic="y") == [
            "retry_topic",
            "dlq_topic",
            "replay_topic",
            "parked_topic",
        ]
        assert _paths(dlq_topic="{topic}.state") == ["dlq_topic"]

    def test_no_naming_comes_of_them(self):
        with pytest.raises(TopologyError):
            replace(GOOD, topic_style="camel").naming  # noqa: B018


def test_all_is_told_at_once():
    wrong = replace(
        Settings(),
        kafka=ClientOptions({"acks": "0", "enable.auto.commit": "true"}),
        group_protocol="eager",
        commit_interval_ms=0,
        replication=0,
        retry_topic="{topic}",
        accepts_groups=("a", "a"),
        http="9600",
    )
    assert [problem.where for problem in wrong.problems()] == [
        "bootstrap_servers",
        "kafka.acks",
        "kafka.enable.auto.commit",
        "group_protocol",
        "commit_interval",
        "replication",
        "retry_topic",
        "accepts_groups",
        "http",
    ]


class TestConsole:
    def test_by_default_it_is_reached_from_this_machine_only_and_has_no_token(self):
        assert (GOOD.console.bind, GOOD.console.token) == ("127.0.0.1:9601", "")

    @pytest.mark.parametrize("token", ["short", "x" * 15])
    def test_a_token_that_can_be_guessed_is_refused(self, token):
        [(path, what)] = _wrong(console=ConsoleSettings(token=token))
        assert (path, "fewer than 16" in what, token in what) == ("console.token", True, False)

    @pytest.mark.parametrize("token", ["x" * 20 + " ", "x" * 20 + "\n", "ä" * 20, "=" * 20])
    def test_a_token_that_no_header_can_carry_is_refused(self, token):
        [(path, what)] = _wrong(console=ConsoleSettings(token=token))
        assert (path, "characters" in what, token in what) == ("console.token", True, False)

    @pytest.mark.parametrize("name", ["", "a b", "a\nb", "x" * 65])
    def test_a_name_that_would_break_audit_lines_is_refused(self, name):
        assert _paths(console=ConsoleSettings(token_name=name)) == ["console.token_name"]

    @pytest.mark.parametrize("bind", ["", "9601", "localhost", "localhost:70000"])
    def test_what_is_no_address_is_refused(self, bind):
        assert _paths(console=ConsoleSettings(bind=bind)) == ["console.bind"]

    def test_the_token_is_never_shown(self):
        assert "a-secret-token-of-mine" not in repr(
            replace(GOOD, console=ConsoleSettings(token="a-secret-token-of-mine"))
        )


class TestMembership:
    def test_static_members_use_the_classic_protocol(self):
        assert [replace(GOOD, membership=each).wanted_protocol for each in ("dynamic", "static")] == [
            "auto",
            "classic",
        ]
        assert _wrong(membership="static", group_protocol="classic") == []

    def test_static_members_under_kip_848_are_refused_with_the_reason(self):
        ((path, what),) = _wrong(membership="static", group_protocol="consumer")
        assert path == "membership"
        assert (
            "refuses the id of a killed process to the one that replaces it until its session has ended"
            in what
        )

    def test_static_members_may_have_a_session_timeout(self):
        options = ClientOptions({"session.timeout.ms": "20000"})
        assert _paths(membership="static", kafka=options) == []
        assert _paths(kafka=options) == ["kafka.session.timeout.ms"]

    def test_an_instance_id_without_static_membership_is_told(self):
        assert _paths(instance_id="blue") == ["instance_id"]

    def test_other_words_are_refused(self):
        assert _wrong(membership="sticky") == [("membership", "'sticky' is none of dynamic, static")]
