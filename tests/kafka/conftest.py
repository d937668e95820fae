"""A real broker with a listener of each kind, for what can go wrong while connecting."""

import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.broker import Broker

#: A client's settings for the listener `login`.
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "alice",
    "sasl.password": "alice-secret",
}


@dataclass
class Guarded:
    """A broker with a listener of each kind. `closed`: where nothing listens; it is what `away` advertises."""

    plain: str
    login: str
    tls: str
    away: str
    closed: str
    authority: Path

    def named(self, text: str) -> str:
        """The text with addresses replaced by what they are."""
        for name in ("plain", "login", "tls", "away", "closed"):
            text = text.replace(getattr(self, name), name.upper())
        return text


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory, kafka) -> Iterator[Guarded]:
    """`kafka` is asked for so that this is skipped, or fails, as all tests of a real broker."""
    folder = tmp_path_factory.mktemp("guarded")
    authority = _certificate(folder)
    login, tls, away, closed = (f"127.0.0.1:{port}" for port in _free_ports(4))
    broker = Broker(folder / "data")
    listeners = {"LOGIN": login, "TLS": tls, "AWAY": away}
    advertised = {**listeners, "AWAY": closed}
    broker.properties |= {
        "listeners": ",".join([broker.properties["listeners"], *_addresses(listeners)]),
        "advertised.listeners": ",".join(
            [broker.properties["advertised.listeners"], *_addresses(advertised)]
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SSL,AWAY:PLAINTEXT"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
        ),
        # Who comes without a login may do everything, alice may do nothing.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        # For doctor: only the old group protocol, offsets that are forgotten early, and little room in commits.
        "group.coordinator.rebalance.protocols": "classic",
        "offsets.retention.minutes": "60",
        "offset.metadata.max.bytes": "512",
        "ssl.keystore.location": str(folder / "broker.p12"),
        "ssl.keystore.password": "secret",
        "ssl.keystore.type": "PKCS12",
    }
    broker.start()
    yield Guarded(broker.bootstrap, login, tls, away, closed, authority)
    broker.kill()


def _addresses(listeners: dict[str, str]) -> list[str]:
    return [f"{name}://{address}" for name, address in listeners.items()]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _certificate(folder: Path) -> Path:
    """A key for the host kafka.test, and the certificate that vouches for it."""
    store = ["-alias", "broker", "-keystore", str(folder / "broker.p12"), "-storepass", "secret"]
    _keytool(
        "-genkeypair",
        *store,
        "-storetype",
        "PKCS12",
        "-keyalg",
        "EC",
        "-dname",
        "CN=kafka.test",
        "-ext",
        "SAN=dns:kafka.test",
    )
    _keytool("-exportcert", "-rfc", *store, "-file", str(folder / "authority.pem"))
    return folder / "authority.pem"


def _keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True)
