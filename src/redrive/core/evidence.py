"""
Reads from one exception the evidence that the table knows: its type, by names, and structured attributes.

No client library is imported: a class is known by its module and name. Attributes may be properties that raise, or lie
about what they are; whatever an exception does, reading it ends in a row of the table or in None.
"""

import errno
import sys
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, cast

from redrive.core import classification as table
from redrive.core.classification import Row, find
from redrive.core.stack import args_of, dict_of, members_of, mro_of, type_name
from redrive.errors import HandlerSignal

# Types are few, but may be made at run time (botocore does): bounded, so that they don't pile up.
_TYPES_CACHED = 1024

_STATUS_ATTRIBUTES = ("status_code", "status", "http_status", "http_status_code")
_SQLSTATE_ATTRIBUTES = ("sqlstate", "pgcode")
# Attributes that any exception may have. Most have none of them, which is cheap to see beforehand.
_ATTRIBUTES = frozenset({*_STATUS_ATTRIBUTES, *_SQLSTATE_ATTRIBUTES, "response", "headers", "retry_after"})
# In a class these tell that its instances may have any of them.
_TELLING = _ATTRIBUTES | {"__getattr__", "__getattribute__"}

Probe = Callable[[BaseException], Row | None]


class Reading(NamedTuple):
    """How exceptions of one type are read."""

    name: str
    #: Where its library keeps a code.
    probes: tuple[Probe, ...]
    #: Whether instances may have attributes that tell something, and whether they have them for certain.
    is_open: bool
    has_attributes: bool
    #: What the type alone says.
    row: Row | None
    #: Whether it is an exception group, or a handler's signal.
    is_group: bool
    is_signal: bool


def reading_of(exc: BaseException) -> Reading:
    """How an exception of this type is read; cached."""
    try:
        return _cached_reading(type(exc))  # type: ignore[arg-type]  # mypy asks whether an instance is hashable
    except BaseException:  # a metaclass whose hash or comparison raises
        return _read_type(type(exc))


def reading_of_type(cls: type[BaseException]) -> Reading:
    """How exceptions of this type are read."""
    return _read_type(cls)


def row_for(exc: BaseException) -> Row | None:
    """The row of the table that decides this exception, without its causes; None when none does."""
    reading = reading_of(exc)
    for probe in reading.probes:
        row = _probed(probe, exc)
        if row is not None:
            return row
    if reading.is_open and may_tell(exc, reading):
        row = _probed(_http_status, exc) or _probed(_sqlstate, exc)
        if row is not None:
            return row
    return reading.row


def may_tell(exc: BaseException, reading: Reading) -> bool:
    """Whether it has any of the attributes that a status, a state or a wait is read from."""
    return reading.has_attributes or (reading.is_open and not _ATTRIBUTES.isdisjoint(dict_of(exc)))


def asked_first(reading: Reading) -> tuple[str, ...]:
    """What exceptions of a type are asked for before their type counts, in words and in order."""
    asked = [_ASKED[probe] for probe in reading.probes]
    return (*asked, *(_ASKED_OF_ANY if reading.is_open else ()))


def read(obj: object, name: str) -> object:
    """An attribute, or None: also where reading it raises."""
    try:
        value: object = getattr(obj, name, None)
    except BaseException:
        return None
    return value


def whole_number(value: object) -> int | None:
    """A plain int from an int or an int enum; None for anything else, bool included."""
    if type(value) is int:
        return value
    if issubclass(type(value), int) and type(value) is not bool:
        return int.__add__(cast("int", value), 0)
    return None


def text(value: object) -> str | None:
    """A plain str from a str or a str enum; None for anything else."""
    return str.__str__(cast("str", value)) if issubclass(type(value), str) else None


def _probed(probe: Probe, exc: BaseException) -> Row | None:
    try:
        return probe(exc)
    except BaseException:  # a hostile attribute: as if it weren't there
        return None


def _read_type(cls: type) -> Reading:
    classes = mro_of(cls)
    names = [type_name(base) for base in classes]
    packages = {name.partition(".")[0] for name in names if "." in name}
    row = next((row for name in names if (row := _type_row(name)) is not None and row.kind is not None), None)
    probes = [probe for package, probe in _PROBES if package in packages]
    if row is not None and row.key == "OSError":
        probes.append(_errno)
    own = [members_of(base) for base in classes if not any(base is plain for plain in _PLAIN)]
    has_attributes = any(not _TELLING.isdisjoint(members) for members in own)
    return Reading(
        name=names[0],
        probes=tuple(probes),
        is_open=has_attributes or bool(packages - sys.stdlib_module_names),
        has_attributes=has_attributes,
        row=row,
        is_group=issubclass(cls, BaseExceptionGroup),
        is_signal=issubclass(cls, HandlerSignal),
    )


def _type_row(name: str) -> Row | None:
    row = find(table.TYPE, name)
    if row is None and name.partition(".")[0] in table.DB_API_PACKAGES:
        row = find(table.DB_API, name.rpartition(".")[2])
    return row


_cached_reading = lru_cache(_TYPES_CACHED)(_read_type)


# Classes that have nothing to look for.
_PLAIN = (object, BaseException, Exception)


def _errno(exc: BaseException) -> Row | None:
    number = whole_number(read(exc, "errno"))
    return find(table.ERRNO, errno.errorcode.get(number, "")) if number is not None else None


def _http_code(exc: BaseException) -> Row | None:
    return _http_row(read(exc, "code"))


def _http_status(exc: BaseException) -> Row | None:
    for name in _STATUS_ATTRIBUTES:
        row = _http_row(read(exc, name))
        if row is not None:
            return row
    response = read(exc, "response")
    if response is None:
        return None
    return _http_row(read(response, "status_code")) or _http_row(read(response, "status"))


def _http_row(value: object) -> Row | None:
    status = whole_number(value)
    if status is None or not 300 <= status <= 599:
        return None
    return _exact_or_class(table.HTTP, str(status), f"{status // 100}xx")


def _sqlstate(exc: BaseException) -> Row | None:
    for name in _SQLSTATE_ATTRIBUTES:
        row = _sqlstate_row(read(exc, name))
        if row is not None:
            return row
    return None


def _sqlstate_row(value: object) -> Row | None:
    state = text(value)
    return (
        _exact_or_class(table.SQLSTATE, state, state[:2]) if state is not None and len(state) == 5 else None
    )


def _exact_or_class(what: str, exact: str, of_class: str) -> Row | None:
    """The row for exactly this code, else that of its class, told with the code itself."""
    row = find(what, exact)
    if row is not None:
        return row
    row = find(what, of_class)
    return Row(what, exact, row.kind, row.why) if row is not None else None


def _wrapped(exc: BaseException) -> Row | None:
    """SQLAlchemy keeps the driver's exception in `orig`."""
    original = read(exc, "orig")
    return row_for(original) if isinstance(original, BaseException) else None


def _mysql(exc: BaseException) -> Row | None:
    number = whole_number(read(exc, "errno"))
    if number is None:
        number = whole_number(_first_argument(exc))
    if number is None or not 1000 <= number <= 9999:
        return None
    return _exact_or_class(table.MYSQL, str(number), f"{number // 1000}xxx")


def _odbc(exc: BaseException) -> Row | None:
    return _sqlstate_row(_first_argument(exc))


def _sqlite(exc: BaseException) -> Row | None:
    name = text(read(exc, "sqlite_errorname"))
    return _exact_or_class(table.SQLITE, name, "_".join(name.split("_")[:2])) if name is not None else None


def _grpc(exc: BaseException) -> Row | None:
    code = read(exc, "code")
    return _named(table.GRPC, code() if callable(code) else read(exc, "status"))


def _named(what: str, code: object) -> Row | None:
    """By the name of an enum's member, so that its numbers may be anything."""
    name = text(read(code, "name")) if Enum in mro_of(type(code)) else None
    return find(what, name) if name is not None else None


def _aws(exc: BaseException) -> Row | None:
    response = read(exc, "response")
    if not isinstance(response, dict):
        return None
    error, metadata = response.get("Error"), response.get("ResponseMetadata")
    code = text(error.get("Code")) if isinstance(error, dict) else None
    row = find(table.AWS, code) if code is not None else None
    if row is not None:
        return row
    return _http_row(metadata.get("HTTPStatusCode")) if isinstance(metadata, dict) else None


def _mongodb(exc: BaseException) -> Row | None:
    has_label = read(exc, "has_error_label")
    if callable(has_label):
        for label in ("TransientTransactionError", "RetryableWriteError"):
            if has_label(label) is True:
                return find(table.MONGODB, label)
    code = whole_number(read(exc, "code"))
    return find(table.MONGODB, str(code)) if code is not None else None


def _kafka(exc: BaseException) -> Row | None:
    error = _first_argument(exc)
    name, retriable = read(error, "name"), read(error, "retriable")
    row = find(table.KAFKA, text(name()) or "") if callable(name) else None
    if row is None and callable(retriable) and retriable() is True:
        return find(table.ATTRIBUTE, "retriable")
    return row


def _retriable(exc: BaseException) -> Row | None:
    return find(table.ATTRIBUTE, "retriable") if read(exc, "retriable") is True else None


def _smtp(exc: BaseException) -> Row | None:
    code = whole_number(read(exc, "smtp_code"))
    return _exact_or_class(table.SMTP, str(code), f"{code // 100}yz") if code is not None else None


def _first_argument(exc: BaseException) -> object:
    args = args_of(exc)
    return args[0] if args else None


# By the top-level package of a class in the method resolution order; asked before the attributes that anybody may have.
_PROBES: tuple[tuple[str, Probe], ...] = (
    ("grpc", _grpc),
    ("grpclib", _grpc),
    ("botocore", _aws),
    ("pymongo", _mongodb),
    ("cimpl", _kafka),
    ("confluent_kafka", _kafka),
    ("aiokafka", _retriable),
    ("kafka", _retriable),
    ("redrive", _retriable),
    ("sqlalchemy", _wrapped),
    ("sqlite3", _sqlite),
    ("pyodbc", _odbc),
    ("pymysql", _mysql),
    ("MySQLdb", _mysql),
    ("asyncmy", _mysql),
    ("mariadb", _mysql),
    ("mysql", _mysql),
    ("smtplib", _smtp),
    # A bare `code` is an HTTP status only where a package says so; elsewhere it may be anything.
    ("google", _http_code),
    ("werkzeug", _http_code),
    ("tornado", _http_code),
)

_ASKED: dict[Probe, str] = {
    _grpc: "a gRPC code",
    _aws: "an AWS error code or HTTP status",
    _mongodb: "a MongoDB label or code",
    _kafka: "a Kafka error code",
    _retriable: "`retriable`",
    _wrapped: "the driver's exception in `orig`",
    _sqlite: "an SQLite error name",
    _odbc: "an SQLSTATE",
    _mysql: "a MySQL error number",
    _smtp: "an SMTP reply code",
    _http_code: "an HTTP status in `code`",
    _errno: "an errno",
}
_ASKED_OF_ANY = (
    "an HTTP status (`status_code`, `response.status_code` …)",
    "an SQLSTATE (`sqlstate`, `pgcode`)",
)
