"""The demo's orders, and what goes wrong with which: all told by their number, so that each run is alike."""

from enum import StrEnum
from typing import NamedTuple

import msgspec


class Trouble(StrEnum):
    """What an order meets."""

    NONE = "none"
    #: The card gateway fails a few times, then it works.
    HICCUP = "hiccup"
    #: The first release has a bug for this product.
    BUG = "bug"
    #: The customer's bank never answers the first release.
    SLOW = "slow"
    #: Bytes that are no order.
    GARBAGE = "garbage"


class Order(msgspec.Struct, frozen=True):
    """What is on the topic `orders`, as JSON; its key is the id."""

    id: str
    customer: str
    product: str
    cents: int
    bank: str


class Fate(NamedTuple):
    """What an order meets; `hiccups`: how many attempts of it the card gateway fails."""

    trouble: Trouble
    hiccups: int = 0


COUNT = 310
PER_S = 10
GIFT_CARD = "gift card"
SLOW_BANK = "Northbank"

#: Its orders must be through all tiers before the fix comes.
_LAST_SLOW = 75
#: How often the gateway fails, by the last two digits of a number, and up to which one: the demo ends with the last order.
_HICCUPS = {
    4: (3, 170),
    24: (3, 170),
    64: (3, 170),
    19: (2, COUNT - 50),
    59: (2, COUNT - 50),
    79: (2, COUNT - 50),
}
_LAST_HICCUP = COUNT - 20

_CUSTOMERS = ("Ada", "Ben", "Cleo", "Dan", "Edith", "Finn", "Grace", "Hugo", "Ida", "Jan", "Kim")
_PRODUCTS = {"coffee beans": 1490, "espresso cups": 2400, "a kettle": 5900, "a grinder": 8900, "filters": 590}
_BANKS = ("Eastbank", "Southbank", "Westbank")
#: Not JSON: the schema's number and the fields, as another team's new producer writes them.
_GARBAGE = b"\x00\x00\x00\x00\x2a\x06Ada\x18coffee beans\xa4\x17"


def fate(number: int) -> Fate:
    """What goes wrong with order `number`, from 1."""
    if number % 100 == 31:
        return Fate(Trouble.GARBAGE)
    if number % 38 == 12:
        return Fate(Trouble.BUG)
    if number % 13 == 5 and number <= _LAST_SLOW:
        return Fate(Trouble.SLOW)
    hiccups, last = _HICCUPS.get(number % 100, (int(number % 10 == 8), _LAST_HICCUP))
    return Fate(Trouble.HICCUP, hiccups) if hiccups and number <= last else Fate(Trouble.NONE)


def order(number: int) -> Order:
    """Order `number`, from 1."""
    trouble = fate(number).trouble
    product = list(_PRODUCTS)[number * 3 % len(_PRODUCTS)]
    return Order(
        id=f"order-{number:03}",
        customer=_CUSTOMERS[number % len(_CUSTOMERS)],
        product=GIFT_CARD if trouble is Trouble.BUG else product,
        cents=5000 if trouble is Trouble.BUG else _PRODUCTS[product],
        bank=SLOW_BANK if trouble is Trouble.SLOW else _BANKS[number % len(_BANKS)],
    )


def number_of(order_id: str) -> int:
    """The number of an order."""
    return int(order_id.rpartition("-")[2])


def value_of(number: int) -> bytes:
    """What is written to the topic for order `number`."""
    return _GARBAGE if fate(number).trouble is Trouble.GARBAGE else msgspec.json.encode(order(number))
