"""The pytest plugin of redrive. Imports nothing of it until the fixture is used."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from redrive import App
    from redrive.testing import Harness


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

        def make(app: "App", **options: Any) -> Harness:
            return stack.enter_context(Harness(app, **options))

        yield make
