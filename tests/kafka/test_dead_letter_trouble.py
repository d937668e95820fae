"""
A dead letter that can't be written: nothing is committed past it and nothing is lost, the other records and partitions
go on, and when it can be written it is, without anybody's help.
"""

import socket
import time

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from redrive import App, Record, RetryPolicy
from redrive.core.commands import Produce, Refusal
from tests.broker import Broker
from tests.faults import RefusingSink, Running, running, running_with
from tests.plain_kafka import (
    Given,
    admin_of,
    committed,
    count_all,
    create_topics,
    create_topics_of,
    is_all_committed,
    read_all,
    send,
    unique,
)
from tests.services.launch import ObedientService
from tests.services.obedient import Order
from tests.waiting import until

QUICK = {"topic.metadata.propagation.max.ms": "300", "reconnect.backoff.max.ms": "500"}
AWAY_S = 20


class Shop:
    """An app whose handler fails records with the value `bad`, and remembers what it was given."""

    def __init__(
        self, bootstrap: str, *tiers: str, takes_s: float = 0.0, kafka: dict[str, str] | None = None
    ) -> None:
        settings = {
            "bootstrap_servers": bootstrap,
            "commit_interval": "100ms",
            "kafka": {**QUICK, **(kafka or {})},
        }
        self.bootstrap = bootstrap
        self.app = App(unique("group"), settings=settings)
        self.orders = unique("orders")
        self.dlq = f"{self.orders}.dlq"
        self.handled: list[tuple[bytes | None, int]] = []

        @self.app.listener(self.orders, retry=RetryPolicy(*tiers))
        def handle(record: Record) -> None:
            self.handled.append((record.value, record.attempt))
            if takes_s:
                time.sleep(takes_s)
            if record.value and record.value.startswith(b"bad"):
                raise ConnectionError("x" * 2000)

    def send(self, *values: bytes, partition: int = 0) -> None:
        send(
            self.bootstrap, self.orders, [Given(value, b"key", [("h", b"1")], partition) for value in values]
        )

    def committed(self) -> dict[int, int]:
        return committed(self.bootstrap, self.app.group, self.orders)

    def is_through(self) -> bool:
        return is_all_committed(self.bootstrap, self.app.group, [self.orders])

    def letters(self) -> list[tuple[int, bytes | None, str]]:
        return [
            (seen.partition, seen.value, seen.own["reason"]) for seen in read_all(self.bootstrap, self.dlq)
        ]


def _refusals(service: Running) -> list[str]:
    return [fields["error"] for fields in service.told("write-refused")]


def _hold_one_and_pass_the_others(shop: Shop, service: Running) -> None:
    """What must be so while the bad record at offset 1 of partition 0 has no successor."""
    until(lambda: _refusals(service), "a refusal is told")
    until(lambda: len(shop.handled) == 6, "all were handled")
    shop.send(b"good-3", partition=1)
    until(lambda: shop.committed().get(1) == 4, "the other partition goes on")
    assert shop.committed()[0] == 1


def _send_one_bad(shop: Shop) -> None:
    shop.send(b"good-0", b"bad-1", b"good-2", partition=0)
    shop.send(b"good-0", b"good-1", b"good-2", partition=1)


def test_a_missing_dead_letter_topic_is_waited_for(kafka):
    shop = Shop(kafka.bootstrap)
    create_topics_of(kafka.bootstrap, shop.app, 2, leave_out=[".dlq"])
    _send_one_bad(shop)
    with running_with(shop.app) as service:  # without the start-up's checks: as if it was deleted since
        _hold_one_and_pass_the_others(shop, service)
        create_topics(kafka.bootstrap, [shop.dlq], 2)
        until(shop.is_through, "all committed")

    assert [(value, reason) for _, value, reason in shop.letters()] == [(b"bad-1", "exhausted")]
    assert "UNKNOWN_TOPIC" in _refusals(service)[0]


def test_a_dead_letter_that_is_too_large_even_without_its_value_is_waited_for(kafka):
    shop = Shop(kafka.bootstrap)
    create_topics_of(kafka.bootstrap, shop.app, 2, leave_out=[".dlq"])
    create_topics(kafka.bootstrap, [shop.dlq], 2, **{"max.message.bytes": "100"})
    _send_one_bad(shop)
    with running_with(shop.app) as service:
        _hold_one_and_pass_the_others(shop, service)
        wider = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, shop.dlq, incremental_configs=[wider])
        [done] = admin_of(kafka.bootstrap).incremental_alter_configs([resource]).values()
        done.result()
        until(shop.is_through, "all committed")

    assert [(at, reason) for at, _, reason in shop.letters()] == [(0, "exhausted")]
    assert service.told("dead-letter-cut") != []


def test_a_retry_that_is_refused_for_a_while_is_written_once_and_runs_once(kafka):
    shop = Shop(kafka.bootstrap, "200ms")
    create_topics_of(kafka.bootstrap, shop.app, 2)
    _send_one_bad(shop)
    refused: list[str] = []

    def refuses(produce: Produce) -> Refusal | None:
        refused.append(produce.topic)
        return Refusal("unavailable", "the broker is overloaded") if len(refused) < 3 else None

    with running_with(shop.app, sink=lambda sink: RefusingSink(sink, refuses)) as service:
        _hold_one_and_pass_the_others(shop, service)
        until(shop.is_through, "all committed")
        until(lambda: count_all(shop.bootstrap, shop.dlq) == 1, "its dead letter")

    tier = f"{shop.orders}.retry.200ms"
    assert refused == [tier, tier, tier, shop.dlq]
    assert [attempt for value, attempt in shop.handled if value == b"bad-1"] == [1, 2]
    assert shop.letters() == [(0, b"bad-1", "exhausted")]


def test_failure_headers_that_do_not_fit_are_shrunk_and_then_only_headers_are_kept(kafka):
    limit = 50_000
    shop = Shop(kafka.bootstrap)
    create_topics_of(kafka.bootstrap, shop.app, leave_out=[shop.orders, ".dlq"])
    create_topics(kafka.bootstrap, [shop.orders, shop.dlq], **{"max.message.bytes": str(limit)})
    bad = [b"bad" + b"x" * (limit - room) for room in (6000, 2100, 1000, 100)]
    for value in (*bad, b"good"):  # one by one: the limit is on batches
        shop.send(value)
    with running(shop.app):
        until(shop.is_through, "all committed")

    letters = read_all(kafka.bootstrap, shop.dlq)
    assert [seen.value for seen in letters] == [*bad[:3], None]
    assert [seen.key for seen in letters] == [b"key"] * 4
    assert [seen.foreign for seen in letters] == [[("h", b"1")]] * 3 + [[]]
    assert [seen.own["source-offset"] for seen in letters] == ["0", "1", "2", "3"]
    kept = [{"failure-stack", "failure-message"} & seen.own.keys() for seen in letters]
    assert kept == [{"failure-stack", "failure-message"}, {"failure-message"}, {"failure-message"}, set()]
    assert [len(seen.own["failure-message"]) for seen in letters[:3]] == [1022, 1022, 100]


def test_a_retry_that_does_not_fit_into_its_tier_is_a_dead_letter(kafka):
    shop = Shop(kafka.bootstrap, "200ms")
    tier = f"{shop.orders}.retry.200ms"
    create_topics_of(kafka.bootstrap, shop.app, leave_out=[tier])
    create_topics(kafka.bootstrap, [tier], **{"max.message.bytes": "2000"})
    shop.send(b"bad" + b"x" * 2000)
    with running(shop.app):
        until(shop.is_through, "all committed")

    assert [(reason, len(value or b"")) for _, value, reason in shop.letters()] == [("too-large", 2003)]


# -- a broker of its own, where clients can be refused, and that may go away -----------------------------------------


class GuardedBroker(Broker):
    """Its ordinary listener may do all; whoever comes by `guarded` is `shop` and may do what ACLs allow."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.guarded = f"127.0.0.1:{free.getsockname()[1]}"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        self.properties |= {
            "listeners": f"{self.properties['listeners']},GUARDED://{self.guarded}",
            "advertised.listeners": f"{self.properties['advertised.listeners']},GUARDED://{self.guarded}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.guarded.plain.sasl.jaas.config": f'{module} required user_shop="secret";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }


LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "shop",
    "sasl.password": "secret",
}


@pytest.fixture(scope="module")
def guarded(kafka, tmp_path_factory):
    broker = GuardedBroker(tmp_path_factory.mktemp("guarded") / "kafka")
    broker.start()
    _allow(broker.bootstrap, ResourceType.TOPIC, AclOperation.READ)
    _allow(broker.bootstrap, ResourceType.GROUP, AclOperation.READ)
    yield broker
    broker.kill()


def _allow(bootstrap: str, resource: ResourceType, operation: AclOperation) -> AclBinding:
    everything = ResourcePatternType.LITERAL
    rule = AclBinding(resource, "*", everything, "User:shop", "*", operation, AclPermissionType.ALLOW)
    [done] = admin_of(bootstrap).create_acls([rule]).values()
    done.result()
    return rule


def _forbid_again(bootstrap: str, rule: AclBinding) -> None:
    same = AclBindingFilter(
        rule.restype,
        rule.name,
        rule.resource_pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )
    [done] = admin_of(bootstrap).delete_acls([same]).values()
    done.result()


def test_a_producer_without_rights_is_waited_for_until_somebody_grants_them(guarded):
    shop = Shop(guarded.bootstrap)
    shop.app = _as_shop(guarded, shop)
    create_topics_of(guarded.bootstrap, shop.app, 2)
    _send_one_bad(shop)
    with running_with(shop.app) as service:
        _hold_one_and_pass_the_others(shop, service)
        rule = _allow(guarded.bootstrap, ResourceType.TOPIC, AclOperation.WRITE)
        until(shop.is_through, "all committed")
        assert shop.letters() == [(0, b"bad-1", "exhausted")]
        # Once more, now that the producer has its id: another error than the one before.
        _forbid_again(guarded.bootstrap, rule)
        shop.send(b"bad-3")
        until(lambda: (b"bad-3", 1) in shop.handled, "it was handled")
        told = len(_refusals(service))
        until(lambda: len(_refusals(service)) > told + 1, "it is refused, again and again")
        assert shop.committed()[0] == 3
        _allow(guarded.bootstrap, ResourceType.TOPIC, AclOperation.WRITE)
        until(shop.is_through, "all committed")

    assert [value for _, value, _ in shop.letters()] == [b"bad-1", b"bad-3"]
    assert "AUTHORIZATION_FAILED" in _refusals(service)[0]


def _as_shop(guarded: GuardedBroker, shop: Shop) -> App:
    """The same app, by the listener that asks who it is."""
    [declared] = shop.app.resolve().listeners
    app = App(
        shop.app.group,
        settings={
            "bootstrap_servers": guarded.guarded,
            "commit_interval": "100ms",
            "kafka": {**QUICK, **LOGIN},
        },
    )
    app.listener(shop.orders, retry=declared.policy)(declared.handler)
    return app


@pytest.mark.chaos
def test_a_broker_that_is_away_for_20_s_while_records_fail_costs_nothing_but_the_wait(guarded, tmp_path):
    """Another service is told to stop meanwhile: it ends in bounded time, and its next process does what it left."""
    shop = Shop(guarded.bootstrap, "300ms", takes_s=0.005)
    stopping = ObedientService(guarded.bootstrap, tmp_path)
    create_topics_of(guarded.bootstrap, shop.app, 2)
    stopping.create_topics()
    stopping.send(*[Order(takes_s=0.02)] * 100)
    for partition in (0, 1):
        shop.send(
            *(b"%s-%d" % (b"bad" if at % 10 == 0 else b"good", at) for at in range(500)), partition=partition
        )
    with running_with(shop.app), stopping.process(shutdown_timeout="500ms") as process:
        until(lambda: len(shop.handled) > 200 and stopping.ledger.count() > 20, "they are at work")
        guarded.kill()
        gone = time.monotonic()
        exit_code, took_s = process.terminate(within_s=AWAY_S), time.monotonic() - gone
        until(lambda: time.monotonic() - gone > AWAY_S, "the broker is away", within_s=AWAY_S + 5)
        guarded.start()
        with stopping.process():
            for partition in (0, 1):
                shop.send(b"good-500", partition=partition)
            until(shop.is_through, "all committed", within_s=60)
            until(lambda: count_all(shop.bootstrap, shop.dlq) >= 100, "all letters", within_s=60)
            done = [stopping.source]
            until(lambda: is_all_committed(shop.bootstrap, stopping.shape.group, done), "the rest is done")

    letters = shop.letters()
    bad = [(partition, b"bad-%d" % at) for partition in (0, 1) for at in range(0, 500, 10)]
    good = {b"good-%d" % at for at in range(501) if at % 10 or at == 500}
    assert sorted((at, value) for at, value, _ in letters) == sorted(bad)
    assert {value for value, _ in shop.handled} == good | {value for _, value in bad}
    assert exit_code == 0
    assert took_s < 14
    assert {int(run.event_id.rsplit("/", 1)[1]) for run in stopping.ledger.runs()} == set(range(100))
