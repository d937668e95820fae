"""Whatever stands in a settings file, the environment or a command: settings, or problems that can be mended; nothing else."""

import contextlib
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redrive.adapters.settings_source import load_settings
from redrive.core.settings import PATHS, TABLES, Settings
from redrive.errors import SettingsError

SECRET = "kx9-swordfish-77"
NAMES = [path for path in PATHS if path not in TABLES] + [
    f"{table}.{name}" for table, names in TABLES.items() for name in names
]
names = st.one_of(st.sampled_from(NAMES), st.text(max_size=20))
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=40),
    st.sampled_from(
        ["1s", "-1s", "1e400", "9" * 400, "5 GB", "true", "127.0.0.1:0", "::1:99999", "a:1,,b", "\x00"]
    ),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
written = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), max_size=60)
LINES = [
    'bootstrap_servers = "kafka:9092"',
    "[kafka]",
    "[console]",
    f'sasl.password = "{SECRET}"',
    f'token = "{SECRET}"',
    'http_port = "x"',
    "commit_interval = 5",
    "kafka = 7",
    "= 3",
    "a.b.c.d = [1, {x = 2}]",
]

fuzzed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def _bare(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.upper().startswith("REDRIVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def read(**arguments):
    """The settings; or, once it was seen that each problem is one line and tells no secret, None."""
    try:
        return load_settings(**arguments)
    except SettingsError as error:
        problems = error.problems
    assert problems
    for problem in problems:
        assert str(problem).strip()
        assert "\n" not in str(problem)
        assert SECRET not in str(problem)
    return None


@fuzzed
@given(overrides=st.dictionaries(names, values, max_size=6))
def test_whatever_a_command_says(overrides):
    assert isinstance(read(overrides=overrides), Settings | None)


@fuzzed
@given(
    text=st.one_of(written, st.lists(st.one_of(st.sampled_from(LINES), written), max_size=8).map("\n".join))
)
def test_whatever_stands_in_the_file(tmp_path, text):
    file = tmp_path / "redrive.toml"
    file.write_text(text, encoding="utf-8")
    assert isinstance(read(config_file=file), Settings | None)


@fuzzed
@given(data=st.binary(max_size=200))
def test_a_file_of_any_bytes(tmp_path, data):
    file = tmp_path / "redrive.toml"
    file.write_bytes(data)
    assert isinstance(read(config_file=file), Settings | None)


@fuzzed
@given(said=st.dictionaries(names.map(lambda name: name.upper().replace(".", "__")), written, max_size=5))
def test_whatever_stands_in_the_environment(said):
    usable = {
        f"REDRIVE_{name}": value for name, value in said.items() if name.isprintable() and "=" not in name
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in usable.items():
            with contextlib.suppress(UnicodeEncodeError):
                patch.setenv(name, value)
        assert isinstance(read(), Settings | None)


def test_a_secret_of_the_wrong_kind_is_not_quoted():
    assert (
        read(overrides={"bootstrap_servers": "a:1", "console.token": {"x": SECRET}, "http_token": [SECRET]})
        is None
    )
