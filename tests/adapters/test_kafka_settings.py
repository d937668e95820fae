"""Settings of the client that a promise depends on can be changed by nobody, in any way."""

import pytest

from redrive.adapters.kafka_settings import CONSUMER, GROUP_PROTOCOLS, PRODUCER, consumer_conf, producer_conf
from redrive.core.client_options import option_problems
from redrive.core.settings import Settings

FIXED = [change for change in (*CONSUMER, *PRODUCER, *GROUP_PROTOCOLS) if change.fixed]
OTHER = "7"


@pytest.mark.parametrize("change", FIXED, ids=lambda change: f"{change.name}={change.value}")
def test_what_is_fixed_is_refused_in_the_users_settings_with_the_reason(change):
    [(name, why)] = option_problems({change.name: OTHER}, group_protocol="auto")
    assert (name, why.startswith("leave it out: ")) == (change.name, True)


def test_no_limit_of_the_clients_own_cuts_dead_letters_to_their_headers():
    assert producer_conf({"message.max.bytes": "1000000"})["message.max.bytes"] == 100_000_000


@pytest.mark.parametrize("name", ["message.max.bytes", "topic.blacklist"])
def test_it_is_told_with_its_path_before_anything_connects(name):
    settings = Settings(bootstrap_servers="kafka:9092", kafka={name: "100"})
    assert [path for path, _ in settings.problems()] == [f"kafka.{name}"]


def test_what_is_fixed_stays_so_whatever_the_user_says():
    user = {change.name: OTHER for change in (*CONSUMER, *PRODUCER, *GROUP_PROTOCOLS)}
    for changes, conf in (
        (CONSUMER, consumer_conf(user, group="g", protocol="consumer")),
        (PRODUCER, producer_conf(user)),
    ):
        assert {change.name: conf[change.name] for change in changes if change.fixed} == {
            change.name: change.value for change in changes if change.fixed
        }
        assert {conf[change.name] for change in changes if not change.fixed} == {OTHER}
    assert consumer_conf(user, group="g", protocol="consumer")["group.protocol"] == "consumer"


@pytest.mark.parametrize(("table", "other"), [(CONSUMER, PRODUCER), (PRODUCER, CONSUMER)])
def test_each_client_gets_its_own_settings_only(table, other):
    user = {change.name: OTHER for change in other}
    conf = consumer_conf(user, group="g", protocol="classic") if table is CONSUMER else producer_conf(user)
    shared = {"message.max.bytes", "topic.metadata.propagation.max.ms"}
    assert {change.name for change in other} & conf.keys() <= shared
