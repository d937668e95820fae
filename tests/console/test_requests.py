"""What reaches the API: who may, what is written down of it, and what is too much or can't be meant."""

import logging

import pytest

from tests.console.rooms import DLQ, TOKEN, problem, room


@pytest.fixture
def desk():
    with room() as opened:
        yield opened


class Lines(logging.Handler):
    """What is written to redrive's log."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)

    @property
    def messages(self):
        return [record.getMessage() for record in self.records]


@pytest.fixture
def lines():
    log, handler = logging.getLogger("redrive"), Lines()
    before = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)
    log.setLevel(before)


# -- who may -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/dlq"),
        ("GET", DLQ),
        ("GET", "/api/v1/dlq/orders.dlq/0/0"),
        ("GET", "/api/v1/openapi.json"),
        ("POST", f"{DLQ}/replay"),
        ("POST", f"{DLQ}/discard"),
        ("POST", "/"),
        ("GET", "/nowhere"),
        ("OPTIONS", DLQ),
        ("DELETE", DLQ),
    ],
)
def test_nothing_is_answered_or_done_without_the_token(desk, method, path):
    desk.office.letters(1)
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": f"token={TOKEN}"}, {"X-Token": TOKEN}):
        answer = desk.client.request(method, path, headers=headers)
        assert problem(answer)[0] == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert "orders" not in answer.text
    assert desk.office.copies() == []


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", f"{DLQ}/replay", "POST"),
        ("PUT", f"{DLQ}/replay", "POST"),
        ("DELETE", DLQ, "GET"),
        ("POST", "/api/v1/dlq", "GET"),
        ("OPTIONS", "/api/v1/dlq", "GET"),
        ("BREW", f"{DLQ}/discard", "POST"),
    ],
)
def test_a_wrong_method_is_told_the_right_one(desk, method, path, allowed):
    desk.office.letters(1)
    answer = desk.client.request(method, path, headers={"Authorization": f"Bearer {TOKEN}"})
    assert (problem(answer)[0], allowed in answer.headers["allow"], desk.office.copies()) == (405, True, [])
    assert "access-control-allow-origin" not in answer.headers


def test_a_page_of_another_site_can_do_nothing_even_with_the_token(desk):
    desk.office.letters(1)
    answer = desk.post(f"{DLQ}/replay", Origin="http://evil.example")
    assert (problem(answer)[0], desk.office.copies()) == (403, [])


def test_a_name_that_is_not_its_own_gets_not_even_the_page(desk):
    for path in ("/", "/api/v1/dlq"):
        answer = desk.client.get(path, headers={"Host": "evil.example", "Authorization": f"Bearer {TOKEN}"})
        assert problem(answer)[0] == 421


@pytest.mark.parametrize("path", ["/", "/console.js", "/console.css"])
def test_the_page_holds_no_data_and_runs_no_script_but_its_own(desk, path):
    desk.office.letters(1)
    answer = desk.client.get(path)
    assert (answer.status_code, "orders" in answer.text) == (200, False)
    assert "default-src 'none'; script-src 'self'" in answer.headers["content-security-policy"]
    assert "innerHTML" not in answer.text


def test_answers_are_for_the_one_who_asked(desk):
    for answer in (desk.get("/api/v1/dlq"), desk.get("/nowhere"), desk.client.get(DLQ), desk.client.get("/")):
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in answer.headers


# -- what is written down ----------------------------------------------------------------------------------------


def test_every_action_allowed_or_denied_leaves_a_line_with_who_where_what_and_the_outcome(desk, lines):
    desk.office.letters(3)
    desk.get("/api/v1/dlq")
    told = desk.replay("?limit=2")
    desk.post(f"{DLQ}/discard", {"at": "orders.dlq/0/2", "why": "a test order"})
    desk.replay("?dry_run")
    desk.get("/api/v1/dlq/nowhere.dlq")
    desk.client.post(f"{DLQ}/replay")
    at = "Console: oncall at 127.0.0.9:50000, "
    assert lines.messages[:2] == [
        f"{at}GET of the overview: answered",
        f"{at}POST of orders.dlq/replay: 2 of 2 replayed, job {told['job']}",
    ]
    assert lines.messages[2].startswith(f"{at}POST of orders.dlq/discard: 1 of 1 discarded, job discard-")
    assert lines.messages[2].endswith("why: a test order")
    assert lines.messages[3] == f"{at}POST of orders.dlq/replay: planned, 0 selected"
    assert lines.messages[4].startswith(f"{at}GET of nowhere.dlq: refused with 404: ")
    assert lines.messages[5].startswith(
        "Console: denied to 127.0.0.9:50000, POST of orders.dlq/replay: send the token"
    )
    assert [record.redrive_event for record in lines.records] == ["console-allowed"] * 5 + ["console-denied"]
    assert lines.records[1].redrive_who == "oncall"


def test_the_token_is_in_no_line_whatever_it_is_put_into(desk, lines):
    answers = [
        desk.get(f"/api/v1/dlq?token={TOKEN}"),
        desk.get(f"/api/v1/dlq?limit={TOKEN}"),
        desk.get(f"/api/v1/dlq/{TOKEN}"),
        desk.client.get(f"/{TOKEN}/x?y={TOKEN}"),
        desk.client.post(f"{DLQ}/replay", headers={"Authorization": TOKEN}),
        desk.post(f"{DLQ}/replay", {TOKEN: 1}, key=TOKEN),
        desk.post(f"{DLQ}/discard", {"at": TOKEN, "why": TOKEN}),
        desk.post(f"{DLQ}/discard", {"type": "nothing", "why": TOKEN}),
        desk.client.request("GET", DLQ, headers={"Host": TOKEN}),
    ]
    assert [answer.status_code for answer in answers] == [400, 400, 400, 400, 401, 400, 400, 200, 421]
    assert len(lines.messages) == len(answers)
    written = " ".join(lines.messages) + " ".join(str(vars(record)) for record in lines.records)
    assert TOKEN not in written


def test_a_flood_of_denials_is_summed_and_takes_no_action_s_line(desk, lines):
    for _ in range(50):
        desk.client.get("/api/v1/dlq")
    desk.get("/api/v1/dlq")
    denied = [record for record in lines.records if record.redrive_event == "console-denied"]
    assert (len(denied), lines.messages[-1]) == (
        20,
        "Console: oncall at 127.0.0.9:50000, GET of the overview: answered",
    )


# -- what comes in -----------------------------------------------------------------------------------------------


def test_ten_megabytes_are_refused_by_their_own_word_or_when_they_get_too_many(desk):
    desk.office.letters(1)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    for content in (b"x" * 10_000_000, (b"x" * 100_000 for _ in range(100))):
        answer = desk.client.post(f"{DLQ}/replay", headers=headers, content=content)
        assert problem(answer)[0] == 413
    assert desk.office.copies() == []


def test_a_form_is_no_json(desk):
    desk.office.letters(1)
    answer = desk.client.post(
        f"{DLQ}/replay", headers={"Authorization": f"Bearer {TOKEN}"}, data={"limit": "5"}
    )
    assert (problem(answer)[0], desk.office.copies()) == (415, [])


@pytest.mark.parametrize("limit", ["0", "-1", "101", "1e9", "9" * 400, "ten", "", "5;drop"])
def test_absurd_limits_send_nothing(desk, limit):
    desk.office.letters(1)
    assert problem(desk.post(f"{DLQ}/replay?limit={limit}"))[0] == 400
    assert desk.office.copies() == []


def test_a_filter_in_the_query_of_a_replay_is_refused_and_not_ignored(desk):
    desk.office.letters(1)
    status, detail = problem(desk.post(f"{DLQ}/replay?type=TimeoutError"))
    assert (status, "unknown in the query: 'type'" in detail, desk.office.copies()) == (400, True, [])


def test_kafka_being_away_is_told_as_such(desk):
    desk.office.cluster.is_down = True
    for answer in (desk.get("/api/v1/dlq"), desk.get(DLQ), desk.post(f"{DLQ}/replay")):
        status, detail = problem(answer)
        assert (status, "no broker answers" in detail) == (503, True)
