"""The shortest script that still goes wrong, as far as it is found by leaving out steps."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrunk(steps: Sequence[T], goes_wrong: Callable[[Sequence[T]], bool], tries_most: int = 300) -> list[T]:
    """
    Leave out as many steps as possible: first long stretches, then shorter ones, in the end single steps (after
    Zeller's delta debugging), until none can be left out. `goes_wrong` is asked `tries_most` times at most.
    """
    left, tries = list(steps), 0
    length = max(1, len(left) // 2)
    while length:
        at, before = 0, len(left)
        while at < len(left) and tries < tries_most:
            fewer = left[:at] + left[at + length :]
            tries += 1
            if goes_wrong(fewer):
                left = fewer
            else:
                at += length
        if length > 1 or len(left) == before:
            length //= 2
    return left
