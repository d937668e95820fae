"""Several workers' metrics become one page: counts add up and never fall, other gauges stay apart."""

from hypothesis import given
from hypothesis import strategies as st

from redrive.core.merging import Family, Sample, keep, merge

GROUP = (("group", "shop"),)


def family(name, kind, *samples):
    return Family(name, kind, f"What {name} is.", tuple(Sample(*sample) for sample in samples))


def counter(name, value, labels=GROUP):
    return family(name, "counter", (f"{name}_total", labels, value))


def gauge(name, value, labels=GROUP):
    return family(name, "gauge", (name, labels, value))


def histogram(name, bounds, counts, total):
    buckets = [
        (f"{name}_bucket", (*GROUP, ("le", bound)), float(count))
        for bound, count in zip(bounds, counts, strict=True)
    ]
    return family(
        name,
        "histogram",
        *buckets,
        (f"{name}_count", GROUP, float(counts[-1])),
        (f"{name}_sum", GROUP, total),
    )


def values(page):
    return {(sample.name, sample.labels): sample.value for one in page for sample in one.samples}


def test_counters_add_up_and_keep_their_help():
    (merged,) = merge({0: [counter("records", 3)], 1: [counter("records", 4)]}, [], adds_up=())
    assert merged == counter("records", 7)


def test_series_that_only_one_worker_has_are_kept():
    other = (("group", "shop"), ("reason", "poison"))
    pages = {0: [counter("dead", 1)], 1: [counter("dead", 2, other)]}
    assert values(merge(pages, [], adds_up=())) == {("dead_total", GROUP): 1, ("dead_total", other): 2}


def test_histograms_add_up_bucket_by_bucket():
    page = [histogram("took", ["0.1", "+Inf"], [1, 3], 2.5)]
    assert merge({0: page, 1: page}, [], adds_up=()) == [histogram("took", ["0.1", "+Inf"], [2, 6], 5.0)]


def test_histograms_with_other_bounds_stay_cumulative():
    old = [histogram("took", ["0.1", "1.0", "+Inf"], [1, 3, 4], 2.0)]
    new = [histogram("took", ["0.5", "+Inf"], [10, 20], 5.0)]
    (merged,) = merge({0: old, 1: new}, [], adds_up=())
    buckets = {
        dict(sample.labels)["le"]: sample.value for sample in merged.samples if sample.name == "took_bucket"
    }
    assert buckets == {"0.1": 1, "0.5": 11, "1.0": 13, "+Inf": 24}


def test_a_gauge_that_is_part_of_a_whole_adds_up():
    pages = {0: [gauge("lag", 3)], 1: [gauge("lag", 4)]}
    assert merge(pages, [], adds_up={"lag"}) == [gauge("lag", 7)]


def test_any_other_gauge_has_a_series_for_each_worker():
    (merged,) = merge({0: [gauge("brake", 0)], 1: [gauge("brake", 1)]}, [], adds_up=())
    assert merged.samples == (
        Sample("brake", (*GROUP, ("worker", "0")), 0),
        Sample("brake", (*GROUP, ("worker", "1")), 1),
    )


def test_a_label_that_is_called_worker_already_is_kept_under_another_name():
    (merged,) = merge({0: [gauge("busy", 1, (("worker", "anna"),))]}, [], adds_up=())
    assert merged.samples == (Sample("busy", (("exported_worker", "anna"), ("worker", "0")), 1),)


def test_counts_of_the_dead_are_kept_and_their_gauges_are_not():
    kept = keep([], [counter("records", 3), gauge("lag", 5)])
    assert merge({0: [counter("records", 1), gauge("lag", 2)]}, kept, adds_up={"lag"}) == [
        counter("records", 4),
        gauge("lag", 2),
    ]
    assert merge({}, kept, adds_up={"lag"}) == [counter("records", 3)]


def test_a_metric_that_became_something_else_is_what_the_lowest_worker_says():
    pages = {0: [gauge("x", 1)], 1: [counter("x", 5)]}
    (merged,) = merge(pages, [counter("x", 7)], adds_up=())
    assert (merged.kind, len(merged.samples)) == ("gauge", 1)


_STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.booleans()), max_size=40)


@given(_STEPS)
def test_whatever_dies_a_counter_never_falls_and_counts_all(steps):
    """Each step counts in one worker, which may end then."""
    counts = dict.fromkeys(range(3), 0)
    kept, total = [], 0
    for worker, more, ends in steps:
        counts[worker] += more
        total += more
        pages = {number: [counter("records", count)] for number, count in counts.items()}
        assert values(merge(pages, kept, adds_up=())) == {("records_total", GROUP): total}
        if ends:
            kept = keep(kept, pages.pop(worker))
            counts[worker] = 0
            assert values(merge(pages, kept, adds_up=())) == {("records_total", GROUP): total}
