"""The payments service of the demo, in its two releases: an ordinary redrive app."""

import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager

from redrive.app import App
from redrive.core.policy import RetryPolicy
from redrive.core.record import Record
from redrive.core.settings import Settings
from redrive.demo.orders import GIFT_CARD, SLOW_BANK, Order, fate, number_of
from redrive.runtime.clock import Clock

TIERS = ("1s", "3s", "8s")

#: What parcels weigh. Somebody began to sell gift cards, and forgot this table.
GRAMS = {"coffee beans": 1000, "espresso cups": 600, "a kettle": 1400, "a grinder": 2100, "filters": 150}

Watch = Callable[[Record], AbstractContextManager[None]]
"""Round each run of the handler, so that the screen knows of it."""


class CardGateway:
    """
    Stands for the outside, and fails as outsides do. `knows_northbank`: whether it asks that bank at its new address.
    """

    def __init__(self, clock: Clock, *, knows_northbank: bool) -> None:
        self._clock = clock
        self._knows_northbank = knows_northbank

    def charge(self, order: Order, cents: int, attempt: int) -> None:
        """Take the money. Raises ConnectionError and TimeoutError, as clients of gateways do."""
        if order.bank == SLOW_BANK and not self._knows_northbank:
            self._take_ms(100)
            raise TimeoutError(f"no answer from {SLOW_BANK}")
        self._take_ms(10)
        if attempt <= fate(number_of(order.id)).hiccups:
            if attempt % 2:
                raise ConnectionResetError("the card gateway hung up")
            raise TimeoutError("no answer from the card gateway")

    def _take_ms(self, duration_ms: float) -> None:
        self._clock.wait(threading.Event(), duration_ms)


def make_app(group: str, topic: str, release: int, watch: Watch, *, settings: Settings, clock: Clock) -> App:
    """The service. Release 2 knows what gift cards weigh, and Northbank's new address."""
    grams = GRAMS if release == 1 else {**GRAMS, GIFT_CARD: 5}

    @asynccontextmanager
    async def lifespan() -> AsyncGenerator[CardGateway, None]:
        yield CardGateway(clock, knows_northbank=release > 1)

    app = App(group, settings=settings, lifespan=lifespan)

    @app.listener(topic, retry=RetryPolicy(*TIERS), concurrency=4)
    def charge(order: Order, record: Record) -> None:
        with watch(record):
            postage_cents = 390 if grams[order.product] > 1000 else 190
            record.resources.charge(order, order.cents + postage_cents, record.attempt)

    return app
