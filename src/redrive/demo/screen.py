"""The demo on a terminal: who waits in which tier and until when, dead letters by cause, and what just happened."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import NamedTuple, Self

from rich.box import ROUNDED
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from redrive.core.units import parse_duration_ms
from redrive.demo.ledger import Ledger, Letter, Move, MoveKind, View, Waiting
from redrive.demo.orders import number_of
from redrive.demo.service import TIERS
from redrive.runtime.clock import Clock

#: Smaller than this it would only be a puzzle.
MIN_SIZE = (76, 22)
_FRAMES_PER_S = 12

ACTS = ("orders fail", "the fix", "the replay", "the proof")
STYLES: dict[MoveKind, tuple[str, str]] = {
    "retried": ("↻", "yellow"),
    "dead": ("✗", "red"),
    "replayed": ("↑", "cyan"),
    "handled": ("✓", "green"),
}
_DIM = "dim"
#: Columns from which on it is told what was ordered.
_ROOMY = 100


class Scene(NamedTuple):
    """What is told at the top."""

    act: int = 1
    headline: str = ""
    detail: str = ""


class LiveScreen(AbstractContextManager["LiveScreen"]):
    """A `Stage` on the whole terminal, while its block runs."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._clock = clock
        self._title = ""
        self._ledger: Ledger | None = None
        self._scene = Scene()
        self._moves: deque[Move] = deque(maxlen=200)
        self._live = Live(self, console=console, screen=True, refresh_per_second=_FRAMES_PER_S)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def open(self, title: str, ledger: Ledger) -> None:
        """Where it runs, and where the numbers are."""
        self._title, self._ledger = title, ledger

    def scene(self, act: int, headline: str, detail: str) -> None:
        """What is going on now."""
        self._scene = Scene(act, headline, detail)

    def move(self, move: Move) -> None:
        """An order made a step."""
        self._moves.append(move)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._ledger is not None:
            yield draw(
                self._ledger.view(),
                self._scene,
                list(self._moves),
                title=self._title,
                after_s=self._ledger.elapsed_s(),
                now_ms=self._clock.wall_ms(),
                size=(options.max_width, options.height or console.height),
            )


def draw(
    view: View,
    scene: Scene,
    moves: Sequence[Move],
    *,
    title: str,
    after_s: float,
    now_ms: float,
    size: tuple[int, int],
) -> RenderableType:
    """One picture of exactly `size`, columns by rows."""
    width, height = size
    top = [_head(title, after_s, width), _acts(scene.act), Text(scene.headline, "bold"), Text(scene.detail)]
    ladder = [*_progress(view, width - 4), *(_tier(tier, view.waiting, now_ms, width - 4) for tier in TIERS)]
    causes = list(_causes(view, width - 4))
    rest = max(1, height - len(top) - (len(ladder) + 2) - (max(3, len(causes)) + 2) - 2)
    return Group(
        *(_fitted(line, width, indent=1) for line in top),
        _panel("orders", ladder, len(ladder)),
        _panel("dead letters", causes, max(3, len(causes))),
        _panel(
            "what just happened",
            [_line(move, width - 4) for move in list(moves)[-rest:]],
            rest,
            "Ctrl-C ends",
        ),
    )


def _head(title: str, after_s: float, width: int) -> Text:
    clock = f"{int(after_s) // 60}:{int(after_s) % 60:02}"
    left = Text.assemble(("redrive demo", "bold magenta"), ("  ", ""), (title, _DIM))
    return Text.assemble(left, " " * max(1, width - 2 - left.cell_len - len(clock)), (clock, _DIM))


def _acts(now: int) -> Text:
    text = Text()
    for number, name in enumerate(ACTS, 1):
        mark, style = ("✓", "green") if number < now else ("●", "bold") if number == now else ("○", _DIM)
        text.append(f"{mark} {name}", style)
        text.append("   ")
    return text


def _progress(view: View, width: int) -> Iterator[Text]:
    dead = len({letter.order_id for letter in view.letters} - view.replay_handled)
    # Shades differ too, for who sees or wants no colours.
    parts = (
        (view.at_once, "█", "green", "at once"),
        (view.after_retries, "▓", "yellow", "retried"),
        (view.after_replay, "▒", "cyan", "replayed"),
        (dead, "░", "red", "dead"),
        (max(0, view.sent - view.handled - dead), "·", _DIM, "on the way"),
    )
    label = f"{view.handled} of {view.sent} handled "
    bar = Text(label, "bold")
    shares = _shares([count for count, *_ in parts], width - len(label))
    for (_, shade, style, _), cells in zip(parts, shares, strict=True):
        bar.append(shade * cells, style)
    yield bar
    legend = (((shade, style), f" {count} {name}  ") for count, shade, style, name in parts)
    yield Text.assemble(*(piece for pieces in legend for piece in pieces))


def _shares(counts: Sequence[int], cells: int) -> list[int]:
    """Cells for each count, in proportion; what is there at all gets one, and the largest pays for it."""
    total = sum(counts)
    if not total:
        return [0] * len(counts)
    shares = [max(1, count * cells // total) if count else 0 for count in counts]
    shares[shares.index(max(shares))] += cells - sum(shares)
    return shares


def _tier(tier: str, waiting: Sequence[Waiting], now_ms: float, width: int) -> Text:
    """A track on which orders walk to the right until they are due; then until when the next ones wait."""
    here = sorted((one for one in waiting if one.tier == tier), key=lambda one: one.due_ms)
    shown = 3 if width > _ROOMY else 1
    label, style = f"again in {tier} ", "" if here else _DIM
    cells = max(1, width - len(label) - len("▶ 10 wait, next ") - shown * len("#000 in 0.0 s, ") + 2)
    track: list[tuple[str, str]] = [("·", _DIM)] * cells
    delay_ms = parse_duration_ms(tier)
    for one in reversed(here):
        walked = 1 - min(1.0, max(0.0, (one.due_ms - now_ms) / delay_ms))
        cell = round(walked * (cells - 1))
        is_taken = track[cell][0] != "·"
        track[cell] = ("◉" if is_taken else "●", "cyan" if one.is_replay else "yellow")
    told = "nobody waits"
    if here:
        many = "1 waits" if len(here) == 1 else f"{len(here)} wait"
        told = f"{many}, next {', '.join(_until_due(one, now_ms) for one in here[:shown])}"
    return Text.assemble(label, *track, ("▶ ", style), (told, style))


def _until_due(one: Waiting, now_ms: float) -> str:
    return f"#{number_of(one.order.id):03} in {max(0.0, one.due_ms - now_ms) / 1000:.1f} s"


def _causes(view: View, width: int) -> Iterator[Text]:
    if not view.letters:
        yield Text("none so far", _DIM)
    causes: dict[tuple[str, str], list[Letter]] = {}
    for letter in view.letters:
        failure = "bytes that are no order" if letter.reason == "poison" else letter.failure
        causes.setdefault((letter.reason, failure), []).append(letter)
    for (reason, failure), letters in causes.items():
        state, style = _state(reason, letters, view)
        left = Text.assemble((f"{len(letters):>2} ", "bold red"), (f"{reason:<10}", "red"), failure)
        if width > _ROOMY:
            left.append("  " + " ".join(f"#{number_of(letter.order_id):03}" for letter in letters), _DIM)
        left.truncate(max(1, width - len(state) - 1), overflow="ellipsis")
        yield Text.assemble(left, " " * (width - left.cell_len - len(state)), (state, style))


def _state(reason: str, letters: Sequence[Letter], view: View) -> tuple[str, str]:
    ids = {letter.order_id for letter in letters}
    handled, replayed = len(ids & view.replay_handled), len(ids & view.replayed)
    if replayed:
        done = handled == len(ids)
        return f"{replayed} replayed, {handled} handled{' ✓' if done else ''}", "green" if done else "cyan"
    attempts = {letter.attempts for letter in letters}
    if reason == "exhausted":
        return f"after {max(attempts)} attempts", _DIM
    return ("left for a person", "yellow") if view.replayed else ("at once", _DIM)


def _line(move: Move, width: int) -> Text:
    mark, style = STYLES[move.kind]
    text = Text.assemble(
        (f"{move.after_s:4.1f} ", _DIM),
        (f"{mark} ", style),
        (f"#{number_of(move.order.id):03} ", "bold"),
        move.text,
    )
    what = f"  {move.order.product} for {move.order.customer}"
    if width > _ROOMY and text.cell_len + len(what) <= width:
        text.append(" " * (width - text.cell_len - len(what)))
        text.append(what, _DIM)
    text.truncate(max(1, width), overflow="ellipsis")
    return text


def _panel(title: str, lines: Sequence[Text], rows: int, subtitle: str = "") -> Panel:
    grid = Table.grid()
    for line in lines:
        line.no_wrap = True
        grid.add_row(line)
    return Panel(
        grid,
        box=ROUNDED,
        height=rows + 2,
        title=f"[not dim bold]{title}[/]",
        title_align="left",
        subtitle=f"[{_DIM}]{subtitle}[/]" if subtitle else None,
        subtitle_align="right",
        border_style=_DIM,
    )


def _fitted(line: Text, width: int, indent: int) -> Text:
    line.truncate(max(1, width - indent), overflow="ellipsis")
    line.no_wrap = True
    return Text.assemble(" " * indent, line)
