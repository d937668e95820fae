"""What Prometheus scrapes is the catalogue, with the engine's numbers of the moment."""

import threading

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.parser import text_string_to_metric_families

from redrive.adapters.prometheus import Exporter
from redrive.core.catalogue import METRICS
from redrive.core.readings import Bounds, Depth, Look
from redrive.core.record import TopicPartition
from tests.sim.engine_world import World, plan_of

P0, P1, T0 = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("orders.retry.5s", 0)
BOUNDS = {key: Bounds(0, 10) for key in (P0, P1, T0)}
DEPTHS = {"orders.dlq": Depth(unresolved={"poison": 2}, oldest_ms=1, retention_ms=86_400_000)}


@pytest.fixture
def world():
    world = World(plan_of("5s"))
    world.assign(P0, P1, T0)
    return world


def exporter_of(world, registry=None, depths=DEPTHS, with_aliases=False):
    def look():
        return Look(
            group="shop",
            version="1.2.3",
            now_wall_ms=world.clock.wall_ms(),
            now_mono_ms=world.clock.mono_ms(),
            stepped_mono_ms=0.0,
            bounds=BOUNDS,
            depths=depths,
        )

    return Exporter(
        lambda: [(world.engine, look())], registry=registry or CollectorRegistry(), with_aliases=with_aliases
    )


def scraped(exporter):
    """Families by name, as Prometheus reads the page."""
    return {family.name: family for family in text_string_to_metric_families(exporter.page().decode())}


def series(exporter):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in scraped(exporter).values()
        for sample in family.samples
    }


def test_all_metrics_of_the_catalogue_are_exported_and_no_other(world):
    families = scraped(exporter_of(world))
    exported = {
        f"{name}_total" if family.type == "counter" else name: family for name, family in families.items()
    }
    assert set(exported) == {metric.name for metric in METRICS}
    for metric in METRICS:
        family = exported[metric.name]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert {name for sample in family.samples for name in sample.labels} - {"le"} == set(metric.labels)


def test_the_names_that_many_alerts_use_are_told_besides_where_that_is_asked_for(world):
    found = scraped(exporter_of(world, with_aliases=True))
    assert {family.type for name, family in found.items() if name == "kafka_dlq_messages"} == {"counter"}
    assert [(one.labels, one.value) for one in found["kafka_dlq_size"].samples] == [
        ({"topic": "orders.dlq"}, 2)
    ]


def test_a_service_that_has_metrics_of_these_names_itself_keeps_them(world):
    registry = CollectorRegistry()
    Gauge("kafka_dlq_size", "Ours.", registry=registry).set(7)
    assert scraped(exporter_of(world, registry))["kafka_dlq_size"].samples[0].value == 7


def test_the_series_of_a_dead_letter_topic_that_is_no_more_vanish(world):
    depths = dict(DEPTHS)
    exporter = exporter_of(world, depths=depths)
    assert scraped(exporter)["redrive_unresolved_letters"].samples
    depths.clear()
    families = scraped(exporter)
    for name in (
        "redrive_unresolved_letters",
        "redrive_oldest_unresolved_seconds",
        "redrive_retention_left_seconds",
    ):
        assert families[name].samples == []


def test_a_counter_shows_what_the_engine_counted(world):
    exporter = exporter_of(world)
    key = "redrive_records_total", (
        ("group", "shop"), ("listener", "orders"), ("outcome", "handled"), ("topic", "orders"),
    )  # fmt: skip
    assert series(exporter)[key] == 0
    world.append("orders", count=3)
    world.fetch(P0)
    world.work(outcomes=["ok"] * 4)
    assert series(exporter)[key] == 3


def test_buckets_of_a_histogram_count_all_that_is_below_their_bound(world):
    duration = world.engine.listeners[0].counters.duration
    duration.add(0.0001, 5)
    duration.add(0.3, 2)
    duration.add(1_000.0)
    found = series(exporter_of(world))
    labels = (("group", "shop"), ("listener", "orders"))

    def bucket(bound):
        return found["redrive_handler_duration_seconds_bucket", (*labels[:1], ("le", bound), *labels[1:])]

    assert [bucket(bound) for bound in ("1e-05", "0.0001", "0.25", "0.5", "300.0", "+Inf")] == [
        0,
        5,
        5,
        7,
        7,
        8,
    ]
    assert found["redrive_handler_duration_seconds_count", labels] == 8
    assert found["redrive_handler_duration_seconds_sum", labels] == pytest.approx(1_000.6005)


def test_the_series_of_topics_that_went_away_vanish(world):
    exporter = exporter_of(world)
    assert scraped(exporter)["redrive_source_lag_records"].samples
    world.let_go(P0, P1, last_commit="none")
    families = scraped(exporter)
    assert families["redrive_source_lag_records"].samples == []
    assert families["redrive_tier_lag_records"].samples


def test_the_handlers_own_metrics_are_on_the_same_page(world):
    registry = CollectorRegistry()
    Counter("cards_charged", "Cards charged.", registry=registry).inc()
    assert "cards_charged" in scraped(exporter_of(world, registry))


def test_a_second_exporter_in_one_registry_is_refused_and_the_first_can_leave(world):
    registry = CollectorRegistry()
    first = exporter_of(world, registry)
    with pytest.raises(ValueError, match="redrive_records"):
        exporter_of(world, registry)
    first.close()
    exporter_of(world, registry)


def test_a_scrape_holds_while_the_engine_moves(world):
    """Partitions come and go and runs start and end as fast as they can, during every single scrape."""
    exporter = exporter_of(world)
    stop = threading.Event()
    broken = []

    def move():
        try:
            while not stop.is_set():
                world.append("orders", count=20)
                world.fetch(P0)
                world.work(outcomes=["ok", "transient"] * 20)
                while world.writes:
                    world.answer()
                world.let_go(P1, T0, last_commit="none")
                world.assign(P1, T0)
        except BaseException as error:
            broken.append(error)

    mover = threading.Thread(target=move)
    mover.start()
    handled = []
    try:
        for _ in range(50):
            found = series(exporter)
            handled.append(
                sum(
                    value
                    for (name, _), value in found.items()
                    if name == "redrive_handler_duration_seconds_count"
                )
            )
    finally:
        stop.set()
        mover.join()
    assert broken == []
    assert handled == sorted(handled)
