"""What of the engine worlds have reached: its functions, called how often, and the commands that it gave."""

import inspect
import pkgutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import CodeType, FrameType, ModuleType

import redrive.core
from redrive.core.engine import Engine

#: Parts of the core that no engine uses: what commands, plans and pages are made of.
_BESIDE = (
    "doctor",
    "acls",
    "alerts",
    "dashboard",
    "supervision",
    "merging",
    "explaining",
    "catalogue",
    "readings",
)


class Coverage:
    """Counted while `watching`; several are added up."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.commands: Counter[str] = Counter()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count what is called meanwhile. It costs about as much again."""
        names, take, calls, commands = _functions(), Engine.take_commands.__code__, self.calls, self.commands

        def note(frame: FrameType, event: str, arg: object) -> None:
            if event == "call":
                if (name := names.get(frame.f_code)) is not None:
                    calls[name] += 1
            elif event == "return" and frame.f_code is take and arg:
                commands.update(type(command).__name__ for command in arg)

        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def add(self, other: "Coverage") -> None:
        self.calls += other.calls
        self.commands += other.commands

    def never_called(self) -> list[str]:
        """The engine's functions that no watched world has called."""
        return sorted(set(_functions().values()) - self.calls.keys())


_KNOWN: dict[CodeType, str] = {}


def _functions() -> dict[CodeType, str]:
    """All functions of the modules that an engine is made of, by name."""
    if not _KNOWN:
        import_module("redrive.core.engine")
        for found in pkgutil.iter_modules(redrive.core.__path__):
            module = sys.modules.get(f"redrive.core.{found.name}")
            if module is not None and found.name not in _BESIDE:
                _KNOWN.update(_functions_of(found.name, module))
    return _KNOWN


def _functions_of(name: str, module: ModuleType) -> Iterator[tuple[CodeType, str]]:
    for at, value in vars(module).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            yield value.__code__, f"{name}.{at}"
        elif inspect.isclass(value):
            for member, given in vars(value).items():
                if member.startswith("__"):
                    continue
                function = given.fget if isinstance(given, property) else getattr(given, "__func__", given)
                if inspect.isfunction(function):
                    yield function.__code__, f"{name}.{at}.{member}"
