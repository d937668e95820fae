"""A downstream that goes away and comes back, on a real broker: an HTTP server, and a handler that posts to it."""

import http.client
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from redrive import App, RetryPolicy
from redrive.core.breaker import ENOUGH_ATTEMPTS
from tests.faults import running_with
from tests.plain_kafka import Given, count_all, create_topics_of, is_all_committed, send, unique
from tests.waiting import until

RECORDS = 3_000


class Gateway:
    """What the handler calls. `paid`: the numbers that were posted to it."""

    def __init__(self):
        self.paid: list[int] = []
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.come_back()

    def come_back(self):
        gateway = self

        class Posts(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                number = int(self.rfile.read(int(self.headers["Content-Length"])))
                gateway.paid.append(number)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Posts)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def go_away(self):
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def post(self, number: int):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", "/", body=b"%d" % number)
            assert connection.getresponse().status == 204
        finally:
            connection.close()


@pytest.fixture
def gateway():
    gateway = Gateway()
    yield gateway
    gateway.go_away()


@pytest.mark.realtime
@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_t_dlq_4_an_outage_leaves_no_dead_letter_and_consumption_goes_on_by_itself(kafka, gateway, order):
    orders, group = unique("orders"), unique("shop")
    app = App(group, settings={"bootstrap_servers": kafka.bootstrap, "commit_interval": "100ms"})
    tried: list[int] = []

    @app.listener(orders, retry=RetryPolicy("1s", "3s"), order=order, concurrency=4)
    def pay(number: int) -> None:
        tried.append(number)
        gateway.post(number)

    topics = create_topics_of(kafka.bootstrap, app, 4)
    send(kafka.bootstrap, orders, [Given(b"%d" % each, b"%d" % (each % 200)) for each in range(RECORDS)])
    with running_with(app) as service:
        until(lambda: len(gateway.paid) > 200, "some are paid")
        gateway.go_away()
        before = len(tried)
        until(lambda: len(service.told("outage-lasts")) >= 3, "one after another is tried")
        in_vain = len(tried) - before
        gateway.come_back()
        back = time.monotonic()
        until(lambda: service.told("outage-over"), "it goes on by itself")
        waited_s = time.monotonic() - back
        read = [topic for topic in topics if topic == orders or ".retry." in topic]
        until(lambda: is_all_committed(kafka.bootstrap, group, read), "all are handled", within_s=60)

    climbed = sum(count_all(kafka.bootstrap, topic) for topic in topics if ".retry." in topic)
    assert count_all(kafka.bootstrap, f"{orders}.dlq") == 0
    assert set(gateway.paid) == set(range(RECORDS))
    assert climbed < 2 * ENOUGH_ATTEMPTS
    assert in_vain < 3 * ENOUGH_ATTEMPTS
    # The third probe failed: the fourth is due eight seconds later.
    assert waited_s < 8 + 2
