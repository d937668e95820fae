"""Exceptions as text: names, messages and stacks, bounded, with what says most kept."""

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.core.stack import cut_utf8, keep_end_utf8, message_of, stack_text, type_name
from tests.core.lookalikes import caught, chained, lookalike, raised


def without_source_lines(text):
    """Python's own traceback as ours is: without source lines and their markers, with qualified names."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("    "))


def inner():
    raise KeyError("card")


def outer():
    inner()


def wrapping():
    try:
        outer()
    except KeyError as exc:
        raise RuntimeError("no card") from exc


def clumsy():
    try:
        outer()
    except KeyError:
        raise RuntimeError("no card")  # noqa: B904


def hiding():
    try:
        outer()
    except KeyError:
        raise RuntimeError("no card") from None


@pytest.mark.parametrize("function", [inner, outer, wrapping, clumsy, hiding])
def test_a_stack_looks_as_python_writes_it(function):
    exc = caught(function)
    assert stack_text(exc) == without_source_lines("".join(traceback.format_exception(exc)))


def test_a_group_shows_its_leaves_before_itself():
    group = raised(ExceptionGroup("two", [raised(KeyError("a")), ValueError("b")]))
    headlines = [line for line in stack_text(group).splitlines() if line and line[0] != " "]
    link = "The above exception is one of the following group:"
    first = ["ValueError: b", link, "Traceback (most recent call last):", "KeyError: 'a'", link]
    assert headlines == [
        *first,
        "Traceback (most recent call last):",
        "ExceptionGroup: two (2 sub-exceptions)",
    ]


def deep(levels):
    return deep(levels - 1) if levels else inner()


def test_of_a_deep_stack_the_innermost_frames_are_kept():
    text = stack_text(caught(deep, 500))
    lines = text.splitlines()
    assert len(text.encode()) <= 8192
    assert lines[1].strip(" []") == f"{503 - len(lines[2:-1])} outer frames left out"
    assert lines[-2].endswith("in inner")
    assert lines[-1] == "KeyError: 'card'"


def test_of_a_long_chain_the_outermost_exceptions_are_kept():
    exc = ValueError("the root")
    for number in range(100):
        following = ValueError(f"number {number}")
        following.__cause__ = exc
        exc = following
    lines = [line for line in stack_text(raised(exc)).splitlines() if line.startswith("ValueError")]
    assert lines == [f"ValueError: number {number}" for number in range(92, 100)]


@given(st.integers(0, 400), st.integers(0, 12), st.text(max_size=3_000), st.integers(200, 8192))
def test_a_stack_fits_its_limit_and_ends_with_the_exception(levels, causes, message, limit_bytes):
    exc = caught(deep, levels)
    for _ in range(causes):
        following = lookalike("shop." + "É" * 50)(message)
        following.__cause__ = exc
        exc = raised(following)
    data = stack_text(exc, limit_bytes).encode()
    assert 0 < len(data) <= limit_bytes
    if causes == 0:
        assert data.endswith(b"KeyError: 'card'")


def test_each_of_a_few_deep_exceptions_gets_its_share():
    def failing():
        try:
            deep(400)
        except KeyError as exc:
            raise ValueError("told") from exc

    def deeper(levels):
        return deeper(levels - 1) if levels else failing()

    text = stack_text(caught(deeper, 400), 3_000)
    assert "in inner\nKeyError: 'card'\n\nThe above exception was the direct cause" in text
    assert text.endswith(".failing\nValueError: told")


def test_however_small_the_limit_the_end_is_kept():
    exc = KeyError("card")
    for _ in range(12):
        exc = chained(ValueError("x" * 300), exc)
    assert stack_text(chained(ValueError("told"), exc), 100).endswith("ValueError: told")


def test_a_message_of_a_strange_kind_of_text_is_plain_text():
    class Loud(str):
        __slots__ = ()

        def isascii(self):
            raise SystemExit

    assert type(message_of(lookalike("shop.Loud", __str__=lambda self: Loud("x"))())) is str
    assert message_of(lookalike("shop.Loud", __str__=lambda self: Loud("x"))()) == "x"


def test_an_exception_that_was_never_raised_is_its_headline():
    assert stack_text(ValueError("x")) == "ValueError: x"
    assert stack_text(ValueError()) == "ValueError"


def test_installed_files_are_named_from_their_package_on():
    namespace = {}
    exec(
        compile("def run():\n    1 / 0", "/usr/lib/python3.11/site-packages/driver/wire.py", "exec"),
        namespace,
    )
    assert '  File "driver/wire.py", line 2, in run\n' in stack_text(caught(namespace["run"]))


# --- names, messages, cutting ------------------------------------------------------------------------------------------


def test_a_type_is_named_with_its_module_unless_built_in():
    names = [
        type_name(cls)
        for cls in (TypeError, ExceptionGroup, lookalike("httpx.ReadTimeout"), traceback.FrameSummary)
    ]
    assert names == ["TypeError", "ExceptionGroup", "httpx.ReadTimeout", "traceback.FrameSummary"]


def test_a_strange_module_or_an_endless_name_is_no_harm():
    strange = type("Strange", (Exception,), {"__module__": 7})
    assert type_name(strange) == "?.Strange"
    assert len(type_name(type("N" * 1_000_000, (Exception,), {})).encode()) == 256


def test_a_message_is_what_str_says():
    assert [message_of(ValueError("x")), message_of(KeyError("x")), message_of(ValueError())] == [
        "x",
        "'x'",
        "",
    ]


def test_a_long_message_is_cut_at_the_border_of_a_character():
    assert message_of(ValueError("é" * 1_000_000)) == "é" * 510 + "…"
    assert len(message_of(ValueError("x" * 1_025)).encode()) == 1024
    assert message_of(ValueError("x" * 1_024)) == "x" * 1_024


@given(st.text(st.characters(exclude_categories=[])), st.integers(3, 60))
def test_cutting_gives_valid_text_within_the_limit(text, limit_bytes):
    whole = text.encode("utf-8", "replace").decode()
    head, tail = cut_utf8(text, limit_bytes), keep_end_utf8(text, limit_bytes)
    assert len(head.encode()) <= limit_bytes
    assert len(tail.encode()) <= limit_bytes
    assert head == whole or (head.endswith("…") and whole.startswith(head[:-1]))
    assert tail == whole or (tail.startswith("…") and whole.endswith(tail[1:]))
