"""
A web service that also books payouts from Kafka: one process, one event loop, one pool.

Run it: uvicorn service:api. Send it payouts: python service.py
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from json import dumps
from typing import Self

import aiosqlite
from confluent_kafka import Producer
from fastapi import FastAPI, HTTPException

from redrive import App, Record, RetryPolicy

TOPIC = "lifespan.payouts"


class Ledger:
    """What was paid to whom. Its connection to SQLite stands where you have a pool."""

    async def __aenter__(self) -> Self:
        self._db = await aiosqlite.connect("ledger.db")
        await self._db.execute("CREATE TABLE IF NOT EXISTS paid (event PRIMARY KEY, account, cents)")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._db.close()

    async def book(self, event: str, account: str, cents: int) -> None:
        """Book a payout, unless this event was booked before."""
        await self._db.execute("INSERT OR IGNORE INTO paid VALUES (?, ?, ?)", (event, account, cents))
        await self._db.commit()

    async def paid(self, account: str) -> int:
        """Cents that an account has got."""
        query = "SELECT COALESCE(SUM(cents), 0) FROM paid WHERE account = ?"
        [[cents]] = await self._db.execute_fetchall(query, (account,))
        return int(cents)


@dataclass
class Payout:
    """The value of a record, as JSON."""

    account: str
    cents: int


ledger = Ledger()
app = App("lifespan")  # the consumer group


@app.listener(TOPIC, retry=RetryPolicy("1s", "10s"), concurrency=20)
async def pay(payout: Payout, record: Record) -> None:
    """The event id is the same in every attempt and replay: booked once, however often this runs."""
    await ledger.book(record.event_id, payout.account, payout.cents)


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    """The pool is open before the first record comes, and until the last handler has ended."""
    async with ledger, app.serving() as serving:
        api.state.consumer = asyncio.ensure_future(serving.stopped())
        yield


api = FastAPI(lifespan=lifespan)


@api.get("/accounts/{account}")
async def account(account: str) -> dict[str, int]:
    """What the handlers have booked."""
    return {"cents": await ledger.paid(account)}


@api.get("/livez")
async def livez() -> str:
    """For whoever restarts this process: it is of no use once its consumer has given up."""
    if api.state.consumer.done():
        raise HTTPException(503, "the consumer has ended; its log says why")
    return "ok"


def send(*payouts: Payout) -> None:
    """Write payouts to the topic, as another service would."""
    producer = Producer({"bootstrap.servers": app.load_settings().bootstrap_servers})
    for payout in payouts:
        producer.produce(TOPIC, dumps(asdict(payout)), payout.account)
    producer.flush()


if __name__ == "__main__":
    send(Payout("ada", 1200), Payout("bob", 700), Payout("ada", 300))
