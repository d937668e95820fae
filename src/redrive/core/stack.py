"""
An exception as text: the name of its type, its message, its stack, and the place in the application that it came from.

Exceptions are written by anybody. So attributes that Python defines are read past whatever a class put over them, texts are
copied into plain `str` of bounded length, and nothing of the exception is kept: not itself, its traceback or frames.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, cast

#: Bounds in bytes of UTF-8: what a header may carry.
TYPE_BYTES = 256
MESSAGE_BYTES = 1024
STACK_BYTES = 8192

_EXCEPTIONS_SHOWN = 8
_FRAMES_SHOWN = 64
_STACK_MESSAGE_BYTES = 512

_CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
_HANDLED = "\nDuring handling of the above exception, another exception occurred:\n\n"
_GROUPED = "\nThe above exception is one of the following group:\n\n"


def _reader(owner: type, name: str) -> Callable[[Any], Any]:
    """Reads an attribute as `owner` defines it, whatever a subclass or a metaclass put over it."""
    return cast("Callable[[Any], Any]", owner.__dict__[name].__get__)


mro_of: Callable[[type], tuple[type, ...]] = _reader(type, "__mro__")
members_of: Callable[[type], Mapping[str, object]] = _reader(type, "__dict__")
args_of: Callable[[BaseException], tuple[object, ...]] = _reader(BaseException, "args")
dict_of: Callable[[BaseException], dict[str, object]] = _reader(BaseException, "__dict__")
exceptions_of: Callable[[BaseException], tuple[BaseException, ...]] = _reader(
    BaseExceptionGroup, "exceptions"
)
_module_of = _reader(type, "__module__")
_qualname_of = _reader(type, "__qualname__")
_cause_of = _reader(BaseException, "__cause__")
_context_of = _reader(BaseException, "__context__")
_suppresses_context = _reader(BaseException, "__suppress_context__")
_traceback_of = _reader(BaseException, "__traceback__")


class Place(NamedTuple):
    """A function in the application's code, without line and file: those change with every release."""

    module: str
    function: str


def cut_utf8(text: str, limit_bytes: int) -> str:
    """At most `limit_bytes` of UTF-8, cut between characters and marked by `…`. Half surrogates become `?`."""
    text = str.__str__(text)  # a subclass of str may do anything
    if text.isascii() and len(text) <= limit_bytes:
        return text
    data = text[: limit_bytes + 1].encode("utf-8", "replace")
    if len(data) <= limit_bytes:
        return data.decode()
    return data[: limit_bytes - 3].decode("utf-8", "ignore") + "…"


def keep_end_utf8(text: str, limit_bytes: int) -> str:
    """The last `limit_bytes` of UTF-8, marked by `…`: of a stack, the end says most."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit_bytes:
        return data.decode()
    return "…" + data[len(data) - limit_bytes + 3 :].decode("utf-8", "ignore")


def type_name(cls: type) -> str:
    """`TypeError`, `httpx.ReadTimeout`: the module and the qualified name; nothing before the names of builtins."""
    qualname = str.__str__(_qualname_of(cls))
    try:
        module = str.__str__(_module_of(cls))
    except Exception:  # whatever was put there in place of a name
        module = "?"
    return cut_utf8(qualname if module == "builtins" else f"{module}.{qualname}", TYPE_BYTES)


def message_of(exc: BaseException, limit_bytes: int = MESSAGE_BYTES) -> str:
    """What `str()` says of it, bounded. Where that raises, a remark that it did."""
    try:
        return cut_utf8(str(exc), limit_bytes)
    except BaseException as failed:
        return f"(no message: its __str__ raised {type_name(type(failed))})"


def next_in_chain(exc: BaseException) -> BaseException | None:
    """What it was raised from, or else while handling what, unless that was suppressed (`raise … from None`)."""
    cause: BaseException | None = _cause_of(exc)
    if cause is not None:
        return cause
    context: BaseException | None = _context_of(exc)
    return None if context is None or _suppresses_context(exc) else context


def is_group(exc: BaseException) -> bool:
    """Whether it is an exception group, by its real type."""
    return issubclass(type(exc), BaseExceptionGroup)


def place_of(exc: BaseException) -> Place | None:
    """
    The innermost function of the application that the exception passed; None when there is no such frame.

    The application is what is neither the standard library, nor redrive, nor installed in `site-packages`; when all
    of it is installed there, it is the package of the outermost frame, the handler's. Never raises.
    """
    try:
        return _place(exc)
    except BaseException:  # frames whose globals or code aren't what Python makes them
        return None


def stack_text(exc: BaseException, limit_bytes: int = STACK_BYTES) -> str:
    """
    The stack in Python's own form (root cause first, most recent call last) without source lines, bounded.

    Where it is too long, outer frames are left out, and causes beyond the eighth. Source lines would have to be read
    from files. Never raises: a stack that can't be told is empty.
    """
    try:
        return _told(exc, limit_bytes)
    except BaseException:
        return ""


def _place(exc: BaseException) -> Place | None:
    own: Place | None = None
    handlers: Place | None = None
    handlers_package: str | None = None
    for step in _steps(exc):
        module = step.tb_frame.f_globals.get("__name__")
        if type(module) is not str:
            continue
        package = module.partition(".")[0]
        if package == "redrive" or package in sys.stdlib_module_names:
            continue
        code = step.tb_frame.f_code
        if not _is_installed(code.co_filename):
            own = Place(module, code.co_qualname)
        elif own is None:
            handlers_package = handlers_package or package
            if package == handlers_package:
                handlers = Place(module, code.co_qualname)
    return own or handlers


def _told(exc: BaseException, limit_bytes: int) -> str:
    blocks: list[str] = []
    rest_bytes = limit_bytes
    told = _tree(exc)
    for index, (node, link) in enumerate(told):
        share = rest_bytes // (len(told) - index)
        block = _block(node, share - len(link)) + link
        rest_bytes -= len(block.encode("utf-8", "replace"))
        blocks.append(block)
    return keep_end_utf8("".join(reversed(blocks)).rstrip("\n"), limit_bytes)


def _tree(exc: BaseException) -> list[tuple[BaseException, str]]:
    """The exceptions to be told, outermost first, each with the words that lead from it to the one it belongs to."""
    told: list[tuple[BaseException, str]] = []
    waiting = [(exc, "")]
    while waiting and len(told) < _EXCEPTIONS_SHOWN:
        node, link = waiting.pop()
        if any(node is other for other, _ in told):
            continue
        told.append((node, link))
        if is_group(node):
            waiting += [(child, _GROUPED) for child in reversed(exceptions_of(node)[:_EXCEPTIONS_SHOWN])]
        following = next_in_chain(node)
        if following is not None:
            waiting.append((following, _HANDLED if _cause_of(node) is None else _CAUSED))
    return told


def _block(exc: BaseException, limit_bytes: int) -> str:
    """One exception: as many of its innermost frames as fit, then its type and message."""
    message = message_of(exc, min(_STACK_MESSAGE_BYTES, max(limit_bytes // 2, 16)))
    headline = type_name(type(exc)) + (f": {message}" if message else "") + "\n"
    opening = "Traceback (most recent call last):\n"
    steps, count = deque[TracebackType](maxlen=_FRAMES_SHOWN), 0
    for step in _steps(exc):
        steps.append(step)
        count += 1
    if not count:
        return headline
    rest_bytes = limit_bytes - len(headline.encode("utf-8", "replace")) - len(opening) - 40
    lines: list[str] = []
    for step in reversed(steps):
        line = _line(step)
        rest_bytes -= len(line.encode("utf-8", "replace"))
        if rest_bytes < 0:
            break
        lines.append(line)
    if count > len(lines):
        lines.append(f"  [{count - len(lines)} outer frames left out]\n")
    return opening + "".join(reversed(lines)) + headline


def _line(step: TracebackType) -> str:
    code = step.tb_frame.f_code
    return f'  File "{_short_path(code.co_filename)}", line {step.tb_lineno}, in {code.co_qualname}\n'


def _steps(exc: BaseException) -> Iterator[TracebackType]:
    step = _traceback_of(exc)
    while step is not None:
        yield step
        step = step.tb_next


def _is_installed(path: str) -> bool:
    return "site-packages" in path or "dist-packages" in path


def _short_path(path: str) -> str:
    """From `site-packages` on: what is before it says nothing and is long."""
    for folder in ("site-packages", "dist-packages"):
        before, found, after = path.rpartition(folder)
        if found:
            return after[1:] or before
    return path
