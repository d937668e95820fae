"""`redrive init`: a service that runs, its settings, a broker for it, and a test that passes."""

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from redrive.cli.context import HERE
from redrive.cli.output import reporting
from redrive.errors import RedriveError

_FILES = ("service.py", "test_service.py", "redrive.toml", "compose.yaml")
_NEXT = (
    ("docker compose up -d --wait", "a broker; or name one that runs in redrive.toml"),
    ("redrive topics apply --create-sources 4", "the topics"),
    ("redrive run", "the service, until Ctrl-C"),
)


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Where to write.", show_default=False)
    ] = HERE,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there.")] = False,
) -> None:
    """Write a small service with its settings, a compose.yaml and a test, to start from."""
    with reporting() as output:
        there = [name for name in _FILES if (directory / name).exists()]
        if there and not force:
            raise RedriveError(
                f"{', '.join(there)} {'is' if len(there) == 1 else 'are'} there already in {directory.resolve()}; "
                "nothing was written. Take another folder, or --force to write over"
            )
        texts = {name: _template(name) for name in _FILES}
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for name, text in texts.items():
                (directory / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise RedriveError(f"can't write to {directory}: {error}") from error
        output.line(f"wrote {', '.join(_FILES)}")
        output.line("next:")
        if directory != HERE:
            output.line(f"  cd {directory}")
        for command, what in _NEXT:
            output.line(f"  {command:<42}# {what}")
        output.line("pytest runs test_service.py, without Kafka")


def _template(name: str) -> str:
    return (resources.files("redrive.cli") / "templates" / f"{name}.txt").read_text("utf-8")
