"""Probes answer quickly and plainly, whatever clients do."""

import contextlib
import json
import socket
import threading

import pytest

from redrive.adapters.http_probe import CONNECTIONS, HEAD_BYTES, start_probe
from redrive.errors import PortError, SettingsError
from tests.adapters.served import DEAD, NOT_READY, NOTHING, TOKEN, WELL, Served


@pytest.fixture(scope="module")
def server():
    served = Served()
    yield served
    served.probe.close()


@pytest.fixture
def served(server):
    server.reset()
    return server


def test_a_process_that_is_well_answers_ok(served):
    assert served.get("/livez") == (200, "ok\n")
    assert served.get("/readyz") == (200, "ok\n")


def test_a_process_that_is_not_ready_stays_live_and_says_why(served):
    served.health = NOT_READY
    assert served.get("/livez") == (200, "ok\n")
    assert served.get("/readyz") == (503, "it has not joined its group yet\nit can't write: fenced\n")


def test_a_pump_that_stands_still_makes_the_process_not_live(served):
    served.health = DEAD
    assert served.get("/livez") == (503, "the pump has not moved for 61 s\n")
    assert served.get("/readyz")[0] == 503


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/readyz?verbose", {}),
        ("/readyz?verbose=1", {}),
        ("/readyz", {"Accept": "text/html, application/json"}),
    ],
)
def test_details_come_as_json_when_they_are_asked_for(served, path, headers):
    served.health = NOT_READY
    status, body = served.get(path, **headers)
    assert status == 503
    assert json.loads(body)["why"] == ["it has not joined its group yet", "it can't write: fenced"]


def test_details_tell_of_each_listener(served):
    _, body = served.get("/livez?verbose")
    told = json.loads(body)
    assert (told["is_live"], told["is_ready"], told["step_age_s"]) == (True, True, 0.01)
    assert told["listeners"] == [
        {
            "name": "charge", "paused": False, "brake_on": True, "breaker": "closed", "held_in_outage": 0, "partitions": 4,
            "held": 3, "unconfirmed": 2, "refused": 1, "oldest_handler_s": 0.5,
        }
    ]  # fmt: skip


def test_metrics_come_as_they_are_with_prometheus_type(served):
    status, headers, body = served.request("GET", "/metrics")
    assert (status, body) == (200, b"# HELP a b\na 1\n")
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert (headers["Cache-Control"], headers["Server"]) == ("no-store", "redrive")


def test_head_answers_like_get_without_the_body(served):
    status, headers, body = served.request("HEAD", "/metrics")
    assert (status, headers["Content-Length"], body) == (200, "15", b"")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/livez/x", "//livez/..", "/dlq", "/%6civez"])
def test_other_paths_are_not_found_and_the_answer_names_those_there_are(served, path):
    assert served.get(path) == (404, "404 there are /livez, /readyz, /metrics and /worker\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_other_methods_are_refused(served, method):
    status, headers, body = served.request(method, "/livez")
    assert (status, headers["Allow"], body) == (405, "GET, HEAD", b"405 only GET and HEAD\n")


@pytest.mark.parametrize("path", ["/metrics", "/readyz"])
def test_an_answer_that_fails_is_told_in_the_log_and_the_server_goes_on(served, path, caplog):
    def fail():
        raise OSError("no such file")  # what another collector on the page may run into

    served.metrics, served.health = fail, None
    assert served.get(path) == (500, "500 see the log\n")
    assert [record.getMessage() for record in caplog.records] == [f"{path} can't be answered; records go on."]
    served.health = WELL
    assert served.get("/livez") == (200, "ok\n")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * HEAD_BYTES + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"GET /livez nonsense\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 \r\n\r\n", 400),
        (b"GET /livez HTTP/9.9\r\n\r\n", 505),
    ],
)
def test_what_is_no_short_request_is_refused_in_plain_text(served, head, status):
    answer = served.raw(head)
    assert answer.split(b"\r\n")[0].split()[1] == str(status).encode()
    assert b"text/plain" in answer
    assert b"<" not in answer.partition(b"\r\n\r\n")[2]


def test_an_old_client_without_headers_is_answered(served):
    assert served.raw(b"GET /livez HTTP/1.0\n\n").endswith(b"\r\n\r\nok\n")


def test_a_client_that_goes_away_is_no_news(served, caplog):
    for data in (b"", b"GET /li"):
        with served.connect() as connection:
            connection.sendall(data)
    assert served.get("/livez") == (200, "ok\n")
    assert caplog.records == []


def test_clients_that_send_nothing_do_not_keep_a_probe_waiting(served):
    with contextlib.ExitStack() as stack:
        for _ in range(4 * CONNECTIONS):
            stack.enter_context(served.connect())
        assert served.get("/livez") == (200, "ok\n")


def test_of_too_many_connections_the_oldest_gives_way(served):
    with contextlib.ExitStack() as stack:
        oldest, *_ = [stack.enter_context(served.connect()) for _ in range(CONNECTIONS + 1)]
        served.get("/livez")  # comes after them
        assert oldest.recv(1) == b""


def test_there_are_never_more_threads_than_connections_are_allowed(served):
    """Answers that hang, as another collector's may, can't pile up without end."""
    release = threading.Event()
    served.metrics = lambda: b"late\n" if release.wait(30) else b""
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        for _ in range(3 * CONNECTIONS):
            connection = stack.enter_context(served.connect())
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert connection.recv(1) == b""  # the last one was turned away, so all were looked at
        assert threading.active_count() - before <= 2 * CONNECTIONS
        release.set()


@pytest.mark.realtime
def test_a_client_that_dawdles_is_cut_off(served):
    with served.connect() as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\n")
        assert connection.recv(1) == b""


def test_a_port_that_is_taken_is_told(served):
    with pytest.raises(PortError) as refused:
        start_probe(f"127.0.0.1:{served.probe.port}", NOTHING)
    assert str(refused.value) == (
        f"http: can't listen on 127.0.0.1:{served.probe.port}: another process has this port; "
        "choose another one, or port 0 for any that is free"
    )


def test_an_address_of_another_machine_is_told():
    with pytest.raises(PortError, match="this machine has no such address"):
        start_probe("192.0.2.1:0", NOTHING)


def test_a_name_that_no_host_can_have_is_told():
    with pytest.raises(PortError, match="this machine has no such address"):
        start_probe(f"{'ü' * 60}:0", NOTHING)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "9600",
        "localhost",
        ":9600",
        "localhost:",
        "localhost:http",
        "h:70000",
        "h:-1",
        "h:²",
        "h:" + "9" * 5_000,
        "..:80",
        "h" * 64 + ":80",
    ],
)
def test_what_is_no_address_is_refused_before_anything_starts(address):
    with pytest.raises(SettingsError) as refused:
        start_probe(address, NOTHING)
    assert str(refused.value) == f"http: {address!r} is no address; write host:port, such as 127.0.0.1:9600"


def test_a_closed_probe_gives_its_port_back():
    first = Served().probe
    first.close()
    first.close()
    again = start_probe(f"127.0.0.1:{first.port}", NOTHING)
    again.close()
    assert again.port == first.port


def test_it_listens_on_ipv6_too():
    try:
        probe = start_probe("[::1]:0", NOTHING)
    except PortError:
        pytest.skip("this machine has no IPv6")
    with contextlib.closing(probe), socket.create_connection(("::1", probe.port), timeout=10) as connection:
        connection.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.0 200"


def test_what_a_worker_is_at_is_told_to_the_bearer_of_the_token(served):
    status, headers, body = served.request("GET", "/worker", [("Authorization", f"Bearer {TOKEN}")])
    assert (status, headers["Content-Type"], body) == (200, "application/json", b'{"workers": []}\n')


@pytest.mark.parametrize(
    "given",
    [
        "", "Bearer", "Bearer ", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN,
        f"Bearer {TOKEN.upper()}", "Bearer \u00e4\u00f6", "Bearer " + "x" * 4000,
    ],
)  # fmt: skip
def test_without_the_token_it_is_not_told(served, given):
    served.state = None  # would be a 500
    status, headers, body = served.request("GET", "/worker", [("Authorization", given)])
    assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="redrive"')
    assert body == b"401 send the http_token of this process: Authorization: Bearer ...\n"


def test_a_request_without_a_word_of_a_token_is_refused_too(served):
    assert served.request("GET", "/worker")[0] == 401


@pytest.mark.parametrize("given", ["Bearer ", "Bearer x", f"Bearer {TOKEN}"])
def test_where_no_token_is_set_nobody_is_told_and_the_answer_says_why(given):
    with contextlib.closing((open_to_all := Served(token="")).probe):
        status, _, body = open_to_all.request("GET", "/worker", [("Authorization", given)])
    assert (status, body) == (
        404,
        b"404 no http_token is set, so this process tells nobody what it is at; set REDRIVE_HTTP_TOKEN and restart it\n",
    )


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed_over_http_by_whoever_has_the_token(served, method):
    assert served.request(method, "/worker", [("Authorization", f"Bearer {TOKEN}")])[0] == 405


def test_a_body_however_large_is_never_read(served):
    with served.connect() as connection:
        connection.sendall(b"POST /worker HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.0 405")
