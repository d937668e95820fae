# size: one function a page, all of them tables turned into text
"""Writes docs/reference/ from the tables in the code; a test finds pages that are not current.

python scripts/reference.py
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from redrive.adapters.kafka_settings import CONSUMER, GROUP_PROTOCOLS, PRODUCER, TRANSACTIONS, Changed
from redrive.console.asking import Field
from redrive.console.operations import OPERATIONS, Operation
from redrive.core.catalogue import ALIASES, EVENTS, METRICS, SUPERVISOR_METRICS, LogEvent, Metric
from redrive.core.dialect_tables import FOREIGN
from redrive.core.dialects import REDRIVE, Dialect, HeaderField
from redrive.core.doctor.table import CHECKS, Check
from redrive.core.encodings import ENCODINGS, FIELDS, encodings_for
from redrive.core.exit_codes import ExitCode
from redrive.core.explaining import Line, lines
from redrive.core.own_dialects import FIELD_NAMES
from redrive.core.settings import ConsoleSettings, Settings, setting_path
from redrive.core.topic_plan import WantedTopic, wanted_topics
from redrive.core.topology import STYLES, Naming, name_topics
from redrive.core.units import format_duration, format_size

ROOT = Path(__file__).parents[1]

_METRICS_HEAD = """\
# Metrics

What `/metrics` shows (`redrive run --http`), in Prometheus's format; made from `src/redrive/core/catalogue.py`.
Each process tells about its own share of the work: sum over processes, `sum by (group, listener) (…)`. A supervisor
(`redrive run --workers`) shows its workers' metrics on one page: counters, histograms and the gauges that say so added up, of
any other gauge one series a worker, with the label `worker`.

What one process tells for all says so: take the highest, `max by (dlq) (…)`.

All series but those of lag and of unresolved letters are there from the start, at 0, so that `increase()` sees the first failure.
Labels are bounded: names of groups, listeners and topics, `reason` and `outcome` from closed sets. Never keys, offsets, texts.
"""

_ALIASES_HEAD = """\
# Other names

Told besides, where the setting `metrics_aliases` is true.
"""

_EVENTS_HEAD = """\
# Log events

What redrive writes to the logger `redrive`; made from `src/redrive/core/catalogue.py`.
A line tells what happened, what becomes of the record, and what to do. It never holds what a record holds, nor what an
exception says, since that may quote the record: `redrive dlq show` has it.

Fields are attributes of the log record too, for formatters that write JSON: `redrive_event` is the event's name,
`redrive_listener`, `redrive_topic` … are its fields, `redrive_count` is how many events the line stands for.

Like events (the same in the fields named under "counted by") are told as they come at first, so many at a time; then one
line every ten seconds tells the latest, and how many more there were.
"""

_CLIENT_HEAD = """\
# Settings of the Kafka client

Each librdkafka setting that redrive sets, with the reason, also where it is the client's default today; made from
`src/redrive/adapters/kafka_settings.py`. Your own `[kafka]` settings go before these, but for the fixed ones: a promise depends
on them, and setting them is refused at the start.
"""

_CLASSIFICATION_HEAD = """\
# Classification of failures

Which kind of failure an exception is, by its type or by a code it carries; made from `src/redrive/core/classification.py`.
`redrive explain EXCEPTION` says it for one of them, and what each listener of an app does then.

| kind | what becomes of the record |
|---|---|
| `transient` | immediate retries, then the ladder; a dead letter when the last attempt fails |
| `permanent` | a dead letter at once |
| `poison` | can't be decoded: a dead letter at once, its bytes as they came |
| `outage` | it and all others of the listener are held, one is tried again with growing pauses; no attempt counts |

The order in which is asked: handler signals (`RetryLater`, `DeadLetterNow`, `Skip`); what the listener's
`Failures(rules=…)` and then its classes say of the exception and its causes; then this table, of the exception (a code it
carries before its type, the nearest base class first) and of its causes; then `Failures(unknown=…)`, by default
`transient`. Never the text. Types are known by name, so no client library is imported for it.
"""

_SETTINGS_HEAD = """\
# Settings

Every setting with its default; made from `src/redrive/core/settings.py`. In `redrive.toml` it has this name, in the
environment it is in capitals behind `REDRIVE_` (`REDRIVE_COMMIT_INTERVAL=1s`), and options of commands and `App(settings=…)`
go before both. Durations and sizes are written with their unit. What contradicts itself is told all at once, each with its
name. `[kafka]` is passed to the Kafka client: see [its settings](client-settings.md).
`console.bind` is `bind` in the table `[console]`, `REDRIVE_CONSOLE__BIND` in the environment.
"""

_TOPICS_HEAD = """\
# Topics

What topics a listener needs and how they are called; made from `src/redrive/core/topology.py` and `topic_plan.py`, with the
source `orders`, group `payments` and `RetryPolicy("5s", "10m")` as the example. `redrive topics plan` shows those of an app,
`redrive topics apply` creates them. redrive never deletes, shrinks or reconfigures a topic.
"""

_TEMPLATES_HEAD = """\
## Templates

The setting `topic_style` chooses a style; `spring` are the names that Spring Kafka gives. Each name can be given a template
of its own by a setting. Templates hold `{topic}` and may hold `{group}`, which keeps the tiers of several groups on one
source apart; that of tiers also one of `{delay}` (`5s`), `{delay_ms}` (`5000`), `{index}` (from 0). Names must be readable
both ways; what isn't is refused at the start. `parked_topic` keeps a name free for order within a key: no
topic of that kind is made yet.
"""

_DOCTOR_HEAD = """\
# What `redrive doctor` checks

One section for each check; made from `src/redrive/core/doctor/table.py`. Codes are stable: scripts and runbooks may name them.
How to work with it: [find what is wrong](../how-to/find-what-is-wrong.md).

| severity | meaning |
|---|---|
| `error` | records are lost, never run or don't get on: now, or with the next failure |
| `warning` | all goes well until something else goes wrong |
| `info` | good to know |

Each finding names its subject (a topic, a group, a broker, a setting), what was seen, what comes of it, what mends it, and the
command where there is one. Below stand the usual severity, consequence and remedy of each check; a finding may know better.
Where the cluster doesn't tell what a check needs, doctor says "not checked" and why, and that is no finding.

Exit codes: 0 nothing found, 1 the cluster can't be reached or the app can't be loaded, 2 usage, 4 findings, of whatever severity.
`--only RD04` makes single checks.

`--json` prints `checks` (how many were made), `counts` by severity, `findings` (each with `code`, `name`, `severity`, `subject`, `seen`,
`means`, `mend`, `command`) and `not_checked` (`code`, `name`, `subject`, `why`, `needs`).

Nothing is written, with one exception: `--measure-clock` creates the topic `redrive.doctor`, writes five empty records and
deletes it again, since only a write tells a broker's time.
"""

_HEADERS_HEAD = """\
# Headers

What retries and dead letters carry besides their producer's headers; made from `src/redrive/core/dialects.py` and
`dialect_tables.py`. A dialect is a naming and encoding of the same things. All dialects of this page are read; which are
written is a setting:

```toml
dialects = ["redrive", "spring"]      # the default is ["redrive"], which is always among them
```

What is written is replaced on each hop, never appended, and a dead letter has each header once. All other headers pass
through as they came: order, repeats and nulls.

## What is believed

- On a **source topic** headers count for nothing, but for those of a replay: `redrive-id`, `redrive-replay-id`,
  `redrive-replays`. A producer can forge neither attempts nor due times.
- On a **retry topic** our own headers count. Where there are none, another framework wrote the record, and its dialect is
  read. Where our headers name what was written besides (`redrive-dialects`) and one of these counts more attempts than we
  do, its framework had the record since: its attempts and its due time count. Without a due time a record is due at its
  Kafka timestamp plus the topic's delay.
- On a **dead-letter topic** whoever wrote last is believed: the dialect of the last header that is any dialect's.
- Of a header that repeats the last one counts. Where a dialect has several headers for one thing, the first one of its table.
- What can't be read or can't be true (attempt 99,999, due in the year 12,000) counts as absent and is counted in
  `redrive_envelope_errors_total`. It never makes a record poison.
"""

_DIALECT_NOTES = {
    "redrive": "Our own. Always written.",
    "spring": "Spring Kafka: `@RetryableTopic` (`retry_topic-…`, `kafka_…`), and a `DeadLetterPublishingRecoverer` by itself (`kafka_dlt-…`).",
    "x-dashed": "The style of plain services, dashed.",
    "x-retry": "The style of plain services, in capitals.",
    "connect": "Dead letters of Kafka Connect's sinks (`errors.deadletterqueue.context.headers.enable=true`).",
    "streams": "Dead letters of Kafka Streams (KIP-1034).",
    "share": "Dead letters of share groups (KIP-1191). Without `errors.deadletterqueue.copy.record.enable` they have no value.",
    "smallrye": "SmallRye Reactive Messaging (Quarkus): `delayed-retry-topic` and `dead-letter-queue`.",
    "micronaut": "Micronaut Kafka's `@ErrorStrategy` with retry topics or a dead-letter topic.",
    "arroyo": "Dead letters of Arroyo (Sentry). They don't say their topic.",
}
_ON = {
    "any": "",
    "retry": "retries",
    "letter": "dead letters",
    "never": "not written",
    "theirs": "not written: the producer's own",
}
_COUNTS = {"runs": "", "next-run": ", the number of the coming run", "retries": ", retries so far"}

_OWN_DIALECT = """\
## A dialect of your own

```toml
dialects = ["redrive", "billing"]     # leave it out here, and it is read only

[own_dialects.billing]
attempt = { header = "Billing-Attempt", encoding = "int32", counts = "next-run" }
due = { header = "Billing-Not-Before", encoding = "iso-8601" }
source_topic = "Billing-Topic"
```

`counts` says what a header of attempts counts: `runs` so far (the default), the number of the coming run (`next-run`), or
`retries` so far. `event_id` is read, never written: as a rule it is the producer's own. What can't be meant is told at the
start, with its path.
"""


_HTTP_HEAD = """\
# HTTP API

What `redrive console` serves (how to use it: [Replay over HTTP](../how-to/replay-over-http.md)); made from
`src/redrive/console/operations.py`. The same as OpenAPI 3.1: `GET /api/v1/openapi.json`.

- **Token**: `Authorization: Bearer …` with every request, `console.token` of the settings. In a URL it is refused: there it
  would stay in logs. There are no cookies, and no answers to pages of other sites.
- **Answers** are JSON. Instants are epoch milliseconds, UTC; what isn't known is `null` or `""`.
- **Errors** are `application/problem+json` (RFC 9457) with `title`, `status`, and in `detail` what to do.
- **Unknown names** in a query or a body are refused: a filter that is ignored would send letters that weren't meant.
- **Bounds**: a body 64 kB within 10 s, a head 32 kB within 10 s, 64 connections, an answer within 30 s, an action within
  60 s. One replay or discard of a topic at a time; a second one gets 409.
- **Host**: on a loopback address only requests for `localhost`, `127.0.0.1`, `[::1]` are answered.
- **`Idempotency-Key`** (POST): the same request again gets the first answer, with `Idempotency-Replayed: true`, and does
  nothing. With another query or body: 422. Kept a day, the last thousand; a restart forgets them. A request that failed
  before anything was done is not kept.

| status | |
|---|---|
| 200 | the answer; of a replay or discard look at `partial` |
| 400 | it can't be meant, or a token in the URL |
| 401 | no token, or another one |
| 403, 421 | from a page of another site; called by a name that isn't the console's |
| 404, 405 | no such path, topic or letter here; not by this method |
| 408, 413, 415 | a body or a head that is too slow, too long; a body that isn't JSON |
| 409 | a replay or discard of the topic is at work; the first request with this key is; the state topic can't be used |
| 422 | this `Idempotency-Key` was given with another request |
| 503, 504 | Kafka doesn't answer, or too much is at work (`Retry-After`); it took too long |
"""


_EXIT_CODES_HEAD = """# Exit codes

The same for all commands, so that scripts and pipelines can rely on them.

| code | meaning | examples |
|---|---|---|"""
_EXIT_CODES_TAIL = """
`redrive run` treats the first SIGTERM or Ctrl-C as an order to end well, with code 0: no new records, handlers that run
may finish for at most `shutdown_timeout`, offsets are committed. A second one ends the process at once, by that signal;
the records whose handlers were running are read again by the next process.

With `--workers` these are the supervisor's codes: 0 when all workers ended in order, 1 when one of them didn't (it failed, or had
to be killed), 2 when a worker ended with 2 before any was ready, 6 when one ended with 6. A worker that dies otherwise is restarted and ends nothing.

Results go to stdout, everything else (log lines, problems) to stderr. With `--json` stdout holds exactly one object,
also when the command fails: `{"error": "…"}`, for settings with `problems`, each with `where` and `what`. How a command is to be
used (code 2: an unknown option, no app named, a value that can't be read) is told on stderr alone.
"""


def pages() -> Mapping[str, str]:
    """The text of each page, by its path in the repository."""
    return {
        "docs/reference/metrics.md": "\n".join(
            [
                _METRICS_HEAD,
                *map(_metric, (*METRICS, *SUPERVISOR_METRICS)),
                _ALIASES_HEAD,
                *map(_metric, ALIASES),
            ]
        ),
        "docs/reference/log-events.md": "\n".join([_EVENTS_HEAD, *map(_event, EVENTS.values())]),
        "docs/reference/exit-codes.md": "\n".join(
            [_EXIT_CODES_HEAD, *map(_exit_code, ExitCode), _EXIT_CODES_TAIL]
        ),
        "docs/reference/client-settings.md": _client_settings(),
        "docs/reference/http-api.md": "\n".join([_HTTP_HEAD, *map(_http, OPERATIONS)]),
        "docs/reference/doctor.md": "\n".join([_DOCTOR_HEAD, *map(_check, CHECKS)]),
        "docs/reference/headers.md": _headers(),
        "docs/reference/classification.md": _classification(),
        "docs/reference/settings.md": _settings(),
        "docs/reference/topics.md": _topics(),
    }


def _exit_code(code: ExitCode) -> str:
    return f"| {code.value} | {code.meaning} | {code.examples} |"


def _metric(metric: Metric) -> str:
    facts = [metric.kind, *([f"in {metric.unit}"] if metric.unit else []), f"labels {_listed(metric.labels)}"]
    facts += ["added up over workers"] if metric.adds_up else []
    lines = [f"## `{metric.name}`", "", ", ".join(facts), "", metric.help]
    if metric.bounds_s:
        lines += ["", f"Buckets, in seconds: {', '.join(f'{bound:g}' for bound in metric.bounds_s)}."]
    return "\n".join([*lines, ""])


def _event(event: LogEvent) -> str:
    text = re.sub(r"%\((\w+)\)s", r"{\1}", event.text)
    counted = f", counted by {_listed(event.limit_by)}" if event.limit_by else ""
    return "\n".join(
        [f"## `{event.name}`", "", f"{event.level}, {event.at_once} at once{counted}", "", f"> {text}", ""]
    )


def _http(operation: Operation) -> str:
    lines = [f"## `{operation.method} {operation.path}`", "", operation.about, ""]
    for where, fields in (("query", operation.query), ("body (JSON)", operation.body or ())):
        if fields:
            rows = [f"| `{one.name}` | {_form(one)} | {one.about} |" for one in fields]
            lines += [f"| {where} | | |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _form(field: Field) -> str:
    if field.form == "count":
        return f"{field.default}, at most {field.most}"
    return {"texts": "one or several", "positions": "one or several", "flag": "true or false"}.get(
        field.form, field.form
    )


def _check(check: Check) -> str:
    lines = [f"## {check.code} `{check.name}`", "", f"Usually {check.severity}. {check.asks}", ""]
    lines += [f"- **So**: {check.means}."]
    lines += [f"- **Mend**: {check.mend}."] if check.mend else []
    return "\n".join([*lines, f"- **Needs**: {check.needs}.", ""])


def _client_settings() -> str:
    return "\n".join(
        [
            _CLIENT_HEAD,
            "## Consumer",
            "",
            *_table(CONSUMER),
            "",
            "## Group protocol",
            "",
            *_table(GROUP_PROTOCOLS),
            "",
            "## Producer of retries and dead letters",
            "",
            *_table(PRODUCER),
            "",
            "## Producer of transactions, with delivery `exactly-once`: as above, and",
            "",
            *_table(TRANSACTIONS),
            "",
        ]
    )


def _table(changes: Iterable[Changed]) -> list[str]:
    rows = [
        f"| `{one.name}` | `{one.value}` | {'fixed' if one.fixed else ''} | {one.reason} |" for one in changes
    ]
    return ["| setting | value | | why |", "|---|---|---|---|", *rows]


def _headers() -> str:
    fields = [
        f"| `{name}` | {FIELDS[field].meaning} | {_listed(encodings_for(field))} |"
        for name, field in FIELD_NAMES.items()
    ]
    return "\n".join(
        [
            _HEADERS_HEAD,
            *(line for dialect in (REDRIVE, *FOREIGN.values()) for line in _dialect(dialect)),
            _OWN_DIALECT,
            "| field | what it says | encodings, the usual one first |",
            "|---|---|---|",
            *fields,
            "",
            "## Encodings",
            "",
            "| encoding | |",
            "|---|---|",
            *(f"| `{name}` | {what} |" for name, what in ENCODINGS.items()),
            "",
        ]
    )


def _dialect(dialect: Dialect) -> Iterable[str]:
    yield from (f"## `{dialect.name}`", "", _DIALECT_NOTES[dialect.name], "")
    yield from ("| header | says | encoding | on |", "|---|---|---|---|")
    for line in dialect.fields:
        encoding = line.encoding or _own_encoding(line)
        meaning = f"{FIELDS[line.field].meaning}{_COUNTS[line.counts]}"
        yield f"| `{line.header}` | {meaning} | {encoding} | {_ON[line.on]} |"
    yield ""


def _own_encoding(line: HeaderField) -> str:
    return encodings_for(line.field)[0]


def _classification() -> str:
    parts: list[str] = [_CLASSIFICATION_HEAD]
    by_what: dict[str, list[Line]] = {}
    for line in lines():
        by_what.setdefault(line.what, []).append(line)
    for what, ones in by_what.items():
        rows = [
            f"| {' '.join(f'`{key}`' for key in one.keys)} | {one.kind or 'not decided'} | {one.why} |"
            for one in ones
        ]
        parts += [f"## By {_EVIDENCE[what]}", "", "| which | kind | why |", "|---|---|---|", *rows, ""]
    return "\n".join(parts)


_EVIDENCE = {
    "type": "type of the exception, or of one it derives from",
    "errno": "errno of an OSError",
    "HTTP": "HTTP status",
    "gRPC": "gRPC code",
    "SQLSTATE": "SQLSTATE, else its class (the first two characters)",
    "DB-API": "name of a database driver's error (PEP 249)",
    "MySQL": "MySQL error number",
    "SQLite": "SQLite error name",
    "MongoDB": "MongoDB label or code",
    "AWS": "AWS error code",
    "Kafka": "Kafka error code",
    "attribute": "an attribute that says so",
    "SMTP": "SMTP reply",
}


def _settings() -> str:
    reasons = _comments(ROOT / "src/redrive/core/settings.py")
    found = [("", each) for each in dataclasses.fields(Settings) if each.name != "console"]
    found += [("console.", each) for each in dataclasses.fields(ConsoleSettings)]
    rows = [
        f"| `{table}{setting_path(each.name)}` | {_shown(each)} | {_unit(each.name)} | {reasons[each.name]} |"
        for table, each in found
    ]
    head = ["| setting | default | written as | what it is, and why |", "|---|---|---|---|"]
    return "\n".join([_SETTINGS_HEAD, *head, *rows, ""])


def _comments(path: Path) -> dict[str, str]:
    """What `#:` says above each field; fields without one of their own share that of the field before."""
    found: dict[str, str] = {}
    said: list[str] = []
    is_open = False
    for line in path.read_text().splitlines():
        if matched := re.fullmatch(r"    #: (.*)", line):
            said = [*said, matched[1]] if is_open else [matched[1]]
            is_open = True
        elif matched := re.match(r"    (\w+): .* = ", line):
            found.setdefault(matched[1], " ".join(said))
            is_open = False
    return found


def _shown(setting: "dataclasses.Field[Any]") -> str:
    value = setting.default if setting.default is not dataclasses.MISSING else None
    if setting.name.endswith("_ms"):
        return f"`{format_duration(value)}`"
    if setting.name.endswith("_bytes"):
        return f"`{format_size(value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        value = ", ".join(value)
    return "" if value in (None, "") else f"`{value}`"


def _unit(name: str) -> str:
    if name.endswith("_ms"):
        return "duration: `5s`, `1h30m`"
    if name.endswith("_bytes"):
        return "size: `64MB`, `64MiB`"
    return {
        "accepts_groups": "list; in the environment by commas",
        "dialects": "list; in the environment by commas",
        "own_dialects": "table `[own_dialects.NAME]`",
        "kafka": "table; in the environment `REDRIVE_KAFKA__…`",
        "brake": "`true`, `false`",
        "breaker": "`true`, `false`",
        "metrics_aliases": "`true`, `false`",
        "run_records": "number of records",
        "commit_records": "number of records",
        "prefetch_records": "number of records",
        "replication": "number of brokers",
        "dlq_partitions": "number",
    }.get(name, "text")


def _topics() -> str:
    namings = {style: Naming.of(style) for style in STYLES}
    named = {
        style: name_topics("charge", "orders", (5_000, 600_000), group="payments", naming=naming)
        for style, naming in namings.items()
    }
    roles = [
        ("tier", lambda style: ", ".join(f"`{name}`" for name, _ in named[style].tiers)),
        ("dead letters", lambda style: f"`{named[style].dlq}`"),
        ("their states, and notices about waiting retries", lambda style: f"`{named[style].state}`"),
        (
            "replay, of a listener without tiers",
            lambda style: f"`{namings[style].replay('orders', group='payments')}`",
        ),
    ]
    head = f"| | {' | '.join(f'`{style}`' for style in STYLES)} |"
    rule = f"|---|{'---|' * len(STYLES)}"
    return "\n".join(
        [
            _TOPICS_HEAD,
            "## Names by style",
            "",
            head,
            rule,
            *(f"| {role} | {' | '.join(map(name, STYLES))} |" for role, name in roles),
            "",
            _TEMPLATES_HEAD,
            head.replace("| |", "| setting |", 1),
            rule,
            *(_templates(kind, namings.values()) for kind in ("retry", "dlq", "replay", "parked")),
            "",
            "## How they are created",
            "",
            "| topic | role | partitions | replication | configuration |",
            "|---|---|---|---|---|",
            *map(_created, wanted_topics([named["dotted"]])),
            "",
        ]
    )


def _templates(kind: str, namings: Iterable[Naming]) -> str:
    return (
        " | ".join([f"| `{kind}_topic`", *(f"`{getattr(one, kind + '_template')}`" for one in namings)])
        + " |"
    )


def _created(topic: WantedTopic) -> str:
    partitions = topic.partitions or "as the source"
    replication = topic.replication or "as it is"
    configs = ", ".join(f"`{name}={value}`" for name, value in topic.configs.items()) or "as it is"
    return f"| `{topic.name}` | {topic.role} | {partitions} | {replication} | {configs} |"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    for path, text in pages().items():
        page = ROOT / path
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
