"""Exception classes with the names of those of client libraries, so that core tests need none of them installed."""

from itertools import pairwise


def lookalike(*names, base=Exception, **members):
    """A class named by the first name, whose bases are named by the others: `"httpx.ReadTimeout"`, `"httpx.HTTPError"`."""
    cls = base
    for name in reversed(names):
        module, _, qualname = name.rpartition(".")
        cls = type(qualname, (cls,), {"__module__": module, "__qualname__": qualname})
    for name, value in members.items():
        setattr(cls, name, value)
    return cls


def caught(function, *args):
    """The exception that the function raises, with its traceback."""
    try:
        function(*args)
    except BaseException as exc:
        return exc
    raise AssertionError("it didn't raise")


def chained(*excs):
    """The first exception, raised from the second, raised from the third…"""
    for exc, cause in pairwise(excs):
        exc.__cause__ = cause
    return excs[0]


def raised(exc):
    """The exception with a traceback, as an `except` sees it."""

    def fail():
        raise exc

    return caught(fail)
