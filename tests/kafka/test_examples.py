"""Each example runs by the commands that its README names, and does what its README says."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.broker import ROOT
from tests.plain_kafka import unique
from tests.waiting import until

EXAMPLES = ROOT / "examples"
_COMMANDS = {
    "redrive": "from redrive.cli.main import main; main()",
    "uvicorn": "import uvicorn; uvicorn.main()",
}


class Example:
    """A copy of an example, with topics and a group of its own; `commands`: those of its README, block by block."""

    def __init__(self, name, group, folder, bootstrap):
        self.folder, self._output = folder, folder / "output.txt"
        for file in (EXAMPLES / name).iterdir():
            if file.is_file():
                text = file.read_text("utf-8").replace(f'"{group}', f'"{unique(group)}')
                (folder / file.name).write_text(text)
        self._environment = {
            **os.environ,
            "REDRIVE_BOOTSTRAP_SERVERS": bootstrap,
            "REDRIVE_HTTP": "127.0.0.1:0",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(folder),
        }
        self._running = []
        readme = (EXAMPLES / name / "README.md").read_text("utf-8")
        self.blocks = [block.splitlines() for block in re.findall(r"```\n(.*?)\n```", readme, re.DOTALL)]

    def run(self, command, *options):
        """Run a command to its end; gives its exit code and what it said."""
        result = subprocess.run(
            [*_argv(command), *options],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return result.returncode, result.stdout + result.stderr

    def start(self, command, ready, *options):
        """Run a command until the end of the test; waits until it has said `ready`."""
        with self._output.open("ab") as output:
            process = subprocess.Popen(
                [*_argv(command), *options],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._running.append(process)
        until(lambda: ready in self.said() or process.poll() is not None, ready)
        assert process.poll() is None, self.said()

    def said(self):
        return self._output.read_text(errors="replace")

    def lines(self, *words):
        """The lines that begin with one of these words: those of the service itself."""
        return [line for line in self.said().splitlines() if line.startswith(words)]

    def close(self):
        for process in self._running:
            process.terminate()
        codes = {process.wait(30) for process in self._running}
        assert codes <= {0, -signal.SIGTERM}, self.said()  # uvicorn ends in order, and then by the signal


def _argv(command):
    program, *arguments = shlex.split(command)
    if program == "python":
        return [sys.executable, *arguments]
    return [sys.executable, "-c", _COMMANDS[program], *arguments]


@pytest.fixture
def example(kafka, tmp_path):
    opened = []

    def of(name, group):
        opened.append(Example(name, group, tmp_path, kafka.bootstrap))
        return opened[-1]

    yield of
    for each in opened:
        each.close()


def _begin(example, ready="Partitions assigned"):
    apply, serve, send = example.blocks[0]
    assert example.run(apply)[0] == 0
    example.start(serve, ready)
    assert example.run(send) == (0, "")


def test_a_first_retry(example):
    shop = example("01_first_retry", "first-retry")
    _begin(shop)

    until(lambda: len(shop.lines("order-")) == 7, "four orders in seven attempts")
    assert sorted(shop.lines("order-")) == sorted(shop.blocks[1])
    assert [line for line in shop.lines("order-") if "charged" in line][-1] == shop.blocks[1][-1]


def test_dead_letters_and_sending_them_back(example):
    shop = example("02_dead_letters_and_replay", "replay")
    _begin(shop)
    _, (ls, show), (replay, unresolved) = shop.blocks
    until(lambda: shop.lines("cart-3") == ["cart-3: 900 cents"], "the last cart")
    until(lambda: "KeyError" in shop.run(ls)[1], "the dead letter")
    topic = shop.run(ls)[1].splitlines()[1].split()[0]
    assert "KeyError: 'kettle'" in shop.run(show.replace("replay.carts.dlq", topic))[1]

    prices = shop.folder / "prices.json"
    prices.write_text(prices.read_text().replace("}", ', "kettle": 3900}'))
    code, told = shop.run(replay, "--yes")

    assert (code, "1 sent" in told) == (0, True), told
    until(lambda: shop.lines("cart-2") == ["cart-2: 4350 cents"], "the cart that was sent back")
    assert shop.lines("cart-1") == ["cart-1: 1350 cents"]
    assert "KeyError" not in shop.run(unresolved)[1]
    assert shop.run(replay, "--yes")[0] == 5


def test_a_fastapi_service_with_its_pool(example):
    shop = example("03_fastapi_lifespan", "lifespan")
    apply, serve, send = shop.blocks[0]
    assert shop.run(apply)[0] == 0
    shop.start(serve.replace("8000", "0"), "Uvicorn running on")
    assert shop.run(send) == (0, "")
    [address] = re.findall(r"Uvicorn running on (\S+)", shop.said())

    def answer(path):
        with urlopen(f"{address}{path}", timeout=10) as response:
            return response.read().decode()

    until(lambda: answer("/accounts/ada") == '{"cents":1500}', "both payouts")
    assert answer("/livez") == '"ok"'


def test_money_that_is_paid_once_and_stopped_by_hand(example):
    shop = example("04_money", "payouts")
    _begin(shop)
    until(lambda: len(shop.lines("ada", "cleo")) == 2, "two payouts")
    assert sorted(shop.lines("ada", "bob", "cleo")) == ["ada: 1200 cents paid", "cleo: 300 cents paid"]

    (shop.folder / "STOP").touch()
    shop.run(shop.blocks[0][2])
    until(lambda: "takes that for an outage" in shop.said(), "it stops")
    assert len(shop.lines("ada", "cleo")) == 2
    (shop.folder / "STOP").unlink()
    until(lambda: len(shop.lines("ada", "cleo")) == 4, "it goes on by itself")

    [port] = re.findall(r"/metrics at port (\d+)", shop.said())
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        assert 'criticality="money"' in page.read().decode()
    code, rules = shop.run(shop.blocks[1][0])
    assert (code, 'criticality="money"' in rules) == (0, True), rules


def test_each_example_is_tried_here():
    tried = Path(__file__).read_text("utf-8")
    assert [each.name for each in EXAMPLES.iterdir() if each.is_dir() and each.name not in tried] == []
