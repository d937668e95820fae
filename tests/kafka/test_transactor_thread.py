"""What the transactional producer's thread makes of its own trouble."""

import time

from redrive.adapters.kafka_transactor import KafkaTransactor
from redrive.core.commands import Transaction
from redrive.core.transactions import Fenced
from tests.plain_kafka import unique
from tests.waiting import until


def test_a_producer_that_fails_and_can_not_be_made_anew_is_told(kafka):
    conf = {
        "bootstrap.servers": kafka.bootstrap,
        "transactional.id": unique("shop"),
        "transaction.timeout.ms": 60_000,
    }
    transactor = KafkaTransactor(conf, time.monotonic)
    until(lambda: transactor._is_ready, "it has its id")
    transactor._conf["no.such.setting"] = "x"
    transactor.client = None
    transactor.submit(Transaction(7, (), {}), None)
    [outcome] = until(transactor.outcomes, "it says what became of it")
    assert isinstance(outcome, Fenced)
    assert (outcome.number, outcome.is_final) == (7, True)
    assert "could not be made anew" in outcome.detail
    transactor.close(1)
