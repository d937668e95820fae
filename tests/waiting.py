"""Waiting for a condition, with a deadline that tells what was waited for."""

import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def until(is_so: Callable[[], Answer], what: str, *, within_s: float = 30.0) -> Answer:
    """Ask until the answer is true, and give it. Fails with `what` when that takes too long."""
    deadline = time.monotonic() + within_s
    while not (answer := is_so()):
        if time.monotonic() > deadline:
            message = f"not within {within_s:g} s: {what}"
            raise AssertionError(message)
        time.sleep(0.01)
    return answer
