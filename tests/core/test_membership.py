"""Ids of static members: one for each worker of each host, and nothing that a broker refuses."""

import pytest

from redrive.core.membership import instance_id
from redrive.core.settings import Settings
from redrive.errors import SettingsError


def _id(group="payments", host="pod-1", worker=0, **settings):
    return instance_id(
        Settings(**{"bootstrap_servers": "kafka:9092", "membership": "static", **settings}),
        group=group,
        host=host,
        worker=worker,
    )


def test_a_dynamic_member_has_none():
    assert _id(membership="dynamic") == ""


def test_by_default_it_differs_by_host_and_worker():
    assert [_id(host=host, worker=worker) for host in ("pod-1", "pod-2") for worker in (0, 1)] == [
        "payments-pod-1-0",
        "payments-pod-1-1",
        "payments-pod-2-0",
        "payments-pod-2-1",
    ]


def test_the_client_id_goes_before_the_group():
    assert _id(client_id="pay") == "pay-pod-1-0"


def test_a_given_one_is_taken_with_the_worker_s_number():
    assert _id(instance_id="blue", worker=3) == "blue-3"


@pytest.mark.parametrize(
    "given", [{"group": "pay ments"}, {"host": "höst"}, {"instance_id": "a/b"}, {"group": "x" * 300}]
)
def test_what_brokers_refuse_is_refused_here_with_what_to_do(given):
    with pytest.raises(SettingsError, match="give an instance_id that differs from host to host"):
        _id(**given)
