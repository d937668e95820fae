"""Transactions on Apache Kafka, as the pump needs them (`runtime/ports.py`, Transactor)."""

from collections.abc import Callable, Mapping
from typing import Any

from redrive.adapters.transactor_thread import TransactorThread
from redrive.core.commands import Transaction
from redrive.core.transactions import Fenced, Outcome


class KafkaTransactor:
    """
    A transactional producer on a thread of its own. `conf` comes from `kafka_settings.transactor_conf`,
    `mono_ms` reads a clock that never goes back.

    A thread that hangs in the client is left behind, and another takes its place: its producer begins by ending what the
    one before has open.
    """

    def __init__(self, conf: Mapping[str, Any], mono_ms: Callable[[], float]) -> None:
        self._conf, self._mono_ms = conf, mono_ms
        self.thread = TransactorThread(conf, mono_ms)
        self._asked: Transaction | None = None

    @property
    def problem(self) -> str:
        """Why it can't work for now; empty when it can."""
        return self.thread.problem

    def submit(self, transaction: Transaction, membership: Any) -> None:
        self._asked = transaction
        self.thread.submit(transaction, membership)

    def outcomes(self) -> list[Outcome]:
        found = self.thread.outcomes()
        if found:
            self._asked = None
        elif self._asked is not None and self.thread.hangs():
            self._leave(self._asked.number)
        return found

    def close(self, timeout_s: float) -> None:
        self.thread.close(timeout_s)

    def _leave(self, number: int) -> None:
        left = self.thread
        left.leave()
        self.thread = TransactorThread(self._conf, self._mono_ms)
        detail = f"the client hangs since more than {left.timeout_ms / 1000:g} s, the time in which the broker ends it"
        self.thread.take_over(Fenced(number, detail, is_final=False))
