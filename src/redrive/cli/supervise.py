"""`redrive run --workers`: the supervisor, put together."""

import contextlib
import logging
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from redrive.adapters.worker_processes import WorkerProcesses, refuse_where_workers_cannot_be
from redrive.cli.context import Loaded
from redrive.core.membership import instance_id
from redrive.core.settings import Settings
from redrive.core.supervision import Supervision
from redrive.runtime.clock import SystemClock
from redrive.runtime.reporting import Reporter
from redrive.runtime.running import most_drain_s
from redrive.runtime.supervising import Supervisor, own_metrics, supervise_until_stopped
from redrive.runtime.worker_metrics import WorkerMetrics
from redrive.runtime.worker_states import WorkerStates

_log = logging.getLogger("redrive")

#: A worker ends by itself when its time is over; only one that can't even do that is killed, so much later.
_GRACE_S = 5.0


def supervise(loaded: Loaded, count: int) -> int:
    """
    Run so many workers of an app, each by this very command; gives the exit code.

    Raises PortError where there can't be workers, or the settings' HTTP address can't be used; SettingsError where
    their membership can't be.
    """
    refuse_where_workers_cannot_be()
    settings, group = loaded.settings, loaded.app.group
    instance_id(settings, group=group, host=socket.gethostname(), worker=count - 1)
    clock = SystemClock()
    reporter = Reporter(clock)
    metrics, states = None, WorkerStates() if settings.http and settings.http_token else None
    if settings.http:
        from redrive.adapters.prometheus_pages import read_page

        metrics = WorkerMetrics(read_page)
    drain_most_s = most_drain_s(settings.shutdown_timeout_ms / 1000) + _GRACE_S
    supervisor = Supervisor(
        Supervision(count, drain_most_ms=drain_most_s * 1000),
        WorkerProcesses(_command),
        clock,
        report=reporter,
        watched=reporter.flush,
        metrics=metrics,
        states=states,
    )
    with _over_http(supervisor, settings, group) if settings.http else contextlib.nullcontext():
        code = supervise_until_stopped(supervisor)
    reporter.flush(at_end=True)
    return code


def _command(worker: int, descriptor: int) -> list[str]:
    """This command again, with the same options; `-P`: modules in the working directory must not hide others."""
    command, *options = sys.argv[1:]
    return [sys.executable, "-P", "-m", "redrive", command, "--as-worker", f"{worker}:{descriptor}", *options]


@contextmanager
def _over_http(supervisor: Supervisor, settings: Settings, group: str) -> Generator[None, None, None]:
    from redrive.adapters.http_probe import Shown, start_probe
    from redrive.adapters.prometheus_pages import write_page

    def metrics() -> bytes:
        return write_page([*own_metrics(supervisor.health(), group), *supervisor.page()])

    def state() -> bytes:
        return msgspec.json.encode(supervisor.state())

    shown = Shown(supervisor.health, metrics, state, settings.http_token)
    with contextlib.closing(start_probe(settings.http, shown)) as probe:
        _log.info(
            "/livez, /readyz and /metrics of all workers at port %s (http=%s)", probe.port, settings.http
        )
        yield
