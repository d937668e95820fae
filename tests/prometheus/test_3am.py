"""From a fired alert to replayed and resolved by the three commands of the page, on a topic of a thousand letters."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.core.alerts import rules, rules_text
from redrive.core.dashboard import ROWS
from tests.plain_kafka import Given, create_topics_of, send
from tests.prometheus import ROOT
from tests.prometheus.conftest import free_ports
from tests.service_process import ServiceProcess

PAGE = ROOT / "docs" / "how-to" / "3am.md"
ALERT = "RedriveUnresolvedLetters"
LETTERS = 1_000

SERVICE = """
from pathlib import Path

from redrive import App, RetryPolicy

app = App("payments")


@app.listener("orders", retry=RetryPolicy("1s"), criticality="money")
def charge(order: dict) -> None:
    if not Path("mended").exists():
        raise KeyError("card")
"""


def commands() -> list[list[str]]:
    """The commands that the page shows between its numbered steps, in their order."""
    text = PAGE.read_text("utf-8").split("## When it isn't that simple")[0]
    return [shlex.split(line) for line in re.findall(r"^redrive .*$", text, re.MULTILINE)]


def redrive(folder: Path, bootstrap: str, arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from redrive.cli.main import main; main()", *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "REDRIVE_BOOTSTRAP_SERVERS": bootstrap},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def service(kafka, tmp_path, monkeypatch):
    """The service of the page, its topics there, at work."""
    (tmp_path / "night.py").write_text(SERVICE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import night

    create_topics_of(kafka.bootstrap, night.app)
    [port] = free_ports(1)
    environment = {
        "REDRIVE_BOOTSTRAP_SERVERS": kafka.bootstrap,
        "REDRIVE_HTTP": f"127.0.0.1:{port}",
        "REDRIVE_UNRESOLVED_REFRESH": "200ms",
        "REDRIVE_BRAKE": "false",
        "REDRIVE_METRICS_ALIASES": "true",
    }
    with ServiceProcess("night:app", tmp_path / "service.log", environment) as process:
        process.target = f"127.0.0.1:{port}"
        yield process


def broken_panels(watch) -> dict[str, str]:
    """What Prometheus says against the dashboard's expressions."""
    expressions = [
        query.expr.replace("$__rate_interval", "1m").replace("$group", ".*").replace("$listener", ".*")
        for panels in ROWS.values()
        for panel in panels
        for query in panel.queries
    ]
    answers = {expr: watch.query(expr) for expr in expressions}
    return {expr: answer["error"] for expr, answer in answers.items() if answer["status"] != "success"}


def test_three_commands_end_the_alert_that_a_thousand_letters_fired(kafka, service, watch, tmp_path):
    watch.start(rules_text(rules(groups=["payments"], for_ms=0)), service.target)
    send(kafka.bootstrap, "orders", [Given(b'{"id": %d}' % number) for number in range(LETTERS)])
    alert = watch.until_fires(ALERT)
    assert alert["annotations"]["runbook_url"] == f"docs/runbooks/{ALERT}.md"
    assert alert["labels"]["criticality"] == "money"
    assert broken_panels(watch) == {}

    look, show, replay = commands()
    assert f"{LETTERS} unresolved" in redrive(tmp_path, kafka.bootstrap, look[1:])
    assert "KeyError" in redrive(tmp_path, kafka.bootstrap, show[1:])
    (tmp_path / "mended").touch()
    told = redrive(tmp_path, kafka.bootstrap, replay[1:])
    assert f"{LETTERS} sent, 0 failed, 0 skipped, 0 not found of {LETTERS}" in told

    watch.until_over(ALERT)
    [size] = watch.query("kafka_dlq_size")["data"]["result"]
    assert size["value"][1] == "0"
    [made] = watch.query("kafka_dlq_messages_total")["data"]["result"]
    assert (made["metric"]["topic"], made["value"][1]) == ("orders.dlq", str(LETTERS))
