"""
The metrics of several workers as those of one service.

What counts something (counters, histograms, summaries) is added up over the workers, and over those that ended: a
counter never goes backwards because a worker was replaced. A gauge is added up where its parts make a whole (lag over
partitions); any other keeps one series a worker, told apart by the label `worker`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]

#: What Prometheus itself does with a label that is taken.
_TAKEN = "exported_worker"
_LASTING = frozenset({"counter", "histogram", "summary"})


class Sample(NamedTuple):
    """One value. `name` has its suffix (`_total`, `_bucket`, `_sum` …); `labels` in order of their names."""

    name: str
    labels: Labels
    value: float


class Family(NamedTuple):
    """One metric with all its series, as a page shows it."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


Page = Sequence[Family]


def merge(pages: Mapping[int, Page], kept: Page, *, adds_up: Collection[str]) -> Page:
    """
    One page of the workers' pages, by their numbers. `kept`: the counts of those that ended; `adds_up`: the names of
    gauges that are parts of a whole. Where pages disagree what a metric is, the lowest number is right.
    """
    merged: list[Family] = []
    for name, parts in _by_name(pages).items():
        _, first = parts[0]
        if first.kind in _LASTING or name in adds_up:
            before = [family for family in kept if (family.name, family.kind) == (name, first.kind)]
            samples = _added([*before, *(family for _, family in parts)])
        else:
            samples = tuple(_told_apart(parts))
        merged.append(first._replace(samples=samples))
    known = {family.name for family in merged}
    return [*merged, *(family for family in kept if family.name not in known)]


def keep(kept: Page, last: Page) -> Page:
    """What has to be remembered after a worker's end: `kept`, with the counts of its `last` page added."""
    return [family for family in merge({0: last}, kept, adds_up=()) if family.kind in _LASTING]


def _by_name(pages: Mapping[int, Page]) -> Mapping[str, list[tuple[int, Family]]]:
    found: dict[str, list[tuple[int, Family]]] = {}
    for number in sorted(pages):
        for family in pages[number]:
            parts = found.setdefault(family.name, [])
            if not parts or parts[0][1].kind == family.kind:
                parts.append((number, family))
    return found


def _told_apart(parts: Iterable[tuple[int, Family]]) -> Iterator[Sample]:
    for number, family in parts:
        for sample in family.samples:
            own = ((_TAKEN if name == "worker" else name, value) for name, value in sample.labels)
            yield sample._replace(labels=tuple(sorted([*own, ("worker", str(number))])))


def _added(families: Sequence[Family]) -> tuple[Sample, ...]:
    bounds = {
        dict(sample.labels)["le"] for family in families for sample in family.samples if _is_bucket(sample)
    }
    totals: dict[tuple[str, Labels], float] = {}
    for family in families:
        for name, labels, value in _at(bounds, family.samples):
            totals[name, labels] = totals.get((name, labels), 0.0) + value
    return tuple(Sample(name, labels, value) for (name, labels), value in totals.items())


def _at(bounds: Collection[str], samples: Sequence[Sample]) -> Iterable[Sample]:
    """
    A histogram's samples at all of these bounds: another version of a service may have others. A bucket counts all that
    is at or below its bound, so at one that is lacking at least what the next lower bound says was counted.
    """
    by_series: dict[tuple[str, Labels], dict[str, float]] = {}
    for sample in filter(_is_bucket, samples):
        rest = tuple(label for label in sample.labels if label[0] != "le")
        by_series.setdefault((sample.name, rest), {})[dict(sample.labels)["le"]] = sample.value
    if all(counts.keys() == bounds for counts in by_series.values()):
        return samples
    filled = [sample for sample in samples if not _is_bucket(sample)]
    for (name, labels), counts in by_series.items():
        count = 0.0
        for bound in sorted(bounds, key=float):
            count = counts.get(bound, count)
            filled.append(Sample(name, tuple(sorted([*labels, ("le", bound)])), count))
    return filled


def _is_bucket(sample: Sample) -> bool:
    return sample.name.endswith("_bucket") and any(name == "le" for name, _ in sample.labels)
