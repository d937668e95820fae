"""Pages of metrics in Prometheus's text format, read into values and written again. Import it where metrics are wanted."""

from collections.abc import Iterator
from typing import Any, cast

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from redrive.core.merging import Family, Page, Sample


def read_page(page: bytes) -> Page:
    """Raises ValueError for what is no such page."""
    return [
        Family(
            family.name,
            family.type,
            family.documentation,
            tuple(
                Sample(each.name, tuple(sorted(each.labels.items())), each.value) for each in family.samples
            ),
        )
        for family in text_string_to_metric_families(page.decode())
    ]


def write_page(page: Page) -> bytes:
    """In the text format 0.0.4, as workers write theirs."""
    return generate_latest(cast("CollectorRegistry", _Shown(page)))


class _Shown:
    """All that a registry is to the writer."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def collect(self) -> Iterator[Metric]:
        for family in self._page:
            metric = Metric(family.name, family.help, family.kind)
            for name, labels, value in family.samples:
                cast("Any", metric).add_sample(name, dict(labels), value)
            yield metric
