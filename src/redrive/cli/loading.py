"""From `service:app` to the app: imports the user's module, and says in plain words why that can't be done."""

import importlib
import sys
import traceback
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import redrive
from redrive.app import App
from redrive.errors import RedriveError

_OWN_FRAMES = (str(Path(redrive.__file__).parent), "<frozen importlib", importlib.__file__)


class LoadError(RedriveError):
    """The app can't be loaded; the text says why, with the user's own traceback where there is one."""


class _NotFound(LoadError):
    """There is no module of that name."""


def load_app(target: str, app_dir: Path) -> App:
    """
    Gives the app that `target` names: `module:app`, or `module:make()` for a function that makes it.

    `app_dir`: where the module is looked for first, as it would be by `python` started there. Raises LoadError.
    """
    module_name, _, attribute = target.partition(":")
    if module_name.endswith(".py") or "/" in module_name or "\\" in module_name:
        stem = module_name.removesuffix(".py").strip("./\\").replace("/", ".").replace("\\", ".")
        raise LoadError(
            f"{target!r} names a file; write the module as Python imports it: {stem}:{attribute or 'app'}"
        )
    if not module_name or not attribute:
        raise LoadError(
            f"{target!r} names no app; write module:app, such as service:app for `app = App(…)` in service.py"
        )
    return _app_in(_import(module_name, app_dir), attribute)


def load_object(path: str, app_dir: Path) -> Any:
    """
    Gives what a dotted path names, as `myapp.errors.CardDeclined`, also inside of a class.

    `app_dir`: where modules are looked for first. Raises LoadError.
    """
    parts = path.split(".")
    if not all(part.isidentifier() for part in parts):
        raise LoadError(
            f"{path!r} is no dotted name; write it as Python imports it, as in myapp.errors.CardDeclined"
        )
    missing: LoadError | None = None
    for count in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:count])
        try:
            found: Any = _import(module, app_dir)
        except _NotFound as error:
            missing = missing or error
            continue
        for at, part in enumerate(parts[count:], count):
            if not hasattr(found, part):
                owner = ".".join(parts[:at])
                alike = get_close_matches(part, dir(found), n=1)
                raise LoadError(f"{owner} has no {part!r}{f'; there is {owner}.{alike[0]}' if alike else ''}")
            found = getattr(found, part)
        return found
    raise missing or LoadError(f"{path!r} names no module")


def _import(name: str, app_dir: Path) -> ModuleType:
    folder = str(app_dir.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _NotFound(_not_found(name, error.name, app_dir)) from None
        raise LoadError(_raised(f"{name} can't be imported", error)) from None
    except SystemExit as error:
        raise LoadError(
            f"{name} ended the process while it was imported (exit code {error.code}): "
            'put what runs by itself under `if __name__ == "__main__":`'
        ) from None
    except Exception as error:
        raise LoadError(_raised(f"{name} can't be imported", error)) from None


def _not_found(name: str, missing: str, app_dir: Path) -> str:
    folder = app_dir.resolve()
    here = sorted(path.stem for path in folder.glob("*.py"))
    alike = get_close_matches(name, here, n=1)
    guess = f" There is {alike[0]}.py: {alike[0]}:…?" if alike else ""
    part = "" if missing == name else f" ({name!r} was asked for)"
    return (
        f"no module {missing!r}{part}. Looked in {folder} (--app-dir for another folder) and among the installed "
        f"packages.{guess}"
    )


def _app_in(module: ModuleType, attribute: str) -> App:
    path, called = (attribute[:-2], True) if attribute.endswith("()") else (attribute, False)
    try:
        found: Any = reduce(getattr, path.split("."), module)
    except AttributeError:
        raise LoadError(_no_attribute(module, path)) from None
    if called:
        try:
            found = found()
        except Exception as error:
            raise LoadError(_raised(f"{module.__name__}:{attribute} can't be called", error)) from None
    if not isinstance(found, App):
        raise LoadError(_no_app(module, attribute, found))
    return found


def _no_attribute(module: ModuleType, path: str) -> str:
    apps = _apps(module)
    instead = (
        f"; it has {', '.join(f'{module.__name__}:{name}' for name in apps)}"
        if apps
        else ", and no App at all"
    )
    return f"module {module.__name__!r} ({module.__file__}) has no {path!r}{instead}"


def _no_app(module: ModuleType, attribute: str, found: object) -> str:
    kind = type(found)
    what = (
        "a class"
        if isinstance(found, type)
        else "a function"
        if callable(found) and hasattr(found, "__code__")
        else (
            f"{found!r}"
            if isinstance(found, (str, int, float, bool, type(None)))
            else f"a {kind.__module__}.{kind.__qualname__}"
        )
    )
    hint = f"; if it makes the App, write {module.__name__}:{attribute}()" if what == "a function" else ""
    apps = _apps(module)
    instead = f"; there is {', '.join(f'{module.__name__}:{name}' for name in apps)}" if apps else ""
    return f"{module.__name__}:{attribute} is {what}, not a redrive App{hint}{instead}"


def _apps(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, App)]


def _raised(what: str, error: BaseException) -> str:
    """The user's traceback: frames of redrive and of the import machinery tell them nothing."""
    shown = traceback.TracebackException.from_exception(error)
    _trim(shown)
    return f"{what}:\n\n{''.join(shown.format()).rstrip()}"


def _trim(shown: traceback.TracebackException) -> None:
    shown.stack[:] = [frame for frame in shown.stack if not frame.filename.startswith(_OWN_FRAMES)]
    for inner in (shown.__cause__, shown.__context__, *(shown.exceptions or ())):
        if inner is not None:
            _trim(inner)
