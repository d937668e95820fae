"""What is told of a Kafka that can't be reached, from what was seen."""

import pytest

from redrive.core.connection import (
    Answer,
    Cause,
    Complaint,
    Seen,
    explain_advertised,
    explain_bootstrap,
)

OPEN, TLS = Seen("kafka:9092", Answer.OPEN), Seen("kafka:9093", Answer.OPEN, speaks_tls=True)
REFUSED, SILENT = Seen("kafka:9094", Answer.REFUSED), Seen("kafka:9095", Answer.SILENT)
UNRESOLVED = Seen("kafak:9092", Answer.UNRESOLVED)


@pytest.mark.parametrize(
    ("seen", "protocol", "complaints", "cause"),
    [
        ([REFUSED], "PLAINTEXT", [], Cause.REFUSED),
        ([SILENT], "PLAINTEXT", [], Cause.SILENT),
        ([UNRESOLVED], "PLAINTEXT", [], Cause.UNRESOLVED),
        ([UNRESOLVED, REFUSED], "PLAINTEXT", [], Cause.REFUSED),
        ([TLS], "PLAINTEXT", [], Cause.TLS_EXPECTED),
        ([TLS], "SASL_PLAINTEXT", [], Cause.TLS_EXPECTED),
        ([OPEN], "SSL", [(Complaint.TLS, "handshake failed")], Cause.TLS_UNKNOWN),
        ([TLS], "SSL", [(Complaint.TLS, "certificate verify failed")], Cause.TLS_FAILED),
        ([TLS], "SASL_SSL", [(Complaint.LOGIN, "wrong password")], Cause.LOGIN),
        ([OPEN], "SASL_PLAINTEXT", [(Complaint.LOGIN, "wrong password")], Cause.LOGIN),
        ([OPEN], "PLAINTEXT", [(Complaint.OTHER, "Disconnected")], Cause.OTHER),
        ([REFUSED, TLS], "ssl", [(Complaint.OTHER, "refused")], Cause.OTHER),
        ([REFUSED, OPEN], "plaintext", [(Complaint.OTHER, "refused")], Cause.OTHER),
    ],
)
def test_the_cause_follows_from_what_was_seen(seen, protocol, complaints, cause):
    assert explain_bootstrap(seen, protocol=protocol, complaints=complaints).cause is cause


def test_the_clients_last_word_on_a_login_is_told():
    complaints = [(Complaint.LOGIN, "first"), (Complaint.OTHER, "x"), (Complaint.LOGIN, "last")]

    assert explain_bootstrap([OPEN], protocol="SASL_PLAINTEXT", complaints=complaints).text == (
        "kafka:9092 refuses the login: last. "
        "Check kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password."
    )


def test_each_of_several_servers_is_told_when_they_differ():
    assert explain_bootstrap([UNRESOLVED, REFUSED, SILENT], protocol="PLAINTEXT", complaints=[]).text == (
        "no bootstrap server can be reached: kafak:9092 (unknown host name), kafka:9094 (connection refused), "
        "kafka:9095 (no answer). Check bootstrap_servers and the brokers."
    )


def test_a_cluster_whose_brokers_are_all_reachable_is_no_trouble():
    assert explain_advertised("kafka:9092", [OPEN, OPEN]) is None


def test_a_part_of_the_brokers_away_prevents_no_start():
    trouble = explain_advertised("kafka:9092", [OPEN, REFUSED])

    assert (trouble.cause, trouble.prevents_start) == (Cause.ADVERTISED, False)
    assert "some of its brokers are at kafka:9094 (connection refused)" in trouble.text


def test_all_brokers_away_prevent_the_start():
    assert explain_advertised("kafka:9092", [REFUSED, SILENT]).prevents_start
