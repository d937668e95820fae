"""Checks that files, functions and classes stay small enough to be read in one go.

A file has at most 400 code lines, a function 40, a class 12 public methods. Docstrings, comments, blank lines,
overloads, properties and tables of data at module level don't count. A function (on its `def` line or the line above) or a
file (before its first statement) is exempt with a comment `# size: reason`; the reasons are listed, at most 10.

    python scripts/sizes.py [PATH ...]
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FILE_LINES = 400
FUNCTION_LINES = 40
PUBLIC_METHODS = 12
EXEMPTIONS = 10
PLACES = ("src", "tests", "benchmarks", "scripts", "examples")

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SILENT_TOKENS = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is too large, or one exemption with its reason."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in some source text."""

    too_large: tuple[Finding, ...]
    exempt: tuple[Finding, ...]


def check(path: str, source: str) -> Report:
    """Measure one file's source text."""
    tree = ast.parse(source)
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    code = _code_lines(tokens) - _uncounted_lines(tree)
    reasons = _reasons(tokens)
    too_large: list[Finding] = []
    exempt: list[Finding] = []
    for line, text, reason_lines in _excesses(tree, code):
        reason = next((reasons[n] for n in reason_lines if n in reasons), None)
        if reason is None:
            too_large.append(Finding(path, line, text))
        else:
            exempt.append(Finding(path, line, f"{text}: exempt, {reason}"))
    return Report(tuple(too_large), tuple(exempt))


def _excesses(tree: ast.Module, code: set[int]) -> Iterator[tuple[int, str, range]]:
    """What exceeds a limit: its line, the excess in words, the lines on which an exemption may stand."""
    if len(code) > FILE_LINES:
        yield 1, f"{len(code)} code lines (a file has at most {FILE_LINES})", range(1, _first_statement(tree))
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            size = len(code & set(range(node.lineno, _end(node) + 1)))
            if size > FUNCTION_LINES:
                start = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                text = f"{node.name}: {size} code lines (a function has at most {FUNCTION_LINES})"
                yield node.lineno, text, range(start - 1, node.body[0].lineno)
        elif isinstance(node, ast.ClassDef):
            methods = {n.name for n in node.body if isinstance(n, _FUNCTIONS) and _is_public_method(n)}
            if len(methods) > PUBLIC_METHODS:
                text = f"{node.name}: {len(methods)} public methods (a class has at most {PUBLIC_METHODS})"
                yield node.lineno, text, range(node.lineno - 1, node.lineno + 1)


def _code_lines(tokens: Iterable[tokenize.TokenInfo]) -> set[int]:
    return {
        line
        for token in tokens
        if token.type not in _SILENT_TOKENS
        for line in range(token.start[0], token.end[0] + 1)
    }


def _reasons(tokens: Iterable[tokenize.TokenInfo]) -> dict[int, str]:
    """Line number -> reason of each `# size: reason` comment."""
    found = (
        (t.start[0], re.search(r"# size: *(\S.*)", t.string)) for t in tokens if t.type == tokenize.COMMENT
    )
    return {line: match[1] for line, match in found if match}


def _uncounted_lines(tree: ast.Module) -> set[int]:
    """Lines of docstrings, overloads and module-level tables."""
    nodes: list[ast.stmt] = [n for n in tree.body if _is_table(n)]
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS)) and ast.get_docstring(node) is not None:
            nodes.append(node.body[0])
        if isinstance(node, _FUNCTIONS) and any(_is_overload(d) for d in node.decorator_list):
            nodes.append(node)
    return {
        line
        for n in nodes
        for line in range(min([n.lineno, *(d.lineno for d in getattr(n, "decorator_list", ()))]), _end(n) + 1)
    }


def _is_public_method(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether callers see it as a method: not a private one, nor a property, which they see as a value."""
    names = {ast.unparse(d).rpartition(".")[2] for d in node.decorator_list}
    return not node.name.startswith("_") and not names & {"property", "cached_property", "setter", "overload"}


def _is_overload(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).rpartition(".")[2] == "overload"


def _is_table(node: ast.stmt) -> bool:
    """Whether this is `NAME = {...}`, `[...]`, `(...)`, or one of them wrapped in a call."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
        return False
    value = node.value.args[0] if isinstance(node.value, ast.Call) and node.value.args else node.value
    return isinstance(value, (ast.Dict, ast.List, ast.Set, ast.Tuple))


def _first_statement(tree: ast.Module) -> int:
    start = 1 if ast.get_docstring(tree) is not None else 0
    return tree.body[start].lineno if len(tree.body) > start else 1


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def main(arguments: list[str]) -> int:
    """Check the given files and folders (default: all of the project's); 0 when nothing is too large."""
    places = [Path(p) for p in arguments or PLACES]
    files = sorted(f for p in places for f in ([p] if p.is_file() else p.rglob("*.py")))
    reports = [check(str(f), f.read_text("utf-8")) for f in files]
    too_large = [f for r in reports for f in r.too_large]
    exempt = [f for r in reports for f in r.exempt]
    for finding in (*exempt, *too_large):
        print(finding)
    if len(exempt) > EXEMPTIONS:
        print(f"sizes: {len(exempt)} exemptions, at most {EXEMPTIONS} are allowed: split one of them")
    print(f"sizes: {len(files)} files, {len(too_large)} too large, {len(exempt)} exempt")
    return 1 if too_large or len(exempt) > EXEMPTIONS else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
