"""Handlers as modules have them that postpone their annotations; what these tests resolve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from redrive import App, Record

if TYPE_CHECKING:
    from decimal import Decimal


def of_later(order: Order, record: Record) -> None: ...


def of_list(orders: list[Order] | None) -> None: ...


def of_checking_only(total: Decimal) -> None: ...


def of_checking_only_default(order: Order, total: Decimal | None = None) -> None: ...


def of_bad_syntax(order: "Order[") -> None: ...  # noqa: F722


def of_missing_attribute(order: msgspec.Strukt) -> None: ...


class Service:
    def handle(self, order: Order, record: Record) -> None: ...

    async def __call__(self, order: Order) -> None: ...


def with_local_class() -> tuple[App, type]:
    class Local(msgspec.Struct):
        total: int

    app = App("payments")

    @app.listener("orders")
    def handle(order: Local) -> None: ...

    return app, Local


def with_class_defined_later() -> tuple[App, Any]:
    app = App("payments")

    @app.listener("orders")
    def handle(order: Later) -> None:
        assert isinstance(order, Later)

    class Later(msgspec.Struct):
        total: int

    return app, Later


def with_missing_class() -> App:
    app = App("payments")

    @app.listener("orders")
    def handle(order: Nowhere) -> None: ...  # noqa: F821

    return app


class Order(msgspec.Struct):
    total: int
