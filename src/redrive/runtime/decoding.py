"""
How a record's value becomes what a handler takes: decided once by the handler's annotation, then one call a record.

| annotation | value |
|---|---|
| `bytes`, `bytearray`, `memoryview` | as it came |
| `str` | as it came, UTF-8 |
| pydantic models, dataclasses and types | JSON, validated by pydantic |
| all else: `dict`, `list[int]`, `msgspec.Struct`, dataclass, attrs class, `TypedDict`, enum, union, `Any` | JSON, by msgspec |

A null value (a tombstone) is for annotations that allow `None`; for all others, `Any` included, it is poison. An empty
value is a value like any other: fine as bytes or text, poison as JSON.

Where there is one, the decoder is the C function itself: at hundreds of thousands of records a second, a Python call
round it would cost as much as all else that is done for a record. So its errors are told elsewhere: `undecodable`.
"""

import re
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, NewType, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import msgspec.inspect

from redrive.core.record import Record
from redrive.core.stack import message_of, type_name
from redrive.deadletters.dead_letter import DeadLetter
from redrive.errors import DecodeError

Decode = Callable[[bytes | None], Any]

#: Annotations whose value is not JSON. Given None, each of these functions raises TypeError by itself.
_RAW: list[tuple[Any, Callable[..., Any]]] = [
    (bytes, bytes),
    (bytearray, bytearray),
    (memoryview, memoryview),
    (str, bytes.decode),
]
_PYDANTIC_PACKAGES = {"pydantic", "pydantic_core", "pydantic_extra_types", "annotated_types"}
#: Of pydantic's errors: a union has some for each of its members.
_ERRORS_TOLD = 3
#: pydantic's messages that would quote the value.
_UNQUOTED = {
    "union_tag_invalid": "Input tag is none of those expected",
    "uuid_parsing": "Input should be a valid UUID",
}


def decoder_for(annotation: Any) -> Decode:
    """
    Gives the function that decodes values for a parameter annotated so; for `Record` and `DeadLetter`, one that leaves
    them alone.

    The function raises whatever its library raises for a value that it can't decode. Raises ValueError with what to do
    when nothing can decode to this annotation.
    """
    annotation = _unwrapped(annotation)
    if annotation is Record or annotation is DeadLetter:
        return _as_it_came
    inner, allows_none = _without_none(annotation)
    decode = _raw_decoder(inner) or _json_decoder(inner)
    if not allows_none:
        return decode
    return _as_it_came if decode is bytes else _none_or(decode)


def undecodable(error: BaseException, value: bytes | None) -> DecodeError:
    """
    Gives the error to tell for a value that a decoder refused: one line that never quotes the value.

    What a check of the user's own says (`__post_init__`, a validator) is kept as it is, as a handler's error would be.
    Such a check may raise anything: never raises itself, whatever the error does when it is looked at.
    """
    kind = type(error)  # isinstance() and str() would ask the error's own code
    if issubclass(kind, DecodeError):
        return cast("DecodeError", error)
    if value is None:
        return DecodeError(
            "null value (a tombstone); to handle them, let the handler's annotation allow None"
        )
    if not value:
        return DecodeError("empty value, where JSON was expected")
    if kind is UnicodeDecodeError:
        return DecodeError(f"not UTF-8 (byte {cast('UnicodeDecodeError', error).start})")
    said = message_of(error)
    if kind in {msgspec.DecodeError, msgspec.ValidationError}:
        return DecodeError(_without_value(said) if error.__cause__ is None else _one_line(said))
    return DecodeError(_one_line(f"{type_name(kind).rpartition('.')[2]}: {said}"))


# -- what the annotation says ----------------------------------------------------------------------------------------


def _unwrapped(annotation: Any) -> Any:
    """Without names and remarks that change nothing: `NewType`, type aliases, `Annotated` with what is no constraint."""
    while True:
        if isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # typing's since 3.12, typing_extensions' before
            annotation = annotation.__value__
        elif get_origin(annotation) is Annotated and not any(map(_is_constraint, annotation.__metadata__)):
            annotation = annotation.__origin__
        else:
            return annotation


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """The annotation without None, and whether None was in it."""
    if annotation is None or annotation is NoneType:
        return NoneType, True
    if get_origin(annotation) not in {Union, UnionType}:
        return annotation, False
    rest = tuple(member for member in get_args(annotation) if member is not NoneType)
    if len(rest) == len(get_args(annotation)):
        return annotation, False
    return (_unwrapped(rest[0]) if len(rest) == 1 else Union[rest]), True  # noqa: UP007  a tuple of members


def _raw_decoder(annotation: Any) -> Decode | None:
    """For bytes and text. Raises ValueError where they are mixed with what would be JSON."""
    for raw, decode in _RAW:
        if annotation is raw:
            return decode
        if get_origin(annotation) is Annotated and annotation.__origin__ is raw:
            raise ValueError(
                f"{_shown(annotation)}: {raw.__name__} is the value as it came, constraints on it aren't checked"
            )
        if raw is not str and get_origin(annotation) in {Union, UnionType} and raw in get_args(annotation):
            raise ValueError(
                f"{_shown(annotation)}: {raw.__name__} is the value as it came and the others are JSON, "
                "so a value could be either; take one of them"
            )
    return None


def _json_decoder(annotation: Any) -> Decode:
    parts = list(_parts(annotation, []))
    if Record in parts:
        raise ValueError(
            f"{_shown(annotation)}: the record itself is asked for by a parameter annotated just `Record`"
        )
    if any(map(_is_of_pydantic, parts)):
        return _pydantic_decoder(annotation)
    try:
        unknown = list(_unknown_classes(msgspec.inspect.type_info(annotation), set()))
        decoder = msgspec.json.Decoder(annotation)
    except NameError as error:
        raise ValueError(
            f"{_shown(annotation)}: a field's annotation names {error.name!r}, which isn't a global of the module "
            "that defines its class; define or import it there, outside of functions and of `if TYPE_CHECKING:`"
        ) from None
    except Exception as error:
        why = str(error).partition(" - type `")[0]
        tags = "; for objects of several classes use msgspec.Struct with tag=True" if "unions" in why else ""
        raise ValueError(f"{_shown(annotation)} can't be decoded: {why}{tags}") from None
    if unknown:
        raise ValueError(
            f"{_shown(annotation)} can't be decoded: nothing here makes a {unknown[0].__qualname__} from JSON; "
            "use a dataclass, msgspec.Struct, pydantic model or TypedDict, or take bytes and decode them in the handler"
        )
    decode: Decode = decoder.decode  # type: ignore[assignment]  # given None it raises TypeError, as is wanted
    return decode


def _parts(annotation: Any, seen: list[Any]) -> Iterator[Any]:
    """The annotation, all that it is made of, and that of the fields of its classes."""
    if any(annotation is one for one in seen):
        return
    seen.append(annotation)
    yield annotation
    below = [*get_args(annotation), get_origin(annotation)]
    if (
        isinstance(annotation, type)
        and "__annotations__" in vars(annotation)
        and not _is_of_pydantic(annotation)
    ):
        try:
            below += get_type_hints(annotation, include_extras=True).values()
        except Exception:  # the decoder for it will tell
            below = []
    for part in below:
        if part is not None:
            yield from _parts(part, seen)


def _unknown_classes(info: Any, seen: set[int]) -> Iterator[type]:
    """Classes that msgspec takes for somebody else's to decode. `object` is none: any value is one."""
    if id(info) in seen:
        return
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType) and info.cls is not object:
        yield info.cls
    elif isinstance(info, tuple):
        for each in info:
            yield from _unknown_classes(each, seen)
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        for name in info.__struct_fields__:
            yield from _unknown_classes(getattr(info, name), seen)


def _is_of_pydantic(part: Any) -> bool:
    """Whether only pydantic knows what it means: a model, one of its dataclasses or types, a constraint."""
    return (
        hasattr(part, "__get_pydantic_core_schema__")
        or hasattr(part, "__pydantic_validator__")
        or _is_of_package(part)
    )


def _is_of_package(part: Any) -> bool:
    classes = part.__mro__ if isinstance(part, type) else type(part).__mro__
    return any(cls.__module__.partition(".")[0] in _PYDANTIC_PACKAGES for cls in classes)


def _is_constraint(part: Any) -> bool:
    return isinstance(part, msgspec.Meta) or _is_of_pydantic(part)


# -- what is called a record -----------------------------------------------------------------------------------------


def _as_it_came(value: bytes | None) -> bytes | None:
    return value


def _none_or(decode: Decode) -> Decode:
    return lambda value: None if value is None else decode(value)


def _pydantic_decoder(annotation: Any) -> Decode:
    """Errors of pydantic's quote the value, so they never leave here."""
    from pydantic import TypeAdapter, ValidationError

    try:
        adapter = TypeAdapter(annotation)
        adapter.rebuild(raise_errors=True)
        words = set(_words(adapter.core_schema))
    except Exception as error:
        why = (
            _one_line(str(error)).partition(". Set ")[0].partition(" For further information")[0].rstrip(".")
        )
        raise ValueError(
            f"{_shown(annotation)} holds pydantic's types, but pydantic refuses it: {why}"
        ) from None
    validate = adapter.validator.validate_json

    def decode(value: bytes | None) -> Any:
        try:
            return validate(value)  # type: ignore[arg-type]  # a null value is refused by it
        except ValidationError as error:
            if value:
                raise DecodeError(_pydantic_errors(error, words)) from None
            raise undecodable(TypeError(), value) from None

    return decode


# -- what is told ----------------------------------------------------------------------------------------------------


def _without_value(text: str) -> str:
    """Messages of msgspec's quote the value in these cases only."""
    quoting = re.match(r"Invalid enum value|Invalid value|Object contains unknown field", text)
    if quoting is None:
        return text
    path = re.search(r" - at `\$[\w.\[\]-]*`$", text)
    return quoting[0] + (path[0] if path else "")


def _pydantic_errors(error: Any, words: set[str]) -> str:
    """The first errors, in msgspec's form. Of places, only what the schema says itself: other keys are the value's."""
    told = []
    for each in error.errors(include_url=False, include_context=False, include_input=False)[:_ERRORS_TOLD]:
        text = _UNQUOTED.get(each["type"]) or _one_line(each["msg"])
        place = "".join(
            f"[{at}]" if isinstance(at, int) else f".{at}" if at in words else "[...]" for at in each["loc"]
        )
        told.append(f"{text} - at `${place}`" if place else text)
    more = error.error_count() - len(told)
    return "; ".join(told) + (f"; and {more} more" if more else "")


def _words(schema: Any) -> Iterator[str]:
    """All names in a schema of pydantic's: fields, aliases, tags, classes."""
    if isinstance(schema, str):
        yield schema
    elif isinstance(schema, type):
        yield schema.__name__
    elif isinstance(schema, dict):
        for name, below in schema.items():
            yield from _words(name)
            yield from _words(below)
    elif isinstance(schema, list | tuple):
        for below in schema:
            yield from _words(below)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _shown(annotation: Any) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
