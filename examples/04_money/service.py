"""Pays out money, once, and can be stopped by hand. Run it: redrive run. Send it payouts: python service.py"""

import sqlite3
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path

from confluent_kafka import Producer

from redrive import App, DeadLetterNow, Failures, Record, RetryPolicy

TOPIC = "payouts.requested"
HAND_BRAKE = Path(__file__).with_name("STOP")  # touch STOP: nothing is paid while this file is there

app = App("payouts")  # the consumer group


@dataclass
class Payout:
    """The value of a record, as JSON."""

    account: str
    cents: int


class Stopped(Exception):
    """Somebody has pulled the hand brake."""


@app.listener(
    TOPIC,
    retry=RetryPolicy("1s", "10s", "1m"),
    criticality="money",  # one dead letter within an hour calls somebody
    failures=Failures(outage=[Stopped]),  # not this record's fault: hold all of them, and look again
)
def pay(payout: Payout, record: Record) -> None:
    """Pay, unless this event was paid before: its id is the same in every attempt and replay."""
    if HAND_BRAKE.exists():
        raise Stopped
    if payout.cents <= 0:
        raise DeadLetterNow(f"{payout.cents} cents can't be paid; ask whoever sent it")
    with sqlite3.connect("paid.db") as books:
        books.execute("CREATE TABLE IF NOT EXISTS paid (event PRIMARY KEY, account, cents)")
        new = books.execute(
            "INSERT OR IGNORE INTO paid VALUES (?, ?, ?)", (record.event_id, payout.account, payout.cents)
        ).rowcount
    print(f"{payout.account}: {payout.cents} cents {'paid' if new else 'were paid before'}")


def send(*payouts: Payout) -> None:
    """Write payouts to the topic, as another service would."""
    producer = Producer({"bootstrap.servers": app.load_settings().bootstrap_servers})
    for payout in payouts:
        producer.produce(TOPIC, dumps(asdict(payout)), payout.account)
    producer.flush()


if __name__ == "__main__":
    send(Payout("ada", 1200), Payout("bob", 0), Payout("cleo", 300))
