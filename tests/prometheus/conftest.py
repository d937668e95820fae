"""A Prometheus and an Alertmanager at work on the alerts of one service."""

import json
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.prometheus import program, written
from tests.waiting import until


class Watch:
    """Both programs, with the rules and the target they were started with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self._prometheus = self._alertmanager = ""

    def start(self, rules: str, target: str) -> None:
        """Scrape `target` five times a second, and judge as often."""
        prometheus, alertmanager = (f"127.0.0.1:{port}" for port in free_ports(2))
        self._prometheus, self._alertmanager = f"http://{prometheus}", f"http://{alertmanager}"
        (self._folder / "redrive.rules.yml").write_text(rules, "utf-8")
        config = {
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
            "rule_files": ["redrive.rules.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
            "scrape_configs": [{"job_name": "payments", "static_configs": [{"targets": [target]}]}],
        }
        routes = {"route": {"receiver": "team", "group_wait": "0s"}, "receivers": [{"name": "team"}]}
        self._run(
            "prometheus-alertmanager",
            f"--config.file={written(self._folder / 'alertmanager.yml', routes)}",
            f"--storage.path={self._folder / 'alertmanager'}",
            f"--web.listen-address={alertmanager}",
            "--cluster.listen-address=",
        )
        self._run(
            "prometheus",
            f"--config.file={written(self._folder / 'prometheus.yml', config)}",
            f"--storage.tsdb.path={self._folder / 'prometheus'}",
            f"--web.listen-address={prometheus}",
        )

    def firing(self) -> dict[str, dict[str, Any]]:
        """What Alertmanager tells people of: alerts by name."""
        for process in self._running:
            assert process.poll() is None, f"{process.args[0]} ended; its log is in {self._folder}"
        found = _fetched(f"{self._alertmanager}/api/v2/alerts?active=true")
        return {alert["labels"]["alertname"]: alert for alert in found or ()}

    def query(self, expr: str) -> dict[str, Any]:
        """Prometheus's answer to an expression."""
        return _fetched(f"{self._prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expr})}")

    def until_fires(self, name: str) -> dict[str, Any]:
        """The alert, as soon as Alertmanager has it."""
        return until(lambda: self.firing().get(name), f"{name} fires")

    def until_over(self, name: str) -> None:
        """Wait until Alertmanager has it no longer."""
        until(lambda: name not in self.firing(), f"{name} is over")

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()

    def _run(self, name: str, *options: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [program(name), *options], cwd=self._folder, stdout=log, stderr=subprocess.STDOUT
            )
        self._running.append(process)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Not started yet."""
    program("prometheus")
    started = Watch(tmp_path)
    yield started
    started.close()


def free_ports(count: int) -> list[int]:
    """Ports at which nothing listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _fetched(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)
    except OSError:  # it is about to start
        return None
