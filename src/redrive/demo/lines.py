"""The demo without a terminal: a line for each step. And its end, in words, for both."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from rich.text import Text

from redrive.core.router import Reason
from redrive.demo.ledger import Ledger, Move
from redrive.demo.screen import ACTS, STYLES
from redrive.demo.summary import Summary

#: Between two lines that tell the counts.
_COUNTS_EVERY_S = 5.0


class PlainLines(AbstractContextManager["PlainLines"]):
    """A `Stage` for logs and pipes. `say` writes a line, and may be called by any thread."""

    def __init__(self, say: Callable[[Text], None]) -> None:
        self._say = say
        self._ledger: Ledger | None = None
        self._counted_s = 0.0

    def __exit__(self, *_: object) -> None:
        pass

    def open(self, title: str, ledger: Ledger) -> None:
        """Where it runs, and where the numbers are."""
        self._ledger = ledger
        self._say(Text.assemble(("redrive demo", "bold magenta"), f": a payments service on {title}"))

    def scene(self, act: int, headline: str, detail: str) -> None:
        """What is going on now."""
        self._say(Text())
        self._say(Text.assemble((f"{act}. {ACTS[act - 1]}: {headline} ", "bold"), detail))

    def move(self, move: Move) -> None:
        """An order made a step."""
        mark, style = STYLES[move.kind]
        self._say(Text.assemble(f"{move.after_s:5.1f} ", (mark, style), f" {move.order.id}: {move.text}"))
        if self._ledger is not None and move.after_s - self._counted_s >= _COUNTS_EVERY_S:
            self._counted_s = move.after_s
            view = self._ledger.view()
            self._say(
                Text(
                    f"{move.after_s:5.1f}   {view.handled} of {view.sent} orders handled, {len(view.waiting)} wait in a tier, "
                    f"{len(view.letters) - len(view.replay_handled)} are dead letters",
                    "bold",
                )
            )


def ending(summary: Summary, *, seconds: float, is_interrupted: bool) -> Iterator[Text]:
    """What has become of all orders, as an addition."""
    yield Text()
    yield _headline(summary, seconds, is_interrupted=is_interrupted)
    yield Text()
    yield _count(summary.sent, "orders sent", "", "bold")
    yield _RULE
    by = summary.handled_by
    yield _count(by["first attempt"], "handled at the first attempt", "", "green")
    yield _count(by["retry"], "handled after retries", _punctual(summary), "yellow")
    yield _count(by["replay"], "handled after their replay", "", "cyan")
    if summary.discarded:
        yield _count(summary.discarded, "discarded", "", "red")
    is_poison = 0 < summary.left == summary.dead_letters.get(Reason.POISON, 0)
    yield _count(summary.left, "dead letters", "poison: left for a person" if is_poison else "", "red")
    if summary.unfinished:
        yield _count(summary.unfinished, "under way" if is_interrupted else "lost", "", "yellow")
    yield _RULE
    accounted = sum(by.values()) + summary.discarded + summary.left + summary.unfinished
    yield _count(accounted, "accounted for" if is_interrupted else "accounted for, each once", "", "bold")
    yield Text()
    for problem in summary.problems:
        yield Text(f"  {problem}", "bold red")


_RULE = Text("  ────", "dim")


def _headline(summary: Summary, seconds: float, *, is_interrupted: bool) -> Text:
    if is_interrupted and summary.adds_up:
        return Text(f"Interrupted after {seconds:.0f} s.", "bold")
    if summary.adds_up:
        return Text(f"Every order is accounted for, after {seconds:.0f} s.", "bold green")
    return Text("The counts don't add up. That must not happen; please report it.", "bold red")


def _punctual(summary: Summary) -> str:
    if summary.early or not summary.late_ms:
        return ""
    return f"none early, half within {summary.late_ms['median']} ms"


def _count(count: int, what: str, more: str, style: str) -> Text:
    line = Text.assemble((f"  {count:>4}  ", style), what)
    return Text.assemble(line, " " * (38 - line.cell_len), more) if more else line
