"""
The settings of the Kafka client that a user passes through, and which of them redrive has to refuse.

A refused one would break a promise silently: records lost, skipped or run early, while all looks well.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

_SECRET = re.compile(r"password|passphrase|secret|jaas|user\.info|oauthbearer\.config|\.pem$")
_CALLBACK = re.compile(r"[._]cb$|^on_|^logger$")


def is_secret(name: str) -> bool:
    """Whether the value of a client setting must never be shown."""
    return _SECRET.search(name) is not None


class ClientOptions(Mapping[str, str]):
    """Client settings by their librdkafka names. Shown with secrets masked, so that printing settings is harmless."""

    __slots__ = ("_options",)

    def __init__(self, options: Mapping[str, str] | Iterable[tuple[str, str]] = ()) -> None:
        self._options = MappingProxyType(dict(options))

    def __getitem__(self, name: str) -> str:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        shown = {name: "**********" if is_secret(name) else value for name, value in self._options.items()}
        return f"ClientOptions({shown})"


class _Refusal(NamedTuple):
    """Why a setting is refused; `harmless`: values that say what redrive does anyway."""

    reason: str
    harmless: frozenset[str] = frozenset()


_YES = frozenset({"true", "t", "1"})
_NO = frozenset({"false", "f", "0"})

_SERVERS = _Refusal("give bootstrap_servers instead, so that all parts connect to the same cluster")
_AUTO_COMMIT = _Refusal(
    "redrive commits an offset when its record was handled or moved on; the client would before", _NO
)
_ACKS = _Refusal(
    "an offset passes when all in-sync replicas have the successor; with less it can be lost",
    frozenset({"all", "-1"}),
)
_ASSIGNOR = _Refusal(
    "only range keeps a source's partitions and their tiers' together; group_protocol chooses how"
)

_REFUSED: Mapping[str, _Refusal] = MappingProxyType(
    {
        "bootstrap.servers": _SERVERS,
        "metadata.broker.list": _SERVERS,
        "client.id": _Refusal("give client_id instead"),
        "group.id": _Refusal('the group is the app\'s name: App("payments")'),
        "group.protocol": _Refusal("give group_protocol instead: auto, consumer or classic"),
        "group.remote.assignor": _ASSIGNOR,
        "partition.assignment.strategy": _ASSIGNOR,
        "group.instance.id": _Refusal(
            'all processes of the app would share it and shut each other out; give membership = "static" instead'
        ),
        "enable.auto.commit": _AUTO_COMMIT,
        "auto.commit.interval.ms": _Refusal("the client commits nothing here; give commit_interval instead"),
        "auto.commit.enable": _AUTO_COMMIT,
        "enable.auto.offset.store": _AUTO_COMMIT,
        "auto.offset.reset": _Refusal(
            "every partition starts at an explicit offset, a client default could skip records; give the listener start=",
            frozenset({"error"}),
        ),
        "isolation.level": _Refusal(
            "records of aborted transactions would be handled, though they never happened",
            frozenset({"read_committed"}),
        ),
        "enable.partition.eof": _Refusal("ends of partitions would come among the records", _NO),
        "allow.auto.create.topics": _Refusal(
            "a mistyped topic would be created with the broker's defaults instead of being told", _NO
        ),
        "acks": _ACKS,
        "request.required.acks": _ACKS,
        "enable.idempotence": _Refusal("a repeated write would become a second retry or dead letter", _YES),
        "partitioner": _Refusal(
            "the same key must go where Java's producers send it", frozenset({"murmur2_random"})
        ),
        "delivery.report.only.error": _Refusal(
            "redrive would wait for acknowledgements that never come", _NO
        ),
        "transactional.id": _Refusal("redrive gives each worker its own; a shared one fences all but one"),
        "message.max.bytes": _Refusal(
            "the broker judges by the topic's max.message.bytes; a smaller limit here would cut dead letters to their headers"
        ),
        "topic.blacklist": _Refusal("the client would leave topics unread and say nothing"),
        "fetch.wait.max.ms": _Refusal("give fetch_wait instead"),
        "queued.min.messages": _Refusal("give prefetch_records instead"),
        "default.topic.config": _Refusal("give its settings at the top, where they can be checked"),
    }
)

_CLASSIC_ONLY = ("session.timeout.ms", "heartbeat.interval.ms")


def option_problems(options: Mapping[str, str], *, group_protocol: str) -> Iterator[tuple[str, str]]:
    """Gives what is wrong with client settings: pairs of the setting's name and why, with how to mend it."""
    for name, value in options.items():
        refusal = _REFUSED.get(name.lower())
        if refusal is not None and value.strip().lower() not in refusal.harmless:
            yield name, f"leave it out: {refusal.reason}"
        elif _CALLBACK.search(name):
            yield name, "leave it out: a callback can't be given as text, and redrive has its own"
        elif name in _CLASSIC_ONLY and group_protocol != "classic":
            yield (
                name,
                (
                    'brokers set it for groups of the new protocol; give group_protocol = "classic" (or '
                    'membership = "static") to set it here'
                ),
            )
    has_sasl = [name for name in options if name.startswith("sasl.")]
    protocol = options.get("security.protocol", "plaintext")
    if has_sasl and not protocol.lower().startswith("sasl_"):
        yield (
            has_sasl[0],
            (
                f'has no effect with security.protocol "{protocol}": nobody would log in; '
                'give security.protocol = "SASL_SSL"'
            ),
        )
