"""The loop of a supervisor: what workers say and how they end goes in, orders come out; and what it shows of them."""

import itertools
import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from redrive.core.catalogue import WORKER_READY, WORKER_RESTARTS, Metric
from redrive.core.commands import Report
from redrive.core.inspection import WorkersSeen
from redrive.core.merging import Family, Page, Sample
from redrive.core.supervision import FAILED, Drain, Kill, Order, Start, Supervision, SupervisorHealth
from redrive.errors import PortError
from redrive.runtime.clock import Clock
from redrive.runtime.ports import WorkerEvent, Workers, WorkerTold
from redrive.runtime.worker_metrics import WorkerMetrics
from redrive.runtime.worker_states import WorkerStates

#: How often the loop looks at the time, so that a back-off ends when it should.
_STEP_S = 0.2
#: How often workers are asked how they are, and for their metrics: what a killed one had counted since is lost.
ASK_MS = 1_000.0
ASK_METRICS_MS = 5_000.0
#: A scrape waits so long for workers that don't answer, then shows what they last said.
_SCRAPE_S = 2.0

_log = logging.getLogger("redrive")

_Handler = Callable[[int, FrameType | None], None]


class Supervisor:
    """
    Runs the workers of `supervision` until they have ended. `metrics`, `states`: None where nobody wants to see any. `watched`
    is called with each round, several times a second.
    """

    def __init__(
        self,
        supervision: Supervision,
        workers: Workers,
        clock: Clock,
        *,
        report: Callable[[Report], None],
        watched: Callable[[], None],
        metrics: WorkerMetrics | None = None,
        states: WorkerStates | None = None,
    ) -> None:
        self._supervision, self._workers, self._clock = supervision, workers, clock
        self._report, self._watched = report, watched
        self._metrics, self._states = metrics, states
        self._wanted: deque[Callable[[float], list[Order]]] = deque()
        self._serials = itertools.count(1)
        self._asked_mono_ms = self._asked_metrics_mono_ms = clock.mono_ms()

    def run(self) -> int:
        """Start the workers, see to them, and give the exit code when all have ended."""
        self._obey(self._supervision.begin(self._clock.mono_ms()))
        while self._supervision.exit_code is None:
            for event in self._workers.events(_STEP_S):
                self._take(event)
            now_ms = self._clock.mono_ms()
            while self._wanted:
                self._obey(self._wanted.popleft()(now_ms))
            self._ask(now_ms)
            self._obey(self._supervision.tick(now_ms))
            self._watched()
        return self._supervision.exit_code

    # These three return at once; any thread, also within a signal handler.

    def stop(self) -> None:
        """Drain all workers, then end."""
        self._want(self._supervision.stop_asked)

    def kill(self) -> None:
        """End all workers at once."""
        self._want(self._supervision.kill_asked)

    def restart(self) -> None:
        """Replace the workers one after another."""
        self._want(self._supervision.restart_asked)

    def health(self) -> SupervisorHealth:
        """How it all is; any thread."""
        return self._supervision.judge(self._clock.mono_ms())

    def page(self) -> Page:
        """The metrics of all workers, of this moment; any thread. Waits for their answers."""
        if self._metrics is None:
            return ()
        serial = next(self._serials)
        for worker in self._supervision.workers:
            self._workers.ask(worker.number, serial, "metrics")
        self._metrics.await_answers(
            serial,
            _SCRAPE_S,
            expected=lambda: {worker.number: worker.is_ready for worker in self._supervision.workers},
        )
        return self._metrics.page()

    def state(self) -> WorkersSeen:
        """What all workers are at, at this moment; any thread. Waits for their answers."""
        if self._states is None:
            return WorkersSeen(workers=())
        serial = next(self._serials)
        for worker in self._supervision.workers:
            self._workers.ask(worker.number, serial, "state")
        found = self._states.since(
            serial,
            _SCRAPE_S,
            expected=lambda: [worker.number for worker in self._supervision.workers if worker.is_ready],
        )
        numbers = [worker.number for worker in self._supervision.workers]
        silent = tuple(number for number in numbers if number not in found)
        return WorkersSeen(
            workers=tuple(found.values()),
            silent=silent,
        )

    def _want(self, event: Callable[[float], list[Order]]) -> None:
        self._wanted.append(event)
        self._workers.wake()

    def _take(self, event: WorkerEvent) -> None:
        now_ms = self._clock.mono_ms()
        if isinstance(event, WorkerTold):
            if self._metrics is not None:
                self._metrics.told(event.worker, event.answer)
            if self._states is not None:
                self._states.told(event.worker, event.answer)
            self._obey(self._supervision.told(event.worker, event.answer.health, now_ms))
        else:
            orders = self._supervision.ended(event.worker, event.code, event.how, now_ms)
            if self._metrics is not None:
                self._metrics.ended(event.worker)
            if self._states is not None:
                self._states.ended(event.worker)
            self._obey(orders)

    def _ask(self, now_ms: float) -> None:
        if now_ms - self._asked_mono_ms < ASK_MS:
            return
        self._asked_mono_ms = now_ms
        wants_metrics = self._metrics is not None and now_ms - self._asked_metrics_mono_ms >= ASK_METRICS_MS
        if wants_metrics:
            self._asked_metrics_mono_ms = now_ms
        for worker in self._supervision.workers:
            self._workers.ask(worker.number, next(self._serials), "metrics" if wants_metrics else "health")

    def _obey(self, orders: list[Order]) -> None:
        for order in orders:
            match order:
                case Start():
                    self._start(order.worker)
                case Drain():
                    self._workers.drain(order.worker)
                case Kill():
                    self._workers.kill(order.worker)
                case Report():
                    self._report(order)

    def _start(self, worker: int) -> None:
        try:
            pid = self._workers.start(worker)
        except PortError as error:
            self._obey(self._supervision.ended(worker, FAILED, str(error), self._clock.mono_ms()))
        else:
            self._obey(self._supervision.started(worker, pid))


def own_metrics(health: SupervisorHealth, group: str) -> Page:
    """What a supervisor tells of itself."""
    return [
        _family(WORKER_READY, ((worker.worker, float(worker.is_ready)) for worker in health.workers), group),
        _family(
            WORKER_RESTARTS, ((worker.worker, float(worker.restarts)) for worker in health.workers), group
        ),
    ]


def _family(metric: Metric, values: Iterator[tuple[int, float]], group: str) -> Family:
    samples = (
        Sample(metric.name, (("group", group), ("worker", str(worker))), value) for worker, value in values
    )
    return Family(metric.name.removesuffix("_total"), metric.kind, metric.help, tuple(samples))


def supervise_until_stopped(supervisor: Supervisor) -> int:
    """
    Run until SIGTERM or SIGINT and the end of all workers; gives the exit code.

    The first of them drains the workers, a second one kills them and then ends this process by that very signal. SIGHUP
    begins a rolling restart; where it says that the terminal is gone, it is an order to end.
    """
    ended_by: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if ended_by:
            supervisor.kill()
        else:
            _log.info(
                "%s: all workers end. Once more ends them at once: their records run again",
                signal.Signals(number).name,
            )
            supervisor.stop()
        ended_by.append(number)

    had_terminal = _has_terminal()

    def restart(number: int, frame: FrameType | None) -> None:
        if had_terminal and not _has_terminal():
            stop(number, frame)
        else:
            supervisor.restart()

    handlers: dict[signal.Signals, _Handler] = {signal.SIGINT: stop, signal.SIGTERM: stop}
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
        handlers[signal.SIGHUP] = restart
    with _handled(handlers):
        code = supervisor.run()
    if len(ended_by) > 1:
        signal.signal(ended_by[-1], signal.SIG_DFL)
        os.kill(os.getpid(), ended_by[-1])
    return code


def _has_terminal() -> bool:
    try:
        os.close(os.open(os.ctermid(), os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


@contextmanager
def _handled(
    handlers: "Mapping[signal.Signals, _Handler]",
) -> Generator[None, None, None]:
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
