"""Whether the demo's counts add up: each order that was sent is in one place, and in one only."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import msgspec

from redrive.core.router import Reason
from redrive.deadletters.replay import Report
from redrive.demo.ledger import Success

#: What a dead letter's state is called while nobody did anything about it.
OPEN = "open"


class FinalLetter(NamedTuple):
    """A dead letter as Kafka has it at the end. `state`: `open`, `replayed`, `discarded`, `resolved` or `unknown`."""

    order_id: str
    reason: str
    state: str


class Facts(msgspec.Struct, frozen=True):
    """
    What was seen. `successes`: the runs of the handler that went well, by order. `retries`: copies in each tier.
    `late_ms`: how long after its due each retry was started. `replay`: what the replay reported; None before it.
    `is_whole`: whether it came to its end, so that nothing may be under way.
    """

    sent: frozenset[str]
    successes: Mapping[str, tuple[Success, ...]]
    letters: tuple[FinalLetter, ...]
    retries: Mapping[str, int] = {}
    late_ms: tuple[float, ...] = ()
    replay: Report | None = None
    is_whole: bool = True


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """
    sent = handled + discarded + left + unfinished, where all is well without `unfinished`; each order counts once.

    `left`: dead letters that still wait for a person. `unfinished`: neither handled nor a dead letter. `twice`: orders
    that were handled, or are dead letters, more than once. `retries`: copies in each tier. `early`: retries that began
    before they were due; `late_ms`: how long after it they began. `problems`: what doesn't add up, in words.
    """

    sent: int
    handled: int
    discarded: int
    left: int
    unfinished: int
    twice: int
    handled_by: Mapping[str, int]
    dead_letters: Mapping[str, int]
    retries: Mapping[str, int]
    replay: Mapping[str, int]
    early: int
    late_ms: Mapping[str, float]
    problems: tuple[str, ...]

    @property
    def adds_up(self) -> bool:
        """Whether everything is accounted for."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {**msgspec.to_builtins(self), "adds_up": self.adds_up}


def summarize(facts: Facts) -> Summary:
    """Gives the counts, and what is wrong with them."""
    handled = {order_id for order_id, runs in facts.successes.items() if runs}
    by = Counter(_how(runs[0]) for runs in facts.successes.values() if runs)
    discarded = _in_state(facts, "discarded", "resolved") - handled
    left = _in_state(facts, OPEN, "unknown") - handled - discarded
    return Summary(
        sent=len(facts.sent),
        handled=len(handled),
        discarded=len(discarded),
        left=len(left),
        unfinished=len(facts.sent - handled - discarded - left),
        twice=len(_twice(facts)),
        handled_by={how: by[how] for how in ("first attempt", "retry", "replay")},
        dead_letters=dict(sorted(Counter(letter.reason for letter in facts.letters).items())),
        retries=dict(facts.retries),
        replay=_replay_counts(facts.replay),
        early=sum(late_ms < 0 for late_ms in facts.late_ms),
        late_ms=_lateness(facts.late_ms),
        problems=tuple(_problems(facts, handled, discarded, left)),
    )


def _how(run: Success) -> str:
    if run.is_replay:
        return "replay"
    return "first attempt" if run.attempt == 1 else "retry"


def _in_state(facts: Facts, *states: str) -> set[str]:
    return {letter.order_id for letter in facts.letters if letter.state in states}


def _twice(facts: Facts) -> set[str]:
    """Handled twice, two letters, or handled although its letter still waits."""
    letters = Counter(letter.order_id for letter in facts.letters)
    handled = {order_id: len(runs) for order_id, runs in facts.successes.items()}
    waits = _in_state(facts, OPEN, "discarded", "resolved")
    return {
        *(order_id for order_id, count in letters.items() if count > 1),
        *(order_id for order_id, count in handled.items() if count > 1 or (count and order_id in waits)),
    }


def _lateness(late_ms: Sequence[float]) -> dict[str, float]:
    if not late_ms:
        return {}
    return {"median": round(median(late_ms), 1), "most": round(max(late_ms), 1)}


def _replay_counts(report: Report | None) -> dict[str, int]:
    if report is None:
        return {}
    return {
        "selected": report.selected,
        "sent": report.done,
        "failed": report.failed,
        "skipped": report.skipped,
        "not_found": report.not_found,
    }


def _problems(facts: Facts, handled: set[str], discarded: set[str], left: set[str]) -> Iterator[str]:
    known = handled | {letter.order_id for letter in facts.letters}
    if facts.is_whole and (lost := facts.sent - handled - discarded - left):
        yield f"{_several(lost)} sent, and neither handled nor a dead letter: {_names(lost)}"
    if twice := _twice(facts):
        yield f"{_several(twice)} handled or put aside more than once: {_names(twice)}"
    if strangers := known - facts.sent:
        yield f"{_several(strangers)} handled or put aside, and never sent: {_names(strangers)}"
    poison = {letter.order_id for letter in facts.letters if letter.reason == Reason.POISON}
    if facts.is_whole and (stuck := left - poison):
        yield f"{_several(stuck)} left as dead letters although the fix is there: {_names(stuck)}"
    if early := sum(late_ms < 0 for late_ms in facts.late_ms):
        yield f"{early} of the retries began before they were due"
    if facts.is_whole and facts.replay is not None:
        yield from _replay_problems(facts, facts.replay)


def _replay_problems(facts: Facts, report: Report) -> Iterator[str]:
    accounted = report.done + report.failed + report.skipped + report.not_found
    if accounted != report.selected:
        yield f"the replay selected {report.selected} letters and accounts for {accounted}"
    marked = _in_state(facts, "replayed")
    if len(marked) != report.done:
        yield f"the replay sent {report.done} letters, and {len(marked)} are marked as replayed"
    came_back = {order_id for order_id, runs in facts.successes.items() if any(run.is_replay for run in runs)}
    if marked != came_back:
        yield f"replayed, but not handled since, or the other way round: {_names(marked ^ came_back)}"


def _several(orders: set[str] | frozenset[str]) -> str:
    return "1 order was" if len(orders) == 1 else f"{len(orders)} orders were"


def _names(orders: Iterable[str]) -> str:
    names = sorted(orders)
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
