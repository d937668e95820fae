"""`redrive console` as a process, on a real broker: as the how-to shows it, and together with the command line."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from tests.broker import ROOT
from tests.kafka.shop import Shop
from tests.waiting import until

TOKEN = "a-token-of-these-tests-4711"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "replay-over-http.md"


class ConsoleProcess:
    """A console of its own, at a port of its own."""

    def __init__(self, folder, bootstrap, **environment):
        self.log = folder / "console.log"
        command = [
            sys.executable,
            "-c",
            "from redrive.cli.main import main; main()",
            "console",
            "--bind",
            "127.0.0.1:0",
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--bootstrap-servers", bootstrap],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        greeting = r"redrive console.*?(http://127\.0\.0\.1:\d+)"
        until(
            lambda: re.search(greeting, self.said()) or self.process.poll() is not None,
            "the console's greeting",
        )
        self.url = re.search(greeting, self.said())[1]
        until(self._answers, "the console's first answer")

    def said(self):
        return self.log.read_text()

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)

    def _answers(self):
        try:
            return httpx.get(f"{self.url}/").status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture
def shop(kafka, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("REDRIVE_APP", "REDRIVE_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    return Shop(kafka.bootstrap)


@pytest.fixture
def console(shop, tmp_path):
    with ConsoleProcess(tmp_path, shop.bootstrap, REDRIVE_CONSOLE__TOKEN=TOKEN) as running:
        yield running


def test_the_lines_of_the_how_to_do_what_it_says(shop, console):
    if shutil.which("curl") is None:
        pytest.skip("NOT TESTED AS IT IS SHOWN: there is no curl here")
    shop.letters(130)
    lines = [line.strip() for line in PAGE.read_text().splitlines() if line.strip().startswith("curl ")]
    answers = []
    for line in lines:
        ended = subprocess.run(
            ["sh", "-c", line.replace("orders.dlq", shop.dlq)],
            env={**os.environ, "TOKEN": TOKEN, "CONSOLE": f"{console.url}/api/v1"},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        answers.append(json.loads(ended.stdout))
    overview, page, letter, plan, ten, hundred, discarded = answers
    assert shop.dlq in [topic["topic"] for topic in overview["topics"]]
    assert (len(page["letters"]), letter["event_id"], letter["value"]["kind"]) == (20, "orders/0/0", "json")
    assert (plan["dry_run"], plan["selected"], plan["beyond_limit"]) == (True, 10, 120)
    assert (ten["replayed"], hundred["replayed"], hundred["beyond_limit"]) == (10, 100, 20)
    assert (discarded["discarded"], discarded["partial"]) == (1, False)
    assert shop.states() == {"replayed": 109, "discarded": 1, "open": 20}
    assert sorted(shop.copies().values()) == [1] * 110
    said = console.said()
    assert ("10 of 10 replayed" in said, TOKEN in said) == (True, False)


def test_two_consoles_and_the_command_line_at_once_send_no_letter_twice(shop, console, tmp_path):
    shop.letters(60)
    (tmp_path / "other").mkdir()
    with ConsoleProcess(tmp_path / "other", shop.bootstrap, REDRIVE_CONSOLE__TOKEN=TOKEN) as other:
        told = []

        def replay(url):
            told.append(
                httpx.post(
                    f"{url}/api/v1/dlq/{shop.dlq}/replay?limit=100", headers=_bearer(), timeout=60
                ).json()
            )

        threads = [threading.Thread(target=replay, args=(each.url,)) for each in (console, other)]
        for thread in threads:
            thread.start()
        code, typed, _ = shop("replay", shop.dlq, "--all", "--yes")
        for thread in threads:
            thread.join(60)
    assert code in {0, 1, 3, 5}
    assert sum(each["replayed"] for each in told) + typed.get("sent", 0) == 60
    for each in told:
        assert each["replayed"] + each["failed"] + each["skipped"] + each["not_found"] == each["selected"]
    assert sorted(shop.copies().values()) == [1] * 60
    assert shop.states() == {"replayed": 60}


def test_a_token_of_the_run_is_printed_once_and_ends_with_it(shop, tmp_path):
    (tmp_path / "made").mkdir()
    with ConsoleProcess(tmp_path / "made", shop.bootstrap, REDRIVE_CONSOLE__TOKEN="") as made:
        [token] = re.findall(r"#token=(\S+)", made.said())
        url = f"{made.url}/api/v1/dlq/{shop.dlq}"
        assert httpx.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=60).status_code == 200
        assert httpx.get(f"{url}?token={token}").status_code == 400
        assert made.end() == 0
        greeting, _, after = made.said().partition("This token is good")
        assert ("one-time at 127.0.0.1" in after, token in after, greeting.count("#token=")) == (
            True,
            False,
            1,
        )


def _bearer():
    return {"Authorization": f"Bearer {TOKEN}"}
