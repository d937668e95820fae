"""
All settings of an app, as one value that knows its own contradictions. Where they come from is an adapter's affair.

A setting's path is its name in `redrive.toml` and, in capitals after `REDRIVE_`, in the environment. Durations and
sizes are written with their unit there and hold numbers here: `commit_interval = "1s"` is `commit_interval_ms`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from redrive.core.client_options import ClientOptions, option_problems
from redrive.core.dialects import REDRIVE
from redrive.core.own_dialects import dialect_problems, translator_of
from redrive.core.plan import Delivery
from redrive.core.topic_plan import DEFAULT_TIER_OUTAGE_MS
from redrive.core.topology import Naming, naming_problems
from redrive.core.translator import Translator
from redrive.core.units import format_duration, format_size
from redrive.errors import Problem

GroupProtocol = Literal["auto", "consumer", "classic"]
Membership = Literal["dynamic", "static"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

#: The client's own default, and redrive's.
MAX_POLL_INTERVAL_MS = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """How `redrive console` serves: `[console]` in the file, `REDRIVE_CONSOLE__TOKEN` in the environment."""

    #: Where it listens, `host:port`. By default reached from this machine only.
    bind: str = "127.0.0.1:9601"
    #: What clients must send as their bearer token; empty: one is made for each run, on loopback only. Never shown.
    token: str = field(default="", repr=False)
    #: Who is said to have done what was asked for with the token, in audit lines and states.
    token_name: str = "console"  # noqa: S105  it isn't the token


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How an app runs. `problems()` tells what can't be; nothing is checked before."""

    #: The app to run, as `module:name`, where a command isn't told it.
    app: str = ""
    #: Where Kafka is: `host:port`, several by commas.
    bootstrap_servers: str = ""
    #: Under which name brokers log and limit this client; empty: the group's.
    client_id: str = ""
    #: Passed through to librdkafka: `[kafka]` in the file, `REDRIVE_KAFKA__SECURITY_PROTOCOL` in the environment.
    kafka: ClientOptions = field(default_factory=ClientOptions)
    #: `auto` asks the brokers once at the start: KIP-848 (`consumer`) where they have it, else `classic`.
    group_protocol: GroupProtocol = "auto"
    #: `static`: a worker that comes back gets its partitions back at once, by the classic protocol. Whoever is gone for
    #: good, or stopped in order, keeps them until its session ends.
    membership: Membership = "dynamic"
    #: With `static`, and with delivery `exactly-once`: what the members on this host are called, each with its number
    #: behind. Empty: client id and the host's name. It must differ from host to host and outlive a restart.
    instance_id: str = ""
    #: `exactly-once`: the retry or dead letter of a record, what its handler emits, and the commit that passes it are one
    #: transaction. `at-least-once`: a crash between them may leave a second copy.
    delivery: Delivery = "at-least-once"
    #: How long a start may take until Kafka answers; then the process ends, for its supervisor to see.
    start_timeout_ms: int = 60_000
    #: How long handlers may take to end when the process stops or a partition goes to another one.
    shutdown_timeout_ms: int = 10_000
    #: What finished since the last commit is run again after a crash.
    commit_interval_ms: int = 1_000
    #: As many finished records are committed sooner: it bounds what a crash repeats at a high rate.
    commit_records: int = 100_000
    #: Memory for records that wait for their due time, in all; about a second of full rate through 8 partitions.
    window_bytes: int = 64_000_000
    #: How long a broker may hold a fetch that finds nothing. It bounds how late a retry is noticed; 10 ms cost an
    #: idle broker 3 to 7 % of a core for each consumer, the client's default of 500 ms halves the retry path's rate.
    fetch_wait_ms: int = 10
    #: Records of a partition that a worker thread is handed at once; fewer where handlers are slow.
    run_records: int = 1_000
    #: Records that the client fetches ahead; 20,000 take half the memory of its default 100,000 at the same rate.
    prefetch_records: int = 20_000
    #: How topics are called: `dotted`, `dashed` or `spring`; single names by templates, see `Naming.of`.
    topic_style: str = "dotted"
    #: A template of one's own for the names of one kind of topic; empty: as the style says.
    retry_topic: str = ""
    dlq_topic: str = ""
    replay_topic: str = ""
    parked_topic: str = ""
    #: Replicas of the topics that redrive creates; 3 outlive a broker, 1 is for a single one.
    replication: int = 3
    #: Partitions of dead-letter topics; None: as many as the source, so that a letter keeps its number.
    dlq_partitions: int | None = None
    #: The longest outage after which no waiting record may have been deleted: tiers keep records that much longer.
    tier_outage_ms: int = DEFAULT_TIER_OUTAGE_MS
    #: Slows intake to one record a second while more than half of the records become dead letters.
    brake: bool = True
    #: Takes nearly all of a listener's last attempts failing for an outage: its records are held and tried one at a time.
    breaker: bool = True
    #: Groups whose retries and replays are ours too, after the app was renamed.
    accepts_groups: tuple[str, ...] = ()
    #: In which dialects headers are written, `redrive` among them; all that are known are read.
    dialects: tuple[str, ...] = (REDRIVE.name,)
    #: Dialects of the user's own by name, each a table of fields and their headers: the page on headers has them.
    own_dialects: Mapping[str, object] = field(default_factory=dict)
    #: Where probes and metrics are served, `host:port`; empty: nowhere.
    http: str = ""
    #: What a request for a worker's state there must carry as its bearer token; empty: nobody is told it. Never shown.
    http_token: str = field(default="", repr=False)
    #: How often the unresolved dead letters are counted for the metrics.
    unresolved_refresh_ms: int = 30_000
    #: Tells dead letters also as `kafka_dlq_messages_total` and `kafka_dlq_size`, which many teams' alerts use.
    metrics_aliases: bool = False
    #: Which lines of redrive's log `redrive run` shows.
    log_level: LogLevel = "INFO"
    console: ConsoleSettings = field(default_factory=ConsoleSettings)

    @property
    def wanted_protocol(self) -> GroupProtocol:
        """`group_protocol`, where that leaves a choice: static members there are only under the classic one."""
        return "classic" if self.membership == "static" else self.group_protocol

    @property
    def naming(self) -> Naming:
        """How topics are called. Raises TopologyError where `problems` has any of it."""
        return Naming.of(
            self.topic_style,
            retry=self.retry_topic or None,
            dlq=self.dlq_topic or None,
            replay=self.replay_topic or None,
            parked=self.parked_topic or None,
        )

    @property
    def translator(self) -> Translator:
        """Reads and writes headers in the dialects of these settings. Raises KeyError where `problems` has any of them."""
        return translator_of(self.dialects, self.own_dialects)

    def client_options(self, group: str) -> dict[str, str]:
        """Gives all that the user says to the Kafka client, by librdkafka's names. It holds secrets in the clear."""
        return {
            **self.kafka,
            "bootstrap.servers": self.bootstrap_servers,
            "client.id": self.client_id or group,
            "fetch.wait.max.ms": str(self.fetch_wait_ms),
            "queued.min.messages": str(self.prefetch_records),
        }

    def problems(self) -> tuple[Problem, ...]:
        """Gives all that is wrong, each with its path and how to mend it; no value of a secret is shown."""
        return tuple(
            Problem(*problem)
            for check in (
                _servers,
                _client,
                _choices,
                _membership,
                _ranges,
                _topics,
                _groups,
                _dialects,
                _times,
                _address,
                _console,
            )
            for problem in check(self)
        )


def setting_path(field: str) -> str:
    """Gives the path of a field of `Settings`: units are in the value there, not in the name."""
    return field.removesuffix("_ms").removesuffix("_bytes")


#: The fields of `Settings` by path.
PATHS = {setting_path(each.name): each.name for each in fields(Settings)}

#: The settings that stand in a table of their own, by its path.
TABLES = {"console": frozenset(each.name for each in fields(ConsoleSettings))}

_Problems = Iterator[tuple[str, str]]

#: Of a name with an empty part, or one of more than 63 characters, the system's resolver isn't even asked.
_LABEL = r"[^\s:/,.\[\]\ud800-\udfff]{1,63}"
_HOST = rf"(?:\[[0-9a-fA-F:.%]+\]|{_LABEL}(?:\.{_LABEL})*\.?)"
_SERVER = re.compile(rf"(?:[a-zA-Z_]+://)?{_HOST}(?::([0-9]{{1,5}}))?")
_ADDRESS = re.compile(rf"{_HOST}:([0-9]{{1,5}})")


def _servers(settings: Settings) -> _Problems:
    path = "bootstrap_servers"
    if not settings.bootstrap_servers.strip():
        yield (
            path,
            (
                "not set, so nobody knows where Kafka is: set REDRIVE_BOOTSTRAP_SERVERS=host:9092, "
                'bootstrap_servers = "host:9092" in redrive.toml, or --bootstrap-servers. To see redrive without a Kafka: redrive demo'
            ),
        )
        return
    for server in settings.bootstrap_servers.split(","):
        matched = _SERVER.fullmatch(server.strip())
        if matched is None or int(matched[1] or 1) not in range(1, 65_536):
            yield path, f"{server.strip()!r} is no address: write host:port, several by commas"
        elif server.strip().lower().startswith(("http://", "https://")):
            yield path, f"{server.strip()!r} is a web address; Kafka's is host:port, usually port 9092"


def _client(settings: Settings) -> _Problems:
    for name, what in option_problems(settings.kafka, group_protocol=settings.wanted_protocol):
        yield f"kafka.{name}", what


def _choices(settings: Settings) -> _Problems:
    for path, value, choices in (
        ("group_protocol", settings.group_protocol, get_args(GroupProtocol)),
        ("membership", settings.membership, get_args(Membership)),
        ("delivery", settings.delivery, get_args(Delivery)),
        ("log_level", settings.log_level, get_args(LogLevel)),
    ):
        if value not in choices:
            yield path, f"{value!r} is none of {', '.join(choices)}"


def _membership(settings: Settings) -> _Problems:
    if settings.membership == "static" and settings.group_protocol == "consumer":
        yield (
            "membership",
            (
                '"static" goes with the classic protocol only: under KIP-848 the broker refuses the id of a killed process to '
                'the one that replaces it until its session has ended; leave group_protocol out, or give "classic"'
            ),
        )
    if settings.instance_id and settings.membership != "static" and settings.delivery != "exactly-once":
        yield (
            "instance_id",
            'has no effect with membership "dynamic"; give membership = "static" too, or leave it out',
        )


_SECOND, _MINUTE, _DAY = 1_000, 60_000, 86_400_000

#: What numbers may be, how they are written, and why no more or less.
_RANGES: tuple[tuple[str, int, int, Callable[[int], str], str], ...] = (
    ("start_timeout_ms", _SECOND, 60 * _MINUTE, format_duration, "a start that hangs longer should be seen"),
    (
        "shutdown_timeout_ms",
        100,
        30 * _MINUTE,
        format_duration,
        "handlers need some time, and a stop must end",
    ),
    (
        "commit_interval_ms",
        10,
        _MINUTE,
        format_duration,
        "a crash repeats what finished since the last commit",
    ),
    ("commit_records", 1, 2**40, str, "a crash repeats what finished since the last commit"),
    ("window_bytes", 1_000_000, 2**40, format_size, "with less, waiting records are fetched again and again"),
    ("fetch_wait_ms", 1, 500, format_duration, "it is how late a retry may be noticed"),
    ("run_records", 1, 100_000, str, "a run must end before its partition can be given away"),
    ("prefetch_records", 1, 10_000_000, str, "they are kept in memory"),
    ("replication", 1, 100, str, "it is a number of brokers"),
    ("dlq_partitions", 1, 10_000, str, "it is a number of partitions"),
    (
        "unresolved_refresh_ms",
        100,
        60 * _MINUTE,
        format_duration,
        "each time asks the cluster, and alerts wait for it",
    ),
    ("tier_outage_ms", _MINUTE, 36_500 * _DAY, format_duration, "records that wait longer are deleted"),
)


def _ranges(settings: Settings) -> _Problems:
    for name, low, high, shown, why in _RANGES:
        value = getattr(settings, name)
        if value is not None and not low <= value <= high:
            given = shown(value) if value >= 0 else str(value)
            yield setting_path(name), f"{given} is not between {shown(low)} and {shown(high)}: {why}"


def _topics(settings: Settings) -> _Problems:
    found = naming_problems(
        settings.topic_style,
        retry=settings.retry_topic or None,
        dlq=settings.dlq_topic or None,
        replay=settings.replay_topic or None,
        parked=settings.parked_topic or None,
    )
    for where, what in found:
        yield {"style": "topic_style", "state": "dlq_topic"}.get(where, f"{where}_topic"), what


def _groups(settings: Settings) -> _Problems:
    groups = settings.accepts_groups
    if any(not group.strip() for group in groups):
        yield "accepts_groups", "has an empty name; give groups by their names"
    if repeated := sorted({group for group in groups if groups.count(group) > 1}):
        yield "accepts_groups", f"has {', '.join(map(repr, repeated))} twice; once is enough"


def _dialects(settings: Settings) -> _Problems:
    yield from dialect_problems(settings.dialects, settings.own_dialects)


def _times(settings: Settings) -> _Problems:
    if settings.prefetch_records < settings.run_records:
        yield (
            "prefetch_records",
            (
                f"{settings.prefetch_records} is less than run_records ({settings.run_records}), so no run would ever be "
                "full; raise it or lower run_records"
            ),
        )
    poll = settings.kafka.get("max.poll.interval.ms", str(MAX_POLL_INTERVAL_MS))
    if not poll.isdecimal():
        yield "kafka.max.poll.interval.ms", f"{poll!r} is no number of milliseconds"
    elif settings.shutdown_timeout_ms * 3 > int(poll):
        yield (
            "shutdown_timeout",
            (
                f"{format_duration(settings.shutdown_timeout_ms)} is more than a third of kafka.max.poll.interval.ms "
                f"({poll}): the group would give this process up while it waits for its handlers; "
                f"lower it, or raise that to {settings.shutdown_timeout_ms * 3}"
            ),
        )


def is_address(text: str) -> bool:
    """Whether it is `host:port`."""
    matched = _ADDRESS.fullmatch(text)
    return matched is not None and int(matched[1]) <= 65_535


def _address(settings: Settings) -> _Problems:
    if settings.http and not is_address(settings.http):
        yield "http", f"{settings.http!r} is no address to serve at: write host:port, such as 127.0.0.1:9600"
    yield from _token("http_token", settings.http_token)


#: What 128 bits take in hexadecimal is more; what a person makes up is mostly less.
_SHORTEST_TOKEN = 16
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, b64token
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


def _token(path: str, token: str) -> _Problems:
    # The token itself is never told, not even a wrong one.
    if token and _TOKEN.fullmatch(token) is None:
        yield (
            path,
            (
                "holds characters that a bearer token can't have: letters, digits and - . _ ~ + / go; "
                "`openssl rand -hex 32` makes a good one"
            ),
        )
    elif token and len(token) < _SHORTEST_TOKEN:
        yield (
            path,
            f"has fewer than {_SHORTEST_TOKEN} characters, so it can be guessed; `openssl rand -hex 32` makes a good one",
        )


def _console(settings: Settings) -> _Problems:
    console = settings.console
    if not is_address(console.bind):
        yield (
            "console.bind",
            f"{console.bind!r} is no address to serve at: write host:port, such as 127.0.0.1:9601",
        )
    yield from _token("console.token", console.token)
    if _NAME.fullmatch(console.token_name) is None:
        yield (
            "console.token_name",
            f"{console.token_name!r} is no name for audit lines: give 1 to 64 letters, digits and . _ @ -",
        )
