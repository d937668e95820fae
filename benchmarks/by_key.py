"""
W4 and W5: records of a thousand keys, and an account of who was handled when.

`WORKLOADS` says what each is; the bare loop and redrive both read it, so they do the same.
"""

import array
import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from benchmarks.workload import spread_ms

KEYS = 1000
#: Which keys the records of W5 have: the n-th most frequent one 1/n as often as the first.
_ZIPF_SEED = 5


class Keyed(NamedTuple):
    """
    A workload in key order.

    `takes_s`: how long a handler waits; 0: it doesn't. `fails_in_hundred`: so many of a hundred records fail in their
    first run, and are due `delay_s` later: through a tier, or before the later records of their key with `is_blocking`.
    """

    concurrency: int
    takes_s: float = 0.0
    is_async: bool = True
    spread: str = "even"
    fails_in_hundred: int = 0
    is_blocking: bool = False
    delay_s: float = 1.0


WORKLOADS = {
    "w4": Keyed(1000, 0.01),
    "w4-100": Keyed(100, 0.01),
    "w4-retried": Keyed(1000, 0.01, fails_in_hundred=1),
    "w4-quick": Keyed(1000),
    "w4-quick-threads": Keyed(64, is_async=False),
    "w5": Keyed(24, 0.01, spread="zipf", fails_in_hundred=1, is_blocking=True),
}


@cache
def keys_of(spread: str, records: int) -> Sequence[int]:
    """The number of each record's key: `even`, in turn; `zipf`, by a fixed seed; `own`, one for each record."""
    match spread:
        case "own":
            return range(records)
        case "even":
            return array.array("l", (number % KEYS for number in range(records)))
        case "zipf":
            weights = [1 / rank for rank in range(1, KEYS + 1)]
            return array.array("l", random.Random(_ZIPF_SEED).choices(range(KEYS), weights, k=records))
    raise ValueError(f"no spread of keys {spread!r}")


def fails(workload: Keyed, number: int) -> bool:
    """Whether a record fails in its first run. Not in step with the keys, which go round by the thousand."""
    return (number * 7919 + number // KEYS) % 100 < workload.fails_in_hundred


def limit_s(workload: Keyed, records: int, takes_s: float) -> float:
    """
    The shortest time in which a workload in key order can be done: that of its slowest key, whose records run one after
    another and wait for those of them that fail; or that of all runs in `concurrency` places, where it is longer.
    """
    keys = keys_of(workload.spread, records)
    runs = Counter(keys)
    failing = Counter(key for number, key in enumerate(keys) if fails(workload, number))
    total_s = (records + failing.total()) * takes_s / workload.concurrency
    waits_s = workload.delay_s if workload.is_blocking else 0.0
    slowest_s = max((runs[key] + failing[key]) * takes_s + failing[key] * waits_s for key in runs)
    return max(total_s, slowest_s)


def real_s(takes_s: float, times: int = 50) -> float:
    """How long a coroutine really waits that asks for so much, on a loop with nothing else to do."""
    if not takes_s:
        return 0.0

    async def wait() -> float:
        began_s = time.perf_counter()
        for _ in range(times):
            await asyncio.sleep(takes_s)
        return (time.perf_counter() - began_s) / times

    return asyncio.run(wait())


class InKeyOrder:
    """
    The account: each record handled once, none begun before the one before it of its key was through.

    Through is: handled; where failing records don't block, also failed for the first time. With threads it is right as
    long as no two of them have the same key at once, and what isn't so shows as out of order.
    """

    def __init__(self, workload: Keyed, records: int) -> None:
        self._workload, self._records = workload, records
        self._before = _predecessors(keys_of(workload.spread, records))
        self._through = bytearray(records + 1)
        self._through[records] = 1  # stands before the first one of each key
        self._handled = bytearray(records)
        self._fails = bytearray(fails(workload, number) for number in range(records))
        self._due_s: dict[int, float] = {}
        self._late_s = array.array("d")
        self._takes_s = real_s(workload.takes_s)
        self._count = itertools.count(1)  # counting by it can't be torn apart by another thread
        self._first_s = self._last_s = 0.0
        self._out_of_order = self._repeats = 0
        self.done = False

    def begin(self, number: int) -> None:
        """A run of a record begins."""
        if not self._first_s:
            self._first_s = time.perf_counter()
        if not self._through[self._before[number]]:
            self._out_of_order += 1
        if number in self._due_s:
            self._late_s.append(time.time() - self._due_s.pop(number))

    def end(self, number: int) -> None:
        """A run ends; raises when it has to fail."""
        if self._fails[number]:
            self._fails[number] = 0
            self._through[number] = not self._workload.is_blocking
            self._due_s[number] = time.time() + self._workload.delay_s
            raise RuntimeError("it fails the first time")
        if self._handled[number]:
            self._repeats += 1
            return
        self._handled[number] = self._through[number] = 1
        if next(self._count) == self._records:
            self._last_s = time.perf_counter()
            self.done = True

    def report(self) -> dict[str, object]:
        """The result: right only when each record was handled once, in order, and none before its due."""
        seconds = self._last_s - self._first_s
        handled = sum(self._handled)
        late = spread_ms(self._late_s)
        is_right = handled == self._records and not (self._out_of_order or self._repeats or late.get("early"))
        rate = self._records / seconds
        limit = limit_s(self._workload, self._records, self._takes_s)
        of_limit = (
            {
                "takes_ms": round(self._takes_s * 1000, 2),
                "limit_rate": round(self._records / limit),
                "of_limit": round(limit / seconds, 3),
                "of_nominal_limit": round(
                    limit_s(self._workload, self._records, self._workload.takes_s) / seconds, 3
                ),
            }
            if limit
            else {}
        )
        return {
            "records": handled,
            "seconds": round(seconds, 3),
            "rate": round(rate),
            "is_right": is_right,
            "out_of_order": self._out_of_order,
            "repeats": self._repeats,
            **of_limit,
            **({f"late_{self._workload.delay_s:g}s_ms": late} if self._late_s else {}),
        }


def _predecessors(keys: Sequence[int]) -> "array.array[int]":
    """For each record the one before it of its key; for a key's first one the number of records."""
    last: dict[int, int] = {}
    before = array.array("l", bytes(8 * len(keys)))
    for number, key in enumerate(keys):
        before[number] = last.get(key, len(keys))
        last[key] = number
    return before
