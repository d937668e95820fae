"""A page of metrics that is read and written again is the same page."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, Summary, generate_latest

from redrive.adapters.prometheus_pages import read_page, write_page
from redrive.core.merging import merge


@pytest.fixture
def registry():
    registry = CollectorRegistry()
    counter = Counter("orders", 'Orders, with "quotes" and \\ backslashes.', ["shop"], registry=registry)
    counter.labels('a "shop"\n').inc(3)
    counter.labels("b").inc(0.5)
    Gauge("temperature", "In K.", registry=registry).set(float("nan"))
    histogram = Histogram("took", "Seconds.", ["way"], buckets=(0.1, 1), registry=registry)
    for seconds in (0.05, 0.5, 5):
        histogram.labels("sea").observe(seconds)
    Summary("size", "Bytes.", registry=registry).observe(7)
    Info("build", "Which.", registry=registry).info({"version": "1"})
    return registry


def test_nothing_is_lost_on_the_way(registry):
    page = generate_latest(registry)
    assert sorted(write_page(read_page(page)).splitlines()) == sorted(page.splitlines())


def test_two_pages_make_one_that_can_be_read_again(registry):
    page = read_page(generate_latest(registry))
    merged = write_page(merge({0: page, 1: page}, page, adds_up={"temperature"}))
    lines = merged.decode().splitlines()
    assert 'orders_total{shop="b"} 1.5' in lines
    assert 'took_bucket{le="+Inf",way="sea"} 9.0' in lines
    assert "size_sum 21.0" in lines
    assert "temperature NaN" in lines
    assert 'build_info{version="1",worker="1"} 1.0' in lines
    assert write_page(read_page(merged)) == merged
