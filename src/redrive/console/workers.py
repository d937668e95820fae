"""Threads for what blocks: a few, a queue before them that has an end, and for each piece of work a way to stop it."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from redrive.console.problems import Problem

_T = TypeVar("_T")


class Workers:
    """`threads` of them, each with clients of Kafka of its own; `waiting`: how much more work may wait for one."""

    def __init__(self, threads: int, waiting: int) -> None:
        self._most = threads + waiting
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="redrive-console")
        self._stops: set[threading.Event] = set()

    def start(self, call: Callable[[threading.Event], _T]) -> "tuple[asyncio.Future[_T], threading.Event]":
        """
        Run `call` in a thread. Gives its result to come, and what makes it stop early. Raises Problem when there is too
        much to do already.
        """
        if len(self._stops) >= self._most:
            raise Problem(
                503, "too many requests are at work; ask again in a moment", headers=(("Retry-After", "1"),)
            )
        stop = threading.Event()
        future = asyncio.get_running_loop().run_in_executor(self._pool, call, stop)
        self._stops.add(stop)

        def end(ended: "asyncio.Future[_T]") -> None:
            self._stops.discard(stop)
            if not ended.cancelled():
                ended.exception()  # somebody may have stopped waiting for it

        future.add_done_callback(end)
        return future, stop

    async def run(self, call: Callable[[threading.Event], _T], *, within_s: float) -> _T:
        """Gives what `call` gives. Raises Problem when that takes too long: it is stopped then."""
        future, stop = self.start(call)
        done, _ = await asyncio.wait({future}, timeout=within_s)
        if not done:
            stop.set()
            raise Problem(504, f"Kafka took longer than {within_s:g} s; ask for less, or later")
        return future.result()

    def close(self) -> None:
        """Stop what is at work, and wait for its end."""
        for stop in list(self._stops):
            stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
