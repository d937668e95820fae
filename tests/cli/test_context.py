"""From which of three places the app and its settings come."""

import pytest

from redrive import Settings
from redrive.cli.context import load
from redrive.errors import ListenerError, SettingsError

SERVICE = """
from redrive import App

app = App({group!r}{more})


@app.listener("orders")
def charge(value: dict) -> None: ...
"""


@pytest.fixture
def services(folder, monkeypatch):
    for group in ("argument", "environment", "file"):
        (folder / f"by_{group}.py").write_text(SERVICE.format(group=group, more=""))
    monkeypatch.setenv("REDRIVE_APP", "by_environment:app")
    (folder / "redrive.toml").write_text('app = "by_file:app"\nbootstrap_servers = "file:9092"\n')
    return folder


def test_the_argument_goes_before_the_environment_and_the_file(services):
    loaded = load("by_argument:app")

    assert (loaded.target, loaded.app.group, loaded.settings.app) == (
        "by_argument:app",
        "argument",
        "by_argument:app",
    )


def test_the_environment_goes_before_the_file(services):
    assert load(None).app.group == "environment"


def test_the_file_names_the_app_where_nothing_else_does(services, monkeypatch):
    monkeypatch.delenv("REDRIVE_APP")

    assert load(None).app.group == "file"


def test_another_file_is_read_where_it_is_named(services, monkeypatch):
    monkeypatch.delenv("REDRIVE_APP")
    (services / "other.toml").write_text('app = "by_argument:app"\nbootstrap_servers = "other:9092"\n')

    loaded = load(None, config=services / "other.toml")

    assert (loaded.app.group, loaded.settings.bootstrap_servers) == ("argument", "other:9092")


def test_an_option_goes_before_the_environment_and_the_file(services, monkeypatch):
    monkeypatch.setenv("REDRIVE_BOOTSTRAP_SERVERS", "environment:9092")

    assert load(None).settings.bootstrap_servers == "environment:9092"
    assert load(None, bootstrap_servers="option:9092").settings.bootstrap_servers == "option:9092"


def test_the_apps_own_settings_do_without_a_file(folder):
    (folder / "of_code.py").write_text(
        SERVICE.format(group="code", more=', settings={"bootstrap_servers": "code:9092"}')
    )

    assert load("of_code:app").settings == Settings(bootstrap_servers="code:9092", app="of_code:app")


def test_a_file_that_is_no_toml_is_told_before_the_missing_app(folder):
    (folder / "redrive.toml").write_text("app = ")

    with pytest.raises(SettingsError, match=r"redrive.toml: can't be read: "):
        load(None)


def test_no_bootstrap_servers_name_every_place_to_set_them_and_the_demo(folder):
    (folder / "homeless.py").write_text(SERVICE.format(group="homeless", more=""))

    with pytest.raises(SettingsError) as raised:
        load("homeless:app")

    assert str(raised.value) == (
        "bootstrap_servers: not set, so nobody knows where Kafka is: set REDRIVE_BOOTSTRAP_SERVERS=host:9092, "
        'bootstrap_servers = "host:9092" in redrive.toml, or --bootstrap-servers. To see redrive without a Kafka: '
        "redrive demo"
    )


def test_an_app_without_listeners_is_told_with_its_place(folder):
    (folder / "idle.py").write_text("from redrive import App\n\napp = App('idle')\n")

    with pytest.raises(ListenerError) as raised:
        load("idle:app")

    assert str(raised.value) == (
        'idle.py:3: the app has no listeners, so there is nothing to run; declare one with @app.listener("topic"), '
        "in this module or in one that it imports"
    )
