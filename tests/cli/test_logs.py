"""What `redrive run` logs, and how."""

import json
import logging
from pathlib import Path

import pytest

from redrive.cli.logs import JsonLines, LogFormat, set_up_logging
from redrive.errors import SettingsError


@pytest.fixture(autouse=True)
def _root_logger_as_it_was():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def _record(**more):
    record = logging.LogRecord("redrive", logging.WARNING, "x.py", 1, "%s is away", ("kafka",), None)
    record.created, record.msecs = 1_800_000_000.25, 250.0
    vars(record).update(more)
    return record


def test_a_json_line_has_utc_time_level_logger_message_and_extras():
    assert json.loads(JsonLines().format(_record(topic="orders", due=Path("x")))) == {
        "at": "2027-01-15T08:00:00.250Z",
        "level": "WARNING",
        "logger": "redrive",
        "message": "kafka is away",
        "topic": "orders",
        "due": "x",
    }


def test_a_json_line_holds_the_stack_of_an_exception():
    try:
        raise ValueError("no")
    except ValueError as error:
        line = json.loads(JsonLines().format(_record(exc_info=(ValueError, error, error.__traceback__))))

    assert line["exception"].endswith("ValueError: no")


def test_plain_lines_go_to_stderr_from_the_level_on(capsys):
    set_up_logging(level="WARNING", log_format=LogFormat.PLAIN, config=None)
    logging.getLogger("redrive").info("unheard")
    logging.getLogger("redrive").warning("kafka is away")

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith(" WARNING redrive: kafka is away\n")
    assert "unheard" not in said.err


TOML = """
[handlers.h]
class = "logging.StreamHandler"
formatter = "f"
[formatters.f]
format = "own:%(message)s"
[root]
handlers = ["h"]
level = "INFO"
"""
INI = """
[loggers]
keys=root
[handlers]
keys=h
[formatters]
keys=f
[logger_root]
level=INFO
handlers=h
[handler_h]
class=StreamHandler
formatter=f
args=()
[formatter_f]
format=own:%(message)s
"""
JSON = json.dumps(
    {
        "handlers": {"h": {"class": "logging.StreamHandler", "formatter": "f"}},
        "formatters": {"f": {"format": "own:%(message)s"}},
        "root": {"handlers": ["h"], "level": "INFO"},
    }
)


@pytest.mark.parametrize(("name", "text"), [("log.toml", TOML), ("log.json", JSON), ("log.ini", INI)])
def test_a_file_says_how_to_log(tmp_path, capsys, name, text):
    (tmp_path / name).write_text(text)

    set_up_logging(level="ERROR", log_format=LogFormat.JSON, config=tmp_path / name)
    logging.getLogger("redrive").info("hello")

    assert capsys.readouterr().err == "own:hello\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.toml", "[handlers"),
        ("log.json", "{"),
        ("log.toml", "[handlers.h]\nclass = 'nowhere.Handler'"),
        ("log.ini", "[x]"),
    ],
)
def test_a_file_that_can_not_be_used_is_told(tmp_path, name, text):
    (tmp_path / name).write_text(text)

    with pytest.raises(SettingsError, match=f"--log-config .*{name}: can't be used: "):
        set_up_logging(level="INFO", log_format=LogFormat.PLAIN, config=tmp_path / name)


def test_a_file_that_is_missing_is_told(tmp_path):
    with pytest.raises(SettingsError, match="No such file"):
        set_up_logging(level="INFO", log_format=LogFormat.PLAIN, config=tmp_path / "log.toml")
