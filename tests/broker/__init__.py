"""A real Apache Kafka broker: one KRaft node, run with the machine's Java from jars that Maven brings.

Used by the tests (`kafka` and `own_kafka` in `tests/conftest.py`) and by hand (`scripts/kafka`).
"""

import atexit
import contextlib
import fcntl
import logging
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

ROOT = Path(__file__).parents[2]
POM = Path(__file__).with_name("pom.xml")
JARS = ROOT / ".kafka" / "jars"

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # One node holds the only copy of everything.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Fewer partitions of internal topics: the first group and the first transaction start at once.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    # A typing error in a topic's name must fail, not make a topic.
    "auto.create.topics.enable": "false",
    # After kill -9 the old registration stands in the way of the new one until its session ends (default 9 s).
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "400",
    "log.cleaner.dedupe.buffer.size": "16777216",
}

# Joins in a few hundred milliseconds, take-over from a dead member after 6 s; the broker's defaults are 5 s and 45 s.
QUICK_REBALANCES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}

JAVA_OPTIONS = (
    "-Xms256m",
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)


class BrokerError(Exception):
    """The broker can't be had on this machine, or did not start; the text says why."""


class Broker:
    """One broker with its own data folder; `start` after `kill` or `stop` finds the data again.

    `port` 0 takes a free one; `version` is Kafka's, by default the one of `pom.xml`. `properties` are added to the broker's (see `PROPERTIES`); with
    `quick_rebalances=False` groups keep the broker's default timings. `cluster_id`: which brokers belong together, by default
    this one alone; `java_options` come behind `JAVA_OPTIONS`.
    """

    def __init__(
        self,
        data: Path,
        *,
        port: int = 0,
        quick_rebalances: bool = True,
        properties: Mapping[str, str] | None = None,
        version: str = "",
        cluster_id: str = "",
        java_options: Sequence[str] = (),
    ) -> None:
        self._version = version
        self._cluster_id = cluster_id or new_cluster_id()
        self._java_options = (*JAVA_OPTIONS, *java_options)
        self.port, controller_port = _ports(port)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.data = data.resolve()
        self.log = self.data / "broker.log"
        self.properties = {
            **PROPERTIES,
            **(QUICK_REBALANCES if quick_rebalances else {}),
            "log.dirs": str(self.data / "logs"),
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            **(properties or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The broker's process, while it was started by this object and not stopped."""
        return None if self._process is None else self._process.pid

    def start(self, *, ready_s: float = 60.0, dies_with_us: bool = True) -> None:
        """Start the broker and wait until it answers.

        With `dies_with_us` it is stopped when this process ends, however it ends.
        """
        self.launch(dies_with_us=dies_with_us)
        self.await_answer(ready_s)

    def launch(self, *, dies_with_us: bool = True) -> None:
        """Start the broker without waiting for it. It dies with the thread that calls this, as Linux has it."""
        command = self.command()
        if dies_with_us:
            atexit.register(self.kill)
            setpriv = shutil.which("setpriv")  # Linux: also when this process is killed
            command = [setpriv, "--pdeathsig", "KILL", *command] if setpriv else command
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def command(self) -> list[str]:
        """The command that runs the broker; fetches jars and formats the data folder where that is still to do."""
        jars = fetch(self._version)
        self.data.mkdir(parents=True, exist_ok=True)
        config = self.data / "server.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in self.properties.items()))
        java = ["java", *self._java_options, "-cp", f"{jars}/*"]
        if not (self.data / "logs" / "meta.properties").exists():
            _output([*java, "kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(config)])
        return [*java, "kafka.Kafka", str(config)]

    def stop(self) -> None:
        """Stop it in order, as an operator would; without effect when it doesn't run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a power cut would; without effect when it doesn't run."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)

    def await_answer(self, within_s: float = 60.0) -> None:
        """Wait until a broker that was launched answers."""
        deadline = time.monotonic() + within_s
        while not answers(self.bootstrap):
            if self._process is not None and self._process.poll() is not None:
                self._process = None
                raise BrokerError(
                    f"the broker ended while starting; the end of {self.log}:\n{_tail(self.log)}"
                )
            if time.monotonic() > deadline:
                self.kill()
                raise BrokerError(
                    f"the broker did not answer in time; the end of {self.log}:\n{_tail(self.log)}"
                )
            time.sleep(0.05)


def version_of_kafka() -> str:
    """Which Kafka the jars are of, by the POM."""
    found = re.search(r"<kafka\.version>(.+?)</kafka\.version>", POM.read_text("utf-8"))
    return found[1] if found else ""


def fetch(version: str = "") -> Path:
    """The folder with the jars of a broker (of Kafka `version`, by default the POM's), brought by Maven once."""
    folder = JARS.with_name(f"jars-{version}") if version else JARS
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if "java" in missing or (missing and not folder.exists()):
        raise BrokerError(f"a real broker needs Java 17 and Maven; not found on PATH: {', '.join(missing)}")
    wanted = POM.read_text("utf-8")
    stamp = folder / "pom.xml"
    folder.parent.mkdir(exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        # Test processes start at once: none may take away what another one has just begun to run.
        fcntl.flock(lock, fcntl.LOCK_EX)
        _bring(folder, stamp, wanted, version)
    return folder


def _bring(folder: Path, stamp: Path, wanted: str, version: str) -> None:
    if not stamp.exists() or stamp.read_text("utf-8") != wanted:
        fresh = folder.with_name(f"{folder.name}-{os.getpid()}")
        shutil.rmtree(fresh, ignore_errors=True)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}", "-DincludeScope=runtime"]
        which = [f"-Dkafka.version={version}"] if version else []
        _output(["mvn", "-q", "-B", "-f", str(POM), *which, *goal])
        (fresh / "pom.xml").write_text(wanted, "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        fresh.rename(folder)


def answers(bootstrap: str, timeout_s: float = 1.0) -> bool:
    """Whether a broker at `host:port` tells its cluster's metadata."""
    host, _, port = bootstrap.rpartition(":")
    with contextlib.suppress(OSError, KafkaException):
        socket.create_connection((host, int(port)), timeout_s).close()
        return bool(admin(bootstrap).list_topics(timeout=timeout_s).brokers)
    return False


def admin(bootstrap: str) -> AdminClient:
    """An admin client that keeps its connection troubles to itself."""
    silent = logging.getLogger("tests.broker")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    return AdminClient({"bootstrap.servers": bootstrap, "logger": silent})


def new_cluster_id() -> str:
    """As Kafka writes its ids: 128 bits in base64, the first character no hyphen."""
    return f"A{secrets.token_urlsafe(16)[1:]}"


def free_ports(count: int) -> list[int]:
    """
    So many ports at which nobody listens now, below those that Linux gives to who connects: a broker that is down for a moment
    must find its port free, and who tries to reach it meanwhile may be given that very port and reach himself.
    """
    with contextlib.ExitStack() as sockets:
        found: list[int] = []
        while len(found) < count:
            opened = sockets.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                opened.bind(("127.0.0.1", 10_000 + secrets.randbelow(19_000)))
                found.append(opened.getsockname()[1])
        return found


def _ports(port: int) -> tuple[int, int]:
    """The broker's port and its controller's: the given one and the next, or two free ones."""
    first, second = (port, port + 1) if port else free_ports(2)
    return first, second


def _output(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BrokerError(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return result.stdout.strip()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-20:])
