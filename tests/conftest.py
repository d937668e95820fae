"""What all tests share: the real broker and its topics. How the tests are laid out: CONTRIBUTING.md."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest
from confluent_kafka.admin import NewTopic
from hypothesis import HealthCheck, settings

from tests.broker import Broker, BrokerError, admin, fetch

# Side by side, pytest's workers ignore Ctrl-C, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine makes an example slow, not wrong; the blob repeats one that failed.
settings.register_profile(
    "redrive", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("redrive")

_BROKER_FIXTURES = {"kafka", "own_kafka", "broker_jars"}


class RunningKafka(Protocol):
    """A broker that runs: `bootstrap` is its `host:port`."""

    bootstrap: str


class NewTopicCalled(Protocol):
    """`topic("orders", partitions=4, config={...})` creates a topic and returns its unique name."""

    def __call__(
        self,
        stem: str = "t",
        *,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        exact: bool = False,
    ) -> str: ...


@pytest.fixture(scope="session")
def broker_jars() -> None:
    """For tests that start a broker of another kind: skipped, or failed, where none can be had."""
    _require_broker()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    """The real broker all tests of this run share; never stop it, see `own_kafka` for that."""
    shared = os.environ.get("REDRIVE_TEST_BOOTSTRAP")
    if shared:
        yield _Given(shared)
        return
    _require_broker()
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[Broker]:
    """A started broker of this test's own, to `stop`, `kill` and `start` again."""
    _require_broker()
    broker = Broker(tmp_path / "kafka")
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def topic(kafka: RunningKafka) -> NewTopicCalled:
    """Creates topics on the shared broker.

    `topic("orders", partitions=4)` returns a name such as `orders-3f2a9c01`; with `exact=True` the name is taken
    as it is, for topics that derive from another: `topic(f"{orders}.retry.5s", exact=True)`.
    """
    return new_topics(kafka.bootstrap)


@pytest.fixture
def group() -> str:
    """A consumer group that no other test uses."""
    return f"group-{uuid4().hex[:8]}"


def new_topics(bootstrap: str) -> NewTopicCalled:
    """What `topic` is, for another broker: `new_topics(own_kafka.bootstrap)`."""
    client = admin(bootstrap)

    def create(
        stem: str = "t", *, partitions: int = 1, config: Mapping[str, str] | None = None, exact: bool = False
    ) -> str:
        name = stem if exact else f"{stem}-{uuid4().hex[:8]}"
        settings = dict(config or {})
        created = client.create_topics([NewTopic(name, partitions, 1, config=settings)])
        created[name].result(timeout=30)
        _await(lambda: all(p.leader >= 0 for p in _partitions(name)) and len(_partitions(name)) == partitions)
        return name

    def _partitions(name: str) -> list:
        return list(client.list_topics(name, timeout=5).topics[name].partitions.values())

    return create


def _await(is_so: Callable[[], bool]) -> None:
    """Ask until it is so; each question is a round trip to the broker, and pytest-timeout ends it."""
    while not is_so():
        pass


class _Given:
    """The broker that REDRIVE_TEST_BOOTSTRAP names."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap


def _require_broker() -> None:
    """Skip where a broker can't be had; with CI set that is a failure."""
    try:
        fetch()
    except BrokerError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI must run the real-broker tests: {error}")
        pytest.skip(f"NOT TESTED ON A REAL BROKER: {error}")


@pytest.fixture
def is_long(pytestconfig: pytest.Config) -> bool:
    """Whether to take all the time that a test is worth, as before a release."""
    return bool(pytestconfig.getoption("--long"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--long", action="store_true", help="also the tests marked long, and the others at full length"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What green tests measured, a line each: of `record_property("told", line)`, in whichever process that was."""
    for report in terminalreporter.getreports("passed"):
        for name, line in report.user_properties:
            if name == "told":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}: {line}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses a real broker, so that `-m "not kafka"` leaves it out; skip what takes long, unless it is asked for."""
    for item in items:
        if _BROKER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("kafka")
        if item.get_closest_marker("long") and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="takes long; --long runs it"))
    # Begun late, a file of a few tests that take a minute each would run on alone when all others are through.
    slow = {item.path for item in items if any(map(item.get_closest_marker, ("chaos", "timeout")))}
    items.sort(key=lambda item: item.path not in slow)
