"""Prices carts by a list of prices. Run it: redrive run. Send it carts: python service.py"""

from dataclasses import asdict, dataclass
from json import dumps, loads
from pathlib import Path

from confluent_kafka import Producer

from redrive import App, RetryPolicy

TOPIC = "replay.carts"
PRICES = Path(__file__).with_name("prices.json")  # cents by article

app = App("replay")  # the consumer group


@dataclass
class Cart:
    """The value of a record, as JSON."""

    id: str
    articles: list[str]


@app.listener(TOPIC, retry=RetryPolicy("1s", "10s"))
def price(cart: Cart) -> None:
    """An article without a price is a KeyError: no second try would help, so the cart becomes a dead letter at once."""
    prices = loads(PRICES.read_text())
    print(f"{cart.id}: {sum(prices[article] for article in cart.articles)} cents")


def send(*carts: Cart) -> None:
    """Write carts to the topic, as another service would."""
    producer = Producer({"bootstrap.servers": app.load_settings().bootstrap_servers})
    for cart in carts:
        producer.produce(TOPIC, dumps(asdict(cart)), cart.id)
    producer.flush()


if __name__ == "__main__":
    send(Cart("cart-1", ["tea", "cup"]), Cart("cart-2", ["kettle", "tea"]), Cart("cart-3", ["cup"]))
