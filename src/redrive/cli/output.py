"""
How commands speak: tables for people, one JSON object for programs, problems in plain words, and exit codes.

Results go to stdout, everything else to stderr, so that a pipe gets results only.
"""

import json
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Any

import typer

from redrive.core.exit_codes import ExitCode
from redrive.errors import ListenerError, RedriveError, SettingsError


class Output:
    """
    What one command says. With `as_json` stdout gets the one object of `result` and nothing else; otherwise lines and
    tables, and `result` says nothing.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self._stdout = sys.stdout

    def line(self, text: str = "") -> None:
        """A line of the result, for people."""
        if not self.as_json:
            print(_printable(text))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table of the result, for people: drawn on a terminal, columns of text elsewhere."""
        if self.as_json:
            return
        cells = [[_printable(str(cell)) for cell in row] for row in rows]
        if sys.stdout.isatty():
            _draw(columns, cells)
        else:
            print("\n".join(_aligned([[column.upper() for column in columns], *cells])))

    def result(self, value: Mapping[str, Any]) -> None:
        """The whole result, for programs."""
        if self.as_json:
            print(json.dumps(value, ensure_ascii=False, default=str), file=self._stdout)

    def note(self, text: str) -> None:
        """Something to know that isn't the result."""
        print(_printable(text), file=sys.stderr)

    def problem(self, error: RedriveError) -> None:
        """Why the command failed, and what to do; for programs too, since they wait for an object."""
        if self.as_json:
            problems = list(error.problems) if isinstance(error, (SettingsError, ListenerError)) else []
            told = [{"where": problem.where, "what": problem.what} for problem in problems]
            self.result({"error": str(error), **({"problems": told} if told else {})})
        else:
            self.note(str(error))


@contextmanager
def reporting(*, as_json: bool = False) -> Generator[Output]:
    """
    The frame of each command: gives its Output, and turns errors and Ctrl-C into words and an exit code.

    With `as_json` whatever the user's module prints goes to stderr, so that stdout is one object and nothing else.

    A command that ends otherwise than well raises `typer.Exit(ExitCode.…)` itself. Errors that aren't redrive's are
    defects and keep their traceback.
    """
    output = Output(as_json=as_json)
    try:
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            yield output
    except RedriveError as error:
        output.problem(error)
        raise typer.Exit(ExitCode.FAILED) from None
    except KeyboardInterrupt:
        output.note("interrupted")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _draw(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _printable(text: str) -> str:
    """Control characters spelled out: what comes from records must not steer a terminal."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode()
        for char in text
    )
