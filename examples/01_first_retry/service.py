"""Charges orders through a gateway that is away now and then. Run it: redrive run. Send it orders: python service.py"""

from dataclasses import asdict, dataclass
from json import dumps

from confluent_kafka import Producer

from redrive import App, Record, RetryPolicy

TOPIC = "first-retry.orders"

app = App("first-retry")  # the consumer group


@dataclass
class Order:
    """The value of a record, as JSON. So many attempts will find the gateway away."""

    id: str
    away: int = 0


@app.listener(TOPIC, retry=RetryPolicy("1s", "3s"))
def charge(order: Order, record: Record) -> None:
    """A broken connection is a passing trouble: the record waits in a retry topic, and the others go on."""
    if record.attempt <= order.away:
        print(f"{order.id}: attempt {record.attempt} failed, the gateway is away")
        raise ConnectionError("no route to the gateway")
    print(f"{order.id}: attempt {record.attempt} charged it")


def send(*orders: Order) -> None:
    """Write orders to the topic, as another service would."""
    producer = Producer({"bootstrap.servers": app.load_settings().bootstrap_servers})
    for order in orders:
        producer.produce(TOPIC, dumps(asdict(order)), order.id)
    producer.flush()


if __name__ == "__main__":
    send(Order("order-1"), Order("order-2", away=1), Order("order-3", away=2), Order("order-4"))
