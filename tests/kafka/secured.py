"""A broker that lets nobody in without a login, over TLS, and lets nobody do what no ACL grants."""

import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from redrive.adapters.kafka_reach import KafkaReach
from redrive.adapters.kafka_settings import client_conf
from redrive.core.acls import Operation, Resource, Right
from tests.broker import Broker
from tests.plain_kafka import admin_of
from tests.waiting import until

_OPERATIONS = {
    Operation.READ: AclOperation.READ,
    Operation.WRITE: AclOperation.WRITE,
    Operation.CREATE: AclOperation.CREATE,
    Operation.ALTER: AclOperation.ALTER,
    Operation.DESCRIBE: AclOperation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
_RESOURCES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.CLUSTER: ResourceType.BROKER,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
}
_LISTENERS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
#: More than tests need users.
USERS = 120


class Secured:
    """
    `bootstrap`: the secured listener. `open`: a plain one, whose users may do everything, for whoever sets a stage.

    There are `USERS` users with a PLAIN login, handed out one after another by `user`, without any right.
    """

    def __init__(self, broker: Broker, bootstrap: str, authority: Path) -> None:
        self.bootstrap, self.open = bootstrap, broker.bootstrap
        self._authority = authority
        self._admin = admin_of(self.open)
        self._names = iter(_names())
        self._acls = 0

    def user(self) -> str:
        """A user that nobody has used."""
        return next(self._names)

    def scram_user(self, name: str) -> str:
        """A user with a SCRAM login, made now."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = UserScramCredentialUpsertion(name, info, password_of(name).encode())
        for future in self._admin.alter_user_scram_credentials([wanted]).values():
            future.result(30)
        return name

    def login(self, user: str, mechanism: str = "PLAIN", password: str = "") -> dict[str, str]:
        """Client settings of a user."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._authority),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password or password_of(user),
        }

    def environment(self, user: str, **more: str) -> dict[str, str]:
        """The same as variables for redrive."""
        login = self.login(user, **more)
        options = {f"REDRIVE_KAFKA__{name.upper().replace('.', '_')}": value for name, value in login.items()}
        return {"REDRIVE_BOOTSTRAP_SERVERS": self.bootstrap, **options}

    def grant(self, rights: Mapping[str, Iterable[Right]]) -> None:
        """Grant rights to users, and wait until the broker goes by them."""
        wanted = [_binding(user, right) for user, ones in rights.items() for right in dict.fromkeys(ones)]
        for future in self._admin.create_acls(wanted).values():
            future.result(30)
        self._acls += len(wanted)
        until(lambda: self._count() == self._acls, f"{self._acls} rights")

    def revoke(self, user: str, right: Right) -> None:
        """Take one right back, and wait until the broker goes by that."""
        one = _binding(user, right)
        filter_ = AclBindingFilter(
            one.restype,
            one.name,
            one.resource_pattern_type,
            one.principal,
            one.host,
            one.operation,
            one.permission_type,
        )
        for future in self._admin.delete_acls([filter_]).values():
            self._acls -= len(future.result(30))
        until(lambda: self._count() == self._acls, f"{self._acls} rights")

    def recount(self) -> None:
        """Somebody else has granted rights."""
        self._acls = self._count()

    def _count(self) -> int:
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        return len(self._admin.describe_acls(everything).result(30))


def password_of(user: str) -> str:
    """What must never be seen anywhere."""
    return f"hush-{user}-hush"


@contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    """Start one, and end it after the block."""
    authority = _certify(folder)
    broker = Broker(folder / "data")
    controller = broker.properties["listeners"].rpartition(":")[2]
    port = _free_port(broker.port, int(controller))
    bootstrap = f"localhost:{port}"
    logins = " ".join(f'user_{name}="{password_of(name)}"' for name in _names())
    broker.properties |= {
        "listeners": f"{broker.properties['listeners']},SECURE://127.0.0.1:{port}",
        "advertised.listeners": f"{broker.properties['advertised.listeners']},SECURE://{bootstrap}",
        "listener.security.protocol.map": _LISTENERS,
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.secure.plain.sasl.jaas.config": f"{_PLAIN} {logins};",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": _SCRAM,
        "listener.name.secure.ssl.keystore.location": str(folder / "broker.p12"),
        "listener.name.secure.ssl.keystore.password": "secret",
        "listener.name.secure.ssl.keystore.type": "PKCS12",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    broker.start()
    try:
        secured = Secured(broker, bootstrap, authority)
        conf = client_conf({"bootstrap.servers": bootstrap, **secured.login(secured.user())})
        until(lambda: KafkaReach(conf, timeout_s=10)() is None, "the secured listener", within_s=60)
        yield secured
    finally:
        broker.kill()


def _names() -> list[str]:
    return [f"u{number}" for number in range(USERS)]


def _binding(user: str, right: Right) -> AclBinding:
    return AclBinding(
        _RESOURCES[right.resource],
        right.name,
        ResourcePatternType.PREFIXED if right.is_prefix else ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        _OPERATIONS[right.operation],
        AclPermissionType.ALLOW,
    )


def _free_port(*taken: int) -> int:
    while True:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        if port not in taken:
            return port


def _certify(folder: Path) -> Path:
    """A key for this machine, and the certificate that vouches for it."""
    store = ["-alias", "broker", "-keystore", str(folder / "broker.p12"), "-storepass", "secret"]
    _keytool(
        "-genkeypair",
        *store,
        *["-storetype", "PKCS12", "-keyalg", "EC", "-dname", "CN=localhost"],
        *["-ext", "SAN=dns:localhost"],
    )
    _keytool("-exportcert", "-rfc", *store, "-file", str(folder / "authority.pem"))
    return folder / "authority.pem"


def _keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True)
