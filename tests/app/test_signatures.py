"""What a handler takes is read from its signature; what can't be called is told with how to mend it."""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any

import msgspec
import pytest

from redrive import App, Record
from redrive.runtime.signatures import local_names_for, name_of, shape_of
from tests.app import string_annotations as strings


class Order(msgspec.Struct):
    total: int


def of_value(order: Order) -> None: ...
def of_both(order: Order, record: Record) -> None: ...
def of_record(record: Record) -> None: ...
def of_anything(order): ...
def of_anything_and_record(order, record: Record): ...
def with_defaults(order: Order, factor: int = 2, *, note: str = "", **more: str) -> None: ...
def with_default_value(order: Order | None = None) -> None: ...
def of_annotated_record(order: Order, record: Annotated[Record, "the record"]) -> None: ...
def positional_only(order: Order, record: Record, /) -> None: ...
async def async_of_value(order: Order) -> None: ...
async def async_of_both(order: Order, record: Record) -> None: ...
async def async_of_record(record: Record) -> None: ...


class Service:
    def method(self, order: Order, record: Record) -> None: ...
    async def async_method(self, order: Order) -> None: ...
    @classmethod
    def of_class(cls, order: Order) -> None: ...
    @staticmethod
    async def static(order: Order) -> None: ...
    def __call__(self, order: Order) -> None: ...


class AsyncService:
    async def __call__(self, record: Record) -> None: ...


def bound(factor: int, order: Order, *, note: str) -> None: ...
async def async_bound(factor: int, order: Order, record: Record) -> None: ...


def logged(handler: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(handler)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        handler(*args, **kwargs)

    return wrapper


def logged_async(handler: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(handler)
    async def wrapper(*args: Any) -> None:
        await handler(*args)

    return wrapper


SHAPES = [
    # handler, is async, takes the value, takes the record, annotation
    (of_value, False, True, False, Order),
    (of_both, False, True, True, Order),
    (of_record, False, False, True, Record),
    (of_anything, False, True, False, Any),
    (of_anything_and_record, False, True, True, Any),
    (with_defaults, False, True, False, Order),
    (with_default_value, False, True, False, Order | None),
    (of_annotated_record, False, True, True, Order),
    (positional_only, False, True, True, Order),
    (async_of_value, True, True, False, Order),
    (async_of_both, True, True, True, Order),
    (async_of_record, True, False, True, Record),
    (Service().method, False, True, True, Order),
    (Service().async_method, True, True, False, Order),
    (Service.of_class, False, True, False, Order),
    (Service.static, True, True, False, Order),
    (vars(Service)["static"], True, True, False, Order),
    (Service(), False, True, False, Order),
    (AsyncService(), True, False, True, Record),
    (functools.partial(bound, 2, note=""), False, True, False, Order),
    (functools.partial(async_bound, 2), True, True, True, Order),
    (functools.partial(Service()), False, True, False, Order),
    (logged(of_both), False, True, True, Order),
    (logged_async(async_of_both), True, True, True, Order),
    (functools.partial(logged_async(async_bound), 2), True, True, True, Order),
    (lambda order: None, False, True, False, Any),
    ([].append, False, True, False, Any),
    (strings.of_later, False, True, True, strings.Order),
    (strings.of_list, False, True, False, list[strings.Order] | None),
    (strings.of_checking_only_default, False, True, False, strings.Order),
    (strings.Service().handle, False, True, True, strings.Order),
    (strings.Service(), True, True, False, strings.Order),
    (logged(strings.of_later), False, True, True, strings.Order),
]


@pytest.mark.parametrize(
    ("handler", "is_async", "takes_value", "takes_record", "annotation"),
    [pytest.param(*each, id=f"{at}-{name_of(each[0])}") for at, each in enumerate(SHAPES)],
)
def test_reads_shape(
    handler: Any, is_async: bool, takes_value: bool, takes_record: bool, annotation: Any
) -> None:
    shape = shape_of(handler, {})

    assert (shape.is_async, shape.takes_value, shape.takes_record) == (is_async, takes_value, takes_record)
    assert shape.annotation == annotation
    assert shape.call is handler


def test_record_may_come_first() -> None:
    def handler(record: Record, order: Order) -> tuple[Record, Order]:
        return record, order

    shape = shape_of(handler, {})

    assert (shape.takes_value, shape.takes_record, shape.annotation) == (True, True, Order)
    assert shape.call("the order", "the record") == ("the record", "the order")


# -- refused -----------------------------------------------------------------------------------------------------------


def takes_nothing() -> None: ...
def takes_three(order: Order, record: Record, more: int) -> None: ...
def takes_no_record(order: Order, more: int) -> None: ...
def takes_bare_record(order: Order, record) -> None: ...
def takes_two_records(one: Record, other: Record) -> None: ...
def takes_record_third(order: Order, factor: int = 2, record: Record | Any = None) -> None: ...
def takes_all(*orders: Order) -> None: ...
def takes_keyword(order: Order, *, record: Record) -> None: ...
def yields(order: Order) -> Iterator[Order]:
    yield order


async def yields_async(order: Order) -> AsyncIterator[Order]:
    yield order


takes_record_third.__annotations__["record"] = Record


def hides_async(handler: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(handler)
    def wrapper(*args: Any) -> Any:
        return handler(*args)

    return wrapper


def hides_parameters(handler: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any) -> Any:
        return handler(*args)

    return wrapper


REFUSED = [
    (5, "can't be called, it is a value of type int; declare a function"),
    (
        Order,
        "is a class: calling it would only make an instance; declare a function, or an instance's method",
    ),
    (
        takes_nothing,
        "takes no parameter; it must take the value, and may take the record: (value, record: Record)",
    ),
    (
        takes_three,
        (
            "(order, record, more) has 3 parameters; a handler takes the value and, annotated Record, the record: "
            "give the others defaults, or bind them with functools.partial"
        ),
    ),
    (
        takes_no_record,
        (
            "(order, more): the second parameter is the record, but 'more' is annotated int; annotate it Record "
            "(redrive.Record), or give it a default"
        ),
    ),
    (
        takes_bare_record,
        (
            "(order, record): the second parameter is the record, but 'record' isn't annotated; annotate it Record "
            "(redrive.Record), or give it a default"
        ),
    ),
    (
        functools.partial(of_value, 1, 2),
        "has no signature that Python can read (partial object {} has incorrect arguments); put a function round it",
    ),
    (dict, "is a class: calling it would only make an instance; declare a function, or an instance's method"),
    (takes_two_records, "(one, other) has two parameters annotated Record; there is one record"),
    (takes_record_third, "(order, factor, record): 'record' is the record; put it second"),
    (
        takes_all,
        (
            "takes *args, which doesn't tell what it wants; name its parameters, or put functools.wraps on the "
            "decorator's wrapper"
        ),
    ),
    (
        hides_parameters(of_value),
        (
            "takes *args, which doesn't tell what it wants; name its parameters, or put functools.wraps on the "
            "decorator's wrapper"
        ),
    ),
    (
        takes_keyword,
        (
            "has the keyword-only parameter 'record', but value and record are passed by position; move it before "
            "the *, or give it a default"
        ),
    ),
    (yields, "yields, so calling it would run nothing of it; return instead"),
    (yields_async, "yields, so calling it would run nothing of it; return instead"),
    (
        hides_async(async_of_value),
        (
            "is async def, but a decorator put a plain function round it, so that nothing would await it; make the "
            "decorator's wrapper async def too"
        ),
    ),
    (
        Service.method,
        (
            "has 'self' first, for it is declared inside its class, where there is no instance yet; declare the bound "
            'method instead: app.listener("topic")(instance.method)'
        ),
    ),
    (
        strings.of_checking_only,
        (
            "annotates 'total' as Decimal, but 'Decimal' doesn't exist when the app runs; define it, and import it "
            "outside of `if TYPE_CHECKING:`"
        ),
    ),
    (
        strings.of_bad_syntax,
        (
            "annotates 'order' as 'Order[', which can't be evaluated (SyntaxError: Forward reference must be an "
            "expression -- got 'Order[')"
        ),
    ),
    (
        strings.of_missing_attribute,
        (
            "annotates 'order' as msgspec.Strukt, which can't be evaluated (AttributeError: module 'msgspec' has no "
            "attribute 'Strukt')"
        ),
    ),
]


@pytest.mark.parametrize(
    ("handler", "text"),
    [pytest.param(*each, id=f"{at}-{name_of(each[0])}") for at, each in enumerate(REFUSED)],
)
def test_refuses_with_how_to_mend_it(handler: Any, text: str) -> None:
    with pytest.raises(ValueError) as refused:
        shape_of(handler, {})

    assert str(refused.value) == text.format(handler)


# -- names in annotations ----------------------------------------------------------------------------------------------


def test_finds_a_class_of_the_declaring_function() -> None:
    app, local = strings.with_local_class()

    assert type(app.resolve().listeners[0].decode(b'{"total": 5}')) is local


def test_finds_a_class_that_the_declaring_function_defines_later() -> None:
    app, later = strings.with_class_defined_later()

    assert type(app.resolve().listeners[0].decode(b'{"total": 5}')) is later


def test_finds_forward_references_inside_of_annotations() -> None:
    app = App("payments")

    class Local(msgspec.Struct):
        total: int

    @app.listener("orders")
    def handle(orders: "list[Local]") -> None: ...

    @app.listener("more-orders")
    def handle_more(orders: list["Local"]) -> None: ...

    for listener in app.resolve().listeners:
        assert listener.decode(b'[{"total": 5}]') == [Local(5)]


def test_keeps_only_the_locals_that_annotations_name() -> None:
    def handle(order: "Wanted", record: Record) -> None: ...  # noqa: F821

    assert local_names_for(handle, {"Wanted": int, "huge": "…"}) == {"Wanted": int}
    assert local_names_for(5, {"Wanted": int}) == {}


@pytest.mark.parametrize(
    ("handler", "name"),
    [
        (of_value, "of_value"),
        (functools.partial(functools.partial(bound, 2), note=""), "bound"),
        (Service().method, "method"),
        (Service(), "Service"),
        (logged(of_both), "of_both"),
        (5, "int"),
    ],
)
def test_names_handlers(handler: Any, name: str) -> None:
    assert name_of(handler) == name
