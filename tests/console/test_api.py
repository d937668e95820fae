"""The API over a simulated cluster: what is answered, what is sent, and what never is."""

import logging
import threading

import pytest

from redrive.console.api import Limits
from redrive.deadletters.selection import Selection
from tests.console.rooms import DLQ, TOKEN, problem, room
from tests.deadletters.desks import TARGET, Office, WrappedLog
from tests.waiting import until


@pytest.fixture
def desk():
    with room() as opened:
        yield opened


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO, "redrive")
    return caplog


def _counts(told):
    return tuple(told[name] for name in ("replayed", "failed", "skipped", "not_found", "selected"))


# -- reading -----------------------------------------------------------------------------------------------------


def test_the_overview_counts_by_topic_and_cause(desk):
    desk.office.letters(3)
    desk.office.letter(3, reason="poison", failure_type="DecodeError")
    desk.office.replay(Selection(limit=1))
    told = desk.get("/api/v1/dlq").json()
    assert (told["letters"], told["unresolved"], told["notes"]) == (4, 3, [])
    [topic] = told["topics"]
    assert (topic["topic"], topic["state_topic"], topic["unresolved"]) == (
        "orders.dlq",
        "orders.dlq.state",
        3,
    )
    assert [
        (cause["reason"], cause["type"], cause["unresolved"], cause["resolved"]) for cause in topic["causes"]
    ] == [
        ("permanent", "KeyError", 2, 1),
        ("poison", "DecodeError", 1, 0),
    ]


def test_a_cluster_without_dead_letter_topics_has_an_empty_overview():
    office = Office()
    del office.cluster.topics["orders.dlq"]
    with room(office=office) as opened:
        assert opened.get("/api/v1/dlq").json() == {"topics": [], "letters": 0, "unresolved": 0, "notes": []}


def test_a_list_tells_the_envelope_and_nothing_that_the_record_holds(desk):
    desk.office.letter(
        0, value=b'{"card":"4711-secret"}', key=b"key-secret", foreign=[("trace", b"header-secret")]
    )
    answer = desk.get(DLQ)
    [letter] = answer.json()["letters"]
    assert (
        letter["at"],
        letter["state"],
        letter["failure"]["type"],
        letter["event_id"],
        letter["replay_topic"],
    ) == (
        "orders.dlq/0/0",
        "open",
        "KeyError",
        "orders/0/0",
        TARGET,
    )
    assert "secret" not in answer.text
    assert "'card'" not in answer.text  # the failure's text may quote the record


def test_one_letter_is_told_with_its_failure_and_on_request_with_its_payload(desk):
    at = desk.office.letter(0, value=b'{"card":"4711-secret"}', foreign=[("trace", b"header-secret")])
    path = f"/api/v1/dlq/{at}"
    plain = desk.get(path)
    assert plain.json()["failure"]["message"] == "'card'"
    assert "secret" not in plain.text
    full = desk.get(f"{path}?payload=true").json()
    assert (full["value"]["kind"], "4711-secret" in full["value"]["text"]) == ("json", True)
    assert full["headers"] == [["trace", "header-secret"]]


def test_pages_follow_each_other_without_a_gap_or_a_double():
    with room(office=Office(partitions=2)) as opened:
        for number in range(7):
            opened.office.letter(number, partition=number % 2)
        seen, start = [], ""
        while start is not None:
            page = opened.get(f"{DLQ}?limit=3{start and f'&start={start}'}").json()
            seen.append([letter["at"] for letter in page["letters"]])
            start = page["next"]
    assert seen == [
        ["orders.dlq/0/0", "orders.dlq/0/1", "orders.dlq/0/2"],
        ["orders.dlq/0/3", "orders.dlq/1/0", "orders.dlq/1/1"],
        ["orders.dlq/1/2"],
    ]


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ("", [0, 1, 2]),
        ("type=KeyError", [0, 2]),
        ("reason=poison", [1]),
        ("reason=poison&reason=permanent", [0, 1, 2]),
        ("state=open", [1, 2]),
        ("state=unresolved", [1, 2]),
        ("state=replayed", [0]),
        ("state=discarded", []),
        ("at=orders.dlq/0/2", [2]),
        ("older_than=1h", [0, 1]),
        ("newer_than=1h", [2]),
        ("type=KeyError&older_than=1h", [0]),
        ("group=nobody", []),
    ],
)
def test_letters_are_selected_by_cause_age_and_state(desk, query, offsets):
    desk.office.letter(0)
    desk.office.letter(1, reason="poison", failure_type="DecodeError")
    desk.office.cluster.clock.advance(2 * 3_600_000)
    desk.office.letter(2)
    desk.office.replay(Selection(limit=1))
    letters = desk.get(f"{DLQ}?{query}").json()["letters"]
    assert [int(letter["at"].rpartition("/")[2]) for letter in letters] == offsets


def test_ten_thousand_letters_whose_states_were_lost_are_unresolved_and_that_is_said(desk):
    desk.office.letters(10_000)
    desk.office.replay(Selection(limit=10))
    assert desk.get("/api/v1/dlq").json()["unresolved"] == 9_990
    del desk.office.cluster.topics["orders.dlq.state"]
    told = desk.get("/api/v1/dlq").json()
    assert (told["unresolved"], told["topics"][0]["state_topic"]) == (10_000, None)
    for answer in (told, desk.get(DLQ).json(), desk.replay("?dry_run=true")):
        [note] = answer["notes"]
        assert "orders.dlq.state doesn't exist" in note
        assert "all letters of orders.dlq count as unresolved" in note


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/api/v1/dlq/nowhere.dlq", "nowhere.dlq"),
        ("/api/v1/dlq/orders", "no dead-letter topic"),
        (f"/api/v1/dlq/{TARGET}", "no dead-letter topic"),
        ("/api/v1/dlq/orders.dlq.state", "no dead-letter topic"),
        ("/api/v1/dlq/..%2f..%2fetc", "no position"),
        ("/api/v1/dlq/%00", "no dead-letter topic"),
        ("/api/v1/dlq/orders.dlq/0/77", "no letter at"),
        ("/api/v1/dlq/orders.dlq/9/0", "no partition 9"),
        ("/api/v1/dlq/orders.dlq/0/x", "no position"),
        ("/api/v1/dlq/orders.dlq/0/" + "9" * 5_000, ""),
        ("/api/v1/dlq/", "nothing at this path"),
        ("/api/v2/dlq", "nothing at this path"),
        ("/favicon.ico", "nothing at this path"),
    ],
)
def test_what_is_not_here_is_said_to_be_not_here(desk, path, told):
    status, detail = problem(desk.get(path))
    assert (status, told in detail) == (404, True), detail


def test_an_apps_console_serves_its_topics_and_its_groups_letters_only():
    office = Office()
    office.cluster.create_topic("invoices.dlq", 1)
    office.letter(0)
    office.letter(1, group="mails")
    with room(office=office, groups=frozenset({"payments", ""}), topics=frozenset({"orders.dlq"})) as opened:
        assert [topic["topic"] for topic in opened.get("/api/v1/dlq").json()["topics"]] == ["orders.dlq"]
        status, detail = problem(opened.get("/api/v1/dlq/invoices.dlq"))
        assert (status, "of this console's app" in detail) == (404, True)
        assert problem(opened.post("/api/v1/dlq/invoices.dlq/replay"))[0] == 404
        assert [letter["event_id"] for letter in opened.get(DLQ).json()["letters"]] == ["orders/0/0"]
        assert problem(opened.get("/api/v1/dlq/orders.dlq/0/1"))[0] == 404
        assert _counts(opened.replay("?limit=100")) == (1, 0, 0, 0, 1)
    assert office.copies() == ["orders/0/0"]


# -- replay and discard ------------------------------------------------------------------------------------------


def test_ten_letters_are_replayed_unless_another_number_is_given(desk):
    desk.office.letters(30)
    assert _counts(desk.replay()) == (10, 0, 0, 0, 10)
    assert _counts(desk.replay("?limit=15")) == (15, 0, 0, 0, 15)
    assert desk.office.copies() == [f"orders/0/{number}" for number in range(25)]
    told = desk.replay("?limit=100")
    assert (_counts(told), told["partial"], told["beyond_limit"]) == ((5, 0, 0, 0, 5), False, 0)
    assert _counts(desk.replay()) == (0, 0, 0, 0, 0)


def test_a_dry_run_answers_the_plan_and_sends_nothing(desk):
    desk.office.letters(12)
    for query in ("?dry_run=true", "?dry_run=1", "?dry_run=", "?dry_run"):
        told = desk.replay(query)
        assert (told["dry_run"], told["selected"], told["beyond_limit"], len(told["letters"])) == (
            True,
            10,
            2,
            10,
        )
        assert told["letters"][0] == {"at": "orders.dlq/0/0", "reason": "permanent", "target": TARGET}
        assert "replayed" not in told
    assert (desk.office.copies(), desk.office.states()) == ([], {})


def test_letters_are_chosen_by_a_body(desk):
    desk.office.letter(0)
    desk.office.letter(1, failure_type="TimeoutError", reason="exhausted")
    desk.office.letter(2, reason="poison")
    assert desk.replay(body={"type": ["TimeoutError"]})["replayed"] == 1
    assert desk.replay(body={"at": "orders.dlq/0/2"})["replayed"] == 1
    left = desk.replay(body={"reason": "exhausted"})
    assert (left["replayed"], left["left_out"]) == (0, {"replayed already": 1})
    assert desk.replay(body={"event_id": "orders/0/1", "again": True})["replayed"] == 1
    assert desk.office.copies() == ["orders/0/1", "orders/0/2", "orders/0/1"]


def test_who_replayed_stands_in_the_letters_history(desk):
    at = desk.office.letter(0)
    job = desk.replay()["job"]
    history = desk.get(f"/api/v1/dlq/{at}").json()["history"]
    assert [(change["state"], change["who"], change["job"]) for change in history] == [
        ("sending", "oncall@127.0.0.9", job),
        ("replayed", "oncall@127.0.0.9", job),
    ]


def test_a_discard_keeps_its_reason_and_sends_nothing(desk):
    desk.office.letters(2)
    answer = desk.post(f"{DLQ}/discard", {"at": "orders.dlq/0/1", "why": "a test order"})
    assert (answer.status_code, answer.json()["discarded"]) == (200, 1)
    assert (desk.office.states(), desk.office.copies()) == ({"orders.dlq/0/1": "discarded"}, [])
    assert desk.get("/api/v1/dlq/orders.dlq/0/1").json()["history"][-1]["why"] == "a test order"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"at": "orders.dlq/0/0"}, "say why"),
        ({"at": "orders.dlq/0/0", "why": " "}, "say why"),
        ({"why": "all of them"}, "say which letters"),
        ({}, "say which letters"),
    ],
)
def test_a_discard_without_a_reason_or_without_letters_is_refused(desk, body, told):
    desk.office.letters(1)
    status, detail = problem(desk.post(f"{DLQ}/discard", body))
    assert (status, told in detail, desk.office.states()) == (400, True, {})


def test_a_missing_target_is_told_in_the_plan_and_fails_the_letter(desk):
    desk.office.letter(0, replay_topic="orders.retry.9s")
    assert "orders.retry.9s doesn't exist" in desk.replay("?dry_run")["notes"][-1]
    told = desk.replay()
    assert (_counts(told), told["partial"]) == ((0, 1, 0, 0, 1), True)


def test_a_letter_cannot_forge_the_state_of_another_one(desk):
    mark = b'{"state":"replayed"}'
    desk.office.letter(0)
    forged = desk.office.letter(1, key=b"orders.dlq/0/0", value=mark, replay_topic="orders.dlq.state")
    told = desk.replay(body={"at": str(forged)})
    assert (told["replayed"], told["left_out"]) == (0, {"would go to a dead-letter or state topic": 1})
    assert desk.get("/api/v1/dlq").json()["unresolved"] == 2


def test_nothing_is_sent_by_reading_or_by_waiting(desk):
    desk.office.letters(3)
    for path in (
        "/api/v1/dlq",
        DLQ,
        "/api/v1/dlq/orders.dlq/0/0",
        "/api/v1/openapi.json",
        "/",
        f"{DLQ}/replay",
    ):
        desk.get(path)
    desk.office.cluster.clock.advance(86_400_000)
    assert (desk.office.copies(), desk.office.states()) == ([], {})


# -- two at once -------------------------------------------------------------------------------------------------


def test_an_operator_at_the_command_line_in_the_midst_of_a_replay_sends_no_letter_twice():
    office = Office()
    office.letters(10)

    def before(number, write):
        if number == 0:
            office.replay(Selection(limit=7))

    with room(office=office, log=lambda log: WrappedLog(log, before)) as opened:
        told = opened.replay()
    assert (_counts(told), told["partial"]) == ((3, 0, 7, 0, 10), True)
    assert sorted(office.copies()) == [f"orders/0/{number}" for number in range(10)]


class _Held:
    """A log whose first write waits until it is let go."""

    def __init__(self):
        self.reached, self.may_go = threading.Event(), threading.Event()

    def __call__(self, log):
        return WrappedLog(log, self._wait)

    def _wait(self, number, _):
        if number == 0:
            self.reached.set()
            assert self.may_go.wait(30)


def _in_background(call):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    return thread, answers


def test_a_second_replay_of_a_topic_is_told_to_wait_and_other_questions_are_answered():
    held = _Held()
    with room(log=held) as opened:
        opened.office.letters(3)
        first, answers = _in_background(lambda: opened.post(f"{DLQ}/replay", key="a"))
        assert held.reached.wait(30)
        second = opened.post(f"{DLQ}/replay")
        same_key = opened.post(f"{DLQ}/replay", key="a")
        discard = opened.post(f"{DLQ}/discard", {"why": "x", "type": "KeyError"})
        overview, plan = opened.get("/api/v1/dlq"), opened.replay("?dry_run")
        held.may_go.set()
        first.join(30)
        assert [problem(each)[0] for each in (second, same_key, discard)] == [409, 409, 409]
        assert {each.headers["retry-after"] for each in (second, same_key, discard)} == {"1"}
        assert (overview.status_code, plan["selected"]) == (200, 3)
        assert _counts(answers[0].json()) == (3, 0, 0, 0, 3)
        assert opened.post(f"{DLQ}/replay", key="a").json() == answers[0].json()
        assert _counts(opened.replay()) == (0, 0, 0, 0, 0)
    assert len(opened.office.copies()) == 3


def test_an_action_that_takes_too_long_ends_all_the_same_and_its_answer_can_be_asked_for():
    held = _Held()
    with room(log=held, limits=Limits(act_s=0.05)) as opened:
        opened.office.letters(3)
        status, detail = problem(opened.post(f"{DLQ}/replay", key="a"))
        assert (status, "same Idempotency-Key" in detail) == (504, True)
        assert problem(opened.post(f"{DLQ}/replay", key="a"))[0] == 409
        held.may_go.set()
        answer = until(
            lambda: (again := opened.post(f"{DLQ}/replay", key="a")).status_code == 200 and again,
            "the first answer",
        )
        assert _counts(answer.json()) == (3, 0, 0, 0, 3)
    assert len(opened.office.copies()) == 3


def test_more_requests_than_can_be_worked_on_are_told_to_come_back():
    held = _Held()
    with room(log=held, limits=Limits(threads=1, waiting=0)) as opened:
        opened.office.letters(1)
        first, answers = _in_background(lambda: opened.post(f"{DLQ}/replay"))
        assert held.reached.wait(30)
        busy = opened.get("/api/v1/dlq")
        held.may_go.set()
        first.join(30)
        assert (problem(busy)[0], busy.headers["retry-after"]) == (503, "1")
        assert answers[0].json()["replayed"] == 1


class _Endless:
    """A log whose first scan gives the same record over and over, until it is given up or `ends`."""

    def __init__(self):
        self.ends = threading.Event()
        self._is_first = True

    def __call__(self, log):
        endless = self

        class Scanned(WrappedLog):
            def scan(self, key, start, end):
                is_first, endless._is_first = endless._is_first, False
                for record in super().scan(key, start, end):
                    yield record
                    while is_first and not endless.ends.is_set():
                        yield record

        return Scanned(log, lambda *_: None)


def test_a_question_that_takes_too_long_is_given_up_and_its_thread_comes_free():
    log = _Endless()
    with room(log=log, limits=Limits(read_s=0.05, threads=1, waiting=0)) as opened:
        opened.office.letters(2)
        try:
            assert problem(opened.get("/api/v1/dlq"))[0] == 504
            until(
                lambda: opened.get("/api/v1/dlq").status_code == 200, "the thread is free again", within_s=10
            )
        finally:
            log.ends.set()


def test_a_replay_whose_plan_takes_too_long_sends_nothing_and_may_be_tried_again():
    log = _Endless()
    with room(log=log, limits=Limits(act_s=0.2)) as opened:
        opened.office.letters(2)
        try:
            assert problem(opened.post(f"{DLQ}/replay", key="a"))[0] == 504
            told = until(
                lambda: (again := opened.post(f"{DLQ}/replay", key="a")).status_code == 200 and again.json(),
                "the first one was given up",
                within_s=10,
            )
        finally:
            log.ends.set()
        assert _counts(told) == (2, 0, 0, 0, 2)
    assert len(opened.office.copies()) == 2


# -- the same request again --------------------------------------------------------------------------------------


def test_the_same_key_again_gets_the_first_answer_and_sends_nothing(desk):
    desk.office.letters(30)
    first = desk.post(f"{DLQ}/replay?limit=5", {"type": "KeyError"}, key="case-1")
    again = desk.post(f"{DLQ}/replay?limit=5", {"type": "KeyError"}, key="case-1")
    assert (again.status_code, again.json()) == (200, first.json())
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    assert len(desk.office.copies()) == 5
    assert desk.post(f"{DLQ}/replay?limit=5", {"type": "KeyError"}, key="case-2").json()["replayed"] == 5
    assert len(desk.office.copies()) == 10


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{DLQ}/replay?limit=5", {"type": "TimeoutError"}),
        (f"{DLQ}/replay?limit=6", {"type": "KeyError"}),
        (f"{DLQ}/replay", {"type": "KeyError"}),
        (f"{DLQ}/discard?limit=5", {"type": "KeyError", "why": "x"}),
        ("/api/v1/dlq/other.dlq/replay?limit=5", {"type": "KeyError"}),
    ],
)
def test_a_key_of_another_request_is_refused(desk, path, body):
    desk.office.letters(30)
    desk.post(f"{DLQ}/replay?limit=5", {"type": "KeyError"}, key="case-1")
    assert problem(desk.post(path, body, key="case-1"))[0] == 422
    assert len(desk.office.copies()) == 5


def test_a_request_that_was_refused_before_anything_was_done_may_be_repeated_with_its_key(desk):
    desk.office.letters(1)
    desk.office.cluster.is_down = True
    assert problem(desk.post(f"{DLQ}/replay", key="case-1"))[0] == 503
    desk.office.cluster.is_down = False
    assert desk.replay(key="case-1")["replayed"] == 1


def test_a_defect_in_the_midst_of_a_replay_is_not_repeated_with_its_key(lines):
    def break_at_second(number, _):
        if number == 1:
            raise RuntimeError("a defect")

    with room(log=lambda log: WrappedLog(log, break_at_second)) as opened:
        opened.office.letters(2)
        first, again = (opened.post(f"{DLQ}/replay", key="a") for _ in range(2))
        assert [problem(each)[0] for each in (first, again)] == [500, 500]
        assert again.headers["idempotency-replayed"] == "true"
    assert any("broke off by a defect" in record.getMessage() for record in lines.records)


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 256])
def test_what_is_no_key_is_refused_and_nothing_is_sent(desk, key):
    desk.office.letters(1)
    answer = desk.client.post(
        f"{DLQ}/replay", headers={"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": key}
    )
    assert (problem(answer)[0], desk.office.copies()) == (400, [])
