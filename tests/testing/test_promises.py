"""What redrive promises is checked: an account that claims more than an app was asked for finds that it isn't kept."""

import asyncio
from dataclasses import replace

import pytest

from redrive import App, RetryPolicy
from redrive.testing import Begun
from redrive.testing.promises import Broken, Promises


def _app(**options) -> App:
    app = App("shop")

    @app.listener("orders", name="pay", **options)
    async def pay(seconds: int) -> None:
        await asyncio.sleep(seconds)
        if seconds == 7:
            raise ConnectionError

    return app


def _claiming(app: App, **claims):
    """What the app's one listener is said to be."""
    resolved = app.resolve()
    return replace(resolved, listeners=(replace(resolved.listeners[0], **claims),))


def test_a_record_that_begins_before_one_of_its_line_is_through_breaks_the_order(redrive_harness):
    app = _app(order="none", concurrency=2)
    harness = redrive_harness(app)
    harness.send("orders", 5)
    harness.send("orders", 1)
    Promises(harness, app.resolve()).check()
    with pytest.raises(Broken, match="orders/0/1 began before orders/0/0 was through"):
        Promises(harness, _claiming(app, order="partition")).check()


def test_a_record_that_overtakes_a_failing_one_breaks_a_blocking_order(redrive_harness):
    app = _app(retry=RetryPolicy("1m"))
    harness = redrive_harness(app)
    harness.send("orders", 7)
    harness.send("orders", 1)
    harness.advance("10s")
    Promises(harness, app.resolve()).check()
    with pytest.raises(Broken, match="began before"):
        Promises(harness, _claiming(app, policy=RetryPolicy("1m", blocking="partition"))).check()


def test_a_run_before_its_due_is_early(redrive_harness):
    app = _app(retry=RetryPolicy("1m"))
    harness = redrive_harness(app)
    harness.send("orders", 7)
    harness.advance("2m")
    Promises(harness, app.resolve()).check()
    [place] = [at for at, run in enumerate(harness.history) if isinstance(run, Begun) and run.attempt == 2]
    run = harness.history[place]
    harness.history[place] = run._replace(at_ms=run.record.due_ms - 3)
    with pytest.raises(Broken, match=r"attempt 2 at orders/0/0 began 3 ms before its due"):
        Promises(harness, app.resolve()).check()


def test_a_record_that_was_due_may_run_when_the_clock_was_set_back(redrive_harness):
    app = _app(retry=RetryPolicy("5s"))
    harness = redrive_harness(app)
    promises = Promises(harness, app.resolve())
    harness.send("orders", 7)
    harness.send("orders", 60)
    harness.advance("20s")  # it fails after 7 s, and is due at 12 s: then it waits for the other one to end
    promises.check()
    harness.clock.step_wall(-3_600_000)
    harness.advance("1m")
    assert [run.attempt for run in harness.history if isinstance(run, Begun)] == [1, 1, 2]
    promises.check()


def test_a_record_that_is_still_at_work_at_the_end_is_lost(redrive_harness):
    app = _app()
    harness = redrive_harness(app)
    harness.send("orders", 60)
    promises = Promises(harness, app.resolve())
    with pytest.raises(Broken, match="orders/0/0 was sent, and is neither handled nor a dead letter"):
        promises.check_end()
    harness.advance("1m")
    promises.check_end()


@pytest.mark.parametrize("value", [7, b"no number"], ids=["failed", "poison"])
def test_a_record_that_its_listener_gives_up_has_come_to_its_end(redrive_harness, value):
    app = _app(retry=RetryPolicy("1m"), give_up="skip")
    harness = redrive_harness(app)
    harness.send("orders", value)
    harness.advance("2m")
    Promises(harness, app.resolve()).check_end()


def test_two_dead_letters_of_a_record_are_not_exactly_once(redrive_harness):
    app = _app()
    harness = redrive_harness(app)
    harness.cluster.faults.lose_acks("orders.dlq", 1)
    harness.send("orders", b"no number")
    harness.advance("1m")
    assert len(harness.dead_letters) == 2
    Promises(harness, app.resolve()).check_end()
    with pytest.raises(Broken, match="became 2 dead letters"):
        Promises(harness, replace(app.resolve(), delivery="exactly-once")).check_end()
