"""Beside an app: where the handlers of its dead letters begin, and that they are begun again whatever ends them."""

import asyncio

import pytest

from redrive import App, RetryPolicy
from redrive.core.record import TopicPartition
from redrive.core.settings import Settings
from redrive.deadletters.dead_letter import DeadLetter
from redrive.errors import PortError
from redrive.runtime.letters import LetterService, begin_at_end, letter_app
from redrive.runtime.planning import plan_letters
from redrive.runtime.ports import Committed
from redrive.sim.cluster import SimCluster

GROUP = "shop.on-dead-letter"
P0, P1, P2 = (TopicPartition("orders.dlq", number) for number in range(3))


def triage(letter: DeadLetter) -> None: ...


def world(**options):
    """A cluster with three letters, and the app that has never handled any."""
    cluster = SimCluster()
    cluster.create_topic("orders.dlq", 2)
    for partition in (0, 1, 1):
        cluster.append("orders.dlq", b"letter", partition=partition)
    app = App("shop")
    app.listener("orders", retry=RetryPolicy(), name="orders")(lambda value: None)
    app.on_dead_letter("orders", **options)(triage)
    resolved = app.resolve()
    return cluster, letter_app(resolved), plan_letters(resolved, Settings())


def begin(cluster, app, plan):
    begin_at_end(cluster.admin(), app, plan, cluster.counts)
    return {key: at.offset for key, at in cluster.group(GROUP).offsets.items()}


def test_a_group_that_never_ran_begins_behind_the_letters_that_are_there():
    assert begin(*world()) == {P0: 1, P1: 2}


def test_a_group_that_ran_goes_on_and_reads_added_partitions_from_their_beginning():
    cluster, app, plan = world()
    cluster.group(GROUP).offsets[P1] = Committed(0)
    cluster.topics["orders.dlq"].grow(3)
    cluster.append("orders.dlq", b"letter", partition=2)
    assert begin(cluster, app, plan) == {P1: 0}


def test_from_the_earliest_nothing_is_passed_by():
    assert begin(*world(start="earliest")) == {}


def test_it_does_not_guess_where_the_cluster_does_not_tell():
    cluster, app, plan = world()

    class Forgetful(type(cluster.admin())):
        """Has no answer for some partitions, as a coordinator that is loading."""

        def committed(self, group, keys):
            return {P0: Committed(None)}

    with pytest.raises(PortError, match="not told yet"):
        begin_at_end(Forgetful(cluster), app, plan, cluster.counts)
    assert cluster.group(GROUP).offsets == {}


def test_what_ends_it_is_told_and_it_is_begun_again_after_a_pause():
    reports, begun = [], []

    def fail():
        begun.append(1)
        raise PortError("GROUP_AUTHORIZATION_FAILED")

    async def live():
        service = LetterService(
            GROUP,
            begin=fail,
            make=lambda: pytest.fail("not before it has begun"),
            report=reports.append,
            first_pause_s=0.001,
        )
        await service.start(None)
        async with asyncio.timeout(10):
            while len(begun) < 4:
                await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(int))])
        await service.stop()
        return service

    assert asyncio.run(live()).service is None
    assert {(report.event, report.fields["group"], report.fields["error"]) for report in reports} == {
        ("letters-unhandled", GROUP, "GROUP_AUTHORIZATION_FAILED")
    }
    assert [report.fields["wait_s"] for report in reports][:3] == [0.001, 0.002, 0.004]
