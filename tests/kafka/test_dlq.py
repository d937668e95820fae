"""`redrive dlq` on a real broker: as it is typed, with killed and with racing processes."""

import json
import os
import pty
import select
import subprocess
import sys
from collections import Counter

import pytest
from typer.testing import CliRunner

from redrive import App, Record, RetryPolicy
from redrive.cli.main import app
from tests.faults import running
from tests.kafka.shop import Shop
from tests.plain_kafka import Given, create_topics, create_topics_of, read_all, send, unique
from tests.waiting import until


@pytest.fixture
def shop(kafka, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("REDRIVE_APP", "REDRIVE_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    return Shop(kafka.bootstrap)


def _counts(result):
    return tuple(result[name] for name in ("sent", "failed", "skipped", "not_found", "selected"))


# -- as it is typed ----------------------------------------------------------------------------------------------


def test_letters_are_counted_shown_replayed_and_counted_again(shop):
    shop.letters(5, foreign=[("trace", b"\xff"), ("trace", b"1"), ("n", None)])

    code, counted, _ = shop("ls", shop.dlq)
    assert (code, counted["letters"], counted["unresolved"]) == (0, 5, 5)
    [cause] = counted["causes"]
    assert (cause["reason"], cause["type"], cause["group"]) == ("permanent", "KeyError", "payments")

    code, shown, _ = shop("show", f"{shop.dlq}/1/0")
    assert (code, shown["event_id"], shown["value"]["json"]) == (0, "orders/0/1", {"card": "4711"})

    code, sent, _ = shop("replay", shop.dlq, "--all", "--yes")
    assert (code, _counts(sent), sent["partial"]) == (0, (5, 0, 0, 0, 5), False)
    copies = read_all(shop.bootstrap, shop.tier)
    assert {(copy.own["replay-id"], copy.own["attempt"], copy.own["group"]) for copy in copies} == {
        (sent["job"], "0", "payments")
    }
    assert [(copy.partition, copy.key) for copy in copies] == [
        (0, b"key-0"),
        (0, b"key-2"),
        (0, b"key-4"),
        (1, b"key-1"),
        (1, b"key-3"),
    ]
    assert copies[0].foreign == [("trace", b"\xff"), ("trace", b"1"), ("n", None)]

    assert shop("ls", shop.dlq)[1]["unresolved"] == 0
    assert shop("ls", shop.dlq, "--unresolved")[1]["letters"] == 0
    assert shop("replay", shop.dlq, "--all", "--yes")[0] == 5
    assert [change["state"] for change in shop("show", f"{shop.dlq}/1/0")[1]["history"]] == [
        "sending",
        "replayed",
    ]


def test_a_letter_is_shown_by_the_event_that_the_log_names(shop):
    shop.letters(3)
    shop.letters(2, failure_type="LookupError")
    code, shown, _ = shop("show", shop.dlq, "--event-id", "orders/0/1")
    assert (code, shown["event_id"], shown["at"]) == (0, "orders/0/1", f"{shop.dlq}/1/1")
    code, none, _ = shop("show", shop.dlq, "--event-id", "orders/0/9")
    assert (code, none) == (1, {"error": f"there is no letter of event 'orders/0/9' in {shop.dlq}"})


def test_two_runs_with_a_limit_send_twenty_distinct_letters(shop):
    shop.letters(30)
    for _ in range(2):
        assert shop("replay", shop.dlq, "--limit", "10", "--yes")[1]["sent"] == 10
    assert sorted(shop.copies().values()) == [1] * 20


def test_nothing_is_sent_unless_a_person_says_so(shop):
    shop.letters(2)
    code, planned, said = shop("replay", shop.dlq, "--all")
    assert (code, planned["selected"], "needs --yes" in said) == (2, 2, True)
    assert shop("replay", shop.dlq, "--all", "--dry-run")[0] == 0
    assert (shop.copies(), shop.states()) == ({}, {"open": 2})


def test_the_plan_is_printed_before_anything_is_sent(shop):
    shop.letters(2)
    shop.letters(1, reason="poison")
    said = shop.text("replay", shop.dlq, "--all", "--yes")
    assert [line.split() for line in said.splitlines()[:4]] == [
        ["replay:", "2", "letters"],
        ["FROM", "TO", "LETTERS", "BY", "REASON"],
        ["SOURCE.dlq", "SOURCE.retry.5s", "2", "permanent", "2"],
        ["left", "out:", "1,", "poison", "(--include-poison,", "or", "named", "by", "--at)"],
    ]
    assert "2 sent, 0 failed, 0 skipped, 0 not found of 2" in said


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--limit", "0"),
        ("--limit", "-1"),
        ("--all", "--limit", "5"),
        ("--at", "DLQ/0"),
        ("--at", "DLQ/0/-1"),
        ("--at", "other.dlq/0/0"),
        ("--all", "--rate", "0"),
        ("--all", "--rate", "fast"),
        ("--all", "--at", "DLQ/0/0"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error_and_sends_nothing(shop, arguments):
    shop.letters(1)
    typed = [argument.replace("DLQ", shop.dlq) for argument in arguments]
    assert shop("replay", shop.dlq, *typed, "--yes")[0] == 2
    assert shop.copies() == {}


def test_a_position_beyond_the_end_is_not_found(shop):
    shop.letters(1)
    code, result, _ = shop("replay", "--at", f"{shop.dlq}/0/0", "--at", f"{shop.dlq}/0/99", "--yes")
    assert (code, _counts(result)) == (3, (1, 0, 0, 1, 2))
    assert result["troubles"][0]["at"] == f"{shop.dlq}/0/99"
    assert shop("replay", "--at", f"{shop.dlq}/0/99", "--yes")[0] == 5
    code, shown, _ = shop("show", f"{shop.dlq}/0/99")
    assert (code, "offsets 0 to 0" in shown["error"]) == (1, True)


def test_an_empty_topic_and_a_missing_one(shop):
    assert shop("ls", shop.dlq)[1]["letters"] == 0
    assert shop("replay", shop.dlq, "--all", "--yes")[0] == 5
    code, told, _ = shop("ls", "nowhere.dlq")
    assert (code, "'nowhere.dlq' doesn't exist" in told["error"]) == (1, True)


def test_a_retry_topic_is_no_dead_letter_topic(shop):
    code, told, _ = shop("replay", shop.tier, "--all", "--yes")
    assert (code, "it is a tier topic" in told["error"]) == (1, True)


def test_a_missing_target_fails_and_leaves_its_letter_open(shop):
    shop.letters(1, replay_topic=f"{shop.source}.gone")
    code, result, _ = shop("replay", shop.dlq, "--all", "--yes")
    assert (code, _counts(result), shop.states()) == (1, (0, 1, 0, 0, 1), {"open": 1})


def test_a_copy_that_its_topic_refuses_fails_alone_and_leaves_its_letter_open(kafka, shop):
    small = f"{shop.source}.small"
    create_topics(kafka.bootstrap, [small], **{"max.message.bytes": "20000"})
    shop.letters(3, replay_topic=small)
    shop.letters(1, replay_topic=small, value=os.urandom(30_000))

    code, result, _ = shop("replay", shop.dlq, "--all", "--yes")

    assert (code, _counts(result)) == (3, (3, 1, 0, 0, 4))
    assert shop.states() == {"replayed": 3, "open": 1}
    assert "MSG_SIZE_TOO_LARGE" in result["troubles"][0]["why"]


def test_a_letter_of_a_megabyte_goes_back_whole(kafka, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    shop = Shop(kafka.bootstrap, **{"max.message.bytes": "2000000"})
    value = os.urandom(1_000_000)
    shop.letters(1, value=value, failure_stack="x" * 8000)

    assert shop("replay", shop.dlq, "--all", "--yes")[1]["sent"] == 1
    assert read_all(shop.bootstrap, shop.tier)[0].value == value
    assert shop("show", f"{shop.dlq}/0/0")[1]["value"]["bytes"] == 1_000_000
    assert "998976 more bytes" in shop.text("show", f"{shop.dlq}/0/0")


def test_letters_of_strangers_are_shown_and_go_where_a_person_says(shop):
    send(
        shop.bootstrap,
        shop.dlq,
        [
            Given(b"\xff\x00", None, [("redrive-attempt", b"many"), ("x", b"\x1b[31m"), ("", None)], 0),
            Given(None, b"", [], 0),
        ],
    )
    assert [cause["reason"] for cause in shop("ls", shop.dlq)[1]["causes"]] == [""]
    assert shop("show", f"{shop.dlq}/0/0")[1]["foreign"] is True
    shown = shop.text("show", f"{shop.dlq}/0/0")
    assert ("\x1b" in shown, "ff 00" in shown) == (False, True)
    assert "value: null" in shop.text("show", f"{shop.dlq}/0/1")

    assert shop("replay", shop.dlq, "--all", "--yes")[0] == 5
    assert shop("replay", shop.dlq, "--all", "--to", shop.source, "--yes")[1]["sent"] == 2
    assert [seen.value for seen in read_all(shop.bootstrap, shop.source)] == [b"\xff\x00", None]


def test_only_show_tells_what_a_record_holds(shop):
    shop.letters(2, value=b'{"card":"4711-secret"}')
    said = [
        shop.text("ls", shop.dlq),
        shop.text("ls", shop.dlq, "--all"),
        shop.text("replay", shop.dlq, "--limit", "1", "--yes"),
        shop.text("discard", shop.dlq, "--all", "--yes"),
        str(shop("ls", shop.dlq, "--all")),
    ]
    assert "4711" not in "".join(said)
    assert "4711-secret" in shop.text("show", f"{shop.dlq}/0/0")


def test_a_discarded_letter_comes_back_only_by_name(shop):
    shop.letters(2)
    code, result, _ = shop(
        "discard", "--at", f"{shop.dlq}/0/0", "--why", "a test order", "--who", "ann", "--yes"
    )
    assert (code, result["discarded"]) == (0, 1)
    assert shop("replay", shop.dlq, "--all", "--again", "--yes")[1]["sent"] == 1
    change = shop("show", f"{shop.dlq}/0/0")[1]["history"][-1]
    assert (change["state"], change["who"], change["why"]) == ("discarded", "ann", "a test order")
    assert shop("replay", "--at", f"{shop.dlq}/0/0", "--again", "--yes")[1]["sent"] == 1


def test_garbage_in_the_state_topic_is_told_and_holds_up_nothing(shop):
    create_topics(shop.bootstrap, [f"{shop.dlq}.state"], 3, **{"cleanup.policy": "compact"})
    send(
        shop.bootstrap,
        f"{shop.dlq}.state",
        [
            Given(b"{", f"{shop.dlq}/0/0".encode(), [], 0),
            Given(b"x", b"\xff", [], 0),
            Given(b"x", b"k", [], 2),
        ],
    )
    shop.letters(2)
    code, result, said = shop("replay", shop.dlq, "--all", "--yes")
    assert (code, result["sent"], result["left_out"]) == (0, 1, {"unknown whether it was sent": 1})
    assert "2 records can't be read as states" in said


def test_ten_thousand_letters_are_each_sent_once(shop):
    shop.letters(10_000)
    code, result, _ = shop("replay", shop.dlq, "--all", "--yes")
    assert (code, _counts(result)) == (0, (10_000, 0, 0, 0, 10_000))
    assert Counter(shop.copies().values()) == {1: 10_000}


# -- with the service that failed ---------------------------------------------------------------------------------


class Service:
    """A group with one listener that fails until it is fixed, and keeps what it handled."""

    def __init__(self, bootstrap, group, source, retry):
        self.app = App(group, settings={"bootstrap_servers": bootstrap})
        self.is_fixed = False
        self.handled = []

        @self.app.listener(source, retry=retry)
        def charge(value: bytes, record: Record) -> None:
            if not self.is_fixed:
                raise TypeError("a bug")
            self.handled.append((record.event_id, record.attempt, record.is_replay, value, record.headers))


@pytest.mark.parametrize("retry", [RetryPolicy("1s"), RetryPolicy()])
def test_a_replay_is_handled_by_the_group_that_failed_and_by_no_other(
    kafka, group, monkeypatch, tmp_path, retry
):
    monkeypatch.chdir(tmp_path)
    source = unique("orders")
    failing, other = (
        Service(kafka.bootstrap, f"{group}-{name}", source, retry) for name in ("failing", "other")
    )
    create_topics(kafka.bootstrap, [f"{source}.dlq.state"], **{"cleanup.policy": "compact"})
    create_topics_of(kafka.bootstrap, failing.app)
    other.is_fixed = True
    send(kafka.bootstrap, source, [Given(b"1", b"k", [("trace", b"\xff")]), Given(b"2", b"k")])
    with running(failing.app), running(other.app):
        until(lambda: len(read_all(kafka.bootstrap, f"{source}.dlq")) == 2, "two dead letters")
        until(lambda: len(other.handled) == 2, "the other group handled both")
        failing.is_fixed = True

        result = CliRunner().invoke(
            app, ["dlq", "replay", f"{source}.dlq", "--all", "--yes", "--bootstrap-servers", kafka.bootstrap]
        )

        assert result.exit_code == 0, result.output
        until(lambda: len(failing.handled) == 2, "the fixed group handled both")
        # What comes after the replay has passed the other group too.
        send(kafka.bootstrap, source, [Given(b"3", b"k")])
        until(lambda: len(other.handled) == 3, "the sentinel")
    assert failing.handled[:2] == [
        (f"{source}/0/0", 1, True, b"1", (("trace", b"\xff"),)),
        (f"{source}/0/1", 1, True, b"2", ()),
    ]
    assert [attempt for _, attempt, *_ in other.handled] == [1, 1, 1]


def test_a_letter_that_fails_again_is_a_new_one_with_its_history(kafka, group, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    source = unique("orders")
    service = Service(kafka.bootstrap, group, source, RetryPolicy("1s"))
    create_topics(kafka.bootstrap, [f"{source}.dlq.state"], **{"cleanup.policy": "compact"})
    create_topics_of(kafka.bootstrap, service.app)
    send(kafka.bootstrap, source, [Given(b"1")])
    with running(service.app):
        for number in (1, 2, 3):
            until(
                lambda number=number: len(read_all(kafka.bootstrap, f"{source}.dlq")) == number,
                "a dead letter",
            )
            typed = [
                "dlq",
                "replay",
                f"{source}.dlq",
                "--all",
                "--yes",
                "--json",
                "--bootstrap-servers",
                kafka.bootstrap,
            ]
            result = CliRunner().invoke(app, typed)
            assert json.loads(result.stdout).get("sent") == 1, result.output
        until(lambda: len(read_all(kafka.bootstrap, f"{source}.dlq")) == 4, "the last dead letter")

    letters = read_all(kafka.bootstrap, f"{source}.dlq")
    assert [letter.own.get("replays", "0") for letter in letters] == ["0", "1", "2", "3"]
    assert {letter.own["id"] for letter in letters} == {f"{source}/0/0"}
    assert {letter.own["attempt"] for letter in letters} == {"1"}


def test_an_app_sees_its_own_letters(shop, monkeypatch, tmp_path):
    (tmp_path / "dlq_service.py").write_text(
        "from redrive import App\n\napp = App('payments')\n\n\n@app.listener('orders')\ndef charge(value: bytes) -> None: ...\n"
    )
    shop.letters(3)
    shop.letters(2, group="mails")

    def letters(*arguments):
        _, counted, _ = shop("ls", *arguments)
        return sum(cause["letters"] for cause in counted["causes"] if cause["topic"] == shop.dlq)

    assert letters() == 5
    assert letters("--app", "dlq_service:app", "--app-dir", str(tmp_path)) == 3
    assert letters("--app", "dlq_service:app", "--app-dir", str(tmp_path), "--group", "mails") == 2
    assert letters(shop.dlq, "--app", "dlq_service:app", "--app-dir", str(tmp_path)) == 5


def test_a_letter_that_names_no_group_is_the_apps_in_its_own_topics_alone(shop, tmp_path):
    stranger = [Given(b"v", b"k", [("kafka_dlt-original-topic", shop.source.encode())])]
    send(shop.bootstrap, shop.dlq, stranger)
    for name, source in (("mine", shop.source), ("others", "elsewhere")):
        (tmp_path / f"{name}.py").write_text(
            f"from redrive import App\n\napp = App('{name}')\n\n\n"
            f"@app.listener('{source}')\ndef charge(value: bytes) -> None: ...\n"
        )

    def planned(name):
        app_options = ("--app", f"{name}:app", "--app-dir", str(tmp_path))
        plan = shop("replay", "--all", "--dry-run", *app_options)[1]
        counted = shop("ls", *app_options)[1]["causes"]
        in_shop = [route["letters"] for route in plan["routes"] if route["from"] == shop.dlq]
        return in_shop, sum(cause["letters"] for cause in counted if cause["topic"] == shop.dlq)

    assert planned("mine") == ([1], 1)
    assert planned("others") == ([], 0)


# -- on a terminal ------------------------------------------------------------------------------------------------


_ON_ITS_TERMINAL = """
import fcntl, termios
from redrive.cli.main import main

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
main()
"""


def _typed(shop, answer):
    """What a person gets who answers on a terminal: exit code and all that was shown."""
    keyboard, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _ON_ITS_TERMINAL, "dlq", "replay", shop.dlq, "--all"],
        env={**os.environ, "REDRIVE_BOOTSTRAP_SERVERS": shop.bootstrap},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    shown = b""
    while b"[y/N]" not in shown:
        shown += os.read(keyboard, 1000)
    os.write(keyboard, answer)
    while True:
        if not select.select([keyboard], [], [], 1)[0]:
            # A Ctrl-C that comes after the question was written and before it is waited for is noticed with the next key.
            os.write(keyboard, answer if answer == b"\x03" else b"")
            continue
        try:
            shown += os.read(keyboard, 1000)
        except OSError:  # how Linux says that nobody holds the terminal any more
            break
    os.close(keyboard)
    return process.wait(60), shown.decode()


@pytest.mark.parametrize(
    ("answer", "code", "sent"), [(b"y\n", 0, 2), (b"n\n", 1, 0), (b"\n", 1, 0), (b"\x03", 130, 0)]
)
def test_on_a_terminal_it_asks(shop, answer, code, sent):
    shop.letters(2)
    returned, shown = _typed(shop, answer)
    assert (returned, "replay 2 letters?" in shown, sum(shop.copies().values())) == (code, True, sent)
