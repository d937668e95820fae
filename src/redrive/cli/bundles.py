"""Options that several commands share, declared once: as a NamedTuple that a command takes as one parameter."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def unbundled(command: Callable[..., None]) -> Callable[..., None]:
    """
    Decorates a command: each parameter whose type is a NamedTuple becomes one option for each of its fields.

    Typer sees the fields, with their annotations and defaults, in the parameter's place; the command gets the tuple.
    """
    hints = get_type_hints(command, include_extras=True)
    bundles: dict[str, Any] = {name: hint for name, hint in hints.items() if _is_bundle(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in bundles:
            parameters += _fields(bundles[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, bundle in bundles.items():
            given[name] = bundle(**{field: given.pop(field) for field in bundle._fields})
        command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _is_bundle(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


def _fields(bundle: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(bundle, include_extras=True)
    defaults = bundle._field_defaults
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(name, inspect.Parameter.empty),
            annotation=hints[name],
        )
        for name in bundle._fields
    ]
