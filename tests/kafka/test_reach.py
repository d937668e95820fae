"""Why Kafka can't be reached, found out on real listeners: plaintext, TLS, with a login, and badly advertised."""

import socket

import pytest

from redrive.adapters.kafka_reach import KafkaReach
from redrive.adapters.kafka_settings import client_conf
from redrive.core.connection import Cause
from tests.kafka.conftest import LOGIN


@pytest.fixture
def trouble(guarded):
    def ask(bootstrap, conf=None, *, timeout_s=1.0):
        found = KafkaReach(
            client_conf({"bootstrap.servers": bootstrap, **(conf or {})}), timeout_s=timeout_s
        )()
        return found and (found.cause, guarded.named(found.text))

    return ask


def test_a_broker_that_can_be_reached_is_no_trouble(guarded, trouble):
    assert trouble(guarded.plain, timeout_s=5.0) is None
    assert trouble(f"{guarded.closed},{guarded.plain}", timeout_s=5.0) is None
    assert trouble(guarded.login, LOGIN, timeout_s=5.0) is None


def test_a_trusted_certificate_is_no_trouble(guarded, trouble):
    conf = {"security.protocol": "SSL", "ssl.ca.location": str(guarded.authority)}

    assert (
        trouble(guarded.tls, {**conf, "ssl.endpoint.identification.algorithm": "none"}, timeout_s=5.0) is None
    )


def test_a_port_where_nothing_listens(guarded, trouble):
    assert trouble(guarded.closed) == (
        Cause.REFUSED,
        (
            "nothing listens at CLOSED: the connection is refused. "
            "Is the broker running, and is that its host and port (bootstrap_servers)?"
        ),
    )


def test_a_name_that_nobody_knows(trouble):
    assert trouble("no-such-host.invalid:9092") == (
        Cause.UNRESOLVED,
        (
            "the name of no-such-host.invalid:9092 is unknown: no address is found for it. "
            "Check bootstrap_servers for a typing error, and this machine's DNS."
        ),
    )


def test_plaintext_to_a_tls_port(guarded, trouble):
    assert trouble(guarded.tls) == (
        Cause.TLS_EXPECTED,
        (
            "TLS speaks TLS, but kafka.security.protocol is PLAINTEXT. "
            "Set kafka.security.protocol to SSL (REDRIVE_KAFKA__SECURITY_PROTOCOL), "
            "or give the port of the plaintext listener."
        ),
    )


def test_tls_to_a_plaintext_port(guarded, trouble):
    assert trouble(guarded.plain, {"security.protocol": "SSL"}) == (
        Cause.TLS_UNKNOWN,
        (
            "PLAIN doesn't speak TLS, but kafka.security.protocol is SSL: it is a plaintext port. "
            "Give the port of the TLS listener, or set kafka.security.protocol to PLAINTEXT."
        ),
    )


def test_a_certificate_that_nobody_vouches_for(guarded, trouble):
    cause, text = trouble(guarded.tls, {"security.protocol": "SSL"})

    assert cause is Cause.TLS_FAILED
    assert text.startswith("no TLS connection to TLS: SSL handshake failed: ")
    assert "certificate verify failed" in text
    assert text.endswith(
        "Check kafka.ssl.ca.location (whom to trust) and that the certificate names this host."
    )


def test_a_certificate_of_another_host(guarded, trouble):
    conf = {"security.protocol": "SSL", "ssl.ca.location": str(guarded.authority)}

    cause, text = trouble(guarded.tls, conf)

    assert (cause, text.startswith("no TLS connection to TLS: ")) == (Cause.TLS_FAILED, True)


def test_a_wrong_password(guarded, trouble):
    assert trouble(guarded.login, {**LOGIN, "sasl.password": "forgotten"}) == (
        Cause.LOGIN,
        (
            "LOGIN refuses the login: SASL authentication error: Authentication failed: Invalid username or password. "
            "Check kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password."
        ),
    )


def test_a_login_of_a_kind_that_the_broker_does_not_have(guarded, trouble):
    cause, text = trouble(guarded.login, {**LOGIN, "sasl.mechanism": "SCRAM-SHA-256"})

    assert cause is Cause.LOGIN
    assert "Unsupported SASL mechanism: broker's supported mechanisms: PLAIN." in text


def test_no_login_where_one_is_wanted(guarded, trouble):
    cause, text = trouble(guarded.login)

    assert cause is Cause.OTHER
    assert text.startswith(
        "LOGIN accepts connections, but doesn't answer as a Kafka broker. It may want a login "
        "(kafka.security.protocol is PLAINTEXT), or not be a Kafka broker."
    )


def test_something_that_is_no_kafka_broker(trouble):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cause, text = trouble(f"127.0.0.1:{silent.getsockname()[1]}")

    assert cause is Cause.OTHER
    assert "accepts connections, but doesn't answer as a Kafka broker" in text


def test_brokers_at_an_address_that_can_not_be_reached(guarded, trouble):
    assert trouble(guarded.away, timeout_s=5.0) == (
        Cause.ADVERTISED,
        (
            "AWAY answers, but the cluster says its brokers are at CLOSED (connection refused), and they can't be reached "
            "there from this machine. Set advertised.listeners of the brokers to addresses that work from here; in "
            "containers that is usually one listener for the containers and one for the host."
        ),
    )


def test_a_broker_that_comes_up_is_found_by_asking_again(own_kafka):
    own_kafka.stop()
    reach = KafkaReach(client_conf({"bootstrap.servers": own_kafka.bootstrap}), timeout_s=5.0)
    before = reach()
    own_kafka.start()

    assert (before.cause, reach()) == (Cause.REFUSED, None)
