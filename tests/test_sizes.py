"""The size limits count code, and only code."""

import importlib.util
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("sizes", Path(__file__).parents[1] / "scripts" / "sizes.py")
sizes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sizes)


def _too_large(source: str) -> list[str]:
    return [str(finding) for finding in sizes.check("m.py", source).too_large]


def _function(lines: int, *, first: str = "def f():", note: str = "") -> str:
    return f"{first}{note}\n" + "    x = 1\n" * (lines - 1)


def _class(methods: list[str]) -> str:
    return "class C:\n" + "".join(f"    {m}\n" for m in methods)


def test_a_function_may_have_forty_code_lines_and_no_more():
    assert _too_large(_function(40)) == []
    assert _too_large(_function(41)) == ["m.py:1: f: 41 code lines (a function has at most 40)"]


def test_async_functions_and_methods_are_functions():
    inside = _function(41, first="async def f():").replace("\n", "\n    ")
    assert _too_large(f"class C:\n    {inside.rstrip()}\n") == [
        "m.py:2: f: 41 code lines (a function has at most 40)"
    ]


def test_a_nested_function_counts_in_the_one_around_it():
    nested = "    def g():\n" + "        y = 1\n" * 5
    assert _too_large(_function(35) + nested) == ["m.py:1: f: 41 code lines (a function has at most 40)"]


def test_docstrings_comments_and_blank_lines_do_not_count():
    rest = '    """Says what.\n\n    At length.\n    """\n    # why\n\n'
    assert _too_large(_function(40).replace("def f():\n", f"def f():\n{rest}")) == []


def test_every_line_of_a_long_text_in_code_counts():
    text = '    x = """\n' + "line\n" * 39 + '"""\n'
    assert _too_large("def f():\n" + text) == ["m.py:1: f: 42 code lines (a function has at most 40)"]


def test_a_file_may_have_four_hundred_code_lines_and_no_more():
    assert _too_large("x = 1\n" * 400) == []
    assert _too_large("x = 1\n" * 401) == ["m.py:1: 401 code lines (a file has at most 400)"]


@pytest.mark.parametrize(
    "table", ["T = {{\n{}}}\n", "T: list = [\n{}]\n", "T = frozenset({{\n{}}})\n", "T = (\n{})\n"]
)
def test_tables_of_data_at_module_level_do_not_count(table):
    rows = "    1: 1,\n" if table.startswith("T = {{") else "    1,\n"
    assert _too_large("x = 1\n" * 400 + table.format(rows * 100)) == []


def test_overloads_count_neither_as_lines_nor_as_methods():
    overload = "@overload\ndef f(x: int) -> int: ...\n"
    assert _too_large("x = 1\n" * 400 + overload * 3) == []
    assert _too_large(_class([f"@typing.overload\n    def m{n}(self): ..." for n in range(13)])) == []


def test_a_class_may_have_twelve_public_methods_and_no_more():
    public = [f"def m{n}(self): ..." for n in range(12)]
    assert _too_large(_class([*public, "def _private(self): ...", "def __len__(self): ..."])) == []
    assert _too_large(_class([*public, "async def more(self): ..."])) == [
        "m.py:1: C: 13 public methods (a class has at most 12)"
    ]


def test_properties_are_values_not_methods():
    assert _too_large(_class([f"@property\n    def p{n}(self): ..." for n in range(13)])) == []


@pytest.mark.parametrize(
    "source",
    [
        _function(41, note="  # size: measured hot loop"),
        "# size: measured hot loop\n" + _function(41),
        '"""Doc."""\n# size: measured hot loop\n' + "x = 1\n" * 401,
        _class([f"def m{n}(self): ..." for n in range(13)]).replace(
            ":\n", ":  # size: measured hot loop\n", 1
        ),
    ],
    ids=["on the def line", "above it", "a file, before its first statement", "on the class line"],
)
def test_a_reason_exempts_and_is_told(source):
    report = sizes.check("m.py", source)
    assert report.too_large == ()
    assert [finding.text.rpartition(": ")[2] for finding in report.exempt] == ["exempt, measured hot loop"]


def test_an_exemption_without_a_reason_is_none():
    assert len(_too_large(_function(41, note="  # size:"))) == 1


def test_the_command_fails_on_the_eleventh_exemption(tmp_path, capsys):
    for number in range(10):
        (tmp_path / f"m{number}.py").write_text(_function(41, note="  # size: hot"))
    assert sizes.main([str(tmp_path)]) == 0

    (tmp_path / "one_more.py").write_text(_function(41, note="  # size: hot"))
    assert sizes.main([str(tmp_path)]) == 1
    assert "11 exemptions, at most 10 are allowed" in capsys.readouterr().out


def test_the_command_fails_on_what_is_too_large_and_names_the_place(tmp_path, capsys):
    (tmp_path / "m.py").write_text(_function(41))
    assert sizes.main([str(tmp_path)]) == 1
    assert f"{tmp_path}/m.py:1: f: 41 code lines" in capsys.readouterr().out
