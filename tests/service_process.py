"""A service as its users run it: `redrive run module:app`, a process of its own that can be stopped or killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.broker import ROOT
from tests.waiting import until

_COMMAND = "from redrive.cli.main import main; main()"


def typed(*arguments: str, environment: Mapping[str, str]) -> tuple[int, dict[str, Any], str]:
    """Runs a command in a process of its own: its exit code, the one JSON object that it printed, what else it said."""
    ended = subprocess.run(
        [sys.executable, "-c", _COMMAND, *arguments],
        env={**os.environ, **environment, "PYTHONPATH": _path()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, json.loads(ended.stdout) if ended.stdout else {}, ended.stderr


class ServiceProcess:
    """
    One process that runs `target` (`module:app`), with `environment` added to this one's. Its log goes to `log`.

    As a context manager it starts, waits until partitions were assigned, and is killed at the end if it still runs.
    """

    def __init__(self, target: str, log: Path, environment: Mapping[str, str], *options: str) -> None:
        self.log = log
        self._command = [sys.executable, "-c", _COMMAND, "run", target, *options]
        self._environment = {**os.environ, **environment, "PYTHONPATH": _path(), "PYTHONUNBUFFERED": "1"}
        self._process: subprocess.Popen[bytes] | None = None
        self._read_from = 0

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; of a process that was killed by a signal that signal's number, negative."""
        return self._running().poll()

    def start(self, *, awaits: str = "assigned") -> Self:
        """Start it, and wait until its log says that partitions came; or `awaits`, and nothing where that is empty."""
        self._read_from = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
            )
        try:
            until(lambda: awaits in self.said() or self._has_ended(), f"{awaits!r} in the service's log")
        except AssertionError:
            self.end()
            raise
        assert not self._has_ended(), f"the service ended at its start:\n{self.said()}"
        return self

    def said(self) -> str:
        """What it logged since its last start."""
        with self.log.open("rb") as log:
            log.seek(self._read_from)
            return log.read().decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL: as the kernel's out-of-memory killer or a node's loss would end it."""
        process = self._running()
        process.kill()
        process.wait(10)

    def terminate(self, *, within_s: float = 30.0) -> int:
        """SIGTERM, and wait for its end. Gives the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(within_s)

    def signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def wait(self, within_s: float) -> int:
        """Wait for its end; fails when that takes too long."""
        try:
            return self._running().wait(within_s)
        except subprocess.TimeoutExpired:
            message = f"the service did not end within {within_s:g} s; its log:\n{self.said()}"
            raise AssertionError(message) from None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Kill it where it still runs."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def _running(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "it was not started"
        return self._process

    def _has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None


def _path() -> str:
    """Where services find the tests' modules; a copy of redrive named by PYTHONPATH goes before the installed one."""
    before = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*([before] if before else []), str(ROOT)])
