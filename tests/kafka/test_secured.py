"""
A broker that lets nobody in without a login, over TLS, and grants the rights that `redrive topics acls` prints and no other.

With exactly these all works; without any one of them it is said which one is missing. Secrets are never seen.
"""

import json
import logging
import os
import shlex
import subprocess
import sys
from base64 import b64encode
from dataclasses import replace

import pytest

from redrive.adapters.kafka_cluster import KafkaCluster
from redrive.adapters.kafka_log import KafkaLog
from redrive.adapters.kafka_settings import client_conf
from redrive.core.acls import Operation, Resource, Right, letter_acls, on_topic
from redrive.core.dialects import with_envelope
from redrive.core.settings import Settings
from redrive.deadletters.depth import Depths, Reach
from redrive.deadletters.topics import Names
from redrive.errors import PortError
from redrive.runtime.clock import SystemClock
from redrive.runtime.planning import plan_letters
from tests.broker import fetch
from tests.deadletters.desks import envelope
from tests.faults import running
from tests.kafka.secured import password_of, secured_broker
from tests.kafka.secured_shop import GROUP, RIGHTS, SERVICE, SOURCE, Shop, Stage, rights_of
from tests.plain_kafka import Given, commit, committed, count_all, create_topics, read_all, send
from tests.waiting import until


def _without(need):
    """A case for each right of a need."""
    return pytest.mark.parametrize("lacking", RIGHTS[need], ids=[str(right) for right in RIGHTS[need]])


@pytest.fixture(scope="module")
def stage(broker_jars, tmp_path_factory):
    folder = tmp_path_factory.mktemp("secured")
    with secured_broker(folder) as secured:
        stage = Stage(secured, folder)
        stage.grant_all()
        create_topics(secured.open, [SOURCE])
        # Where there is no group at all, none is hidden, and no right is missing.
        commit(secured.open, "somebody-else", SOURCE, 0)
        code, told = stage.command(stage.user_without("topics-apply", None), "topics", "apply")
        assert (code, told.count("created ")) == (0, 3), told
        yield stage


def test_what_is_printed_is_what_is_tried_here(stage):
    code, told = stage.command(stage.user_without("topics-plan", None), "topics", "acls", "--json")

    printed = {
        need["for"]: [(acl["operation"], acl["resource"], acl["name"]) for acl in need["acls"]]
        for need in json.loads(told)["needs"]
    }
    assert (code, printed) == (
        0,
        {
            need: [(right.operation, right.resource, right.name) for right in rights]
            for need, rights in RIGHTS.items()
        },
    )


def test_what_is_printed_for_kafkas_own_tool_grants_it(stage, tmp_path):
    user = stage.secured.user()
    options = ["--format", "kafka-acls", "--for", "dlq-look", "--operator", f"User:{user}"]
    _, told = stage.command(stage.user_without("topics-plan", None), "topics", "acls", *options)
    lines = [shlex.split(line) for line in told.splitlines() if not line.startswith("#")]
    (tmp_path / "admin.properties").touch()
    tool = ["java", "-cp", f"{fetch()}/*", "org.apache.kafka.tools.AclCommand"]
    for [name, *arguments] in lines:
        arguments[arguments.index("--bootstrap-server") + 1] = stage.secured.open
        granted = subprocess.run(
            [*tool, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (name, granted.returncode) == ("kafka-acls.sh", 0), granted.stdout + granted.stderr
    stage.secured.recount()

    assert len(lines) == 2
    code, told = stage.command(user, "dlq", "ls", f"{SOURCE}.dlq", app=False)
    assert code == 0, told


def _letters_of(secured, value):
    """The dead letters of one record: the tests of this file share the topics, in any order."""
    return [letter for letter in read_all(secured.open, f"{SOURCE}.dlq") if letter.value == value]


def test_with_exactly_these_rights_a_record_fails_climbs_dies_and_is_sent_back(stage):
    secured = stage.secured
    user = secured.scram_user("payments")
    secured.grant({user: RIGHTS["service"]})
    shop = stage.shop(user, mechanism="SCRAM-SHA-512")
    with running(shop.app):
        send(secured.open, SOURCE, [Given(b"order 1")])
        until(lambda: _letters_of(secured, b"order 1"), "its dead letter")
        shop.gateway = True
        code, told = stage.command(stage.user_without("dlq-look", None), "dlq", "ls")
        assert (code, "exhausted" in told) == (0, True), told
        [letter] = _letters_of(secured, b"order 1")
        by_id = ["--event-id", letter.own["id"]]
        code, told = stage.command(stage.user_without("dlq-replay", None), "dlq", "replay", *by_id, "--yes")
        assert (code, "1 sent, 0 failed" in told) == (0, True), told
        until(lambda: (b"order 1", 1, True) in shop.handled, "its replay")
        tier = f"{SOURCE}.retry.100ms"
        written = {0: count_all(secured.open, tier)}
        until(lambda: committed(secured.open, GROUP, tier) == written, "its commit")

    runs = [run for run in shop.handled if run[0] == b"order 1"]
    assert runs == [(b"order 1", 1, False), (b"order 1", 2, False), (b"order 1", 1, True)]
    assert letter.own["group"] == GROUP


@_without("service")
def test_a_service_without_one_right_says_which(stage, lacking, caplog):
    caplog.set_level(logging.WARNING, "redrive")
    shop = stage.shop(stage.user_without("service", lacking))
    if lacking.resource is Resource.TOPIC:
        refused = pytest.raises(PortError, match=f"^this user lacks the right {lacking}. What is needed")
        with refused, running(shop.app):
            pass
    else:
        with running(shop.app):
            until(lambda: f"this user lacks the right {lacking}" in caplog.text, f"{lacking} is named")


@pytest.mark.parametrize("is_granted", [True, False])
def test_exactly_once_takes_the_printed_right_on_transactional_ids_and_names_it(stage, is_granted):
    group = source = f"once-{is_granted}".lower()
    rights = rights_of(group, source, delivery="exactly-once")["service"]
    of_ids = [right for right in rights if right.resource is Resource.TRANSACTIONAL_ID]
    secured, user = stage.secured, stage.secured.user()
    secured.grant({user: [right for right in rights if is_granted or right not in of_ids]})
    create_topics(secured.open, [f"{source}{end}" for end in ("", ".retry.100ms", ".dlq", ".dlq.state")])
    shop = Shop(
        group,
        source,
        delivery="exactly-once",
        instance_id="a",
        bootstrap_servers=secured.bootstrap,
        kafka=secured.login(user),
    )
    send(secured.open, source, [Given(b"order 1")])
    if is_granted:
        with running(shop.app):
            until(lambda: read_all(secured.open, f"{source}.dlq"), "its dead letter")
            until(lambda: committed(secured.open, group, source) == {0: 1}, "its commit")
        return
    lacks = f"this user lacks the right Write on transactional-id {group}-a-0. What is needed for what: redrive topics acls"
    with pytest.raises(PortError, match=lacks), running(shop.app) as at_work:
        until(lambda: at_work.has_ended, "it ends by itself")
    assert committed(secured.open, group, source) == {}


LETTERS = "letters"


def _letter_rights():
    """What is needed besides by the group that handles the dead letters of a shop of its own."""
    app = Shop(LETTERS, LETTERS).app
    app.on_dead_letter(LETTERS, name="triage")(lambda letter: None)
    return [acl.right for acl in letter_acls(plan_letters(app.resolve(), Settings()))]


def test_letters_are_handled_with_exactly_their_rights_and_without_one_they_alone_wait(stage, caplog):
    caplog.set_level(logging.WARNING, "redrive")
    secured, rights = stage.secured, _letter_rights()
    create_topics(secured.open, [f"{LETTERS}{end}" for end in ("", ".retry.100ms", ".dlq", ".dlq.state")])
    users = {lacking: secured.user() for lacking in (*rights, None)}
    served = rights_of(LETTERS, LETTERS)["service"]
    secured.grant(
        {user: [*served, *(right for right in rights if right != lacking)] for lacking, user in users.items()}
    )
    for lacking, user in users.items():
        caplog.clear()
        _handle_letters(stage, user, lacking, caplog)


def _handle_letters(stage, user, lacking, caplog):
    letters = []
    shop = Shop(LETTERS, LETTERS, bootstrap_servers=stage.secured.bootstrap, kafka=stage.secured.login(user))
    shop.app.on_dead_letter(LETTERS, name="triage")(letters.append)
    with running(shop.app):
        send(stage.secured.open, LETTERS, [Given(b"order 1")])
        until(lambda: len(shop.handled) >= 2, "the listener's runs")
        if lacking is None:
            until(lambda: letters, "the letter")
            return
        # It is asked first what is committed: that takes Describe on the group, which Read brings along.
        named = str(lacking).replace("Read on group", "Describe on group")
        until(lambda: f"this user lacks the right {named}" in caplog.text, f"{named} is named")
    assert letters == []


@_without("topics-plan")
def test_a_plan_without_one_right_says_which(stage, lacking):
    code, told = stage.command(stage.user_without("topics-plan", lacking), "topics", "plan")

    is_blind = lacking.operation is Operation.DESCRIBE and lacking.resource is Resource.TOPIC
    if is_blind:  # nobody can tell then what else is missing
        named = f"this user lacks 2 rights: Describe and DescribeConfigs on topic {lacking.name}"
    else:
        named = f"this user lacks the right {lacking}"
    assert (code, named in told) == (1 if is_blind else 0, True), told


@_without("topics-apply")
def test_creating_without_one_right_says_which(stage, lacking):
    """On a shop of its own, of which one topic is missing, or one too small."""
    group = source = f"shop-{RIGHTS['topics-apply'].index(lacking)}"
    user = stage.secured.user()
    mine = replace(lacking, name=lacking.name.replace(SOURCE, source))
    stage.secured.grant(
        {user: [right for right in rights_of(group, source)["topics-apply"] if right != mine]}
    )
    create_topics(stage.secured.open, [source], 2)
    others = [f"{source}.retry.100ms", f"{source}.dlq", f"{source}.dlq.state"]
    create_topics(
        stage.secured.open,
        [each for each in others if (lacking.operation, each) != (Operation.CREATE, mine.name)],
    )

    code, told = stage.command(user, "topics", "apply", group=group, source=source)

    # Without Describe, which Alter brings along, nobody can tell what else is missing.
    on_it = [each.operation for each in RIGHTS["topics-apply"] if each.name == lacking.name]
    sees = lacking.resource is not Resource.TOPIC or lacking.operation in {
        Operation.CREATE,
        Operation.DESCRIBE_CONFIGS,
    }
    named = (
        f"the right {mine}" if sees else f"{len(on_it)} rights: {' and '.join(on_it)} on topic {mine.name}"
    )
    assert (f"this user lacks {named}" in told, code in {0, 1, 3, 4}) == (True, True), told


@_without("dlq-look")
def test_looking_at_dead_letters_without_one_right_says_which(stage, lacking):
    stage.letter()
    code, told = stage.command(
        stage.user_without("dlq-look", lacking), "dlq", "ls", f"{SOURCE}.dlq", app=False
    )

    assert (code, f"this user lacks the right {lacking}" in told) == (1, True), told


@_without("dlq-replay")
def test_a_replay_without_one_right_says_which_and_sends_nothing(stage, lacking):
    stage.letter()
    before = count_all(stage.secured.open, f"{SOURCE}.retry.100ms")

    code, told = stage.command(
        stage.user_without("dlq-replay", lacking),
        "dlq",
        "replay",
        f"{SOURCE}.dlq",
        "--all",
        "--yes",
        app=False,
    )

    assert (code, f"this user lacks the right {lacking}" in told) == (1, True), told
    assert count_all(stage.secured.open, f"{SOURCE}.retry.100ms") == before


@pytest.mark.parametrize("lacking", [None, *RIGHTS["metrics"]], ids=str)
def test_a_service_counts_its_letters_with_these_rights_and_says_which_one_it_lacks(stage, lacking):
    stage.letter()
    send(stage.secured.open, f"{SOURCE}.dlq.state", [Given(b"{}", b"of no letter")])
    user, said = stage.secured.user(), []
    stage.secured.grant(
        {user: [right for right in RIGHTS["service"] + RIGHTS["metrics"] if right != lacking]}
    )
    options = {**stage.secured.login(user), "bootstrap.servers": stage.secured.bootstrap}
    log = KafkaLog(options)
    reach = Reach(
        cluster=KafkaCluster(client_conf(options)),
        log=log,
        clock=SystemClock(),
        report=said.append,
        hang_up=log.close,
    )
    depths = Depths(lambda: [f"{SOURCE}.dlq"], reach, names=Names(), groups=[GROUP], refresh_ms=0)
    depths.look()

    is_counted = lacking is None or lacking.operation is Operation.DESCRIBE_CONFIGS
    assert (list(depths.depths), len(said)) == (([f"{SOURCE}.dlq"], 0) if is_counted else ([], 1))
    assert [str(lacking) in report.fields["error"] for report in said] == [True] * len(said)


def test_dead_letters_that_a_user_may_not_see_are_told_where_none_are_named(stage):
    lacking = on_topic(Operation.READ, f"{SOURCE}.dlq")
    _, told = stage.command(stage.user_without("dlq-look", lacking), "dlq", "ls")

    assert f"not all dead letters are shown: this user lacks the right {lacking}" in told


def test_waiting_retries_are_shown_and_hurried_with_exactly_these_rights(stage):
    user = stage.user_without("retries", None)
    said = envelope(0, group=GROUP, source_topic=SOURCE)
    send(stage.secured.open, f"{SOURCE}.retry.100ms", [Given(b"waits", b"key", with_envelope((), said))])
    code, told = stage.command(user, "retries", "ls")
    assert (code, f"{SOURCE}.retry.100ms" in told, "lacks" in told) == (0, True, False), told

    code, told = stage.command(user, "retries", "hurry", "--all", "--yes", "--wait", "0s", "--why", "a test")

    assert (code, "0 failed" in told, "lacks" in told) == (0, True, False), told


def _hands(stage, user):
    """Exit codes, and all that is said, of a pause, its end, and a skip of the last record of the source and of the tier."""
    commands = [("pause", "charge"), ("resume", "charge")]
    for topic in (SOURCE, f"{SOURCE}.retry.100ms"):
        send(stage.secured.open, topic, [Given(b"stuck")])
        last = count_all(stage.secured.open, topic) - 1
        commands.append(("skip", f"{topic}/0/{last}", "--yes", "--wait", "0s"))
    codes, told = zip(*(stage.command(user, "worker", *command) for command in commands), strict=True)
    return set(codes), "".join(told)


def test_a_listener_is_paused_and_a_record_skipped_with_exactly_these_rights(stage):
    codes, told = _hands(stage, stage.user_without("worker", None))

    assert (codes, "lacks" in told) == ({0}, False), told


@_without("worker")
def test_pausing_and_skipping_without_one_right_say_which(stage, lacking):
    codes, told = _hands(stage, stage.user_without("worker", lacking))

    assert (codes <= {0, 1}, f"this user lacks the right {lacking}" in told) == (True, True), told


def test_lag_is_shown_with_exactly_its_rights(stage):
    code, told = stage.command(stage.user_without("lag", None), "lag")

    assert (code, SOURCE in told, "lacks" in told) == (0, True, False), told


@_without("lag")
def test_lag_without_one_right_says_which(stage, lacking):
    stage.letter()
    send(stage.secured.open, SOURCE, [Given(b"unread")])
    send(stage.secured.open, f"{SOURCE}.retry.100ms", [Given(b"unread")])
    _, told = stage.command(stage.user_without("lag", lacking), "lag")

    assert f"this user lacks the right {lacking}" in told, told


class TestRightsThatAreTakenAway:
    """While a service runs: it says which, goes on with the rest, and with all of it when the right is back."""

    @pytest.fixture
    def at_work(self, stage, caplog):
        """A shop at work, its user, and what it has logged."""
        caplog.set_level(logging.WARNING, "redrive")
        user = stage.secured.user()
        stage.secured.grant({user: RIGHTS["service"]})
        shop = stage.shop(user)
        with running(shop.app):
            send(stage.secured.open, SOURCE, [Given(b"first")])
            until(lambda: (b"first", 2, False) in shop.handled, "it is at work")
            yield shop, user, lambda: caplog.text

    def test_to_write_a_dead_letter(self, stage, at_work):
        _, user, said = at_work
        right = on_topic(Operation.WRITE, f"{SOURCE}.dlq")
        stage.secured.revoke(user, right)

        send(stage.secured.open, SOURCE, [Given(b"refused")])
        until(lambda: "was refused: TOPIC_AUTHORIZATION_FAILED" in said(), "it is refused")
        stage.secured.grant({user: [right]})
        until(lambda: len(_letters_of(stage.secured, b"refused")) == 1, "its dead letter")

        assert f"this user lacks the right {right}" in said()

    def test_to_be_a_member(self, stage):
        """The client gives up for good then: the service ends, for its supervisor to start it again."""
        user = stage.secured.user()
        stage.secured.grant({user: RIGHTS["service"]})
        right = Right(Operation.READ, Resource.GROUP, GROUP)
        ended = pytest.raises(PortError, match=f"of no use any more: .* this user lacks the right {right}")

        shop = stage.shop(user)
        with ended, running(shop.app) as service:
            send(stage.secured.open, SOURCE, [Given(b"first")])
            until(lambda: shop.handled, "it is at work")
            stage.secured.revoke(user, right)
            until(lambda: not service._thread.is_alive(), "it ends")

    def test_to_read_its_source(self, stage, at_work):
        shop, user, said = at_work
        right = on_topic(Operation.READ, SOURCE)
        stage.secured.revoke(user, right)
        send(stage.secured.open, SOURCE, [Given(b"later")])

        until(lambda: f"this user lacks the right {right}" in said(), "it is refused")
        stage.secured.grant({user: [right]})
        until(lambda: (b"later", 1, False) in shop.handled, "it is back")


class TestSecrets:
    """Whatever is printed, logged or raised, at any level: no password and no key is in it."""

    KEY = "hush-key-hush"

    @pytest.fixture
    def said(self, stage, tmp_path):
        """Runs a command as a process of its own; gives all that it and its Kafka client say, without secrets in it."""
        user = stage.user_without("service", None)
        secrets = [password_of(user), "hush-wrong-hush", self.KEY]
        (tmp_path / "shop.py").write_text(SERVICE.format(group=GROUP, source=SOURCE))
        everything = {
            "root": {"level": "DEBUG", "handlers": ["stderr"]},
            "handlers": {"stderr": {"class": "logging.StreamHandler"}},
            "loggers": {"redrive.kafka.client": {"level": "DEBUG"}},
        }
        (tmp_path / "log.json").write_text(json.dumps(everything))

        def run(*arguments, until_it_says="", **login):
            environment = {
                **os.environ,
                **stage.secured.environment(user),
                "REDRIVE_APP": "shop:app",
                "REDRIVE_REPLICATION": "1",
                "REDRIVE_KAFKA__DEBUG": "all",
                **{f"REDRIVE_KAFKA__{name.upper()}": value for name, value in login.items()},
            }
            process = subprocess.Popen(
                [sys.executable, "-c", "from redrive.cli.main import main; main()", *arguments],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            text = ""
            while until_it_says not in text and (line := process.stdout.readline()):
                text += line
            if until_it_says:
                process.terminate()
            text += process.communicate(timeout=60)[0]
            hidden = [*secrets, *(b64encode(secret.encode()).decode().rstrip("=")[:-1] for secret in secrets)]
            assert [secret for secret in hidden if secret in text] == []
            return text

        return run

    def test_when_all_is_well_and_the_client_tells_all_it_does(self, said):
        told = said("run", "--log-config", "log.json", until_it_says="Partitions assigned")

        assert "SASL" in told

    def test_when_the_login_is_refused(self, said):
        told = said("topics", "plan", "--json", sasl_password="hush-wrong-hush")

        assert "refuses the login" in told

    def test_when_a_key_is_none(self, said):
        told = said("topics", "plan", "--json", ssl_key_pem=self.KEY, ssl_key_password=self.KEY)

        assert '"where": "kafka.ssl.key.pem"' in told

    def test_when_settings_are_written_wrong(self, said, tmp_path):
        (tmp_path / "redrive.toml").write_text(
            f'[kafka]\n"ssl.key.password" = ["{self.KEY}"]\nsasl = "{self.KEY}"\n'
        )

        assert "the client takes texts" in said("topics", "plan")

    def test_when_a_service_fails_with_them_in_hand(self, said, tmp_path):
        text = SERVICE.format(group=GROUP, source=SOURCE)
        failing = "settings = app.load_settings()\nraise RuntimeError(f'{app} {settings}', settings.kafka)\n"
        (tmp_path / "shop.py").write_text(text + failing)

        assert "RuntimeError" in said("topics", "plan")
