"""What a person says, and the plan that comes of it."""

import pytest

from redrive.deadletters.letters import Position
from redrive.deadletters.selection import Selection
from redrive.errors import ReplayRefused
from tests.deadletters.desks import ALL, Office


@pytest.fixture
def office():
    return Office()


def _offsets(plan):
    return [entry.position.offset for entry in plan.entries]


@pytest.mark.parametrize(
    ("selection", "told"),
    [
        (Selection(), "say which letters"),
        (Selection(include_poison=True, again=True), "say which letters"),
        (Selection(limit=0), "selects nothing"),
        (Selection(limit=-1), "selects nothing"),
        (Selection(everything=True, limit=5), "contradict"),
        (Selection(everything=True, event_ids=frozenset(["a"])), "contradicts"),
        (Selection(everything=True, at=frozenset([Position("orders.dlq", 0, 0)])), "contradicts"),
    ],
)
def test_a_selection_that_says_nothing_or_contradicts_itself_is_refused(office, selection, told):
    with pytest.raises(ReplayRefused, match=told):
        office.plan(selection)


def test_values_of_one_selector_mean_any_and_selectors_mean_all(office):
    office.letter(0, reason="permanent", failure_type="KeyError")
    office.letter(1, reason="exhausted", failure_type="KeyError")
    office.letter(2, reason="exhausted", failure_type="TimeoutError")
    office.letter(3, reason="asked", failure_type="TimeoutError")

    plan = office.plan(
        Selection(reasons=frozenset(["exhausted", "permanent"]), types=frozenset(["KeyError"]), limit=9)
    )

    assert _offsets(plan) == [0, 1]


def test_the_group_that_failed_selects(office):
    office.letter(0, group="payments")
    office.letter(1, group="mails")
    assert _offsets(office.plan(Selection(groups=frozenset(["mails"])))) == [1]


def test_an_event_id_selects_and_those_that_are_nowhere_are_told(office):
    office.letters(3)
    plan = office.plan(Selection(event_ids=frozenset(["orders/0/1", "orders/0/77"])))
    assert (_offsets(plan), plan.missing, plan.selected) == ([1], ("orders/0/77",), 2)


def test_a_position_selects_and_those_that_are_nowhere_are_told(office):
    office.letters(3)
    at = frozenset(
        Position("orders.dlq", partition, offset) for partition, offset in [(0, 1), (0, 3), (7, 0)]
    )
    plan = office.plan(Selection(at=at))
    assert (_offsets(plan), plan.missing) == ([1], ("orders.dlq/0/3", "orders.dlq/7/0"))


def test_a_named_letter_that_another_selector_excludes_is_neither_selected_nor_missing(office):
    [at] = office.letters(1)
    plan = office.plan(Selection(at=frozenset([at]), reasons=frozenset(["exhausted"])))
    assert (plan.selected, plan.missing) == (0, ())


def test_a_limit_takes_the_oldest_of_all_partitions():
    office = Office(partitions=3)
    for number, partition in enumerate([2, 0, 1, 2, 0]):
        office.letter(number, partition=partition)

    plan = office.plan(Selection(limit=3))

    assert [entry.position[1:] for entry in plan.entries] == [(0, 0), (1, 0), (2, 0)]
    assert plan.beyond_limit == 2


def test_a_limit_counts_only_what_may_be_sent(office):
    office.letter(0, reason="poison")
    office.letters(2)
    plan = office.plan(Selection(limit=2))
    assert (_offsets(plan), dict(plan.left_out)) == ([1, 2], {"poison": 1})


@pytest.mark.parametrize(
    ("selection", "planned"),
    [
        (ALL, 0),
        (Selection(limit=5), 0),
        (Selection(types=frozenset(["KeyError"])), 0),
        (Selection(reasons=frozenset(["poison"])), 1),
        (Selection(everything=True, include_poison=True), 1),
        (Selection(at=frozenset([Position("orders.dlq", 0, 0)])), 1),
        (Selection(event_ids=frozenset(["orders/0/0"])), 1),
    ],
)
def test_poison_is_replayed_only_when_it_is_named(office, selection, planned):
    office.letter(0, reason="poison")
    plan = office.plan(selection)
    assert (len(plan.entries), plan.left_out.get("poison", 0)) == (planned, 1 - planned)


def test_poison_may_be_discarded_unnamed(office):
    office.letter(0, reason="poison")
    assert len(office.plan(ALL, kind="discard").entries) == 1


def test_a_letter_that_lost_its_value_is_not_replayed_even_when_named(office):
    at = office.letter(0, value=None, reason="too-large")
    plan = office.plan(Selection(at=frozenset([at])))
    assert dict(plan.left_out) == {"without its value, which was too large": 1}
    assert len(office.plan(ALL, kind="discard").entries) == 1


def test_a_null_value_that_its_producer_wrote_is_replayed(office):
    office.letter(0, value=None)
    assert len(office.plan().entries) == 1


def test_a_foreign_letter_goes_only_where_a_person_says(office):
    office.letter(headers=[("x", b"1")])
    assert dict(office.plan().left_out) == {"foreign, doesn't say where to go": 1}
    assert [entry.target for entry in office.plan(to="orders").entries] == ["orders"]


def test_a_letter_that_names_no_group_would_be_run_by_all_that_read_its_target(office):
    office.letter(0, group="")
    assert dict(office.plan().left_out) == {"doesn't say where to go": 1}


def test_what_was_replayed_or_discarded_is_left_out(office):
    office.letters(3)
    office.replay(Selection(event_ids=frozenset(["orders/0/0"])))
    office.discard(Selection(event_ids=frozenset(["orders/0/1"])))

    plan = office.plan()

    assert (_offsets(plan), dict(plan.left_out)) == ([2], {"replayed already": 1, "discarded already": 1})


def test_again_alone_does_not_send_the_finished_once_more_but_named_they_are(office):
    [at, *_] = office.letters(2)
    office.replay()
    assert office.plan(Selection(everything=True, again=True)).entries == ()
    assert len(office.plan(Selection(at=frozenset([at]), again=True)).entries) == 1
    assert office.plan(Selection(at=frozenset([at]))).entries == ()


def test_a_plan_says_from_where_to_where_and_by_reason(office):
    office.letter(0, reason="permanent")
    office.letter(1, reason="exhausted")
    office.letter(2, reason="exhausted", replay_topic="orders.replay")
    assert office.plan().routes() == {
        ("orders.dlq", "orders.retry.5s"): {"permanent": 1, "exhausted": 1},
        ("orders.dlq", "orders.replay"): {"exhausted": 1},
    }


def test_where_nothing_matches_the_plan_knows_what_there_is(office):
    office.letter(0, reason="exhausted")
    office.letter(headers=[])
    plan = office.plan(Selection(reasons=frozenset(["exausted"])))
    assert (plan.selected, dict(plan.seen)) == (0, {"exhausted": 1, "foreign": 1})


def test_what_arrives_after_the_start_is_not_in_the_plan(office):
    office.letters(2)
    books = office.books()
    office.letter(2)
    from redrive.deadletters.selection import make_plan

    assert _offsets(make_plan(ALL, books, office.desk.log, kind="replay")) == [0, 1]


def test_gaps_of_compaction_and_transactions_are_no_letters(office):
    office.letters(4)
    log = office.cluster.topics["orders.dlq"].partitions[0]
    log.punch([1])
    log.append_marker(2)
    assert _offsets(office.plan()) == [0, 2, 3]


def test_an_empty_dead_letter_topic_is_a_plan_of_nothing(office):
    plan = office.plan()
    assert (plan.selected, dict(plan.seen)) == (0, {})


def test_letters_with_garbage_for_headers_can_be_selected_and_counted(office):
    office.letter(
        headers=[
            ("redrive-group", b"\xff"),
            ("redrive-reason", None),
            ("redrive-attempt", b"many"),
            ("", b""),
        ]
    )
    office.letter(1, reason="unheard-of")
    plan = office.plan(to="orders")
    assert plan.routes() == {("orders.dlq", "orders"): {"foreign": 1, "unheard-of": 1}}


def test_letters_are_selected_by_when_they_were_put_aside():
    office = Office()
    office.letters(5)
    [record, *_] = office.cluster.records("orders.dlq")
    first_ms = record.timestamp()[1]
    assert _offsets(office.plan(Selection(until_ms=first_ms + 1))) == [0, 1]
    assert _offsets(office.plan(Selection(from_ms=first_ms + 3))) == [3, 4]
    assert _offsets(office.plan(Selection(from_ms=first_ms + 1, until_ms=first_ms + 2, limit=1))) == [1]
