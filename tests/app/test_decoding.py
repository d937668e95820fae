"""A value is decoded as its handler's annotation says; what can't be is told without quoting it."""

import enum
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from redrive import DecodeError, Record
from redrive.runtime.decoding import decoder_for, undecodable


class Colour(enum.Enum):
    RED = "red"


class Order(msgspec.Struct):
    total: int
    colour: Colour = Colour.RED
    lines: "list[Order]" = []


class Opened(msgspec.Struct, tag="opened"):
    account: str


class Closed(msgspec.Struct, tag="closed"):
    account: str


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    total: int


@dataclass
class Refund:
    amount: int

    def __post_init__(self) -> None:
        if self.amount < 0:
            raise ValueError("an amount is never negative")


@attrs.define
class Parcel:
    weight: float


class Address(TypedDict):
    street: str


class Point(NamedTuple):
    x: int
    y: int


class Payout(pydantic.BaseModel):
    account: str = pydantic.Field(alias="accountId")
    amount: int = 1
    extra: dict[str, int] = {}

    @pydantic.field_validator("amount")
    @classmethod
    def positive(cls, amount: int) -> int:
        if amount <= 0:
            raise ValueError("an amount is positive")
        return amount


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]
    id: UUID


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


@pydantic.dataclasses.dataclass
class Transfer:
    amount: pydantic.PositiveInt


@dataclass
class Batch:
    payouts: list[Payout]


@dataclass
class Limited:
    amount: Annotated[int, pydantic.Field(gt=3)]


Pet = Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]
OrderId = NewType("OrderId", str)
Number = NewType("Number", int)
Alias = TypeAliasType("Alias", Order | None)

DECODED = [
    # annotation, value, decoded
    (bytes, b"\xff", b"\xff"),
    (bytes, b"", b""),
    (bytearray, b"ab", bytearray(b"ab")),
    (memoryview, b"ab", memoryview(b"ab")),
    (str, "héllo".encode(), "héllo"),
    (str, b"", ""),
    (str, b'"quoted"', '"quoted"'),
    (OrderId, b"17", "17"),
    (Annotated[str, "a remark"], b"x", "x"),
    (int, b"5", 5),
    (Number, b"5", 5),
    (Decimal, b'"1.50"', Decimal("1.50")),
    (datetime, b'"2024-05-01T10:00:00Z"', datetime(2024, 5, 1, 10, tzinfo=UTC)),
    (dict, b'{"a": [1]}', {"a": [1]}),
    (list[int], b"[1]", [1]),
    (Mapping[str, int], b'{"a": 1}', {"a": 1}),
    (set[int], b"[1, 1]", {1}),
    (tuple[int, str], b'[1, "a"]', (1, "a")),
    (Any, b'{"a": null}', {"a": None}),
    (Any, b"null", None),
    (object, b"1", 1),
    (str | int, b'"a"', "a"),
    (Literal["a", "b"], b'"b"', "b"),
    (Colour, b'"red"', Colour.RED),
    (Annotated[int, msgspec.Meta(gt=3)], b"4", 4),
    (Order, b'{"total": 5, "lines": [{"total": 1}]}', Order(5, lines=[Order(1)])),
    (Opened | Closed, b'{"type": "closed", "account": "x"}', Closed("x")),
    (Refund, b'{"amount": 5}', Refund(5)),
    (Parcel, b'{"weight": 5}', Parcel(5.0)),
    (Address, b'{"street": "Main"}', {"street": "Main"}),
    (Point, b"[1, 2]", Point(1, 2)),
    (Payout, b'{"accountId": "x", "amount": "5"}', Payout(accountId="x", amount=5)),
    (Transfer, b'{"amount": 5}', Transfer(5)),
    (Batch, b'{"payouts": [{"accountId": "x"}]}', Batch([Payout(accountId="x")])),
    (list[Payout], b'[{"accountId": "x"}]', [Payout(accountId="x")]),
    (Pet, b'{"kind": "dog"}', Dog(kind="dog")),
    (pydantic.PositiveInt, b"5", 5),
    (pydantic.RootModel[list[int]], b"[5]", pydantic.RootModel[list[int]]([5])),
    (Limited, b'{"amount": 5}', Limited(5)),
    (date | Payout, b'"2024-05-01"', date(2024, 5, 1)),
    # null values, where None is allowed
    (bytes | None, None, None),
    (bytes | None, b"", b""),
    (Optional[str], None, None),  # noqa: UP045  as it was written before 3.10
    (str | None, b"x", "x"),
    (Order | None, None, None),
    (Order | None, b'{"total": 5}', Order(5)),
    (Alias, None, None),
    (Annotated[Order | None, "a remark"], None, None),
    (Payout | None, None, None),
    (Opened | Closed | None, None, None),
    (None, None, None),
    # the record itself: whoever takes it looks at its value
    (Record, None, None),
    (Record, b"\xff", b"\xff"),
]


@pytest.mark.parametrize(("annotation", "value", "decoded"), DECODED)
def test_decodes(annotation: Any, value: bytes | None, decoded: object) -> None:
    actual = decoder_for(annotation)(value)

    assert actual == decoded
    assert type(actual) is type(decoded)


NOT_DECODED = [
    # annotation, value, what is told; "secret" is never part of it
    (bytes, None, "null value (a tombstone); to handle them, let the handler's annotation allow None"),
    (str, None, "null value (a tombstone); to handle them, let the handler's annotation allow None"),
    (Any, None, "null value (a tombstone); to handle them, let the handler's annotation allow None"),
    (dict, None, "null value (a tombstone); to handle them, let the handler's annotation allow None"),
    (Payout, None, "null value (a tombstone); to handle them, let the handler's annotation allow None"),
    (str, b"ab\xff", "not UTF-8 (byte 2)"),
    (dict, b"", "empty value, where JSON was expected"),
    (Any, b"", "empty value, where JSON was expected"),
    (Payout, b"", "empty value, where JSON was expected"),
    (Any, b"\xff\xfe", "JSON is malformed: invalid character (byte 0)"),
    (dict, b'{"a": 1', "Input data was truncated"),
    (dict, b"[]", "Expected `object`, got `array`"),
    (dict | None, b"null", "Expected `object`, got `null`"),
    (Order, b'{"total": "secret"}', "Expected `int`, got `str` - at `$.total`"),
    (Order, b'{"total": 1, "colour": "secret"}', "Invalid enum value - at `$.colour`"),
    (Order, b'{"total": 1, "lines": [{}]}', "Object missing required field `total` - at `$.lines[0]`"),
    (Colour, b'"secret - at `$.secret`"', "Invalid enum value"),
    (Literal["a"], b'"secret"', "Invalid enum value"),
    (Opened | Closed, b'{"type": "secret"}', "Invalid value - at `$.type`"),
    (Strict, b'{"secret": 1}', "Object contains unknown field"),
    (list[Strict], b'[{"secret": 1}]', "Object contains unknown field - at `$[0]`"),
    (dict[str, int], b'{"secret": "a"}', "Expected `int`, got `str` - at `$[...]`"),
    (Refund, b'{"amount": -1}', "an amount is never negative"),
    (list[Refund], b'[{"amount": -1}]', "an amount is never negative - at `$[0]`"),
    (Payout, b"{secret", "Invalid JSON: key must be a string at line 1 column 2"),
    (Payout, b"{}", "Field required - at `$.accountId`"),
    (
        Payout,
        b'{"accountId": "x", "amount": "secret"}',
        "Input should be a valid integer, unable to parse string as an integer - at `$.amount`",
    ),
    (Payout, b'{"accountId": "x", "amount": -1}', "Value error, an amount is positive - at `$.amount`"),
    (
        list[Payout],
        b'[{"accountId": "x", "extra": {"secret": "y"}}]',
        "Input should be a valid integer, unable to parse string as an integer - at `$[0].extra[...]`",
    ),
    (
        list[int] | Payout,
        b'["a", "b", "c", "d"]',
        (
            "Input should be a valid integer, unable to parse string as an integer - at `$[...][0]`; "
            "Input should be a valid integer, unable to parse string as an integer - at `$[...][1]`; "
            "Input should be a valid integer, unable to parse string as an integer - at `$[...][2]`; and 2 more"
        ),
    ),
    (Pet, b'{"kind": "secret"}', "Input tag is none of those expected"),
    (Pet, b'{"kind": "cat", "id": "secret"}', "Input should be a valid UUID - at `$.cat.id`"),
    (Limited, b'{"amount": 1}', "Input should be greater than 3 - at `$.amount`"),
    (pydantic.PositiveInt, b"-5", "Input should be greater than 0"),
]


@pytest.mark.parametrize(("annotation", "value", "text"), NOT_DECODED)
def test_tells_why_without_quoting_the_value(annotation: Any, value: bytes | None, text: str) -> None:
    decode = decoder_for(annotation)
    with pytest.raises(Exception) as failed:
        decode(value)

    told = undecodable(failed.value, value)

    assert str(told) == text
    assert type(told) is DecodeError
    assert (told.__cause__, told.__traceback__ is not None) == (None, told is failed.value)


def test_errors_of_a_users_own_check_are_told_in_one_line() -> None:
    told = undecodable(KeyError("no such\n  account"), b"x")

    assert str(told) == r"KeyError: 'no such\n account'"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.binary() | JSON_VALUES.map(msgspec.json.encode), st.sampled_from([each[0] for each in NOT_DECODED]))
def test_any_bytes_decode_or_are_told_in_one_line(value: bytes, annotation: Any) -> None:
    told = ""
    try:
        decoder_for(annotation)(value)
    except Exception as error:
        told = str(undecodable(error, value))

    assert "\n" not in told


# -- the hot path ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation", [bytes, str, OrderId, dict, list[int], Any, Order, Refund, Address, Opened | Closed]
)
def test_plain_annotations_are_decoded_by_the_c_function_itself(annotation: Any) -> None:
    decode = decoder_for(annotation)

    assert not hasattr(decode, "__code__")


# -- annotations that nothing can decode -------------------------------------------------------------------------------


class Unknown: ...


class HoldsUnknown(msgspec.Struct):
    items: list[Unknown]


class Undefined(msgspec.Struct):
    order: "Nowhere"  # noqa: F821


class HoldsModel(msgspec.Struct):
    payout: Payout


class UndefinedModel(pydantic.BaseModel):
    order: "Nowhere"  # noqa: F821


USE = "use a dataclass, msgspec.Struct, pydantic model or TypedDict, or take bytes and decode them in the handler"

REFUSED = [
    (Unknown, f"Unknown can't be decoded: nothing here makes a Unknown from JSON; {USE}"),
    (
        list[Unknown],
        f"list[tests.app.test_decoding.Unknown] can't be decoded: nothing here makes a Unknown from JSON; {USE}",
    ),
    (HoldsUnknown, f"HoldsUnknown can't be decoded: nothing here makes a Unknown from JSON; {USE}"),
    (
        Callable[[int], int],
        f"collections.abc.Callable[[int], int] can't be decoded: nothing here makes a Callable from JSON; {USE}",
    ),
    (5, "5 can't be decoded: Type '5' is not supported"),
    (
        Refund | Parcel,
        (
            "tests.app.test_decoding.Refund | tests.app.test_decoding.Parcel can't be decoded: Type unions may not contain "
            "more than one dataclass or attrs type; for objects of several classes use msgspec.Struct with tag=True"
        ),
    ),
    (
        Undefined,
        (
            "Undefined: a field's annotation names 'Nowhere', which isn't a global of the module that defines its class; "
            "define or import it there, outside of functions and of `if TYPE_CHECKING:`"
        ),
    ),
    (Record | None, "Record: the record itself is asked for by a parameter annotated just `Record`"),
    (
        list[Record],
        "list[redrive.core.record.Record]: the record itself is asked for by a parameter annotated just `Record`",
    ),
    (
        bytes | Order,
        (
            "bytes | tests.app.test_decoding.Order: bytes is the value as it came and the others are JSON, so a "
            "value could be either; take one of them"
        ),
    ),
    (
        Annotated[str, msgspec.Meta(max_length=3)],
        "Annotated[str, msgspec.Meta(max_length=3)]: str is the value as it came, constraints on it aren't checked",
    ),
    (
        HoldsModel,
        (
            "HoldsModel holds pydantic's types, but pydantic refuses it: Unable to generate pydantic-core schema for "
            "<class 'tests.app.test_decoding.HoldsModel'>"
        ),
    ),
    (
        UndefinedModel,
        "UndefinedModel holds pydantic's types, but pydantic refuses it: name 'Nowhere' is not defined",
    ),
]


@pytest.mark.parametrize(("annotation", "text"), REFUSED)
def test_refuses_annotations_with_what_to_do(annotation: Any, text: str) -> None:
    with pytest.raises(ValueError) as refused:
        decoder_for(annotation)

    assert str(refused.value) == text


def test_pydantic_is_loaded_only_for_its_own_types() -> None:
    script = (
        "import sys, dataclasses, typing; from redrive.runtime.decoding import decoder_for\n"
        "@dataclasses.dataclass\n"
        "class Refund:\n"
        "    amount: int\n"
        "for annotation in (bytes, str, dict, Refund, list[int] | None, typing.Any): decoder_for(annotation)\n"
        "print('pydantic' in sys.modules)"
    )
    seen = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout

    assert seen.strip() == "False"
