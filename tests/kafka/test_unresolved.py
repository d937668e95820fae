"""On a real broker: the page of metrics holds while topics are deleted, and their series vanish."""

import socket
import threading
import urllib.request
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from redrive import App, DeadLetterNow, RetryPolicy
from tests.faults import running
from tests.plain_kafka import Given, admin_of, create_topics_of, send
from tests.waiting import until


@pytest.fixture
def orders(topic):
    return topic("orders")


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def samples(page):
    return [
        sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.startswith("redrive_")
    ]


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.status == 200
        return samples(answer.read().decode())


def unresolved(found, dlq):
    counts = [
        one.value for one in found if one.name == "redrive_unresolved_letters" and one.labels["dlq"] == dlq
    ]
    return sum(counts) if counts else None


def app_of(orders, group, bootstrap, port):
    """An app that makes a dead letter of each record."""
    http = {"http": f"127.0.0.1:{port}", "unresolved_refresh": "100ms"}
    app = App(group, settings={"bootstrap_servers": bootstrap, **http})

    @app.listener(orders, retry=RetryPolicy("1s"))
    def charge(value: dict) -> None:
        raise DeadLetterNow("nothing to charge")

    create_topics_of(bootstrap, app)
    return app


def delete_topics(bootstrap, *names):
    for future in admin_of(bootstrap).delete_topics(list(names), operation_timeout=20).values():
        future.result()


@contextmanager
def scraped_all_the_while(port):
    """Scrapes as fast as it can while the block runs; gives what went wrong."""
    broken, stop = [], threading.Event()

    def scrape_on():
        while not stop.is_set():
            try:
                scrape(port)
            except Exception as error:
                broken.append(error)

    scraping = threading.Thread(target=scrape_on)
    scraping.start()
    try:
        yield broken
    finally:
        stop.set()
        scraping.join()


def test_series_vanish_with_their_topics_while_the_page_is_scraped(kafka, orders, group, port):
    app, dlq = app_of(orders, group, kafka.bootstrap, port), f"{orders}.dlq"

    def has_lag():
        return any(one.name == "redrive_source_lag_records" for one in scrape(port))

    with running(app):
        send(kafka.bootstrap, orders, [Given()] * 3)
        until(lambda: unresolved(scrape(port), dlq) == 3, "three letters are counted")
        until(has_lag, "lag is told")
        with scraped_all_the_while(port) as broken:
            delete_topics(kafka.bootstrap, dlq, f"{dlq}.state")
            until(lambda: unresolved(scrape(port), dlq) is None, "the count vanishes")
            assert has_lag()
            delete_topics(kafka.bootstrap, orders, f"{orders}.retry.1s")
            until(lambda: not has_lag(), "the lag vanishes")
    assert broken == []
