"""A release that fails everything fills the dead-letter topic with a hundred records, and one more a second."""

from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.core.record import TopicPartition
from tests.sim.engine_world import World, plan_of


@settings(max_examples=60)
@given(
    concurrency=st.integers(1, 8),
    partitions=st.integers(1, 8),
    outcome=st.sampled_from(["permanent", "poison", "dead-letter", "transient"]),
    steps=st.lists(st.tuples(st.integers(0, 7), st.integers(1, 2_000), st.integers(0, 700)), max_size=150),
    is_quick=st.booleans(),
)
def test_a_bad_release_is_slowed_however_its_runs_are_interleaved(
    concurrency, partitions, outcome, steps, is_quick
):
    world = World(plan_of(concurrency=concurrency), partitions=partitions, is_quick=is_quick)
    keys = [TopicPartition("orders", number) for number in range(partitions)]
    world.assign(*keys)
    for key in keys:
        world.append("orders", key.partition, 1_000)

    for number, (slot, count, wait_ms) in enumerate(steps):
        world.fetch(keys[number % partitions], 200)
        world.work(0, slot % concurrency, [outcome] * count)
        world.pass_time(wait_ms)
        dead = sum(world.engine.listeners[0].counters.dead.values())
        assert dead <= 100 + world.clock.mono_ms() / 1000


def test_the_mended_release_handles_the_rest():
    world = World(plan_of(), partitions=1)
    key = TopicPartition("orders", 0)
    world.assign(key)
    world.append("orders", 0, 300)
    world.fetch(key, 300)
    for _ in range(20):
        world.work(outcomes=["permanent"] * 100)
        world.pass_time(1_000)
    counters = world.engine.listeners[0].counters
    dead = counters.dead["permanent"]
    assert dead <= 120
    world.settle()
    assert (counters.dead["permanent"], counters.handled) == (dead, 300 - dead)
    assert [report.event for report in world.reports if report.event.startswith("brake")] == [
        "brake-on",
        "brake-off",
    ]
