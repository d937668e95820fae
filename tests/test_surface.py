"""What users see of redrive: the public names, their docstrings, and what importing it loads."""

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import redrive

#: msgspec loads it where it is installed.
BY_OTHERS = {"typing_extensions"}


def test_all_names_what_is_visible() -> None:
    visible = {
        name
        for name, value in vars(redrive).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }

    assert visible | {"__version__"} == set(redrive.__all__)
    assert sorted(redrive.__all__) == redrive.__all__
    assert len(redrive.__all__) <= 27


def described() -> Iterator[tuple[str, Any]]:
    """The public names, and the public methods and properties that redrive itself defines on them."""
    for name in redrive.__all__:
        value = getattr(redrive, name)
        if not callable(value):
            continue
        yield name, value
        for base in value.__mro__ if isinstance(value, type) else ():
            if base.__module__.partition(".")[0] != "redrive":
                continue
            for member, thing in vars(base).items():
                if not member.startswith("_") and (inspect.isfunction(thing) or isinstance(thing, property)):
                    yield f"{name}.{member}", thing


@pytest.mark.parametrize(("name", "thing"), [pytest.param(*each, id=each[0]) for each in described()])
def test_public_things_say_what_they_do(name: str, thing: Any) -> None:
    doc = inspect.getdoc(thing) if not isinstance(thing, type) else vars(thing).get("__doc__")

    assert doc, f"{name} has no docstring"
    # what dataclass and msgspec make up by themselves
    assert not doc.startswith(f"{name}("), f"{name} has no docstring of its own"


def test_import_loads_only_the_client_and_msgspec() -> None:
    script = "import sys; before = set(sys.modules); import redrive, json; print(json.dumps(sorted(set(sys.modules) - before)))"
    loaded = json.loads(
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    )
    packages = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names

    assert packages - BY_OTHERS <= {"redrive", "confluent_kafka", "msgspec"}


def test_import_starts_nothing() -> None:
    script = (
        "import sys, threading, redrive; "
        "print(threading.active_count(), 'asyncio' in sys.modules, 'redrive.adapters' in sys.modules)"
    )
    seen = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout

    assert seen.split() == ["1", "False", "False"]
