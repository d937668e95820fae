"""
What a handler takes, read from its signature when the app is run, planned or put in a harness.

Not when it is declared: annotations may be strings, and name what is defined further down in the module.
"""

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, get_origin, get_type_hints

from redrive.core.record import Record
from redrive.deadletters.dead_letter import DeadLetter

_POSITIONAL = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}


class Companion(NamedTuple):
    """What a handler may take besides the value: what it is annotated, and what it is called."""

    type: type[Any]
    word: str

    @property
    def parameter(self) -> str:
        """How it is written."""
        return f"{self.word}: {self.type.__name__}"


RECORD = Companion(Record, "record")
LETTER = Companion(DeadLetter, "letter")


@dataclass(frozen=True, slots=True)
class HandlerShape:
    """
    How a handler is called: `call(value, record)`, `call(value)` or `call(record)`, as the flags say; the record is the
    letter where dead letters are handled.

    `annotation`: what the value is to be; `Any` where nothing is written, `Record` for a handler of the record alone.
    """

    call: Callable[..., Any]
    is_async: bool
    takes_value: bool
    takes_record: bool
    annotation: Any


def shape_of(handler: Any, local_names: Mapping[str, Any], companion: Companion = RECORD) -> HandlerShape:
    """
    Reads a handler's signature. `local_names`: what its annotations may name besides the globals of its module;
    `companion`: what it may take besides the value.

    Raises ValueError with what is wrong with it and how to mend it.
    """
    is_async = is_coroutine_function(handler)
    function = _function_of(handler)
    parameters = _parameters(handler, companion)
    names = ", ".join(parameter.name for parameter in parameters)
    _refuse_method(function, parameters[0].name)
    annotations = _annotations(parameters, function, local_names)
    _refuse_other(names, annotations, companion)
    word = companion.word
    records = [at for at, annotation in enumerate(annotations) if annotation is companion.type]
    if len(records) > 1:
        raise ValueError(
            f"({names}) has two parameters annotated {companion.type.__name__}; there is one {word}"
        )
    taken = [at for at, each in enumerate(parameters) if _is_wanted(each) or at in records or at == 0]
    if len(taken) == 1:
        # A single parameter that says nothing is the value; but who handles dead letters means the letter, poison too.
        is_letter = companion is LETTER and parameters[0].annotation is Parameter.empty
        takes_record = bool(records) or is_letter
        annotation = companion.type if is_letter else annotations[0]
        return HandlerShape(handler, is_async, not takes_record, takes_record, annotation)
    if len(taken) > 2:
        raise ValueError(
            f"({names}) has {len(taken)} parameters; a handler takes the value and, annotated "
            f"{companion.type.__name__}, the {word}: give the others defaults, or bind them with functools.partial"
        )
    if records == [0]:
        return HandlerShape(_swapped(handler), is_async, True, True, annotations[1])
    if records == [1]:
        return HandlerShape(handler, is_async, True, True, annotations[0])
    if records:
        raise ValueError(f"({names}): {parameters[records[0]].name!r} is the {word}; put it second")
    raise ValueError(f"({names}): {_second(parameters[1], companion)}")


def local_names_for(handler: Any, scope: Mapping[str, Any]) -> dict[str, Any]:
    """
    Gives what of `scope`, the locals where `handler` is declared, its annotations may mean.

    Only that: a declaration lives as long as the app, and all the locals of a function would live with it.
    """
    try:
        annotations = _function_of(handler).__annotations__
        written = " ".join(map(_as_written, annotations.values()))
    except Exception:  # no function, or annotations of Python 3.14, which find locals by themselves
        return {}
    return {name: scope[name] for name in set(re.findall(r"\w+", written)) if name in scope}


def name_of(handler: Any) -> str:
    """The name of a function, also of one that is bound in a partial; else of the class whose instance is called."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    name = getattr(handler, "__name__", None)
    return name if isinstance(name, str) else type(handler).__name__


# -- what kind of function -------------------------------------------------------------------------------------------


def is_coroutine_function(handler: Any) -> bool:
    """Whether what it returns is to be awaited. Raises ValueError for what can't be called, or whose call runs nothing."""
    if isinstance(handler, type):
        raise ValueError(
            "is a class: calling it would only make an instance; declare a function, or an instance's method"
        )
    if not callable(handler):
        raise ValueError(
            f"can't be called, it is a value of type {type(handler).__name__}; declare a function"
        )
    called = _called(handler)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise ValueError("yields, so calling it would run nothing of it; return instead")
    is_async = inspect.iscoroutinefunction(called)
    if not is_async and inspect.iscoroutinefunction(inspect.unwrap(called)):
        raise ValueError(
            "is async def, but a decorator put a plain function round it, so that nothing would await it; "
            "make the decorator's wrapper async def too"
        )
    return is_async


def _called(handler: Any) -> Any:
    """What runs when `handler` is called: for an object, its class's `__call__`."""
    while isinstance(handler, functools.partial | staticmethod):
        handler = handler.func if isinstance(handler, functools.partial) else handler.__func__
    return handler if inspect.isroutine(handler) else type(handler).__call__


def _function_of(handler: Any) -> Any:
    """The function that has the annotations: under partials, bound methods, and decorators that use functools.wraps."""
    function = inspect.unwrap(_called(handler)) if callable(handler) else handler
    return getattr(function, "__func__", function)


def _parameters(handler: Any, companion: Companion) -> list[Parameter]:
    """The positional parameters, at least one."""
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except NameError as error:  # Python 3.14 evaluates annotations here
        raise ValueError(f"has annotations, but {_missing(error)}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"has no signature that Python can read ({error}); put a function round it"
        ) from None
    if any(each.kind is Parameter.VAR_POSITIONAL for each in parameters):
        raise ValueError(
            "takes *args, which doesn't tell what it wants; name its parameters, "
            "or put functools.wraps on the decorator's wrapper"
        )
    for each in parameters:
        if each.kind is Parameter.KEYWORD_ONLY and _is_wanted(each):
            raise ValueError(
                f"has the keyword-only parameter {each.name!r}, but value and {companion.word} are passed by position; "
                "move it before the *, or give it a default"
            )
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    if not positional:
        raise ValueError(
            f"takes no parameter; it must take the value, and may take the {companion.word}: "
            f"(value, {companion.parameter})"
        )
    return positional


def _refuse_method(function: Any, first: str) -> None:
    """A method that was declared in its class; a bound one doesn't show its `self`."""
    owner = getattr(function, "__qualname__", "").rpartition(".")[0]
    if first in {"self", "cls"} and owner and not owner.endswith("<locals>"):
        raise ValueError(
            f"has {first!r} first, for it is declared inside its class, where there is no instance yet; declare the bound "
            'method instead: app.listener("topic")(instance.method)'
        )


def _is_wanted(parameter: Parameter) -> bool:
    """Whether it has no default."""
    return parameter.default is Parameter.empty


def _refuse_other(names: str, annotations: list[Any], companion: Companion) -> None:
    if companion is RECORD and any(each is DeadLetter for each in annotations):
        raise ValueError(f"({names}) takes a DeadLetter, which only handlers under @app.on_dead_letter get")
    if companion is LETTER and any(each is Record for each in annotations):
        raise ValueError(
            f"({names}) takes a Record, but what a handler of dead letters gets is ({LETTER.parameter})"
        )


def _second(parameter: Parameter, companion: Companion) -> str:
    written = "isn't annotated"
    if parameter.annotation is not Parameter.empty:
        written = f"is annotated {_as_written(parameter.annotation)}"
    return (
        f"the second parameter is the {companion.word}, but {parameter.name!r} {written}; annotate it "
        f"{companion.type.__name__} (redrive.{companion.type.__name__}), or give it a default"
    )


def _swapped(handler: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, record: handler(record, value)


# -- annotations -----------------------------------------------------------------------------------------------------


def _annotations(parameters: list[Parameter], function: Any, local_names: Mapping[str, Any]) -> list[Any]:
    """What the annotations mean; `Any` where there is none, or where it doesn't matter because of a default."""
    known = {**_closure_of(function), **local_names}
    found: list[Any] = []
    for parameter in parameters:
        try:
            found.append(_resolved(parameter, function, known))
        except ValueError:
            if not found or _is_wanted(parameter):
                raise
            found.append(Any)
    return found


def _resolved(parameter: Parameter, function: Any, known: dict[str, Any]) -> Any:
    written = parameter.annotation
    if written is Parameter.empty:
        return Any
    holder = SimpleNamespace(__annotations__={parameter.name: written})
    try:
        hints = get_type_hints(holder, getattr(function, "__globals__", {}), known, include_extras=True)
    except NameError as error:
        raise ValueError(
            f"annotates {parameter.name!r} as {_as_written(written)}, but {_missing(error)}"
        ) from None
    except Exception as error:
        raise ValueError(
            f"annotates {parameter.name!r} as {_as_written(written)}, which can't be evaluated "
            f"({type(error).__name__}: {error})"
        ) from None
    hint = hints[parameter.name]
    bare = hint.__origin__ if get_origin(hint) is Annotated else hint
    return bare if bare is Record or bare is DeadLetter else hint


def _missing(error: NameError) -> str:
    return (
        f"{error.name!r} doesn't exist when the app runs; define it, "
        "and import it outside of `if TYPE_CHECKING:`"
    )


def _closure_of(function: Any) -> dict[str, Any]:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    found = {}
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=False):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _as_written(annotation: Any) -> str:
    if isinstance(annotation, str):
        return annotation
    return (
        annotation.__qualname__ if isinstance(annotation, type) else repr(annotation).replace("typing.", "")
    )
