"""Gives each contract test its world."""

from collections.abc import Iterator

import pytest

from tests.contract.worlds import KafkaWorld, SimWorld, World


@pytest.fixture(
    params=[
        "sim",
        pytest.param("kafka", marks=pytest.mark.kafka),
        pytest.param("classic", marks=pytest.mark.kafka),
    ]
)
def group_world(request) -> Iterator[World]:
    """For groups: in memory, on a real broker with KIP-848, on a real broker with the classic protocol."""
    world = _world(request)
    yield world
    world.close()


@pytest.fixture(params=["sim", pytest.param("kafka", marks=pytest.mark.kafka)])
def world(request) -> Iterator[World]:
    """In memory, and on a real broker."""
    world = _world(request)
    yield world
    world.close()


def _world(request) -> World:
    if request.param == "sim":
        return SimWorld()
    protocol = "classic" if request.param == "classic" else "consumer"
    return KafkaWorld(request.getfixturevalue("kafka").bootstrap, protocol)
