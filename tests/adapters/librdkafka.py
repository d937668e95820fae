"""What the client library can do to itself for tests, and its Python binding doesn't offer."""

import ctypes
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

OFFSET_COMMIT = 8
INVALID_PRODUCER_EPOCH = 47


def _library() -> ctypes.CDLL | None:
    package = Path(confluent_kafka.__file__).parent
    found = [*package.parent.glob("confluent_kafka.libs/librdkafka-*"), *package.glob(".dylibs/librdkafka*")]
    return ctypes.CDLL(str(found[0])) if found else None


def _called(name: str, *args: type, result: type = ctypes.c_int) -> Any:
    library = _library()
    if library is None:
        pytest.skip("the client's library isn't where its wheels have it")
    function = getattr(library, name)
    function.argtypes, function.restype = args, result
    return function


def _handle(client: Any) -> Any:
    """The `rd_kafka_t *` of a client object: the first field behind the head that all Python objects have."""
    return ctypes.cast(id(client) + object.__basicsize__, ctypes.POINTER(ctypes.c_void_p))[0]


def break_producer(client: Any, why: str) -> None:
    """The broker tells the producer that it may never write again."""
    raised = _called("rd_kafka_test_fatal_error", ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    assert raised(_handle(client), INVALID_PRODUCER_EPOCH, why.encode()) == 0


def fail_requests(mock_client: Any, api_key: int, code: int, *, after_ms: int = 0) -> None:
    """The mock cluster that lives in this client answers the next such request with an error, and not before `after_ms`."""
    cluster = _called("rd_kafka_handle_mock_cluster", ctypes.c_void_p, result=ctypes.c_void_p)
    push = _called(
        "rd_kafka_mock_broker_push_request_error_rtts",
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.c_int16,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
    )
    assert push(cluster(_handle(mock_client)), 1, api_key, 1, code, after_ms) == 0
