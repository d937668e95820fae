"""What somebody sees who runs redrive for the first time and has something wrong: the command as they type it."""

import gc
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.kafka.conftest import LOGIN
from tests.plain_kafka import Given, committed, send
from tests.waiting import until

REDRIVE = [sys.executable, "-c", "from redrive.cli.main import main; main()"]
#: As on Windows: no SIGTERM, no hook after fork (which Python's own random uses where it is there).
REDRIVE_WITHOUT_POSIX = [
    sys.executable,
    "-c",
    "import os, random, signal; del signal.SIGTERM, os.register_at_fork; from redrive.cli.main import main; main()",
]

SERVICE = """
import gc
import threading

from redrive import App

app = App({group!r})


@app.listener({topic!r})
def charge(value: bytes) -> None:
    print("charging", value.decode(), flush=True)
    if value == b"gc":
        print("gc", gc.get_threshold(), gc.get_freeze_count() > 0, flush=True)
    if value == b"for ever":
        threading.Event().wait()
"""

_LOG_TIME = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} ", re.MULTILINE)


class Workplace:
    """A folder with a service in it, in which the command is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[subprocess.Popen[str]] = []

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def run(self, *arguments: str, bootstrap: str = "", **env: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr, without the times of log lines and the name of the folder."""
        done = subprocess.run(
            [*REDRIVE, *arguments],
            cwd=self.folder,
            env=self._env(bootstrap, env),
            capture_output=True,
            text=True,
            check=False,
        )
        return (
            done.returncode,
            done.stdout,
            _LOG_TIME.sub("", done.stderr).replace(str(self.folder), "FOLDER"),
        )

    def start(
        self, *arguments: str, bootstrap: str, command: list[str] = REDRIVE, **env: str
    ) -> subprocess.Popen[str]:
        """The command at work; it is killed at the end of the test. What it says comes by its stdout."""
        process = subprocess.Popen(
            [*command, *arguments],
            cwd=self.folder,
            env=self._env(bootstrap, env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._running.append(process)
        return process

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()

    @staticmethod
    def _env(bootstrap: str, more: dict[str, str]) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
        return {**env, **({"REDRIVE_BOOTSTRAP_SERVERS": bootstrap} if bootstrap else {}), **more}


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    place = Workplace(tmp_path)
    place.write("service.py", SERVICE.format(group="payments", topic="orders"))
    yield place
    place.close()


@pytest.fixture
def serving(workplace: Workplace, kafka, topic, group) -> Callable[..., subprocess.Popen[str]]:
    """Starts the service on a topic of its own, all topics there, and waits until it has its partitions."""

    def start(*arguments: str, command: list[str] = REDRIVE) -> subprocess.Popen[str]:
        source = topic("orders")
        workplace.write("service.py", SERVICE.format(group=group, topic=source))
        code, _, told = workplace.run(
            "topics", "apply", "service:app", "--replication", "1", bootstrap=kafka.bootstrap
        )
        assert (code, told) == (0, "")
        process = workplace.start(
            "run", "service:app", *arguments, bootstrap=kafka.bootstrap, command=command
        )
        process.source = source
        process.said = _read_until(process, "assigned")
        return process

    return start


def _read_until(process: subprocess.Popen[str], text: str) -> list[str]:
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"ended with {process.wait()} before it said {text!r}:\n{''.join(lines)}")


# -- before anything connects ----------------------------------------------------------------------------------------


def test_no_bootstrap_servers(workplace):
    assert workplace.run("run", "service:app") == (
        1,
        "",
        (
            "bootstrap_servers: not set, so nobody knows where Kafka is: set REDRIVE_BOOTSTRAP_SERVERS=host:9092, "
            'bootstrap_servers = "host:9092" in redrive.toml, or --bootstrap-servers. To see redrive without a Kafka: '
            "redrive demo\n"
        ),
    )


def test_no_such_module(workplace):
    assert workplace.run("run", "servise:app", bootstrap="kafka:9092") == (
        1,
        "",
        (
            "no module 'servise'. Looked in FOLDER (--app-dir for another folder) and among the installed packages. "
            "There is service.py: service:…?\n"
        ),
    )


def test_not_an_app(workplace):
    assert workplace.run("run", "service:charge", bootstrap="kafka:9092") == (
        1,
        "",
        (
            "service:charge is a function, not a redrive App; if it makes the App, write service:charge(); there is "
            "service:app\n"
        ),
    )


def test_an_error_while_importing(workplace):
    workplace.write("service.py", "environment = {}\nurl = environment['DATABASE_URL']\n")

    code, out, told = workplace.run("run", "service:app", bootstrap="kafka:9092")

    assert (code, out) == (1, "")
    assert re.sub(r" *[~^]+\n", "", told) == (
        "service can't be imported:\n\n"
        "Traceback (most recent call last):\n"
        '  File "FOLDER/service.py", line 2, in <module>\n'
        "    url = environment['DATABASE_URL']\n"
        "KeyError: 'DATABASE_URL'\n"
    )


def test_no_listeners(workplace):
    workplace.write("service.py", 'from redrive import App\n\napp = App("payments")\n')

    assert workplace.run("run", "service:app", bootstrap="kafka:9092") == (
        1,
        "",
        (
            'service.py:3: the app has no listeners, so there is nothing to run; declare one with @app.listener("topic"), '
            "in this module or in one that it imports\n"
        ),
    )


# -- while it connects -----------------------------------------------------------------------------------------------


def test_nothing_listens_there(workplace, guarded):
    cause = (
        f"nothing listens at {guarded.closed}: the connection is refused. "
        "Is the broker running, and is that its host and port (bootstrap_servers)?"
    )

    told = workplace.run("run", "service:app", bootstrap=guarded.closed, REDRIVE_START_TIMEOUT="2s")

    assert (
        told
        == (
            1,
            "",
            (
                f"WARNING redrive: {cause} Trying for another 2s.\n"  # the client's own twenty lines a second aren't here
                f"{cause} Given up after 2s (start_timeout).\n"
            ),
        )
    )


def test_a_wrong_password(workplace, guarded):
    login = {f"REDRIVE_KAFKA__{name.upper().replace('.', '_')}": value for name, value in LOGIN.items()}
    login["REDRIVE_KAFKA__SASL_PASSWORD"] = "forgotten"

    told = workplace.run("run", "service:app", bootstrap=guarded.login, REDRIVE_START_TIMEOUT="1s", **login)

    assert told == (
        1,
        "",
        (
            f"{guarded.login} refuses the login: SASL authentication error: Authentication failed: Invalid username or "
            "password. Check kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password. Given up after 1s "
            "(start_timeout).\n"
        ),
    )


def test_brokers_advertised_where_they_are_not(workplace, guarded):
    told = workplace.run("topics", "plan", "service:app", bootstrap=guarded.away)

    assert told == (
        1,
        "",
        (
            f"{guarded.away} answers, but the cluster says its brokers are at {guarded.closed} (connection refused), and "
            "they can't be reached there from this machine. Set advertised.listeners of the brokers to addresses that "
            "work from here; in containers that is usually one listener for the containers and one for the host.\n"
        ),
    )


def test_the_source_topic_is_missing(workplace, kafka, group):
    workplace.write("service.py", SERVICE.format(group=group, topic=f"nowhere-{group}"))
    workplace.run("topics", "apply", "service:app", "--replication", "1", bootstrap=kafka.bootstrap)

    code, _, told = workplace.run("run", "service:app", bootstrap=kafka.bootstrap)

    assert (code, told.splitlines()[0]) == (
        1,
        (
            f"source topic 'nowhere-{group}' doesn't exist in this cluster, or this user may not see it. Its producers "
            "usually create it; to create it with 4 partitions: redrive topics apply service:app --create-sources 4"
        ),
    )


def test_the_retry_topics_are_missing(workplace, kafka, topic, group):
    source = topic("orders")
    workplace.write("service.py", SERVICE.format(group=group, topic=source))

    assert workplace.run("run", "service:app", bootstrap=kafka.bootstrap) == (
        1,
        "",
        (
            f"5 topics that redrive needs are missing: {source}.retry.5s (tier), {source}.retry.30s (tier), "
            f"{source}.retry.10m (tier), {source}.dlq (dlq), {source}.dlq.state (state). "
            "Create them: redrive topics apply service:app\n"
        ),
    )


def test_the_named_command_creates_them_and_then_it_runs(workplace, serving, kafka):
    process = serving()
    send(kafka.bootstrap, process.source, [Given(b"order 1")])

    _read_until(process, "charging order 1")


def test_what_init_wrote_runs_with_the_commands_that_it_names(workplace, kafka, group):
    workplace.run("init", "shop")
    shop = Workplace(workplace.folder / "shop")
    text = (shop.folder / "service.py").read_text()
    shop.write("service.py", text.replace('"payments"', repr(group)).replace('"orders"', f'"orders-{group}"'))

    code, _, told = shop.run("topics", "apply", "--create-sources", "1", bootstrap=kafka.bootstrap)
    assert (code, told) == (0, "")
    process = shop.start("run", bootstrap=kafka.bootstrap)
    try:
        _read_until(process, "assigned")
        send(kafka.bootstrap, f"orders-{group}", [Given(b'{"id": "1", "card": "visa", "cents": 100}')])
        until(lambda: committed(kafka.bootstrap, group, f"orders-{group}") == {0: 1}, "order 1 handled")
    finally:
        shop.close()


# -- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(serving, number):
    process = serving()

    process.send_signal(number)

    _read_until(process, "Partitions given back")
    assert process.wait() == 0


def test_a_second_signal_ends_it_at_once(serving, kafka):
    process = serving()
    send(kafka.bootstrap, process.source, [Given(b"for ever")])
    _read_until(process, "charging for ever")

    process.send_signal(signal.SIGTERM)
    _read_until(process, "Once more ends at once")
    process.send_signal(signal.SIGTERM)

    assert process.wait() == -signal.SIGTERM


def test_it_runs_and_ends_by_ctrl_c_where_there_is_no_sigterm_and_no_fork_hook(serving, kafka):
    process = serving(command=REDRIVE_WITHOUT_POSIX)
    send(kafka.bootstrap, process.source, [Given(b"order 1")])
    _read_until(process, "charging order 1")

    process.send_signal(signal.SIGINT)

    _read_until(process, "Partitions given back")
    assert process.wait() == 0


def test_log_lines_are_json_objects_where_that_is_asked_for(serving):
    process = serving("--log-format", "json")
    process.send_signal(signal.SIGTERM)

    lines = [json.loads(line) for line in _read_until(process, "Partitions given back")]
    assert {"at", "level", "logger", "message"} <= lines[-1].keys()


def test_probes_and_metrics_are_served_where_http_says(serving):
    process = serving("--http", "127.0.0.1:0")
    [port] = re.findall(r"/metrics at port (\d+)", "".join(process.said))

    for page in ("livez", "readyz", "metrics"):
        with urlopen(f"http://127.0.0.1:{port}/{page}", timeout=10) as answer:
            assert answer.status == 200


def test_a_signal_ends_a_start_that_still_waits_for_kafka(workplace, guarded):
    process = workplace.start("run", "service:app", bootstrap=guarded.closed)
    _read_until(process, "Trying for another")

    process.send_signal(signal.SIGTERM)

    assert process.wait() == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [([], "gc (100000, 50, 1000) True"), (["--no-gc-tuning"], f"gc {gc.get_threshold()} False")],
)
def test_the_garbage_collector_is_tuned_by_the_command_unless_told_otherwise(
    workplace, serving, kafka, options, told
):
    process = serving(*options)
    send(kafka.bootstrap, process.source, [Given(b"gc")])

    _read_until(process, told)


# -- app.run() where it can't block ----------------------------------------------------------------------------------


def test_app_run_inside_a_running_loop_and_off_the_main_thread_names_serving(workplace):
    workplace.write(
        "host.py",
        "import asyncio, threading\n"
        "from service import app\n"
        "async def main():\n"
        "    try:\n        app.run()\n    except Exception as error:\n        print(error)\n"
        "asyncio.run(main())\n"
        "threading.Thread(target=lambda: asyncio.run(main())).start()\n",
    )
    ran = subprocess.run(
        [sys.executable, "host.py"], cwd=workplace.folder, capture_output=True, text=True, check=True
    )

    assert [("serving()" in line) for line in ran.stdout.splitlines()] == [True, True]
