"""Keys that wait for a dead letter, on a real broker: over restarts, until a person replays or discards it."""

import json
import threading

import pytest
from typer.testing import CliRunner

from redrive import App, Record, RetryPolicy
from redrive.cli.main import app as redrive
from tests.faults import running
from tests.plain_kafka import Given, count_all, create_topics_of, is_all_committed, read_all, send, unique
from tests.waiting import until


class Ledgers:
    """A service whose records fail while their value is in `bad`. `ran`: values by key, in the order of runs."""

    def __init__(self, bootstrap, after, protocol="consumer"):
        self.bootstrap, self.after, self.protocol = bootstrap, after, protocol
        self.group, self.source = unique("ledgers"), unique("entries")
        self.bad, self.ran, self._lock = set(), [], threading.Lock()
        create_topics_of(bootstrap, self.app(), 2)

    def app(self):
        """The app anew, as another process would have it."""
        settings = {
            "bootstrap_servers": self.bootstrap,
            "commit_interval": "200ms",
            "group_protocol": self.protocol,
        }
        app = App(self.group, settings=settings)
        policy = RetryPolicy("200ms", blocking="key", after_dead_letter=self.after)
        app.listener(self.source, retry=policy, order="key", concurrency=4, name="book")(self._book)
        return app

    def _book(self, value: bytes, record: Record) -> None:
        with self._lock:
            self.ran.append((record.key, value))
        if value in self.bad:
            raise ConnectionError(value)

    def send(self, *records):
        send(self.bootstrap, self.source, [Given(value, key) for key, value in records])

    def of(self, key):
        return [value for each, value in list(self.ran) if each == key]

    def letters(self):
        return [letter.value for letter in read_all(self.bootstrap, f"{self.source}.dlq")]

    def operate(self, verb, *arguments):
        arguments = ("dlq", verb, f"{self.source}.dlq", *arguments, "--yes", "--json")
        result = CliRunner().invoke(redrive, [*arguments, "--bootstrap-servers", self.bootstrap])
        return result.exit_code, json.loads(result.stdout)

    def await_end(self, *topics):
        until(lambda: is_all_committed(self.bootstrap, self.group, topics), "all is committed")


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_blocked_key_waits_over_a_restart_until_its_letter_is_replayed(kafka, protocol):
    at = Ledgers(kafka.bootstrap, "block", protocol)
    at.bad.add(b"1")
    at.send((b"a", b"1"), (b"a", b"2"), (b"b", b"3"))
    with running(at.app()):
        until(lambda: at.letters() == [b"1"] and at.of(b"b"), "the dead letter")
    at.send((b"a", b"4"), (b"b", b"5"))
    at.bad.clear()
    with running(at.app()):
        until(lambda: at.of(b"b") == [b"3", b"5"], "the other key goes on")
        assert at.of(b"a") == [b"1", b"1"]
        code, report = at.operate("replay", "--all")
        assert (code, report["sent"]) == (0, 1)
        until(lambda: len(at.of(b"a")) == 5, "the key goes on")
        at.await_end(at.source, f"{at.source}.replay")
    assert at.of(b"a") == [b"1", b"1", b"1", b"2", b"4"]
    assert at.letters() == [b"1"]


def test_a_discarded_letter_frees_its_key_without_a_run(kafka):
    at = Ledgers(kafka.bootstrap, "block")
    at.bad.add(b"1")
    at.send((b"a", b"1"), (b"a", b"2"))
    with running(at.app()):
        until(lambda: at.letters() == [b"1"], "the dead letter")
    code, report = at.operate("discard", "--all", "--why", "booked by hand")
    assert (code, report["discarded"]) == (0, 1)
    with running(at.app()):
        until(lambda: at.of(b"a")[-1:] == [b"2"], "the key goes on")
        at.await_end(at.source, f"{at.source}.replay")
    assert at.of(b"a") == [b"1", b"1", b"2"]


def test_diverted_records_follow_their_dead_letter_and_are_replayed_in_their_order(kafka):
    at = Ledgers(kafka.bootstrap, "divert")
    at.bad.add(b"1")
    at.send((b"a", b"1"), (b"a", b"2"), (b"a", b"3"), (b"b", b"4"))
    with running(at.app()):
        until(lambda: at.letters() == [b"1", b"2", b"3"] and at.of(b"b"), "all of the key are put aside")
    at.send((b"a", b"5"))
    at.bad.clear()
    with running(at.app()):
        until(lambda: count_all(at.bootstrap, f"{at.source}.dlq") == 4, "later ones too, after a restart")
        code, report = at.operate("replay", "--all")
        assert (code, report["sent"]) == (0, 4)
        at.send((b"a", b"6"))
        until(lambda: at.of(b"a")[-1:] == [b"6"], "the key goes on")
        at.await_end(at.source, f"{at.source}.replay")
    assert at.of(b"a") == [b"1", b"1", b"1", b"2", b"3", b"5", b"6"]


def test_a_replay_that_becomes_a_dead_letter_again_is_followed_by_later_ones_over_a_restart(kafka):
    at = Ledgers(kafka.bootstrap, "divert")
    at.bad.add(b"1")
    at.send((b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
    with running(at.app()):
        until(lambda: at.letters() == [b"1", b"2", b"3"], "all of the key are put aside")
        code, report = at.operate("replay", "--limit", "2")
        assert (code, report["sent"]) == (0, 2)
        until(lambda: at.letters()[3:] == [b"1", b"2"], "the first one dies again, the second one follows it")
    at.ran.clear()
    with running(at.app()):
        code, report = at.operate("replay", "--limit", "1")
        assert (code, report["sent"]) == (0, 1)
        until(lambda: at.letters()[5:] == [b"3"], "the third one follows after a restart")
        assert at.of(b"a") == []
        at.bad.clear()
        code, report = at.operate("replay", "--all")
        assert (code, report["sent"]) == (0, 3)
        at.send((b"a", b"4"))
        until(lambda: at.of(b"a")[-1:] == [b"4"], "the key goes on")
        at.await_end(at.source, f"{at.source}.replay")
    assert at.of(b"a") == [b"1", b"2", b"3", b"4"]
