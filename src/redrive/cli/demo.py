"""`redrive demo`: a payments service that fails in four ways, is mended, and gets its dead letters back."""

import logging
import signal
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from redrive.cli.context import Json
from redrive.cli.output import Output, reporting
from redrive.core.exit_codes import ExitCode

if TYPE_CHECKING:
    from rich.console import Console

    from redrive.demo.cluster import Playground
    from redrive.demo.lines import PlainLines
    from redrive.demo.screen import LiveScreen
    from redrive.demo.summary import Summary
    from redrive.runtime.clock import Clock

_NEXT = (
    "redrive init                                 begin a service of your own",
    "redrive demo --bootstrap-servers HOST:PORT   the same on a real Kafka",
)


def demo(
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            metavar="HOST:PORT",
            help="Run it on this Kafka, in topics of its own that it deletes at the end. By default inside this process.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """
    Watch a service fail in four ways, be mended, and get its dead letters back. Needs nothing but 40 s.

    With --json the last line on stdout is the summary; all else goes to stderr then.
    """
    with reporting(as_json=json) as output:
        from rich.console import Console

        from redrive.runtime.clock import SystemClock

        # Who ends it by SIGTERM wants the same clean end as by Ctrl-C, also where a shell made it ignore that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="replace")  # a mark that the encoding lacks is no reason to fail
        clock = SystemClock()
        _perform(_playground(bootstrap_servers, clock, output), clock, Console(stderr=json), output)


def _playground(bootstrap_servers: str | None, clock: "Clock", output: Output) -> "Playground":
    from redrive.demo.cluster import MockPlayground, RealPlayground

    if bootstrap_servers is None:
        return MockPlayground()
    from redrive.adapters.settings_source import load_settings
    from redrive.cli.cluster import connect

    settings = load_settings(overrides={"bootstrap_servers": bootstrap_servers})
    name = f"redrive-demo-{uuid4().hex[:6]}"
    return RealPlayground(name, connect(settings, name, output), settings, clock)


def _perform(playground: "Playground", clock: "Clock", console: "Console", output: Output) -> None:
    import asyncio

    from redrive.demo.lines import ending
    from redrive.demo.story import Story

    complaints = _Complaints()
    stage = _stage(console, clock)
    story = Story(playground, stage, clock)
    is_interrupted = False
    try:
        with stage:
            asyncio.run(story.play())
    except KeyboardInterrupt:
        is_interrupted = True
    finally:
        seconds = story.ledger.elapsed_s()
        if cleared := playground.clear():
            output.note(cleared)
    summary = story.summary(is_whole=not is_interrupted)
    for line in ending(summary, seconds=seconds, is_interrupted=is_interrupted):
        console.print(line, soft_wrap=True)
    if not summary.adds_up:
        for complaint in complaints.texts:
            output.note(f"redrive logged: {complaint}")
    output.result(
        {
            **summary.as_dict(),
            "interrupted": is_interrupted,
            "seconds": round(seconds, 1),
            "kafka": playground.title,
        }
    )
    if code := exit_code(summary, is_interrupted=is_interrupted):
        raise typer.Exit(code)
    for hint in _NEXT:
        output.line(f"  {hint}")


def exit_code(summary: "Summary", *, is_interrupted: bool) -> ExitCode:
    """A demo whose counts don't add up has failed, also when it was interrupted."""
    if not summary.adds_up:
        return ExitCode.FAILED
    return ExitCode.INTERRUPTED if is_interrupted else ExitCode.DONE


class _Complaints(logging.Handler):
    """Errors that the service logged: the screen has no place for what must not happen."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []
        logging.getLogger("redrive").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _stage(console: "Console", clock: "Clock") -> "LiveScreen | PlainLines":
    """The live screen needs a terminal that is large enough; anything else gets lines."""
    from redrive.demo.lines import PlainLines
    from redrive.demo.screen import MIN_SIZE, LiveScreen

    wide, high = console.size.width >= MIN_SIZE[0], console.size.height >= MIN_SIZE[1]
    draws = console.file.isatty() and not console.is_dumb_terminal and console.encoding.startswith("utf")
    if draws and wide and high:
        return LiveScreen(console, clock)
    return PlainLines(lambda line: console.print(line, soft_wrap=True))
