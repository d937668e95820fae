"""Which kind an exception is: the table's rows name things that exist, and each way of finding a row finds it."""

import builtins
import enum
import errno
import importlib
import re
import sqlite3
import subprocess
import sys
from http import HTTPStatus
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core import classification
from redrive.core.classification import TABLE, Kind
from redrive.core.evidence import reading_of_type
from redrive.core.failure import Failures, classify
from redrive.errors import PortError
from tests.core.lookalikes import lookalike

T, P, O = Kind.TRANSIENT, Kind.PERMANENT, Kind.OUTAGE  # noqa: E741
UNDECIDED = None


def kind_of(exc):
    """The kind that the table decides; None when it has no opinion."""
    verdicts = {
        classify(exc, Failures(unknown=unknown), now_ms=0).kind for unknown in ("transient", "permanent")
    }
    return verdicts.pop() if len(verdicts) == 1 else UNDECIDED


# --- the table itself -------------------------------------------------------------------------------------------------


def keys(what):
    return [row.key for row in TABLE if row.what == what]


def test_no_evidence_is_decided_twice():
    places = [(row.what, row.key) for row in TABLE]
    assert sorted(places) == sorted(set(places))


def test_each_row_says_why():
    assert [row for row in TABLE if not row.why.strip()] == []


def test_each_undotted_type_is_a_built_in_exception():
    names = [key for key in keys("type") if "." not in key]
    assert [n for n in names if not issubclass(getattr(builtins, n, object), BaseException)] == []


@pytest.mark.parametrize("key", [k for k in keys("type") if k.startswith((
    "asyncio.", "concurrent.", "http.", "ssl.", "socket.", "struct.", "zlib.", "_lzma.", "gzip.", "zipfile.", "tarfile.",
    "_csv.", "re.error", "io.", "sqlite3.", "smtplib.", "subprocess.", "urllib.", "_pickle.", "queue.Full", "_queue.",
    "msgspec.", "httpx.", "httpcore.", "psycopg.", "anyio.", "h11.",
))])  # fmt: skip
def test_a_type_is_named_as_the_library_names_it(key):
    module, _, name = key.rpartition(".")
    cls = getattr(pytest.importorskip(module), name)
    expected = {"re.error": {"re.error", "re.PatternError"}}.get(key, {key})
    assert f"{cls.__module__}.{cls.__qualname__}" in expected


def test_errno_names_sqlite_codes_and_grpc_codes_exist():
    assert [key for key in keys("errno") if not hasattr(errno, key)] == []
    assert [key for key in keys("SQLite") if not hasattr(sqlite3, key)] == []
    assert len(keys("gRPC")) == 16  # all codes but OK


@pytest.mark.parametrize(
    ("what", "form"),
    [("HTTP", r"[3-5](xx|[0-9]{2})"), ("SQLSTATE", r"[0-9A-Z]{2}|[0-9A-Z]{5}"), ("MySQL", r"[1-9](xxx|[0-9]{3})"),
     ("SMTP", r"[45](yz|[0-9]{2})"), ("MongoDB", r"[0-9]+|[A-Z][A-Za-z]+Error")],
)  # fmt: skip
def test_codes_have_the_form_that_is_looked_up(what, form):
    assert [key for key in keys(what) if not re.fullmatch(form, key)] == []


def test_a_row_names_its_rule_shortly():
    assert classification.find("HTTP", "408").rule == "HTTP 408"


# --- built-in types ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exc", "expected"),
    [
        (TypeError(), P),
        (AttributeError(), P),
        (NameError(), P),
        (UnboundLocalError(), P),
        (AssertionError(), P),
        (KeyError("x"), P),
        (IndexError(), P),
        (LookupError(), P),
        (ZeroDivisionError(), P),
        (OverflowError(), P),
        (NotImplementedError(), P),
        (RecursionError(), P),
        (ImportError(), P),
        (ModuleNotFoundError(), P),
        (SyntaxError(), P),
        (StopIteration(), P),
        (StopAsyncIteration(), P),
        (ValueError(), P),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), P),
        (FileNotFoundError(), P),
        (PermissionError(), P),
        (FileExistsError(), P),
        (TimeoutError(), T),
        (ConnectionError(), T),
        (ConnectionRefusedError(), T),
        (BrokenPipeError(), T),
        (EOFError(), T),
        (MemoryError(), T),
        (BufferError(), T),
        (OSError(), T),
        (OSError("told by text only"), T),
        (SystemExit(1), T),
        (SystemExit(404), T),
        (KeyboardInterrupt(), T),
        (GeneratorExit(), T),
        (RuntimeError(), UNDECIDED),
        (Exception(), UNDECIDED),
        (Warning(), UNDECIDED),
    ],
)
def test_built_in_exceptions_are_decided_by_type(exc, expected):
    assert kind_of(exc) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("ENOSPC", T), ("ECONNRESET", T), ("ETIMEDOUT", T), ("EHOSTUNREACH", T), ("EMFILE", T), ("EIO", T), ("EAGAIN", T),
     ("ENOENT", P), ("EACCES", P), ("EINVAL", P), ("ENAMETOOLONG", P), ("ENOTDIR", P)],
)  # fmt: skip
def test_an_os_error_is_decided_by_its_errno(name, expected):
    assert kind_of(OSError(getattr(errno, name), "told")) == expected


def test_an_errno_that_nobody_knows_is_transient_as_other_os_errors():
    assert kind_of(OSError(99_999, "told")) == T


def test_standard_library_exceptions_are_decided_by_name():
    expected = {
        "json.decoder.JSONDecodeError": P, "asyncio.exceptions.CancelledError": T, "socket.gaierror": T,
        "ssl.SSLCertVerificationError": T, "http.client.RemoteDisconnected": T, "http.client.IncompleteRead": T,
        "asyncio.exceptions.IncompleteReadError": T, "subprocess.TimeoutExpired": T, "queue.Full": T, "struct.error": P,
        "pickle.UnpicklingError": P, "csv.Error": P, "decimal.InvalidOperation": P, "gzip.BadGzipFile": P,
        "concurrent.futures.process.BrokenProcessPool": T, "asyncio.QueueFull": T, "io.UnsupportedOperation": P,
        "xml.etree.ElementTree.ParseError": P, "zoneinfo.ZoneInfoNotFoundError": P,
    }  # fmt: skip
    found = {}
    for name in expected:
        module, _, attribute = name.rpartition(".")
        row = reading_of_type(getattr(importlib.import_module(module), attribute)).row
        found[name] = row.kind if row else UNDECIDED
    assert found == expected


# --- HTTP -------------------------------------------------------------------------------------------------------------


STATUSES = {
    400: P, 401: O, 402: P, 403: O, 404: P, 405: P, 407: O, 408: T, 409: T, 410: P, 412: T, 413: P, 415: P, 418: P, 422: P,
    423: T, 425: T, 428: P, 429: T, 431: P, 451: P, 500: T, 501: P, 502: T, 503: T, 504: T, 505: P, 507: T, 511: T, 520: T,
    599: T, 301: P, 304: P,
}  # fmt: skip


def with_status_code(status):
    return lookalike("shop.ApiError", status_code=status)()


def with_response(status):
    exc = lookalike("httpx.HTTPStatusError", "httpx.HTTPError")("told")
    exc.response = SimpleNamespace(status_code=status, headers={})
    return exc


def with_response_status(status):
    return lookalike("shop.ApiError", response=SimpleNamespace(status=status))()


def of_aiohttp(status):
    exc = lookalike(
        "aiohttp.client_exceptions.ClientResponseError", "aiohttp.client_exceptions.ClientError"
    )()
    exc.status, exc.headers = status, None
    return exc


def of_urllib(status):
    urllib_error = importlib.import_module("urllib.error")
    return urllib_error.HTTPError("http://bank", status, "told", {}, None)


def of_google(status):
    return lookalike("google.api_core.exceptions.GoogleAPICallError", code=status)()


def of_aws(status):
    exc = lookalike("botocore.exceptions.ClientError")()
    exc.response = {"Error": {"Code": "Strange"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return exc


def of_schema_registry(status):
    return lookalike("confluent_kafka.schema_registry.error.SchemaRegistryError", http_status_code=status)()


@pytest.mark.parametrize(
    "carry",
    [
        with_status_code,
        with_response,
        with_response_status,
        of_aiohttp,
        of_urllib,
        of_google,
        of_aws,
        of_schema_registry,
    ],
)
@pytest.mark.parametrize(("status", "expected"), STATUSES.items())
def test_an_http_status_decides_wherever_a_client_keeps_it(carry, status, expected):
    exc = carry(status)
    assert kind_of(exc) == expected
    assert classify(exc, Failures(), now_ms=0).rule == f"HTTP {status}"


def test_a_status_enum_is_a_status():
    assert kind_of(with_status_code(HTTPStatus.NOT_FOUND)) == P


@pytest.mark.parametrize("status", [200, 0, -503, 5030, 99, True, "503", 503.0, None, b"503", [503]])
def test_what_is_no_error_status_has_no_opinion(status):
    assert kind_of(with_status_code(status)) is UNDECIDED


def test_a_falsy_response_is_read_too():
    """requests makes error responses falsy."""

    class Response:
        status_code = 404

        def __bool__(self):
            return False

    assert kind_of(lookalike("requests.exceptions.HTTPError", base=OSError, response=Response())()) == P


def test_a_bare_code_is_no_http_status_in_general():
    """A business code 404 or a websocket's close code is something else."""
    assert kind_of(lookalike("shop.Declined", code=404)()) is UNDECIDED


def test_a_status_wins_over_the_type():
    assert kind_of(lookalike("shop.BadAnswer", base=ValueError, status_code=503)()) == T


# --- databases --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attribute", ["sqlstate", "pgcode"])
@pytest.mark.parametrize(
    ("state", "expected"),
    [("08006", T), ("40001", T), ("40P01", T), ("40002", P), ("53300", T), ("57014", T), ("57P01", T), ("57P03", T),
     ("55P03", T), ("55006", T), ("55000", P), ("23505", P), ("23503", P), ("28P01", O), ("28000", O), ("42P01", P),
     ("42501", P), ("22P02", P), ("25006", T), ("25P02", T), ("25001", P), ("0A000", P), ("P0001", P), ("54001", P),
     ("58030", T), ("XX000", T), ("XX001", P), ("HYT00", T)],
)  # fmt: skip
def test_an_sqlstate_decides_by_itself_or_its_class(attribute, state, expected):
    exc = lookalike("shop.DbError", **{attribute: state})()
    assert kind_of(exc) == expected
    assert classify(exc, Failures(), now_ms=0).rule == f"SQLSTATE {state}"


@pytest.mark.parametrize("state", ["", "HY000", "99999", "00000", "4000", "400011", None, 40001, b"40001"])
def test_what_is_no_known_sqlstate_has_no_opinion(state):
    assert kind_of(lookalike("shop.DbError", sqlstate=state)()) is UNDECIDED


@pytest.mark.parametrize(
    ("name", "expected"),
    [("OperationalError", T), ("InternalError", T), ("InterfaceError", T), ("IntegrityError", P), ("DataError", P),
     ("ProgrammingError", P), ("NotSupportedError", P), ("DatabaseError", UNDECIDED), ("Error", UNDECIDED)],
)  # fmt: skip
@pytest.mark.parametrize(
    "module", ["psycopg", "psycopg2", "pymysql.err", "sqlalchemy.exc", "oracledb.exceptions"]
)
def test_a_driver_error_without_a_code_is_decided_by_its_pep_249_name(module, name, expected):
    assert kind_of(lookalike(f"{module}.{name}", f"{module}.DatabaseError")()) == expected


def test_a_class_that_merely_has_such_a_name_is_not_decided():
    assert kind_of(lookalike("shop.OperationalError")()) is UNDECIDED


def test_sqlalchemy_is_decided_by_the_error_it_wraps():
    deadlock = lookalike("psycopg.errors.DeadlockDetected", "psycopg.OperationalError", sqlstate="40P01")()
    refused = lookalike("psycopg.OperationalError", sqlstate="28P01")()
    operational = lookalike("sqlalchemy.exc.OperationalError", "sqlalchemy.exc.DBAPIError")
    statement = lookalike("sqlalchemy.exc.StatementError")
    found = []
    for cls, original in [
        (statement, deadlock),
        (operational, refused),
        (statement, TypeError()),
        (operational, None),
    ]:
        exc = cls()
        exc.orig = original
        found.append(kind_of(exc))
    assert found == [T, O, P, T]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(1213, T), (1205, T), (1040, T), (1062, P), (1054, P), (1045, O), (1290, T), (2006, T), (2013, T), (3024, T),
     (3819, P), (1364, P)],
)  # fmt: skip
def test_mysql_decides_by_its_error_number(number, expected):
    """PyMySQL names a missing column an OperationalError."""
    assert (
        kind_of(lookalike("pymysql.err.OperationalError", "pymysql.err.MySQLError")(number, "told"))
        == expected
    )
    assert (
        kind_of(lookalike("mysql.connector.errors.DatabaseError", errno=number, sqlstate="HY000")())
        == expected
    )


def test_a_number_as_first_argument_means_nothing_elsewhere():
    assert kind_of(lookalike("shop.Declined")(1213)) is UNDECIDED


def test_sqlite_decides_by_its_error_name():
    found = []
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("create table t(a integer primary key)")
    for statement in ("select * from missing", "insert into t values (1), (1)", "selct"):
        with pytest.raises(sqlite3.Error) as failed:
            connection.execute(statement)
        found.append(kind_of(failed.value))
    busy = sqlite3.OperationalError("told")
    busy.sqlite_errorname = "SQLITE_BUSY_SNAPSHOT"
    assert [*found, kind_of(busy)] == [P, P, P, T]


def test_odbc_keeps_the_sqlstate_in_the_first_argument():
    assert kind_of(lookalike("pyodbc.Error")("40001", "told")) == T
    assert kind_of(lookalike("pyodbc.ProgrammingError", "pyodbc.Error")("28000", "told")) == O


# --- other clients ----------------------------------------------------------------------------------------------------

Code = enum.Enum(
    "Code", {"UNAVAILABLE": (14, "x"), "NOT_FOUND": (5, "x"), "UNAUTHENTICATED": (16, "x"), "NEW": (99, "x")}
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (Code.UNAVAILABLE, T),
        (Code.NOT_FOUND, P),
        (Code.UNAUTHENTICATED, O),
        (Code.NEW, UNDECIDED),
        ("UNAVAILABLE", UNDECIDED),
    ],
)
def test_grpc_decides_by_the_name_of_its_code(code, expected):
    assert (
        kind_of(lookalike("grpc.aio._call.AioRpcError", "grpc.RpcError", code=lambda self: code)())
        == expected
    )
    assert kind_of(lookalike("grpclib.exceptions.GRPCError", status=code)()) == expected


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [("ThrottlingException", 400, T), ("ProvisionedThroughputExceededException", 400, T), ("ExpiredToken", 400, O),
     ("ValidationException", 400, P), ("NoSuchKey", 404, P), ("InternalError", 500, T), ("AccessDenied", 403, O)],
)  # fmt: skip
def test_aws_decides_by_its_code_since_throttling_comes_as_400(code, status, expected):
    exc = lookalike("botocore.errorfactory.SomeException", "botocore.exceptions.ClientError")()
    exc.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    assert kind_of(exc) == expected


def test_mongodb_decides_by_label_then_code_then_type():
    failure = lookalike("pymongo.errors.OperationFailure", "pymongo.errors.PyMongoError")
    write = lookalike("pymongo.errors.WriteError", "pymongo.errors.OperationFailure")
    labelled = lookalike(
        "pymongo.errors.OperationFailure", has_error_label=lambda self, label: label == "RetryableWriteError"
    )
    found = []
    for cls, code in [
        (failure, 112),
        (failure, 18),
        (write, 121),
        (write, 11000),
        (failure, 404),
        (labelled, 404),
    ]:
        exc = cls()
        exc.code = code
        found.append(kind_of(exc))
    assert found == [T, O, P, P, UNDECIDED, T]


class KafkaError:
    """What confluent-kafka puts into a KafkaException."""

    def __init__(self, name, retriable=False):
        self.name = lambda: name
        self.retriable = lambda: retriable


@pytest.mark.parametrize(
    ("error", "expected"),
    [(KafkaError("MSG_SIZE_TOO_LARGE"), P), (KafkaError("TOPIC_AUTHORIZATION_FAILED"), O), (KafkaError("_TRANSPORT"), T),
     (KafkaError("_STATE", retriable=True), T)],
)  # fmt: skip
def test_kafka_decides_by_the_name_of_its_error(error, expected):
    assert kind_of(lookalike("cimpl.KafkaException")(error)) == expected


def test_a_library_that_says_retriable_is_believed():
    found = [kind_of(PortError("broker away", retriable=True)), kind_of(PortError("refused"))]
    found += [
        kind_of(
            lookalike("aiokafka.errors.X", "aiokafka.errors.KafkaError", base=RuntimeError, retriable=True)()
        )
    ]
    assert found == [T, UNDECIDED, T]


@pytest.mark.parametrize(("code", "expected"), [(450, T), (421, T), (550, P), (552, P), (535, O), (-1, T)])
def test_smtp_decides_by_its_reply_code(code, expected):
    smtplib = importlib.import_module("smtplib")
    assert kind_of(smtplib.SMTPDataError(code, b"told")) == expected


@pytest.mark.parametrize(
    ("names", "base", "expected"),
    [
        (("httpx.ReadTimeout", "httpx.TimeoutException", "httpx.TransportError"), Exception, T),
        (("httpx.ConnectError", "httpx.NetworkError", "httpx.TransportError"), Exception, T),
        (("httpx.UnsupportedProtocol", "httpx.TransportError"), Exception, P),
        (("httpx.StreamConsumed", "httpx.StreamError"), RuntimeError, P),
        (("requests.exceptions.ReadTimeout", "requests.exceptions.Timeout"), OSError, T),
        (("requests.exceptions.SSLError", "requests.exceptions.ConnectionError"), OSError, T),
        (("requests.exceptions.MissingSchema", "requests.exceptions.RequestException"), OSError, P),
        (("requests.exceptions.JSONDecodeError", "requests.exceptions.InvalidJSONError"), OSError, P),
        (("urllib3.exceptions.MaxRetryError", "urllib3.exceptions.HTTPError"), Exception, T),
        (("urllib3.exceptions.LocationParseError", "urllib3.exceptions.LocationValueError"), ValueError, P),
        (
            ("aiohttp.client_exceptions.ClientConnectorError", "aiohttp.client_exceptions.ClientError"),
            OSError,
            T,
        ),
        (("aiohttp.client_exceptions.InvalidURL", "aiohttp.client_exceptions.ClientError"), ValueError, P),
        (("redis.exceptions.TimeoutError", "redis.exceptions.RedisError"), Exception, T),
        (("redis.exceptions.LockNotOwnedError", "redis.exceptions.LockError"), ValueError, T),
        (("redis.exceptions.AuthenticationError", "redis.exceptions.ConnectionError"), Exception, O),
        (("redis.exceptions.NoPermissionError", "redis.exceptions.ResponseError"), Exception, O),
        (("redis.exceptions.ReadOnlyError", "redis.exceptions.ResponseError"), Exception, T),
        (("redis.exceptions.ResponseError",), Exception, P),
        (("pymongo.errors.ServerSelectionTimeoutError", "pymongo.errors.ConnectionFailure"), Exception, T),
        (
            ("botocore.exceptions.EndpointConnectionError", "botocore.exceptions.ConnectionError"),
            Exception,
            T,
        ),
        (("botocore.exceptions.NoCredentialsError",), Exception, O),
        (("botocore.exceptions.ParamValidationError",), Exception, P),
        (("pydantic_core._pydantic_core.ValidationError",), ValueError, P),
        (("marshmallow.exceptions.ValidationError",), Exception, P),
        (("sqlalchemy.orm.exc.StaleDataError",), Exception, T),
        (("sqlalchemy.exc.NoResultFound", "sqlalchemy.exc.InvalidRequestError"), Exception, P),
        (("sqlalchemy.exc.PendingRollbackError", "sqlalchemy.exc.InvalidRequestError"), Exception, T),
        (("trio.Cancelled",), BaseException, T),
        (("shop.Unheard",), Exception, UNDECIDED),
        (("shop.Unheard",), RuntimeError, UNDECIDED),
        (("shop.Slow",), TimeoutError, T),
    ],
)
def test_client_exceptions_are_known_by_their_names(names, base, expected):
    assert kind_of(lookalike(*names, base=base)("told")) == expected


def test_a_base_without_an_opinion_does_not_hide_the_next_base():
    assert kind_of(type("Late", (RuntimeError, TimeoutError), {})()) == T


def test_the_class_of_the_application_with_the_name_of_a_built_in_one_is_another():
    assert kind_of(lookalike("shop.ValueError")()) is UNDECIDED


TEXTS = (
    st.sampled_from(["timeout", "503 Service Unavailable", "deadlock detected", "permission denied", "404"])
    | st.text()
)


@given(TEXTS, st.sampled_from([TypeError, TimeoutError, RuntimeError, lookalike("shop.Unheard"), OSError]))
def test_the_text_never_decides(text, cls):
    assert kind_of(cls(text)) == kind_of(cls())


def test_knowing_the_exceptions_of_client_libraries_loads_none_of_them():
    script = """
import sys
from redrive.core.failure import Failures, failure_of
for module in ("httpx", "redis.exceptions", "sqlalchemy.exc", "grpc", "botocore.exceptions", "pymongo.errors"):
    failure_of(type("Error", (Exception,), {"__module__": module})(), Failures(), now_ms=0, with_stack=True)
print({"httpx", "redis", "sqlalchemy", "grpc", "botocore", "pymongo", "requests", "aiohttp"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
