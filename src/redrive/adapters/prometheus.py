"""
The metrics for Prometheus: read from the engine when they are asked for, so that handling records costs nothing more.

The only module that imports prometheus-client; import it where metrics are wanted, not before.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from redrive.core.catalogue import ALIASES, METRICS, Metric
from redrive.core.engine import Engine
from redrive.core.readings import Look, Reading, Spread, read


class Exporter(Collector):
    """
    A collector over the engines of a process. `looks` is called at each scrape and gives them, each with what it doesn't
    know itself (the time, end offsets). May be scraped by several threads at once; none of them waits for the pump or makes it wait.

    `registry`: by default the process's own, so that the handlers' metrics are in the same page; a second app in one
    process needs a registry of its own. `with_aliases`: some metrics under other names besides. Raises ValueError when
    the registry has metrics of these names already.
    """

    def __init__(
        self,
        looks: Callable[[], Iterable[tuple[Engine, Look]]],
        *,
        registry: CollectorRegistry = REGISTRY,
        with_aliases: bool = False,
    ) -> None:
        self._looks = looks
        self._with_aliases = with_aliases
        self._registry = registry
        registry.register(self)

    def describe(self) -> Iterator[Family]:
        """The families without their series: what a registry compares names by."""
        return map(_family, (*METRICS, *(ALIASES if self._with_aliases else ())))

    def collect(self) -> Iterator[Family]:
        """All families with their series of this moment."""
        for metric, readings in read(self._looks(), with_aliases=self._with_aliases).items():
            family = _family(metric)
            for reading in readings:
                _add(family, metric, reading)
            yield family

    def page(self) -> bytes:
        """All metrics of the registry in Prometheus's text format, version 0.0.4."""
        return generate_latest(self._registry)

    def close(self) -> None:
        """Leave the registry."""
        self._registry.unregister(self)


def _family(metric: Metric) -> Family:
    if metric.kind == "counter":
        return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    if metric.kind == "gauge":
        return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    return HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)


def _add(family: Any, metric: Metric, reading: Reading) -> None:
    labels, value = reading
    if isinstance(value, Spread):
        family.add_metric(labels, _buckets(metric.bounds_s, value.counts), value.sum_s)
    else:
        family.add_metric(labels, value)


def _buckets(bounds_s: tuple[float, ...], counts: tuple[int, ...]) -> list[tuple[str, float]]:
    """Each bucket counts what is at or below its bound, so the last one counts all."""
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*map(str, map(float, bounds_s)), "+Inf"), counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets
