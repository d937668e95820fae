"""
Whether Kafka can be reached, and if not, why: one question to the cluster, and plain connections to its addresses.

The plain ones come first: that nothing listens is known at once, while the client goes on trying.
"""

import contextlib
import re
import socket
import ssl
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from redrive.adapters.kafka_errors import made
from redrive.core.connection import (
    Answer,
    Complaint,
    Seen,
    Trouble,
    explain_advertised,
    explain_bootstrap,
)

_COMPLAINTS = {
    KafkaError._AUTHENTICATION: Complaint.LOGIN,
    KafkaError.SASL_AUTHENTICATION_FAILED: Complaint.LOGIN,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: Complaint.LOGIN,
    KafkaError._SSL: Complaint.TLS,
}
#: "1/1 brokers are down" tells nothing that the others don't.
_EMPTY = frozenset([KafkaError._ALL_BROKERS_DOWN])
_DEFAULT_PORT = 9092
_NO_CONNECTION = re.compile(r"Connect to ipv[46]#(\S+):(\d+) failed")
#: Somebody waits for it: a broker that comes up is found within a second, not within ten.
_EAGER: dict[str, Any] = {"reconnect.backoff.ms": 100, "reconnect.backoff.max.ms": 1000}


class KafkaReach:
    """
    Asks whether Kafka can be reached, as often as it is called.

    `conf`: settings of an admin client (`client_conf`). `timeout_s`: how long the question may take; plain
    connections, before it and for the reason, get as long again.
    """

    def __init__(self, conf: Mapping[str, Any], *, timeout_s: float = 3.0) -> None:
        self._bootstrap: str = conf["bootstrap.servers"]
        self._protocol = str(conf.get("security.protocol", "plaintext")).upper()
        self._timeout_s = timeout_s
        self._said: list[tuple[Complaint, str]] = []
        settings: dict[str, Any] = {**conf, **_EAGER, "error_cb": self._hear}
        self._client: Any = made(AdminClient, settings)

    def __call__(self) -> Trouble | None:
        """Gives None when a broker answers, and all brokers can be reached where the cluster says they are."""
        servers = _servers(self._bootstrap)
        seen = _look_at(servers, self._timeout_s, greets=False)
        if all(one.answer is not Answer.OPEN for one in seen):
            return explain_bootstrap(seen, protocol=self._protocol, complaints=())
        try:
            brokers = self._client.list_topics(timeout=self._timeout_s).brokers.values()
        except KafkaException:
            self._client.poll(0)  # brings what the client had to say
            seen = _look_at(servers, self._timeout_s, greets=True)
            said, self._said = self._said, []
            if elsewhere := _other_brokers(said, servers):
                # Somebody must have told the client of them: the bootstrap server answered, but no question came through.
                known = _look_at(elsewhere, self._timeout_s, greets=False)
                if (trouble := explain_advertised(self._bootstrap, known)) is not None:
                    return trouble
            return explain_bootstrap(seen, protocol=self._protocol, complaints=said)
        seen = _look_at([(broker.host, broker.port) for broker in brokers], self._timeout_s, greets=False)
        return explain_advertised(self._bootstrap, seen)

    def _hear(self, error: KafkaError) -> None:
        if error.code() not in _EMPTY:
            self._said.append((_COMPLAINTS.get(error.code(), Complaint.OTHER), _sentence(error.str())))


def _servers(bootstrap: str) -> list[tuple[str, int]]:
    servers = []
    for server in bootstrap.split(","):
        host, _, port = server.strip().rpartition("://")[2].rpartition(":")
        if not port.isdecimal():
            host, port = f"{host}:{port}".lstrip(":"), str(_DEFAULT_PORT)
        servers.append((host.strip("[]"), int(port)))
    return servers


def _other_brokers(
    said: Iterable[tuple[Complaint, str]], servers: Iterable[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Addresses to which the client couldn't connect, and which nobody gave it as bootstrap servers."""
    given = {address[:2] for host, port in servers for address in _resolved(host, port)}
    failed = {
        (found[1].strip("[]"), int(found[2])) for _, text in said if (found := _NO_CONNECTION.search(text))
    }
    return sorted(failed - given)


def _resolved(host: str, port: int) -> list[tuple[str, int]]:
    with contextlib.suppress(OSError, UnicodeError):
        return [(str(found[4][0]), port) for found in socket.getaddrinfo(host, port)]
    return [(host, port)]


def _look_at(addresses: Iterable[tuple[str, int]], timeout_s: float, *, greets: bool) -> list[Seen]:
    """`greets`: also ask for TLS. Only where something is wrong: a plaintext broker logs it as a broken request."""
    addresses = list(addresses)
    share_s = max(0.2, timeout_s / max(1, len(addresses)))
    return [_look(host, port, share_s, greets=greets) for host, port in addresses]


def _look(host: str, port: int, timeout_s: float, *, greets: bool) -> Seen:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            return Seen(address, Answer.OPEN, greets and _speaks_tls(connection, host))
    except (socket.gaierror, UnicodeError):
        return Seen(address, Answer.UNRESOLVED)
    except ConnectionRefusedError:
        return Seen(address, Answer.REFUSED)
    except OSError:
        return Seen(address, Answer.SILENT)


def _speaks_tls(connection: socket.socket, host: str) -> bool:
    """
    Greets as a TLS client does and looks at the first byte of the answer: a TLS record, or anything else.

    A plaintext broker reads the greeting as an absurd length and hangs up.
    """
    sent = ssl.MemoryBIO()
    greeting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), sent, server_hostname=host)
    with contextlib.suppress(ssl.SSLWantReadError):
        greeting.do_handshake()
    try:
        connection.sendall(sent.read())
        return connection.recv(1) in (b"\x15", b"\x16")  # alert, handshake
    except OSError:
        return False


def _sentence(text: str) -> str:
    """The client's words without its address in front and its timings behind: `Authentication failed: …`."""
    text = re.sub(r"^(?:[a-z_]+://)?\S+?/\w+: ", "", text)
    return re.sub(r"\s*\(after \d+ms in state \w+\)$", "", text)
