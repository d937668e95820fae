"""A record as the simulated cluster keeps it, with the methods of the client's message objects."""

from collections.abc import Sequence

Header = tuple[str, bytes | None]

#: What a record costs in a batch besides its bytes, as the broker and the client count it.
OVERHEAD_BYTES = 50


class SimRecord:
    """One stored record. Bytes, nulls, the order and the repeats of headers are kept as they came."""

    __slots__ = ("_headers", "_key", "_offset", "_partition", "_timestamp_ms", "_topic", "_value")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        timestamp_ms: int,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = tuple(headers)
        self._timestamp_ms = timestamp_ms

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[Header] | None:
        # A list of its own for each caller, and None for none, as the client does.
        return list(self._headers) or None

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp_ms

    def __len__(self) -> int:
        return len(self._value or b"")

    def __repr__(self) -> str:
        return f"SimRecord({self._topic}/{self._partition}/{self._offset}, key={self._key!r}, value={self._value!r})"


def size_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """What `max.message.bytes` is compared with, without compression."""
    return (
        OVERHEAD_BYTES
        + len(key or b"")
        + len(value or b"")
        + sum(len(name.encode()) + len(content or b"") for name, content in headers)
    )
