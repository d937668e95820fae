"""After `fork()` the client's threads don't exist: a produce would never be sent, a close would hang. Say so instead."""

import os
import weakref
from typing import Any, NoReturn

from redrive.errors import ForkedHandle

_handles: "weakref.WeakSet[Any]" = weakref.WeakSet()


class _Forked:
    """What a client handle is replaced by in a forked child."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ForkedHandle(
            "this Kafka connection was made before fork() and doesn't work in the child process; "
            "create the app's connections after the fork (gunicorn: in post_fork), or use `redrive run`"
        )


def guard(handle: Any) -> None:
    """Poison `handle.client` in children: any use of it raises ForkedHandle. Where there is no fork, nothing happens."""
    _handles.add(handle)


def _poison() -> None:
    import ctypes

    for handle in list(_handles):
        # Never ended, not even with Python itself: that would wait for threads that are gone, or crash (both tried).
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle.client))
        handle.client = _Forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_poison)
