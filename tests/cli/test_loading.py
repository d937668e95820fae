"""`module:app`: found, or told in plain words why not."""

import re

import pytest

from redrive import App
from redrive.cli.loading import LoadError, load_app

SERVICE = """
from redrive import App

app = App("payments")
other = App("refunds")
name = "payments"


def make():
    return App("made")


class Service:
    app = App("inside")
"""


@pytest.fixture
def service(folder):
    (folder / "service.py").write_text(SERVICE)
    return folder


def _refusal(target, folder):
    with pytest.raises(LoadError) as raised:
        load_app(target, folder)
    return str(raised.value).replace(str(folder), "FOLDER")


@pytest.mark.parametrize(
    ("target", "group"),
    [("service:app", "payments"), ("service:Service.app", "inside"), ("service:make()", "made")],
)
def test_an_app_is_found_by_module_and_name(service, target, group):
    assert load_app(target, service).group == group


def test_a_module_that_is_not_there_is_told_with_the_folder_that_was_searched(folder):
    assert _refusal("nowhere:app", folder) == (
        "no module 'nowhere'. Looked in FOLDER (--app-dir for another folder) and among the installed packages."
    )


def test_a_typing_error_in_the_module_is_guessed(service):
    assert _refusal("servce:app", service) == (
        "no module 'servce'. Looked in FOLDER (--app-dir for another folder) and among the installed packages. "
        "There is service.py: service:…?"
    )


def test_a_part_of_a_package_that_is_not_there_is_told(folder):
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").touch()

    assert _refusal("package.service:app", folder) == (
        "no module 'package.service'. Looked in FOLDER (--app-dir for another folder) and among the installed packages."
    )


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (
            "service.py:app",
            "'service.py:app' names a file; write the module as Python imports it: service:app",
        ),
        (
            "./src/service.py",
            "'./src/service.py' names a file; write the module as Python imports it: src.service:app",
        ),
        (
            "service",
            "'service' names no app; write module:app, such as service:app for `app = App(…)` in service.py",
        ),
    ],
)
def test_what_is_no_module_and_app_is_told_with_how_to_write_it(service, target, told):
    assert _refusal(target, service) == told


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (
            "service:ap",
            "module 'service' (FOLDER/service.py) has no 'ap'; it has service:app, service:other",
        ),
        (
            "service:make",
            (
                "service:make is a function, not a redrive App; if it makes the App, write service:make(); "
                "there is service:app, service:other"
            ),
        ),
        (
            "service:Service",
            "service:Service is a class, not a redrive App; there is service:app, service:other",
        ),
        (
            "service:name",
            "service:name is 'payments', not a redrive App; there is service:app, service:other",
        ),
    ],
)
def test_what_is_no_app_is_told_with_what_it_is(service, target, told):
    assert _refusal(target, service) == told


def test_an_object_of_another_library_is_told_by_its_type(folder):
    (folder / "strange.py").write_text("import decimal\napp = decimal.Decimal(1)\n")

    assert _refusal("strange:app", folder) == "strange:app is a decimal.Decimal, not a redrive App"


def test_an_error_while_importing_shows_the_users_frames_only(folder):
    (folder / "broken.py").write_text("import inner\n")
    (folder / "inner.py").write_text(
        "def connect():\n    raise ConnectionError('no database')\n\n\nconnect()\n"
    )

    told = re.sub(r" *[~^]+\n", "", _refusal("broken:app", folder))

    assert told == (
        "broken can't be imported:\n\n"
        "Traceback (most recent call last):\n"
        '  File "FOLDER/broken.py", line 1, in <module>\n'
        "    import inner\n"
        '  File "FOLDER/inner.py", line 5, in <module>\n'
        "    connect()\n"
        '  File "FOLDER/inner.py", line 2, in connect\n'
        "    raise ConnectionError('no database')\n"
        "ConnectionError: no database"
    )


def test_what_redrive_refuses_while_importing_is_shown_at_the_users_line(folder):
    (folder / "refused.py").write_text("from redrive import RetryPolicy\n\nretry = RetryPolicy(5)\n")

    told = _refusal("refused:app", folder)

    assert 'File "FOLDER/refused.py", line 3' in told
    assert "bare number" in told
    assert "policy.py" not in told


def test_a_module_that_the_users_module_needs_is_told_as_theirs(folder):
    (folder / "needy.py").write_text("import no_such_package\n")

    assert _refusal("needy:app", folder).splitlines()[-1] == (
        "ModuleNotFoundError: No module named 'no_such_package'"
    )


def test_a_syntax_error_is_shown_at_its_line(folder):
    (folder / "unfinished.py").write_text("app = (\n")

    told = _refusal("unfinished:app", folder)

    assert 'File "FOLDER/unfinished.py", line 1' in told
    assert "SyntaxError" in told
    assert "importlib" not in told


def test_a_module_that_ends_the_process_is_told(folder):
    (folder / "script.py").write_text("import sys\nsys.exit(3)\n")

    assert _refusal("script:app", folder) == (
        "script ended the process while it was imported (exit code 3): "
        'put what runs by itself under `if __name__ == "__main__":`'
    )


def test_a_function_that_makes_the_app_and_fails_shows_the_users_frames_only(folder):
    (folder / "factory.py").write_text("def make():\n    return 1 / 0\n")

    told = _refusal("factory:make()", folder)

    assert told.startswith("factory:make() can't be called:")
    assert told.endswith("ZeroDivisionError: division by zero")
    assert "loading.py" not in told


def test_an_app_is_looked_for_in_the_folder_of_app_dir(folder):
    (folder / "src").mkdir()
    (folder / "src" / "service_of_src.py").write_text(SERVICE)

    assert isinstance(load_app("service_of_src:app", folder / "src"), App)
