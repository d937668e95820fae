"""Handlers of dead letters on a real broker: beside their app, in a group of their own."""

import re
import threading
from urllib.request import urlopen

from redrive import App, DeadLetter, DeadLetterNow, RetryPolicy
from tests.faults import running
from tests.plain_kafka import Given, committed, create_topics_of, is_all_committed, send, unique
from tests.waiting import until


class Shop:
    """An app whose orders all die, and what its handler of dead letters was given."""

    def __init__(self, bootstrap, source, group, *, with_handler=True, **settings):
        self.letters: list[DeadLetter] = []
        self.may_go_on = threading.Event()
        self.app = App(group, settings={"bootstrap_servers": bootstrap, **settings})
        self.app.listener(source, retry=RetryPolicy(), name="charge")(self._charge)
        if with_handler:
            self.app.on_dead_letter(source, name="triage")(self._triage)

    def _charge(self, value: bytes) -> None:
        raise DeadLetterNow("no")

    async def _triage(self, letter: DeadLetter) -> None:
        self.letters.append(letter)
        if letter.value == b"refused":
            raise TypeError("a bug")

    @property
    def values(self):
        return sorted(letter.value or b"" for letter in self.letters)


def test_new_letters_are_handled_once_across_restarts_and_old_ones_left_alone(kafka):
    source, group = unique("orders"), unique("shop")
    letters, dlq = f"{group}.on-dead-letter", f"{source}.dlq"

    before = Shop(kafka.bootstrap, source, group, with_handler=False)
    create_topics_of(kafka.bootstrap, before.app, 2)
    send(kafka.bootstrap, source, [Given(b"old", b"%d" % number) for number in range(5)])
    with running(before.app):
        until(lambda: is_all_committed(kafka.bootstrap, group, [source]), "five old letters")

    # What waits on the source dies as soon as the app runs: before the letters' group can have joined.
    send(kafka.bootstrap, source, [Given(b"first", b"%d" % number) for number in range(5)])
    first = Shop(kafka.bootstrap, source, group, http="127.0.0.1:0")
    with running(first.app):
        until(lambda: len(first.letters) >= 5, "the first five")
        send(kafka.bootstrap, source, [Given(b"refused"), Given(b"second")])
        send(kafka.bootstrap, dlq, [Given(b"a stranger's")])
        until(lambda: len(first.letters) >= 7, "the next two")
        until(lambda: is_all_committed(kafka.bootstrap, letters, [dlq]), "all letters committed")
    assert first.values == [b"first"] * 5 + [b"refused", b"second"]
    assert {letter.group for letter in first.letters} == {group}

    # Made while nothing handles them.
    send(kafka.bootstrap, source, [Given(b"third", b"%d" % number) for number in range(3)])
    between = Shop(kafka.bootstrap, source, group, with_handler=False)
    with running(between.app):
        until(lambda: is_all_committed(kafka.bootstrap, group, [source]), "three more letters")

    second = Shop(kafka.bootstrap, source, group)
    with running(second.app):
        until(lambda: len(second.letters) >= 3, "the three")
    assert second.values == [b"third"] * 3
    assert sum(committed(kafka.bootstrap, letters, dlq).values()) == 5 + 7 + 1 + 3


def test_its_metrics_stand_beside_the_apps(kafka, caplog):
    caplog.set_level("INFO", "redrive")
    source, group = unique("orders"), unique("shop")
    shop = Shop(kafka.bootstrap, source, group, http="127.0.0.1:0")
    create_topics_of(kafka.bootstrap, shop.app)
    send(kafka.bootstrap, source, [Given(b"refused"), Given(b"well")])
    with running(shop.app):
        until(lambda: len(shop.letters) >= 2, "two letters")
        port = re.search(r"/metrics at port (\d+)", caplog.text)[1]

        def series():
            page = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
            return dict(re.findall(r"^(redrive_\S+\{.*\}) (\S+)$", page, re.MULTILINE))

        def outcome(name):
            labels = f'group="{group}.on-dead-letter",listener="triage",outcome="{name}",topic="{source}.dlq"'
            return series()[f"redrive_records_total{{{labels}}}"]

        until(lambda: (outcome("handled"), outcome("given-up")) == ("1.0", "1.0"), "both are counted")
        found = series()
        assert (
            found[
                f'redrive_dead_letters_total{{group="{group}",listener="charge",reason="asked",topic="{source}"}}'
            ]
            == "2.0"
        )
        assert len([name for name in found if name.startswith("redrive_build_info")]) == 1
    assert (
        f"The handler triage of dead letters failed for good at {source}.dlq/0/0 (permanent, TypeError)"
        in caplog.text
    )
