"""One record that waits costs the others nothing."""

from redrive import App, RetryPolicy


def test_a_record_that_waits_ten_minutes_holds_up_no_other(redrive_harness):
    app = App("shop")

    @app.listener("orders", retry=RetryPolicy("10m"))
    def charge(order: dict) -> None:
        if order["id"] == 1:
            raise ConnectionError

    harness = redrive_harness(app)
    harness.send("orders", {"id": 1})
    sent_ms = harness.clock.wall_ms()
    harness.send("orders", {"id": 2})

    [run] = harness.handled
    assert run.value == {"id": 2}
    assert run.at_ms - sent_ms < 1000
