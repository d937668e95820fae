"""
A service that counts what its own process has: `count` as a record's value makes its handler write `Counts` to the file that
`COUNTS` names, as a line of JSON. `SERVICE` holds its shape as JSON, `LEDGER` the path of the ledger of all other records.
"""

import os
from pathlib import Path

import msgspec

from redrive import App, Record, RetryPolicy
from tests.bounds.counting import objects_of
from tests.ledger import Ledger

COUNT, FAILS_ONCE, IS_FINE = b"count", b"fails once", b"is fine"
TIER = "100ms"


class Shape(msgspec.Struct, frozen=True):
    """Its group, and the source of its listener."""

    group: str
    source: str


class Counts(msgspec.Struct, frozen=True):
    """Of a process: `objects` are those of redrive's classes and the client's, by class."""

    threads: int
    file_descriptors: int
    objects: dict[str, int]


def make(shape: Shape, ledger: Ledger, counts: Path) -> App:
    """The app; its settings come from the environment."""
    app = App(shape.group)

    @app.listener(shape.source, retry=RetryPolicy(TIER), concurrency=2)
    def handle(value: bytes, record: Record) -> None:
        if value == COUNT:
            with counts.open("ab") as file:
                file.write(msgspec.json.encode(_counted()) + b"\n")
            return
        ledger.note(record)
        if value == FAILS_ONCE and record.attempt == 1:
            raise ConnectionError

    return app


def _counted() -> Counts:
    objects = objects_of("redrive", "confluent_kafka", "cimpl", "threading")
    threads, file_descriptors = (len(list(Path(f"/proc/self/{kind}").iterdir())) for kind in ("task", "fd"))
    return Counts(threads, file_descriptors, objects)


if "SERVICE" in os.environ:
    app = make(
        msgspec.json.decode(os.environ["SERVICE"], type=Shape),
        Ledger(os.environ["LEDGER"]),
        Path(os.environ["COUNTS"]),
    )
