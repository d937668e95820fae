"""What handlers ask for and policies say, on a real broker and at the times that it was said."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import pytest

from redrive import App, Backoff, DeadLetterNow, Failures, Record, RetryLater, RetryPolicy, Skip
from tests.faults import running
from tests.plain_kafka import Given, Seen, create_topics_of, is_all_committed, read_all, send, unique
from tests.waiting import until


class Run(NamedTuple):
    attempt: int
    start_ms: float
    due_ms: int | None


class Throttled(Exception):
    """As HTTP clients tell it: 429, come back in 1 s."""

    status_code = 429
    headers = {"Retry-After": "1"}


class GatewayDown(Exception):
    pass


class Outcome(NamedTuple):
    runs: dict[str, list[Run]]
    dead: dict[str, list[Seen]]

    def waits_ms(self, listener: str) -> list[float]:
        """How long after the run before each run started."""
        runs = self.runs[listener]
        return [later.start_ms - earlier.start_ms for earlier, later in pairwise(runs)]

    def reasons(self, listener: str) -> list[tuple[str, str]]:
        return [(seen.own["reason"], seen.own["attempt"]) for seen in self.dead[listener]]


def _at(*attempts: int, error: type[Exception] | Exception) -> Callable[[int], None]:
    """Fails with the error at these attempts, without any at all of them."""

    def act(attempt: int) -> None:
        if not attempts or attempt in attempts:
            raise error

    return act


def _down_twice() -> Callable[[int], None]:
    errors = iter([GatewayDown, GatewayDown])

    def act(_: int) -> None:
        if (error := next(errors, None)) is not None:
            raise error

    return act


LADDER = ("200ms", "600ms")
LOOK = DeadLetterNow("a person must look")
#: A listener for each thing to be tried: its policy, what its handler does, other options.
LISTENERS = {
    "later-than-tiers": (RetryPolicy(*LADDER), _at(1, error=RetryLater("1500ms")), {}),
    "sooner-than-tiers": (RetryPolicy("1s", "2s"), _at(1, error=RetryLater("50ms")), {}),
    "between-tiers": (RetryPolicy(*LADDER), _at(1, error=RetryLater("400ms")), {}),
    "retry-later-for-ever": (RetryPolicy(*LADDER), _at(error=RetryLater("10ms")), {}),
    "too-far-for-any-tier": (RetryPolicy(*LADDER), _at(error=RetryLater("30d")), {}),
    "retry-after": (RetryPolicy(*LADDER), _at(1, error=Throttled), {}),
    "max-age": (RetryPolicy(*LADDER, max_age="500ms"), _at(error=ConnectionError), {}),
    "repeats-its-last-tier": (
        RetryPolicy("100ms", "150ms", max_attempts=5),
        _at(error=ConnectionError),
        {},
    ),
    "skip": (RetryPolicy(*LADDER), _at(error=Skip("not ours")), {}),
    "dead-letter-now": (RetryPolicy(*LADDER), _at(error=LOOK), {}),
    "dead-letter-in-a-tier": (
        RetryPolicy(*LADDER),
        lambda attempt: _at(error=ConnectionError if attempt == 1 else LOOK)(attempt),
        {},
    ),
    "give-up-by-skipping": (RetryPolicy("100ms"), _at(error=ConnectionError), {"give_up": "skip"}),
    "immediate": (RetryPolicy("200ms", immediate=Backoff(2, wait="20ms")), _at(error=ConnectionError), {}),
    "immediate-only": (RetryPolicy(immediate=Backoff(2, wait="20ms")), _at(error=ConnectionError), {}),
    "jitter": (RetryPolicy("300ms", jitter=1.0), _at(error=ConnectionError), {}),
    "outage": (RetryPolicy(*LADDER), _down_twice(), {"failures": Failures(outage=GatewayDown)}),
}


@pytest.fixture(scope="module")
def outcome(kafka) -> Outcome:
    app = App(unique("policies"), settings={"bootstrap_servers": kafka.bootstrap, "commit_interval": "100ms"})
    runs: dict[str, list[Run]] = {name: [] for name in LISTENERS}
    sources = {name: unique(name) for name in LISTENERS}
    for name, (policy, act, options) in LISTENERS.items():
        app.listener(sources[name], retry=policy, name=name, **options)(_handler(runs[name], act))
    topics = create_topics_of(kafka.bootstrap, app)
    for name, source in sources.items():
        send(kafka.bootstrap, source, [Given(b"1")] * (20 if name == "jitter" else 1))
    send(kafka.bootstrap, sources["outage"], [Given(b"behind it")])
    with running(app):
        until(lambda: is_all_committed(kafka.bootstrap, app.group, [*sources.values()]), "sources committed")
        tiers = [topic for topic in topics if ".retry." in topic]
        until(lambda: len(runs["later-than-tiers"]) == 2, "the last of all retries")
        until(lambda: is_all_committed(kafka.bootstrap, app.group, tiers), "tiers committed")
    return Outcome(
        runs, {name: read_all(kafka.bootstrap, f"{source}.dlq") for name, source in sources.items()}
    )


LATE_MS = 900.0  # on a busy machine; a tier of 1 s must not pass for 50 ms


def _handler(runs: list[Run], act: Callable[[int], None]) -> Callable[[Record], None]:
    def handle(record: Record) -> None:
        runs.append(Run(record.attempt, time.time() * 1000, record.due_ms))
        act(record.attempt)

    return handle


def _is_due_after(waits_ms: list[float], due_ms: list[float]) -> bool:
    return len(waits_ms) == len(due_ms) and all(
        due <= wait < due + LATE_MS for wait, due in zip(waits_ms, due_ms, strict=True)
    )


@pytest.mark.realtime
@pytest.mark.parametrize(
    ("listener", "waits_ms"),
    [
        ("later-than-tiers", [1500]),
        ("sooner-than-tiers", [50]),
        ("between-tiers", [400]),
        ("retry-later-for-ever", [10, 10]),
        ("retry-after", [1000]),
        ("max-age", [200]),
        ("repeats-its-last-tier", [100, 150, 150, 150]),
        ("dead-letter-in-a-tier", [200]),
        ("immediate", [20, 20, 200]),
        ("immediate-only", [20, 20]),
        ("give-up-by-skipping", [100]),
        ("outage", [1000, 2000, 0]),
    ],
)
def test_runs_start_at_their_times_and_not_before(outcome, listener, waits_ms):
    assert _is_due_after(outcome.waits_ms(listener), waits_ms), outcome.waits_ms(listener)


@pytest.mark.parametrize(
    ("listener", "attempts", "letters"),
    [
        ("later-than-tiers", [1, 2], []),
        ("sooner-than-tiers", [1, 2], []),
        ("between-tiers", [1, 2], []),
        ("retry-later-for-ever", [1, 2, 3], [("exhausted", "3")]),
        ("retry-after", [1, 2], []),
        ("max-age", [1, 2], [("expired", "2")]),
        ("too-far-for-any-tier", [1], [("expired", "1")]),
        ("repeats-its-last-tier", [1, 2, 3, 4, 5], [("exhausted", "5")]),
        ("skip", [1], []),
        ("dead-letter-now", [1], [("asked", "1")]),
        ("dead-letter-in-a-tier", [1, 2], [("asked", "2")]),
        ("give-up-by-skipping", [1, 2], []),
        ("immediate", [1, 2, 3, 4], [("exhausted", "4")]),
        ("immediate-only", [1, 2, 3], [("exhausted", "3")]),
        ("outage", [1, 1, 1, 1], []),
    ],
)
def test_attempts_are_counted_and_the_end_is_as_the_policy_says(outcome, listener, attempts, letters):
    assert [run.attempt for run in outcome.runs[listener]] == attempts
    assert outcome.reasons(listener) == letters


def test_what_a_handler_said_stands_in_the_dead_letter(outcome):
    [letter] = outcome.dead["dead-letter-now"]

    assert (letter.own["failure-type"], letter.own["failure-message"]) == (
        "redrive.errors.DeadLetterNow",
        "a person must look",
    )


@pytest.mark.realtime
def test_jitter_spreads_the_retries_of_records_that_failed_together(outcome):
    dues_ms = sorted(run.due_ms for run in outcome.runs["jitter"] if run.due_ms)

    assert len(dues_ms) == 20
    assert 100 < dues_ms[-1] - dues_ms[0] < 300 + LATE_MS


@pytest.mark.realtime
def test_no_retry_of_any_policy_started_before_its_due(outcome):
    early = {
        name: run
        for name, runs in outcome.runs.items()
        for run in runs
        if run.due_ms and run.start_ms < run.due_ms
    }

    assert early == {}
