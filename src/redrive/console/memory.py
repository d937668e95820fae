"""
What was answered under an `Idempotency-Key`: the same request again gets the first answer and does nothing.

Kept in this process's memory, for a day and for the last thousand keys: a restart forgets them. What was sent isn't sent
again even then, since the letters' states are in Kafka; but the next letters would be.
"""

import hashlib
import re
from collections import OrderedDict

import msgspec

from redrive.console.problems import Problem
from redrive.runtime.clock import Clock

LIFE_MS = 86_400_000.0
MOST_KEYS = 1_000
MOST_BYTES = 8_000_000
_KEY = re.compile(r"[\x21-\x7e]{1,255}")


class Answer(msgspec.Struct, frozen=True):
    """A status and a JSON body."""

    status: int
    body: bytes
    content_type: str = "application/json"


class _Entry(msgspec.Struct):
    asked: bytes
    began_mono_ms: float
    answer: Answer | None = None


def fingerprint(*parts: bytes) -> bytes:
    """What tells one request from another: its method, path, query and body."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


class Memory:
    """Keys with their answers, oldest first. Not for several threads."""

    def __init__(self, clock: Clock, *, most_keys: int = MOST_KEYS, most_bytes: int = MOST_BYTES) -> None:
        self._clock = clock
        self._most_keys = most_keys
        self._most_bytes = most_bytes
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0

    def begin(self, key: str, asked: bytes) -> Answer | None:
        """
        Gives the first answer where there is one; else notes that this request is at work, until `finish` or `forget`.

        Raises Problem: 400 for what is no key, 409 while the first one is at work, 422 when another request had this key.
        """
        if _KEY.fullmatch(key) is None:
            raise Problem(400, "Idempotency-Key has 1 to 255 visible ASCII characters, such as a UUID")
        self._drop_old()
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Entry(asked, self._clock.mono_ms())
            return None
        if entry.asked != asked:
            raise Problem(
                422, "this Idempotency-Key was given with another request; take a new one for a new request"
            )
        if entry.answer is None:
            raise Problem(
                409,
                "the first request with this Idempotency-Key is still at work; ask again for its answer",
                headers=(("Retry-After", "1"),),
            )
        return entry.answer

    def finish(self, key: str, answer: Answer) -> None:
        """Keep the answer."""
        self._entries[key].answer = answer
        self._bytes += len(answer.body)
        self._drop_old()

    def forget(self, key: str) -> None:
        """Nothing was done: the same key may try again."""
        del self._entries[key]

    def _drop_old(self) -> None:
        now_ms = self._clock.mono_ms()
        for key, entry in list(self._entries.items()):
            is_over = len(self._entries) > self._most_keys or self._bytes > self._most_bytes
            if not is_over and now_ms - entry.began_mono_ms <= LIFE_MS:
                return
            if entry.answer is not None:  # what is at work is answered once more at least
                self._bytes -= len(entry.answer.body)
                del self._entries[key]
