"""Starts processes of the obedient service, and feeds them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.ledger import Ledger
from tests.plain_kafka import Given, create_topics_of, send, unique
from tests.service_process import ServiceProcess, typed
from tests.services.obedient import Order, Shape, make

_TARGET = "tests.services.obedient:app"


class ObedientService:
    """
    A service of `obedient.py` with its topics and its ledger; `process()` is one more process of it.

    `shape`: fields of `Shape`; group and source are made up.
    """

    def __init__(self, bootstrap: str, folder: Path, **shape: object) -> None:
        self.bootstrap = bootstrap
        self.shape = Shape(**{"group": unique("group"), "sources": (unique("orders"),), **shape})
        self.ledger = Ledger(folder / "ledger")
        self.folder = folder
        self.source = self.shape.sources[0]
        self._count = 0

    def create_topics(self, partitions: int = 1) -> None:
        create_topics_of(self.bootstrap, make(self.shape, self.ledger), partitions)

    def send(self, *orders: Order, partition: int = -1, source: str = "") -> None:
        values = [Given(msgspec.json.encode(order), None, partition=partition) for order in orders]
        send(self.bootstrap, source or self.source, values)

    def send_to_each(self, partitions: int, *orders: Order) -> None:
        values = [msgspec.json.encode(order) for order in orders]
        send(
            self.bootstrap,
            self.source,
            [Given(value, None, partition=number) for number in range(partitions) for value in values],
        )

    def process(self, *options: str, **settings: str) -> ServiceProcess:
        self._count += 1
        return ServiceProcess(
            _TARGET, self.folder / f"log-{self._count}", self._environment(settings), *options
        )

    def command(self, *arguments: str, **settings: str) -> tuple[int, dict[str, Any], str]:
        """Type a command that takes `--app`: its exit code, the one JSON object, what else it said."""
        return typed(*arguments, "--app", _TARGET, "--json", environment=self._environment(settings))

    def _environment(self, settings: Mapping[str, str]) -> dict[str, str]:
        return {
            "SERVICE": msgspec.json.encode(self.shape).decode(),
            "LEDGER": str(self.ledger.path),
            "REDRIVE_BOOTSTRAP_SERVERS": self.bootstrap,
            "REDRIVE_COMMIT_INTERVAL": "200ms",
            **{f"REDRIVE_{name.upper()}": value for name, value in settings.items()},
        }
