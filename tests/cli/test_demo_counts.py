"""The demo's arithmetic and its picture, without running it: when counts add up, and what news means."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from redrive.cli.demo import exit_code
from redrive.core.dialects import with_envelope
from redrive.core.envelope import Envelope
from redrive.core.record import Record
from redrive.deadletters.replay import Report
from redrive.demo.ledger import Ledger, Letter, Move, Place, Success, View, Waiting
from redrive.demo.lines import ending
from redrive.demo.orders import COUNT, Order, Trouble, fate, order, value_of
from redrive.demo.screen import Scene, draw
from redrive.demo.summary import Facts, FinalLetter, summarize
from redrive.sim.clock import VirtualClock
from redrive.sim.records import SimRecord

# -- the arithmetic ------------------------------------------------------------------------------------------------------

END = {
    "first attempt": ((Success(1, is_replay=False),), ()),
    "retry": ((Success(3, is_replay=False),), ()),
    "replay": ((Success(1, is_replay=True),), (("permanent", "replayed"),)),
    "discarded": ((), (("exhausted", "discarded"),)),
    "left": ((), (("poison", "open"),)),
}


def facts(ends: Mapping[str, str]) -> Facts:
    """Where each order ended, as the demo sees it."""
    replays = list(ends.values()).count("replay")
    return Facts(
        sent=frozenset(ends),
        successes={one: END[end][0] for one, end in ends.items()},
        letters=tuple(FinalLetter(one, *letter) for one, end in ends.items() for letter in END[end][1]),
        late_ms=(0.2, 4.0, 0.1),
        replay=Report(job="demo", selected=replays, done=replays, failed=0, skipped=0, not_found=0),
    )


ENDS = {"a": "first attempt", "b": "retry", "c": "replay", "d": "discarded", "e": "left"}
GOOD = facts(ENDS)


@given(st.dictionaries(st.text(min_size=1, max_size=4), st.sampled_from(sorted(END)), max_size=30))
def test_each_order_counts_once_wherever_it_ended(ends):
    summary = summarize(facts(ends))
    ended = list(ends.values())

    assert summary.problems == ()
    assert summary.sent == len(ends) == summary.handled + summary.discarded + summary.left
    assert summary.handled_by == {how: ended.count(how) for how in ("first attempt", "retry", "replay")}
    assert (summary.discarded, summary.left) == (ended.count("discarded"), ended.count("left"))


def change(**changes: object) -> Facts:
    return msgspec.structs.replace(GOOD, **changes)


def replay(**changes: int) -> Report:
    assert GOOD.replay is not None
    return msgspec.structs.replace(GOOD.replay, **changes)


ONCE = Success(1, is_replay=False)
LOST = "1 order was sent, and neither handled nor a dead letter: z"
WRONG = {
    LOST: change(sent=GOOD.sent | {"z"}),
    "1 order was handled or put aside more than once: a": change(
        successes={**GOOD.successes, "a": (ONCE, ONCE)}
    ),
    "1 order was handled or put aside more than once: e": change(
        letters=(*GOOD.letters, FinalLetter("e", "poison", "open"))
    ),
    "1 order was handled or put aside more than once: b": change(
        letters=(*GOOD.letters, FinalLetter("b", "exhausted", "open"))
    ),
    "1 order was handled or put aside, and never sent: z": change(successes={**GOOD.successes, "z": (ONCE,)}),
    "1 order was left as dead letters although the fix is there: f": msgspec.structs.replace(
        facts({**ENDS, "f": "left"}), letters=(*GOOD.letters, FinalLetter("f", "permanent", "open"))
    ),
    "1 of the retries began before they were due": change(late_ms=(1.0, -0.5)),
    "the replay selected 2 letters and accounts for 1": change(replay=replay(selected=2)),
    "the replay sent 2 letters, and 1 are marked as replayed": change(replay=replay(selected=2, done=2)),
    "replayed, but not handled since, or the other way round: c": change(
        successes={**GOOD.successes, "c": (ONCE,)}
    ),
}


@pytest.mark.parametrize("problem", WRONG)
def test_what_does_not_add_up_is_told_with_its_orders(problem):
    summary = summarize(WRONG[problem])

    assert problem in summary.problems
    assert summary.adds_up is False


def test_an_interrupted_demo_may_have_orders_under_way():
    summary = summarize(change(sent=GOOD.sent | {"z"}, is_whole=False))

    assert summary.problems == ()
    assert summary.sent == summary.handled + summary.discarded + summary.left + summary.unfinished
    assert summary.unfinished == 1


@pytest.mark.parametrize(
    ("seen", "is_interrupted", "code"),
    [(GOOD, False, 0), (GOOD, True, 130), (WRONG[LOST], False, 1), (change(late_ms=(-0.5,)), True, 1)],
)
def test_the_exit_code_tells_whether_it_adds_up(seen, is_interrupted, code):
    assert exit_code(summarize(seen), is_interrupted=is_interrupted) == code


def test_the_ending_is_an_addition():
    lines = [line.plain for line in ending(summarize(GOOD), seconds=38.4, is_interrupted=False)]

    assert lines == [
        "",
        "Every order is accounted for, after 38 s.",
        "",
        "     5  orders sent",
        "  ────",
        "     1  handled at the first attempt",
        "     1  handled after retries         none early, half within 0.2 ms",
        "     1  handled after their replay",
        "     1  discarded",
        "     1  dead letters                  poison: left for a person",
        "  ────",
        "     5  accounted for, each once",
        "",
    ]


def test_the_ending_tells_what_is_wrong():
    summary = summarize(change(sent=GOOD.sent | {"z"}))
    lines = [line.plain for line in ending(summary, seconds=38.4, is_interrupted=False)]

    assert lines[1] == "The counts don't add up. That must not happen; please report it."
    assert "     1  lost" in lines
    assert lines[-1] == f"  {LOST}"


# -- the ledger ----------------------------------------------------------------------------------------------------------


class Scenario:
    """A ledger that knows of one order, and the news about it."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.moves: list[Move] = []
        self.ledger = Ledger(self.clock, {"orders.retry.1s": "1s"}, "orders.dlq", self.moves.append)
        self.order = order(12)
        self.ledger.sent(self.order)

    def copy(self, topic: str, **fields: object) -> SimRecord:
        envelope = Envelope(
            group="payments", failure_type="builtins.KeyError", failure_message="'x'", **fields
        )
        return SimRecord(topic, 0, 0, self.order.id.encode(), b"", with_envelope(None, envelope), 0)

    def run(self, *, fails: bool, attempt: int = 1, **fields: object) -> None:
        topic = "orders" if attempt == 1 and not fields else "orders.retry.1s"
        raw = self.copy(topic, attempt=attempt - 1, **fields)
        try:
            with self.ledger.watch(Record(raw, Envelope(attempt=attempt - 1, **fields), attempt)):
                if fails:
                    raise KeyError
        except KeyError:
            pass

    @property
    def place(self) -> Place:
        return self.ledger.places()[self.order.id]


def test_news_of_a_tier_that_comes_after_the_success_changes_nothing():
    scene = Scenario()
    scene.run(fails=False, attempt=2, due_ms=int(scene.clock.wall_ms()))
    scene.ledger.saw(scene.copy("orders.retry.1s", attempt=1, due_ms=1))

    assert scene.place is Place.HANDLED
    assert scene.ledger.view().waiting == []


def test_news_of_an_earlier_attempt_does_not_hide_a_dead_letter():
    scene = Scenario()
    scene.ledger.saw(scene.copy("orders.dlq", attempt=4, reason="exhausted"))
    scene.run(fails=True, attempt=4)

    assert scene.place is Place.DEAD


def test_a_replay_brings_a_dead_letter_back():
    scene = Scenario()
    scene.ledger.saw(scene.copy("orders.dlq", attempt=1, reason="permanent"))
    scene.ledger.saw(scene.copy("orders.retry.1s", attempt=0, due_ms=5, replay_id="demo"))
    scene.run(fails=False, replay_id="demo")
    view = scene.ledger.view()

    assert scene.place is Place.HANDLED
    assert (view.at_once, view.after_replay, view.replayed) == (0, 1, {scene.order.id})
    assert [move.kind for move in scene.moves] == ["dead", "replayed", "handled"]


def test_a_replay_that_is_handled_before_it_was_seen_is_told_in_order():
    scene = Scenario()
    scene.ledger.saw(scene.copy("orders.dlq", attempt=1, reason="permanent"))
    scene.run(fails=False, replay_id="demo")
    scene.ledger.saw(scene.copy("orders.retry.1s", attempt=0, due_ms=5, replay_id="demo"))

    assert scene.place is Place.HANDLED
    assert [move.kind for move in scene.moves] == ["dead", "replayed", "handled"]


def test_a_failed_order_waits_in_its_tier_until_it_is_due():
    scene = Scenario()
    scene.run(fails=True)
    scene.ledger.saw(scene.copy("orders.retry.1s", attempt=1, due_ms=5000))

    assert scene.ledger.view().waiting == [Waiting(scene.order, "1s", 5000, is_replay=False)]
    assert scene.ledger.is_settled() is False
    assert [move.text for move in scene.moves] == ["KeyError: 'x'; again in 1s"]


# -- the orders ----------------------------------------------------------------------------------------------------------


def test_all_values_are_orders_but_the_garbage():
    for number in range(1, COUNT + 1):
        is_garbage = fate(number).trouble is Trouble.GARBAGE
        try:
            decoded = msgspec.json.decode(value_of(number), type=Order)
        except msgspec.DecodeError:
            assert is_garbage
        else:
            assert decoded == order(number)
            assert not is_garbage


def test_most_orders_meet_no_trouble_and_each_trouble_is_met():
    troubles = [fate(number).trouble for number in range(1, COUNT + 1)]

    assert set(troubles) == set(Trouble)
    assert troubles.count(Trouble.NONE) > 0.75 * COUNT


# -- the picture ---------------------------------------------------------------------------------------------------------

FULL = View(
    sent=300,
    at_once=200,
    after_retries=30,
    after_replay=1,
    waiting=[Waiting(order(number), tier, number * 40, is_replay=False) for number in range(1, 40) for tier in ("1s", "8s")],
    letters=[
        Letter("order-012", (0, 0), "permanent", "KeyError: 'gift card'", 1),
        Letter("order-031", (0, 1), "poison", "DecodeError: no", 1),
        Letter("order-005", (0, 2), "exhausted", "TimeoutError: no answer from Northbank", 4),
    ],
    replayed=frozenset({"order-012", "order-005"}),
    replay_handled=frozenset({"order-012"}),
)  # fmt: skip
NOTHING = View(0, 0, 0, 0, [], [], frozenset(), frozenset())
MOVES = [
    Move(float(number), "retried", order(number), "TimeoutError: " + "why " * number) for number in range(50)
]


def drawn(view: View, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, no_color=True, legacy_windows=False)
    picture = draw(
        view,
        Scene(2, "A headline", "What is going on."),
        MOVES,
        title="a mock Kafka inside this process",
        after_s=75,
        now_ms=0,
        size=(width, height),
    )
    with console.capture() as captured:
        console.print(picture)
    return captured.get().splitlines()


@pytest.mark.parametrize("view", [FULL, NOTHING], ids=["full", "empty"])
@pytest.mark.parametrize(("width", "height"), [(76, 22), (80, 24), (120, 40), (200, 60)])
def test_the_picture_fills_the_terminal_exactly(view, width, height):
    lines = drawn(view, width, height)

    assert len(lines) == height
    assert max(map(len, lines)) == width


@given(st.integers(1, 75), st.integers(1, 21))
def test_a_terminal_that_was_made_tiny_meanwhile_gets_some_picture(width, height):
    assert drawn(FULL, width, height)


def test_the_picture_tells_tiers_causes_and_the_next_due():
    text = "\n".join(drawn(FULL, 80, 24))

    assert "231 of 300 handled" in text
    assert "39 wait, next #001 in 0.0 s" in text
    assert "permanent KeyError: 'gift card'                   1 replayed, 1 handled ✓" in text
    assert "poison    bytes that are no order                       left for a person" in text
    assert "exhausted TimeoutError: no answer from Northbank    1 replayed, 0 handled" in text
    assert "again in 3s" in text
