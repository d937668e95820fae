"""
Which kind of failure an exception is: the whole decision as one table of data, for the code, for `explain`, for the docs.

A row says: where this evidence (`what`, `key`) is found, the failure is of this `kind`, because (`why`). Evidence is
the exception's type, by the name of a class in its method resolution order (so that no client library is imported), or a
structured attribute: an HTTP status, an SQLSTATE, a gRPC code. Never the text.

When in doubt a row says `transient`: a useless retry costs a little time, a dead letter costs a person's. `outage` is said
only where the next record must fail for the same reason, since then nothing moves until it is over.
What no row decides is decided by `Failures(unknown=…)`.
"""

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """What went wrong, in the way that matters for what is done next."""

    #: May succeed when it is tried again: immediate retries, then the ladder.
    TRANSIENT = "transient"
    #: Fails however often it is tried: a dead letter at once.
    PERMANENT = "permanent"
    #: Can't be decoded or validated: a dead letter at once, its bytes as they came.
    POISON = "poison"
    #: Not this record's doing, and the next will fail likewise: nothing moves until it is over.
    OUTAGE = "outage"


class Row(msgspec.Struct, frozen=True):
    """One decision. `kind` None: decided to have no opinion, so that causes and `Failures(unknown=…)` are asked."""

    what: str
    key: str
    kind: Kind | None
    why: str
    #: A mere echo of another failure, as in the siblings of a task that failed: in a group it has no say.
    is_echo: bool = False

    @property
    def rule(self) -> str:
        """The row in a few words, as a failure names the rule that decided it: `HTTP 503`, `type TypeError`."""
        return f"{self.what} {self.key}"


def find(what: str, key: str) -> Row | None:
    """The row for this evidence, if there is one."""
    return _ROWS.get((what, key))


TYPE, HTTP, SQLSTATE, GRPC, ERRNO = "type", "HTTP", "SQLSTATE", "gRPC", "errno"
DB_API, MYSQL, SQLITE, MONGODB = "DB-API", "MySQL", "SQLite", "MongoDB"
AWS, KAFKA, SMTP, ATTRIBUTE = "AWS", "Kafka", "SMTP", "attribute"

_T, _P, _O = Kind.TRANSIENT, Kind.PERMANENT, Kind.OUTAGE

# One line: what, kind, why, and the keys of its rows.
_BUILT_IN = (
    (TYPE, _P, "a bug in the code, or data that it isn't written for", """
        TypeError AttributeError NameError AssertionError LookupError ArithmeticError NotImplementedError
        RecursionError ReferenceError StopIteration StopAsyncIteration"""),
    (TYPE, _P, "data the code can't work with (also what fails to decode or validate inside a handler)", "ValueError"),
    (TYPE, _P, "the release itself is broken", "ImportError SyntaxError"),
    (TYPE, _P, "the file is not as expected, and won't be by waiting",
     "FileNotFoundError FileExistsError IsADirectoryError NotADirectoryError PermissionError"),
    (TYPE, _P, "the bytes are not in the format they should be in", """
        _csv.Error struct.error zlib.error _lzma.LZMAError gzip.BadGzipFile zipfile.BadZipFile
        tarfile.TarError _pickle.PickleError pickle.PickleError xml.parsers.expat.ExpatError
        pyexpat.ExpatError"""),
    (TYPE, _P, "a bug in the code", """
        re.error re.PatternError io.UnsupportedOperation http.client.InvalidURL
        asyncio.exceptions.InvalidStateError concurrent.futures._base.InvalidStateError"""),
    (TYPE, _T, "something took too long", "TimeoutError subprocess.TimeoutExpired"),
    (TYPE, _T, "the connection failed", "ConnectionError EOFError http.client.HTTPException ssl.SSLError"),
    (TYPE, _T, "the name could not be resolved now", "socket.gaierror socket.herror"),
    (TYPE, _T, "the outside world failed, with no errno that says more", "OSError"),
    (TYPE, _T, "memory or room in a queue is short now", """
        MemoryError BufferError _queue.Empty queue.Empty queue.Full asyncio.queues.QueueEmpty
        asyncio.queues.QueueFull"""),
    (TYPE, _T, "the pool that ran the work broke", "concurrent.futures._base.BrokenExecutor"),
    (TYPE, _T, "the run was cut off, which says nothing about the record", """
        SystemExit KeyboardInterrupt GeneratorExit asyncio.exceptions.CancelledError
        concurrent.futures._base.CancelledError trio.Cancelled"""),
    (TYPE, None, "raised for anything; its causes are asked", "RuntimeError Exception BaseException"),
    (ERRNO, _T, "network, load or a full disk: may pass (errno.h)", """
        EAGAIN EINTR EBUSY ENOMEM ENOBUFS EMFILE ENFILE ENOLCK EDEADLK ETXTBSY EIO ENOSPC EDQUOT EROFS
        ESTALE EPIPE ECONNREFUSED ECONNRESET ECONNABORTED ENOTCONN ESHUTDOWN ETIMEDOUT EHOSTUNREACH
        EHOSTDOWN ENETUNREACH ENETDOWN ENETRESET EADDRINUSE EADDRNOTAVAIL EINPROGRESS EALREADY EPROTO"""),
    (ERRNO, _P, "a wrong call, or a wrong path (errno.h)", """
        EPERM EACCES ENOENT EEXIST EISDIR ENOTDIR ENOTEMPTY ENAMETOOLONG ELOOP EXDEV EFBIG EINVAL EBADF
        ENOTSUP EOPNOTSUPP ENOSYS ENODEV ENXIO ENOTSOCK EAFNOSUPPORT EPROTONOSUPPORT EDESTADDRREQ EMSGSIZE"""),
)  # fmt: skip

_HTTP = (
    (HTTP, _T, "the other side asks for another try (RFC 9110, 6585, 8470)", "408 425 429 420 449"),
    (HTTP, _T, "somebody else changed or holds it: another run reads it anew", "409 412 423"),
    (HTTP, _T, "something between here and there failed", "421 424 499"),
    (HTTP, _O, "our credentials or rights are refused, for the next record too", "401 403 407"),
    (HTTP, _P, "the server never does this", "501 505"),
    (HTTP, _P, "the request is wrong, and stays wrong (404 too: waiting seldom makes things appear)", "4xx"),
    (HTTP, _P, "a redirect that the client doesn't follow", "3xx"),
    (HTTP, _T, "the server failed", "5xx"),
)

# https://grpc.github.io/grpc/core/md_doc_statuscodes.html
_GRPC = (
    (GRPC, _T, "may succeed when called again", """
        CANCELLED UNKNOWN DEADLINE_EXCEEDED RESOURCE_EXHAUSTED ABORTED INTERNAL UNAVAILABLE"""),
    (GRPC, _P, "the call is wrong, or the state forbids it", """
        INVALID_ARGUMENT NOT_FOUND ALREADY_EXISTS FAILED_PRECONDITION OUT_OF_RANGE UNIMPLEMENTED DATA_LOSS"""),
    (GRPC, _O, "our credentials or rights are refused, for the next record too", "UNAUTHENTICATED PERMISSION_DENIED"),
)  # fmt: skip

# SQLSTATE by its five characters, else by its class, the first two (PostgreSQL's appendix A; ODBC's HYT00, HYT01).
_SQL = (
    (SQLSTATE, _T, "the connection failed", "08"),
    (SQLSTATE, _T, "the transaction was rolled back: deadlock or serialization", "40"),
    (SQLSTATE, _P, "a constraint was violated at commit", "40002"),
    (SQLSTATE, _T, "the server is short of something: memory, disk, connections", "53"),
    (SQLSTATE, _T, "an operator or a time limit stopped it: shut-down, start-up, statement timeout", "57 25P03 25P04"),
    (SQLSTATE, _T, "a lock is held by somebody else", "55P03 55006"),
    (SQLSTATE, _T, "the server reads only, as it does after a fail-over", "25006"),
    (SQLSTATE, _T, "an earlier statement failed; the next run has a transaction of its own", "25P02"),
    (SQLSTATE, _T, "the server or what it stands on failed", "58 72 F0 HV XX"),
    (SQLSTATE, _T, "it took too long", "HYT00 HYT01"),
    (SQLSTATE, _T, "a prepared statement is gone, as behind a connection pooler", "26"),
    (SQLSTATE, _O, "our login is refused, for the next record too", "28"),
    (SQLSTATE, _P, "a constraint is violated", "23 27 44"),
    (SQLSTATE, _P, "data that doesn't fit its column or the expression", "21 22"),
    (SQLSTATE, _P, "a wrong statement, a missing table, column or right", "42 07 0A 3D 3F 34"),
    (SQLSTATE, _P, "statements in an order that can't be", "24 25 2D 3B 55"),
    (SQLSTATE, _P, "the database's own code refused it", "P0 38 39 2F"),
    (SQLSTATE, _P, "the statement is too large or too complex", "54"),
    (SQLSTATE, _P, "stored data is corrupted", "XX001 XX002"),
    # What PEP 249 names alike in every driver, for errors that carry no code.
    (DB_API, _T, "connection or server trouble (PEP 249)", "OperationalError InternalError InterfaceError"),
    (DB_API, _P, "a constraint, data or the statement is wrong (PEP 249)",
     "IntegrityError DataError ProgrammingError NotSupportedError"),
    (MYSQL, _T, "a deadlock or a lock that is held", "1205 1213 1614 3572"),
    (MYSQL, _T, "the server is short of something", "1021 1037 1038 1040 1041 1114 1135 1203 1226 1637"),
    (MYSQL, _T, "the server reads only, as it does after a fail-over", "1290 1792 1836"),
    (MYSQL, _T, "it was interrupted, the connection or the server went away",
     "1053 1077 1079 1152 1158 1159 1160 1161 1180 1184 1317 3024 3101 4031"),
    (MYSQL, _O, "our login is refused, for the next record too", "1044 1045 1129 1130 1698 1820 1862 3118"),
    (MYSQL, _P, "the server refused the statement or its data", "1xxx 3xxx 4xxx"),
    (MYSQL, _T, "the client lost or didn't get its connection", "2xxx"),
    (SQLITE, _T, "locked, or the disk failed", """
        SQLITE_BUSY SQLITE_LOCKED SQLITE_IOERR SQLITE_FULL SQLITE_CANTOPEN SQLITE_PROTOCOL SQLITE_NOMEM
        SQLITE_INTERRUPT SQLITE_SCHEMA"""),
    (SQLITE, _P, "the statement, its data or the file is wrong", """
        SQLITE_ERROR SQLITE_CONSTRAINT SQLITE_MISMATCH SQLITE_MISUSE SQLITE_RANGE SQLITE_TOOBIG
        SQLITE_READONLY SQLITE_PERM SQLITE_AUTH SQLITE_CORRUPT SQLITE_NOTADB SQLITE_FORMAT"""),
    (TYPE, _P, "wrong use of the driver", "sqlite3.InterfaceError asyncpg.exceptions._base.ClientConfigurationError"),
    (TYPE, _T, "the connection is closed or busy", "asyncpg.exceptions._base.InterfaceError"),
    (TYPE, _T, "no connection became free, or the session must start anew",
     "sqlalchemy.exc.TimeoutError sqlalchemy.exc.DisconnectionError sqlalchemy.exc.PendingRollbackError"),
    (TYPE, _T, "somebody else changed the row: another run reads it anew", "sqlalchemy.orm.exc.StaleDataError"),
    (TYPE, _P, "the query, its result or the session isn't as the code assumes",
     "sqlalchemy.exc.InvalidRequestError sqlalchemy.exc.ArgumentError sqlalchemy.exc.CompileError"),
)  # fmt: skip

_CLIENTS = (
    (TYPE, _T, "the request didn't get through", """
        httpx.TransportError httpx.DecodingError httpcore.TimeoutException httpcore.NetworkError
        httpcore.ProtocolError httpcore.ProxyError requests.exceptions.ConnectionError
        requests.exceptions.Timeout requests.exceptions.ChunkedEncodingError
        requests.exceptions.ContentDecodingError requests.exceptions.RetryError urllib3.exceptions.HTTPError
        urllib.error.URLError aiohttp.client_exceptions.ClientError h11._util.RemoteProtocolError
        anyio.BrokenResourceError anyio.ClosedResourceError anyio.EndOfStream
        websockets.exceptions.ConnectionClosed"""),
    (TYPE, _P, "the request can't be made like this", """
        httpx.UnsupportedProtocol httpx.LocalProtocolError httpx.InvalidURL httpx.StreamError
        httpx.CookieConflict httpcore.UnsupportedProtocol httpcore.LocalProtocolError
        requests.exceptions.InvalidURL requests.exceptions.MissingSchema requests.exceptions.InvalidSchema
        requests.exceptions.URLRequired requests.exceptions.InvalidHeader
        requests.exceptions.InvalidJSONError urllib3.exceptions.LocationValueError
        aiohttp.client_exceptions.InvalidURL h11._util.LocalProtocolError"""),
    (TYPE, _P, "redirects that lead nowhere", """
        httpx.TooManyRedirects requests.exceptions.TooManyRedirects
        aiohttp.client_exceptions.TooManyRedirects"""),
    (TYPE, _P, "the answer isn't what the code expects", "aiohttp.client_exceptions.ContentTypeError"),
    (TYPE, _T, "Redis is away, busy, failing over, or a lock is held", """
        redis.exceptions.ConnectionError redis.exceptions.TimeoutError redis.exceptions.ReadOnlyError
        redis.exceptions.ClusterError redis.exceptions.MovedError redis.exceptions.AskError
        redis.exceptions.TryAgainError redis.exceptions.MasterDownError redis.exceptions.OutOfMemoryError
        redis.exceptions.WatchError redis.exceptions.LockError redis.exceptions.RedisClusterException"""),
    (TYPE, _O, "our credentials or rights are refused, for the next record too", """
        redis.exceptions.AuthenticationError redis.exceptions.AuthorizationError
        redis.exceptions.NoPermissionError botocore.exceptions.NoCredentialsError
        botocore.exceptions.PartialCredentialsError botocore.exceptions.CredentialRetrievalError
        botocore.exceptions.TokenRetrievalError botocore.exceptions.SSOTokenLoadError
        botocore.exceptions.UnauthorizedSSOTokenError"""),
    (TYPE, _P, "Redis doesn't take this command or value", "redis.exceptions.ResponseError redis.exceptions.DataError"),
    (TYPE, _T, "MongoDB is away, failing over or slow", """
        pymongo.errors.ConnectionFailure pymongo.errors.ExecutionTimeout pymongo.errors.WTimeoutError
        pymongo.errors.CursorNotFound"""),
    (TYPE, _P, "MongoDB doesn't take this document or operation", """
        pymongo.errors.WriteError pymongo.errors.BulkWriteError pymongo.errors.DocumentTooLarge
        pymongo.errors.InvalidOperation pymongo.errors.ConfigurationError bson.errors.BSONError"""),
    # https://github.com/mongodb/specifications, retryable writes; plus lock time-outs, time limits and write conflicts.
    (MONGODB, _T, "a fail-over, a time limit or a conflict: may pass", """
        TransientTransactionError RetryableWriteError 6 7 24 50 89 91 112 134 189 202 262 9001 10058 10107
        11600 11602 13435 13436"""),
    (MONGODB, _O, "our credentials or rights are refused, for the next record too", "13 18"),
    (TYPE, _T, "the request to AWS didn't get through",
     "botocore.exceptions.HTTPClientError botocore.exceptions.ConnectionError botocore.exceptions.IncompleteReadError"),
    (TYPE, _P, "the request to AWS can't be made like this", """
        botocore.exceptions.ParamValidationError botocore.exceptions.ValidationError
        botocore.exceptions.UnknownServiceError botocore.exceptions.NoRegionError"""),
    # Codes that come with HTTP 400 and mean something else than a wrong request.
    (AWS, _T, "a limit or a conflict: may pass", """
        Throttling ThrottlingException ThrottledException RequestThrottled RequestThrottledException
        EC2ThrottledException TooManyRequestsException ProvisionedThroughputExceededException
        TransactionInProgressException TransactionConflictException TransactionCanceledException
        RequestLimitExceeded BandwidthLimitExceeded LimitExceededException PriorRequestNotComplete SlowDown
        RequestTimeout RequestTimeoutException InternalError OverLimit KMS.ThrottlingException"""),
    (AWS, _O, "our credentials or rights are refused, for the next record too", """
        AccessDenied AccessDeniedException ExpiredToken ExpiredTokenException UnrecognizedClientException
        InvalidClientTokenId InvalidAccessKeyId InvalidSignatureException SignatureDoesNotMatch AuthFailure
        MissingAuthenticationTokenException MissingAuthenticationToken OptInRequired"""),
    (TYPE, _T, "Kafka failed, with no code that says more", "cimpl.KafkaException confluent_kafka.KafkaException"),
    (TYPE, _P, "a value that can't be serialized", """
        confluent_kafka.serialization.SerializationError confluent_kafka.error.KeySerializationError
        confluent_kafka.error.ValueSerializationError"""),
    (KAFKA, _P, "Kafka doesn't take this record", """
        MSG_SIZE_TOO_LARGE INVALID_MSG INVALID_MSG_SIZE INVALID_RECORD RECORD_LIST_TOO_LARGE TOPIC_EXCEPTION
        POLICY_VIOLATION _INVALID_ARG _KEY_SERIALIZATION _VALUE_SERIALIZATION"""),
    (KAFKA, _O, "our credentials or rights are refused, for the next record too", """
        TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
        SASL_AUTHENTICATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED _AUTHENTICATION"""),
    (ATTRIBUTE, _T, "the library says that the same call may succeed later", "retriable"),
    (SMTP, _T, "a reply that says: later (RFC 5321)", "4yz"),
    (SMTP, _P, "a reply that says: never (RFC 5321)", "5yz"),
    (SMTP, _O, "our login is refused, for the next record too (RFC 4954)", "530 534 535"),
    (TYPE, _T, "the mail server went away", "smtplib.SMTPException"),
    (TYPE, _P, "data that doesn't fit its model", """
        msgspec.MsgspecError pydantic.error_wrappers.ValidationError marshmallow.exceptions.ValidationError
        jsonschema.exceptions.ValidationError google.protobuf.message.Error avro.errors.AvroException"""),
)  # fmt: skip

#: The whole table, in the order in which the docs and `explain` show it.
TABLE: tuple[Row, ...] = tuple(
    Row(what, key, kind, why, is_echo=key.endswith((".CancelledError", ".Cancelled")))
    for what, kind, why, keys in (*_BUILT_IN, *_HTTP, *_GRPC, *_SQL, *_CLIENTS)
    for key in keys.split()
)
_ROWS = {(row.what, row.key): row for row in TABLE}

#: Top-level packages whose error classes have the names of PEP 249.
DB_API_PACKAGES = frozenset({
    "psycopg", "psycopg2", "psycopg_pool", "pg8000", "sqlite3", "sqlalchemy", "pymysql", "MySQLdb", "asyncmy", "mysql",
    "mariadb", "pyodbc", "pymssql", "oracledb", "cx_Oracle", "duckdb", "snowflake", "trino",
})  # fmt: skip
