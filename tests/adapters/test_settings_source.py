"""Settings from the file, the environment and a command: who wins, and what is said of what is wrong."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.adapters.settings_source import load_settings
from redrive.core.client_options import ClientOptions
from redrive.core.settings import PATHS, TABLES, ConsoleSettings, Settings
from redrive.errors import SettingsError

SERVERS = {"bootstrap_servers": "kafka:9092"}


@pytest.fixture(autouse=True)
def _bare(monkeypatch, tmp_path):
    """An empty directory and no setting in the environment, whatever the developer has in theirs."""
    for name in [name for name in os.environ if name.upper().startswith("REDRIVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def _file(text: str, name: str = "redrive.toml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def _problems(**arguments) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load_settings(**arguments)
    return [str(problem) for problem in caught.value.problems]


class TestSources:
    def test_with_nothing_but_the_brokers_all_are_defaults(self):
        assert load_settings(overrides=SERVERS) == Settings(bootstrap_servers="kafka:9092")

    def test_the_environment(self, monkeypatch):
        for name, value in {
            "REDRIVE_BOOTSTRAP_SERVERS": "a:1,b:2",
            "REDRIVE_APP": "service:app",
            "REDRIVE_KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
            "REDRIVE_KAFKA__SASL_PASSWORD": "1e5",
            "REDRIVE_KAFKA__SASL__USERNAME": "007",
            "REDRIVE_KAFKA__LOG_LEVEL": "3",
            "REDRIVE_COMMIT_INTERVAL": "1.5s",
            "REDRIVE_WINDOW": "1MiB",
            "REDRIVE_DLQ_PARTITIONS": "1",
            "REDRIVE_BRAKE": "off",
            "REDRIVE_ACCEPTS_GROUPS": "old, older",
            "REDRIVE_LOG_LEVEL": "debug",
            "REDRIVE_TEST_BOOTSTRAP": "elsewhere:1",
            "REDRIVE_HTTP": "",
            "REDRIVE_KAFKA__DEBUG": "",
            "OTHER": "x",
        }.items():
            monkeypatch.setenv(name, value)
        assert load_settings() == Settings(
            bootstrap_servers="a:1,b:2",
            app="service:app",
            kafka=ClientOptions(
                {
                    "security.protocol": "SASL_SSL",
                    "sasl.password": "1e5",
                    "sasl.username": "007",
                    "log_level": "3",
                }
            ),
            commit_interval_ms=1_500,
            window_bytes=1_048_576,
            dlq_partitions=1,
            brake=False,
            accepts_groups=("old", "older"),
            log_level="DEBUG",
        )

    def test_the_file_in_the_working_directory(self):
        _file(
            """
            app = "service:app"
            bootstrap_servers = "kafka:9092"
            accepts_groups = ["old", "older"]
            tier_outage = "14d"
            replication = 1
            brake = false
            retry_topic = "{topic}.{group}.retry.{delay}"

            [kafka]
            security.protocol = "SSL"
            "ssl.ca.location" = "/etc/ca.pem"
            socket_keepalive_enable = true
            linger.ms = 20
            """
        )
        assert load_settings() == Settings(
            app="service:app",
            bootstrap_servers="kafka:9092",
            accepts_groups=("old", "older"),
            tier_outage_ms=14 * 86_400_000,
            replication=1,
            brake=False,
            retry_topic="{topic}.{group}.retry.{delay}",
            kafka=ClientOptions(
                {
                    "security.protocol": "SSL",
                    "ssl.ca.location": "/etc/ca.pem",
                    "socket.keepalive.enable": "true",
                    "linger.ms": "20",
                }
            ),
        )

    def test_a_file_that_is_named_replaces_that_one(self):
        _file('bootstrap_servers = "a:1"\nhttp = "127.0.0.1:9600"')
        named = _file('bootstrap_servers = "b:2"', "other.toml")
        assert load_settings(config_file=named) == Settings(bootstrap_servers="b:2")

    def test_a_command_says_what_it_was_told_and_only_that(self):
        settings = load_settings(
            overrides={
                **SERVERS,
                "http": None,
                "start_timeout": timedelta(seconds=5),
                "kafka": {"debug": "all"},
            }
        )
        assert settings == Settings(
            bootstrap_servers="kafka:9092", start_timeout_ms=5_000, kafka=ClientOptions({"debug": "all"})
        )

    def test_a_command_is_stronger_than_the_environment_and_that_than_the_file(self, monkeypatch):
        _file(
            """
            bootstrap_servers = "file:1"
            commit_interval = "3s"
            fetch_wait = "30ms"
            [kafka]
            debug = "file"
            security.protocol = "file"
            compression.type = "file"
            """
        )
        monkeypatch.setenv("REDRIVE_BOOTSTRAP_SERVERS", "environment:1")
        monkeypatch.setenv("REDRIVE_COMMIT_INTERVAL", "2s")
        monkeypatch.setenv("REDRIVE_KAFKA__DEBUG", "environment")
        monkeypatch.setenv("REDRIVE_KAFKA__SECURITY_PROTOCOL", "environment")
        settings = load_settings(overrides={"bootstrap_servers": "command:1", "kafka": {"debug": "command"}})
        assert (settings.bootstrap_servers, settings.commit_interval_ms, settings.fetch_wait_ms) == (
            *("command:1", 2_000),
            30,
        )
        assert settings.kafka == {
            "debug": "command",
            "security.protocol": "environment",
            "compression.type": "file",
        }

    def test_every_setting_can_be_read_from_the_environment(self, monkeypatch):
        default = Settings(bootstrap_servers="kafka:9092")
        texts = {
            "kafka": "",
            "brake": "true",
            "log_level": "INFO",
            "group_protocol": "auto",
            "topic_style": "dotted",
            "dialects": "redrive",
        }
        for path, field in PATHS.items():
            if path in TABLES:
                for name in TABLES[path]:
                    monkeypatch.setenv(
                        f"REDRIVE_{path}__{name}".upper(), getattr(getattr(default, field), name)
                    )
                continue
            value = getattr(default, field)
            units = {"_ms": "ms", "tes": "B"}.get(field[-3:], "")
            monkeypatch.setenv(
                f"REDRIVE_{path.upper()}", texts.get(path, f"{value or ''}{units if value else ''}")
            )
        monkeypatch.delenv("REDRIVE_KAFKA")
        assert load_settings() == default


MANY_MISTAKES = """
bootstrap_server = "kafka:9092"
commit_interval = 5
replication = true
[kafka]
acks = 1
ssl.cipher.suites = ["a"]
"""


class TestProblems:
    def test_all_are_told_at_once_with_path_and_origin(self, monkeypatch):
        _file(MANY_MISTAKES)
        monkeypatch.setenv("REDRIVE_LOGLEVEL", "debug")
        monkeypatch.setenv("REDRIVE_BRAKE", "perhaps")
        monkeypatch.setenv("REDRIVE_WINDOW", "1kB")
        monkeypatch.setenv("REDRIVE_KAFKA__ENABLE_AUTO_COMMIT", "true")
        assert _problems(overrides={"http": "9600"}) == [
            "bootstrap_server (redrive.toml): unknown setting; did you mean bootstrap_servers?",
            "REDRIVE_LOGLEVEL: unknown setting; did you mean REDRIVE_LOG_LEVEL?",
            "kafka.ssl.cipher.suites (redrive.toml): the client takes texts, numbers, true and false",
            (
                "commit_interval (redrive.toml): duration 5 is a bare number; write it as '5s', '1h30m' or '250ms' "
                "(d, h, m, s, ms, from large to small) or as a timedelta"
            ),
            "replication (redrive.toml): true is no number",
            "brake (REDRIVE_BRAKE): 'perhaps' can't be taken: it should be a valid boolean, unable to interpret input",
            (
                "bootstrap_servers: not set, so nobody knows where Kafka is: set REDRIVE_BOOTSTRAP_SERVERS=host:9092, "
                'bootstrap_servers = "host:9092" in redrive.toml, or --bootstrap-servers. To see redrive without a Kafka: redrive demo'
            ),
            (
                "kafka.acks (redrive.toml): leave it out: an offset passes when all in-sync replicas have the successor; "
                "with less it can be lost"
            ),
            (
                "kafka.enable.auto.commit (REDRIVE_KAFKA__ENABLE_AUTO_COMMIT): leave it out: redrive commits an offset "
                "when its record was handled or moved on; the client would before"
            ),
            (
                "window (REDRIVE_WINDOW): 1kB is not between 1MB and 1TiB: with less, waiting records are fetched again "
                "and again"
            ),
            "http (app or command line): '9600' is no address to serve at: write host:port, such as 127.0.0.1:9600",
        ]

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            ("REDRIVE_BOOTSTRAP_SERVER", "unknown setting; did you mean REDRIVE_BOOTSTRAP_SERVERS?"),
            ("REDRIVE_WINDOW_BYTES", "unknown setting; did you mean REDRIVE_WINDOW?"),
            ("REDRIVE_HTTP__PORT", "unknown setting; did you mean REDRIVE_HTTP?"),
            ("REDRIVE_XYZZY", "unknown setting"),
            (
                "REDRIVE_KAFKA_SASL_PASSWORD",
                "unknown setting; client settings have two underscores: REDRIVE_KAFKA__SASL_PASSWORD",
            ),
            (
                "REDRIVE_KAFKA",
                "unknown setting; client settings have two underscores: REDRIVE_KAFKA__SECURITY_PROTOCOL",
            ),
        ],
    )
    def test_unknown_variables(self, monkeypatch, name, told):
        monkeypatch.setenv(name, "hunter2")
        assert _problems(overrides=SERVERS) == [f"{name}: {told}"]

    def test_a_client_table_that_is_none(self):
        _file('bootstrap_servers = "kafka:9092"\nkafka = "security.protocol=SSL"')
        assert _problems() == [
            "kafka (redrive.toml): is a table of client settings: write [kafka] and a line for each"
        ]

    def test_a_client_setting_in_two_spellings(self):
        _file(
            'bootstrap_servers = "kafka:9092"\n[kafka]\nsecurity.protocol = "SSL"\nsecurity_protocol = "ssl"'
        )
        assert _problems() == [
            "kafka.security.protocol (redrive.toml): is given twice, with dots and with underscores"
        ]

    def test_a_setting_of_the_wrong_kind(self):
        _file('bootstrap_servers = ["kafka:9092"]\n[http]\nport = 9600')
        assert _problems() == [
            "bootstrap_servers (redrive.toml): ['kafka:9092'] can't be taken: it should be a valid string",
            "http (redrive.toml): {'port': 9600} can't be taken: it should be a valid string",
        ]

    def test_a_named_file_that_is_missing(self):
        assert _problems(config_file=Path("prod.toml"), overrides=SERVERS) == [
            "prod.toml: can't be read: No such file or directory"
        ]

    def test_a_directory_instead_of_a_file(self, tmp_path):
        assert _problems(config_file=tmp_path, overrides=SERVERS) == [
            f"{tmp_path}: can't be read: Is a directory"
        ]

    def test_a_file_that_is_no_toml(self):
        _file("bootstrap_servers = kafka")
        assert _problems(overrides=SERVERS) == [
            "redrive.toml: is no TOML: Invalid value (at line 1, column 21)"
        ]

    def test_a_file_that_is_no_text(self):
        Path("redrive.toml").write_bytes(b"app = '\xff'")
        (problem,) = _problems(overrides=SERVERS)
        assert problem.startswith("redrive.toml: is no TOML: 'utf-8' codec can't decode byte 0xff")


class TestSecrets:
    def test_they_are_in_no_error(self, monkeypatch):
        _file('[kafka]\nsasl.password = ["hunter2"]\n"ssl.key.password" = {value = "hunter2"}')
        monkeypatch.setenv("REDRIVE_KAFKA__SASL_OAUTHBEARER_CLIENT_SECRET", "hunter2")
        monkeypatch.setenv("REDRIVE_KAFKA_SASL_PASSWORD", "hunter2")
        with pytest.raises(SettingsError) as caught:
            load_settings()
        assert "hunter2" not in f"{caught.value} {caught.value!r} {caught.value.__context__!r}"

    def test_nor_in_the_settings_as_shown(self, monkeypatch):
        monkeypatch.setenv("REDRIVE_KAFKA__SSL_KEY_PASSWORD", "hunter2")
        settings = load_settings(overrides=SERVERS)
        assert settings.kafka["ssl.key.password"] == "hunter2"
        assert "hunter2" not in f"{settings} {settings!r} {settings.kafka}"


def test_neither_the_core_nor_the_package_loads_pydantic():
    loaded = subprocess.run(
        [sys.executable, "-c", "import redrive, redrive.core.settings, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert [name for name in loaded if name.startswith("pydantic")] == []


class TestTables:
    def test_each_source_may_give_some_of_a_table(self, monkeypatch):
        _file('[console]\nbind = "127.0.0.1:1"\ntoken = "from-the-file-0123456789"\ntoken_name = "file"\n')
        monkeypatch.setenv("REDRIVE_CONSOLE__TOKEN", "from-the-environment-0123")
        found = load_settings(overrides={**SERVERS, "console.bind": "127.0.0.1:2"})
        assert found.console == ConsoleSettings(
            bind="127.0.0.1:2", token="from-the-environment-0123", token_name="file"
        )

    def test_an_empty_variable_is_as_good_as_none(self, monkeypatch):
        _file('[console]\ntoken = "from-the-file-0123456789"\n')
        monkeypatch.setenv("REDRIVE_CONSOLE__TOKEN", "")
        assert load_settings(overrides=SERVERS).console.token == "from-the-file-0123456789"

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            (
                "[console]\ntokn = 'x'",
                "console.tokn (redrive.toml): unknown setting; did you mean console.token?",
            ),
            ("console = 'x'", "console (redrive.toml): is a table: write [console] and a line for each"),
            (
                "[console]\ntoken = 4711471147114711",
                "console.token (redrive.toml): has to be a text: write it in quotes",
            ),
            (
                "[console]\ntoken = ['secret-in-a-list']",
                "console.token (redrive.toml): has to be a text: write it in quotes",
            ),
        ],
    )
    def test_what_is_wrong_in_a_table_is_told_by_its_path(self, text, told):
        _file(text)
        assert _problems(overrides=SERVERS) == [told]

    @pytest.mark.parametrize(
        ("name", "told"),
        [
            (
                "REDRIVE_CONSOLE__TOKN",
                "REDRIVE_CONSOLE__TOKN: unknown setting; did you mean REDRIVE_CONSOLE__TOKEN?",
            ),
            (
                "REDRIVE_CONSOLE_TOKEN",
                "REDRIVE_CONSOLE_TOKEN: unknown setting; did you mean REDRIVE_CONSOLE__TOKEN?",
            ),
        ],
    )
    def test_a_mistyped_variable_is_guessed_and_its_value_not_told(self, monkeypatch, name, told):
        monkeypatch.setenv(name, "a-secret-value-0123456789")
        assert _problems(overrides=SERVERS) == [told]


class TestDialects:
    TABLE = """
bootstrap_servers = "kafka:9092"
dialects = ["redrive", "mine"]

[own_dialects.mine]
attempt = "Mine-Attempt"
due = { header = "Mine-Due", encoding = "iso-8601" }
"""

    def test_a_dialect_of_the_user_s_own_is_a_table_in_the_file(self):
        _file(self.TABLE)
        settings = load_settings()
        assert (settings.dialects, [each.name for each in settings.translator.written]) == (
            ("redrive", "mine"),
            ["mine", "redrive"],
        )

    def test_dialects_are_a_list_in_the_environment(self, monkeypatch):
        monkeypatch.setenv("REDRIVE_DIALECTS", "redrive, spring")
        assert load_settings(overrides=SERVERS).dialects == ("redrive", "spring")

    def test_what_is_wrong_with_one_is_told_with_its_path_and_its_file(self):
        _file(self.TABLE.replace("iso-8601", "sundial").replace("attempt", "atempt"))
        assert _problems() == [
            "own_dialects.mine.atempt (redrive.toml): 'atempt' is no field: did you mean attempt?",
            (
                "own_dialects.mine.due (redrive.toml): the encoding 'sundial' doesn't fit due; it is one of decimal, int64, "
                "big-integer, decimal-seconds, int64-seconds, iso-8601"
            ),
        ]

    def test_a_table_cannot_be_written_in_the_environment(self, monkeypatch):
        monkeypatch.setenv("REDRIVE_OWN_DIALECTS__MINE__ATTEMPT", "x")
        told = "unknown setting; a dialect of your own is a table: write [own_dialects.NAME] in redrive.toml"
        assert _problems(overrides=SERVERS) == [f"REDRIVE_OWN_DIALECTS__MINE__ATTEMPT: {told}"]

    def test_what_is_no_table_at_all(self):
        assert "own_dialects (app or command line)" in _problems(overrides={**SERVERS, "own_dialects": 3})[0]
