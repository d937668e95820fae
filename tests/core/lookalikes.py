"""Exception classes with the names of those of client libraries, so that core tests need none of them installed."""


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


def raised(exc):
    """The exception with a traceback, as an `except` sees it."""

    def fail():
        raise exc

    return caught(fail)
