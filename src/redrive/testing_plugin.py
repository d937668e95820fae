"""The pytest plugin of redrive. Imports nothing of it until the fixture is used."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from redrive import App
    from redrive.testing import Explored, Harness


def pytest_addoption(parser: pytest.Parser) -> None:
    """What `redrive_explore` goes by."""
    group = parser.getgroup("redrive")
    group.addoption("--redrive-worlds", type=int, metavar="N", help="worlds that redrive_explore plays")
    group.addoption("--redrive-seed", type=int, metavar="N", help="the seed of the first of them")


@pytest.fixture
def redrive_explore(request: pytest.FixtureRequest) -> "Callable[..., Explored]":
    """
    `redrive.testing.explore`, with the numbers of `--redrive-worlds` and `--redrive-seed` where these are given.
    """
    from redrive.testing import explore

    given = {
        "worlds": request.config.getoption("redrive_worlds"),
        "seed": request.config.getoption("redrive_seed"),
    }
    chosen = {name: number for name, number in given.items() if number is not None}

    def explore_by_options(app_factory: "Callable[..., App]", **options: Any) -> "Explored":
        return explore(app_factory, **{**options, **chosen})

    return explore_by_options


@pytest.fixture
def redrive_harness() -> "Iterator[Callable[..., Harness]]":
    """
    Makes harnesses, and closes them after the test. It takes what `redrive.testing.Harness` takes:

        def test_charge(redrive_harness):
            harness = redrive_harness(app)
            harness.send("orders", {"id": 7})
    """
    from redrive.testing import Harness

    with ExitStack() as stack:

        def make(app: "App | Callable[[], App]", **options: Any) -> Harness:
            return stack.enter_context(Harness(app, **options))

        yield make
