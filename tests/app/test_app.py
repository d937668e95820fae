"""What the app itself does: it collects declarations, reads its settings late, and runs only where it can."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from redrive import App, ListenerError, RedriveError, Settings, SettingsError


def app_with_listener(**options: object) -> App:
    app = App("payments", **options)
    app.listener("orders")(lambda value: None)
    return app


def test_the_decorator_without_topic_is_refused_where_it_stands() -> None:
    app = App("payments")

    with pytest.raises(ListenerError) as refused:

        @app.listener
        def handle(value: bytes) -> None: ...

    line = test_the_decorator_without_topic_is_refused_where_it_stands.__code__.co_firstlineno + 5
    assert str(refused.value).replace("\\", "/") == (
        f'tests/app/test_app.py:{line}: write @app.listener("topic"): it needs the topic to read'
    )


def test_declaring_never_fails_by_what_is_wrong_in_it() -> None:
    app = App(None, accepts_groups=5, lifespan="x", settings=[])

    app.listener("orders", concurrency=-1)("no function")

    assert app.group is None


def test_files_elsewhere_are_told_with_their_whole_path(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text("from redrive import App\napp = App('')\n")
    script = (
        "import sys, os; sys.path.insert(0, sys.argv[1])\n"
        "import service\n"
        "try: service.app.resolve()\n"
        "except Exception as error: print(error.problems[0].where)\n"
        "os.chdir(sys.argv[1]); print(repr(service.App('x')))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, check=True, text=True
    ).stdout

    assert told.splitlines() == [f"{tmp_path / 'service.py'}:2", "App('x', 0 listeners, <string>:5)"]


# -- settings ----------------------------------------------------------------------------------------------------------


def test_settings_in_code_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_BOOTSTRAP_SERVERS", "from-environment:9092")
    monkeypatch.setenv("REDRIVE_REPLICATION", "1")
    app = App("payments", settings={"bootstrap_servers": "from-code:9092"})

    settings = app.load_settings()

    assert (settings.bootstrap_servers, settings.replication) == ("from-code:9092", 1)


def test_options_go_before_settings_in_code() -> None:
    app = App("payments", settings={"bootstrap_servers": "from-code:9092", "replication": 1})

    settings = app.load_settings(overrides={"bootstrap_servers": "from-option:9092", "replication": None})

    assert (settings.bootstrap_servers, settings.replication) == ("from-option:9092", 1)


def test_settings_that_are_no_mapping_are_told() -> None:
    app = App("payments", settings="redrive.toml")
    line = test_settings_that_are_no_mapping_are_told.__code__.co_firstlineno + 1

    with pytest.raises(SettingsError) as refused:
        app.load_settings()

    assert str(refused.value).replace("\\", "/") == (
        f"tests/app/test_app.py:{line}: App(settings='redrive.toml') is no mapping; give {{'bootstrap_servers': …}}, or "
        "leave it out: redrive.toml and REDRIVE_* are read by themselves"
    )


def test_settings_as_a_value_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_REPLICATION", "1")
    settings = Settings(bootstrap_servers="x:9092")

    assert App("payments", settings=settings).load_settings() is settings


def test_settings_as_a_value_leave_nothing_to_options_and_are_checked_too() -> None:
    app = App("payments", settings=Settings(bootstrap_servers="x:9092", replication=0))
    line = test_settings_as_a_value_leave_nothing_to_options_and_are_checked_too.__code__.co_firstlineno + 1

    with pytest.raises(SettingsError) as refused:
        app.load_settings(overrides={"http": "127.0.0.1:9600"}, config_file=Path("other.toml"))

    assert str(refused.value).replace("\\", "/").splitlines() == [
        "2 problems:",
        "  replication: 0 is not between 1 and 100: it is a number of brokers",
        (
            f"  tests/app/test_app.py:{line}: http, config can't be set besides: the app has its Settings from code; give "
            "it a mapping there"
        ),
    ]


def test_nothing_is_read_when_an_app_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redrive.toml").write_text("no toml at all")

    app = app_with_listener()

    with pytest.raises(SettingsError):
        app.load_settings()


# -- running -----------------------------------------------------------------------------------------------------------


def test_run_inside_of_a_running_loop_names_serving() -> None:
    async def inside() -> None:
        app_with_listener().run()

    with pytest.raises(RedriveError) as refused:
        asyncio.run(inside())

    assert str(refused.value) == (
        "app.run() blocks, and here an event loop is running that it would stop; there use `async with "
        "app.serving():`, which runs the app on the loop that is there"
    )


def test_run_off_the_main_thread_names_serving() -> None:
    caught: list[RedriveError] = []

    def run() -> None:
        try:
            app_with_listener().run()
        except RedriveError as error:
            caught.append(error)

    thread = threading.Thread(target=run, name="worker-3")
    thread.start()
    thread.join()

    assert [str(error) for error in caught] == [
        (
            "app.run() handles signals, which Python allows in the main thread only, and this is 'worker-3'; call it from "
            "the main thread. In a thread with an event loop, use `async with app.serving():`, which runs the app on the "
            "loop that is there"
        )
    ]


def test_what_is_wrong_is_told_before_anything_connects(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text("from redrive import App\nApp('payments').run()\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}

    ran = subprocess.run(
        [sys.executable, "service.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        "redrive.errors.ListenerError: service.py:2: the app has no listeners, so there is nothing to run; declare one "
        'with @app.listener("topic"), in this module or in one that it imports'
    )
