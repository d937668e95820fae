"""The metrics of all workers on one page: what they last said, and what those that ended had counted."""

import logging
import threading
from collections.abc import Callable, Mapping

from redrive.core.catalogue import ALIASES, METRICS
from redrive.core.merging import Page, keep, merge
from redrive.runtime.ports import Answer

_log = logging.getLogger("redrive")

#: Gauges that are parts of a whole; of all others each worker has its own series.
ADDS_UP = frozenset(metric.name for metric in (*METRICS, *ALIASES) if metric.adds_up)


class WorkerMetrics:
    """`read_page` turns what a worker says into values. All methods: any thread."""

    def __init__(self, read_page: Callable[[bytes], Page]) -> None:
        self._read_page = read_page
        self._said: dict[int, bytes] = {}
        self._serials: dict[int, int] = {}
        self._kept: Page = ()
        self._heard = threading.Condition()

    def told(self, worker: int, answer: Answer) -> None:
        """A worker answered; without a page nothing changes."""
        if answer.page:
            with self._heard:
                self._said[worker] = answer.page
                self._serials[worker] = max(answer.serial, self._serials.get(worker, 0))
                self._heard.notify_all()

    def ended(self, worker: int) -> None:
        """A worker's process ended: what it counted stays counted."""
        with self._heard:
            if (last := self._said.pop(worker, None)) is not None:
                self._kept = keep(self._kept, self._read(last))
            self._heard.notify_all()

    def await_answers(
        self, serial: int, timeout_s: float, *, expected: Callable[[], Mapping[int, bool]]
    ) -> None:
        """Wait until all that are `expected` to (by their numbers) have answered this question or a later one."""
        with self._heard:
            self._heard.wait_for(
                lambda: all(
                    self._serials.get(worker, 0) >= serial for worker, is_so in expected().items() if is_so
                ),
                timeout_s,
            )

    def page(self) -> Page:
        """All in one."""
        with self._heard:
            said, kept = dict(self._said), self._kept
        return merge({worker: self._read(page) for worker, page in said.items()}, kept, adds_up=ADDS_UP)

    def _read(self, page: bytes) -> Page:
        try:
            return self._read_page(page)
        except ValueError as error:
            _log.error("A worker's page of metrics can't be read and is left out: %s", error)
            return ()
