"""What `redrive run` writes to stderr: the standard library's logging, in lines for people or for collectors."""

import json
import logging
import time
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Any

from redrive.errors import SettingsError


class LogFormat(StrEnum):
    """How log lines look."""

    PLAIN = "plain"
    JSON = "json"


class JsonLines(logging.Formatter):
    """One JSON object a line: `at` (UTC), `level`, `logger`, `message`, `exception` if any, and all of `extra`."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": self._at(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        line |= {
            name: value for name, value in vars(record).items() if name not in _STANDARD and name not in line
        }
        return json.dumps(line, ensure_ascii=False, default=str)

    def _at(self, record: logging.LogRecord) -> str:
        return f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z"


_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PLAIN = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s"
_PLAIN_OF_WORKER = "%(asctime)s.%(msecs)03d %(levelname)-7s worker %(redrive_worker)s %(name)s: %(message)s"


def set_up_logging(
    *, level: str, log_format: LogFormat, config: Path | None, worker: int | None = None
) -> None:
    """
    Make the process log to stderr, or as `config` says: a `.toml` or `.json` file for `logging.config.dictConfig`, or
    an `.ini` file for `fileConfig`. Raises SettingsError when that file can't be used.

    `worker`: the number of a supervisor's worker, which each of its log records has as `redrive_worker`.
    """
    if worker is not None:
        _number_records(worker)
    if config is not None:
        _from_file(config)
        return
    handler = logging.StreamHandler()
    plain = logging.Formatter(_PLAIN if worker is None else _PLAIN_OF_WORKER, "%Y-%m-%d %H:%M:%S")
    handler.setFormatter(JsonLines() if log_format is LogFormat.JSON else plain)
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _number_records(worker: int) -> None:
    make = logging.getLogRecordFactory()

    def numbered(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        record.redrive_worker = worker
        return record

    logging.setLogRecordFactory(numbered)


def _from_file(config: Path) -> None:
    import logging.config

    try:
        text = config.read_text("utf-8")
        if config.suffix == ".ini":
            logging.config.fileConfig(config, disable_existing_loggers=False)
            return
        read = json.loads(text) if config.suffix == ".json" else tomllib.loads(text)
        logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, **read})
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError) as error:
        cause = f"{error}: {error.__cause__}" if error.__cause__ else f"{error}"
        raise SettingsError([(f"--log-config {config}", f"can't be used: {cause}")]) from error
