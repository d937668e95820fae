"""A real server on a real socket, over simulated letters: what bytes can do to it."""

import json
import socket
import threading
from contextlib import contextmanager

import httpx
import pytest

from redrive.console.api import Limits
from redrive.console.clerk import Clerk
from redrive.console.server import CONNECTIONS, make_server, take_place
from redrive.core.settings import ConsoleSettings
from redrive.deadletters.counter import Counter
from redrive.deadletters.topics import Names
from redrive.errors import PortError, SettingsError
from tests.console.rooms import DLQ, TOKEN
from tests.deadletters.desks import Office, WrappedLog
from tests.waiting import until

HOST = "Host: 127.0.0.1\r\n"
BEARER = f"Authorization: Bearer {TOKEN}\r\n"
#: What waits for a peer is given up quickly here.
QUICK = Limits(head_s=0.3, body_s=0.3, connection_s=3.0)


@contextmanager
def served(limits=None, *, office=None, log=None, **settings):
    """The office, or the server where the office is given; and where it is served."""
    given, office = office, office or Office()
    desk = office.desk._replace(log=log or office.desk.log)
    place = take_place(ConsoleSettings(**{"bind": "127.0.0.1:0", "token": TOKEN, **settings}))
    server = make_server(place, Clerk(Counter(desk, Names(), frozenset())), office.cluster.clock, limits)
    thread = threading.Thread(target=server.run, args=([place.socket],))
    thread.start()
    try:
        until(lambda: server.started, "the server answers")
        yield server if given else office, place
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def _connect(place):
    return socket.create_connection(place.socket.getsockname()[:2], timeout=20)


def _exchange(place, *parts):
    """All that comes back until the server closes."""
    with _connect(place) as client:
        for part in parts:
            client.sendall(part.encode() if isinstance(part, str) else part)
        return _rest(client)


def _rest(client):
    received = b""
    while part := client.recv(65536):
        received += part
    return received


def _problem(received):
    head, _, body = received.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert b"application/problem+json" in head, received
    assert json.loads(body)["status"] == status
    return status


def test_a_question_over_a_socket_is_answered_and_the_connection_closed():
    with served() as (office, place):
        office.letters(2)
        answer = httpx.get(f"http://{place.address}/api/v1/dlq", headers={"Authorization": f"Bearer {TOKEN}"})
        assert (answer.json()["unresolved"], answer.headers["connection"]) == (2, "close")
        assert "server" not in answer.headers
        replayed = httpx.post(
            f"http://{place.address}{DLQ}/replay", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        assert replayed.json()["replayed"] == 2


@pytest.mark.parametrize(
    "sent",
    [
        "hello\r\n\r\n",
        f"GET /api/v1/dlq HTTP/1.1\r\n{BEARER}\r\n",  # no Host
        f"GET /api/v1/dlq HTTP/1.1\r\n{HOST}{HOST}\r\n",
        f"GET /api/v1/dlq HTTP/1.1\r\n{HOST}{BEARER}X: {'x' * 40_000}\r\n\r\n",
        f"POST {DLQ}/replay HTTP/1.1\r\n{HOST}{BEARER}Content-Length: x\r\n\r\n",
        f"POST {DLQ}/replay HTTP/1.1\r\n{HOST}{BEARER}Content-Length: -1\r\n\r\n",
        f"POST {DLQ}/replay HTTP/1.1\r\n{HOST}{BEARER}Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        f"POST {DLQ}/replay HTTP/1.1\r\n{HOST}{BEARER}Transfer-Encoding: gzip\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS
        "GET " + "/x" * 20_000 + " HTTP/1.1\r\n",
    ],
)
def test_what_is_no_request_gets_a_problem_and_does_nothing(sent):
    with served() as (office, place):
        office.letters(1)
        assert _problem(_exchange(place, sent)) in {400, 431, 501}
        assert office.copies() == []


@pytest.mark.parametrize("length", ["Content-Length: 10000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"])
def test_ten_megabytes_get_their_answer_although_the_client_reads_only_at_the_end(length):
    part = b"x" * 100_000
    chunk = part if length.startswith("Content") else b"186a0\r\n" + part + b"\r\n"
    head = f"POST {DLQ}/replay HTTP/1.1\r\n{HOST}{BEARER}Content-Type: application/json\r\n{length}"
    end = b"" if length.startswith("Content") else b"0\r\n\r\n"
    with served() as (office, place):
        office.letters(1)
        assert _problem(_exchange(place, head, *[chunk] * 100, end)) == 413
        assert office.copies() == []


def test_without_the_token_ten_megabytes_get_no_further_than_their_head():
    with served() as (_, place):
        head = f"POST {DLQ}/replay HTTP/1.1\r\n{HOST}Content-Length: 10000000\r\n\r\n"
        assert _problem(_exchange(place, head, *[b"x" * 100_000] * 100)) == 401


def test_who_waits_for_continue_is_refused_before_writing():
    with served() as (_, place):
        head = f"POST {DLQ}/replay HTTP/1.1\r\n{HOST}{BEARER}Content-Length: 10000000\r\nExpect: 100-continue\r\n\r\n"
        assert _problem(_exchange(place, head)) == 413


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (f"POST {DLQ}/replay HTTP/1.1\r\n{HOST}{BEARER}Content-Length: 100\r\n\r\n{{", 408),
        (f"POST {DLQ}/replay HTTP/1.1\r\n{HOST}{BEARER}Transfer-Encoding: chunked\r\n\r\n5\r\n", 408),
        (f"GET /api/v1/dlq HTTP/1.1\r\n{HOST}", 408),
        ("G", 408),
    ],
)
def test_who_sends_too_slowly_is_given_up_and_told_so(sent, status):
    with served(QUICK) as (office, place):
        office.letters(1)
        assert _problem(_exchange(place, sent)) == status
        assert office.copies() == []


def test_who_says_nothing_is_given_up():
    with served(QUICK) as (_, place):
        assert _exchange(place, "") == b""


def test_a_head_that_trickles_is_given_up_however_often_a_byte_comes():
    with served(QUICK) as (_, place), _connect(place) as client:
        client.settimeout(0.02)
        until(lambda: _is_cut_after_a_byte(client), "the connection is cut", within_s=10)


def _is_cut_after_a_byte(client):
    try:
        client.sendall(b"x")
        return client.recv(65536) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_silent_connections_in_a_crowd_do_not_keep_out_who_has_something_to_say():
    with served(Limits(head_s=60)) as (_, place):
        crowd = [_connect(place) for _ in range(CONNECTIONS + 10)]
        try:
            answer = httpx.get(
                f"http://{place.address}/api/v1/dlq", headers={"Authorization": f"Bearer {TOKEN}"}
            )
            assert answer.status_code == 200
            assert _is_cut(crowd[0])
        finally:
            for client in crowd:
                client.close()


def _is_cut(client):
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


class _Held(WrappedLog):
    """A log whose first write waits until it is let go."""

    def __init__(self, log):
        super().__init__(log, self._wait)
        self.reached, self.may_go = threading.Event(), threading.Event()

    def _wait(self, number, _):
        if number == 0:
            self.reached.set()
            assert self.may_go.wait(30)


REPLAY = f"POST {DLQ}/replay HTTP/1.1\r\n{HOST}{BEARER}\r\n"


def test_a_connection_ends_in_its_time_and_what_was_begun_ends_all_the_same():
    office = Office()
    office.letters(3)
    held = _Held(office.desk.log)
    with served(Limits(connection_s=0.3), office=office, log=held) as (_, place), _connect(place) as client:
        client.sendall(REPLAY.encode())
        assert held.reached.wait(30)
        assert _is_cut(client)
        held.may_go.set()
    assert (len(office.copies()), set(office.states().values())) == (3, {"replayed"})


def test_a_server_that_is_told_to_end_ends_what_is_at_work_and_answers_it():
    office = Office()
    office.letters(3)
    held = _Held(office.desk.log)
    with (
        served(office=office, log=held) as (server, place),
        _connect(place) as client,
        _connect(place) as idle,
    ):
        client.sendall(REPLAY.encode())
        assert held.reached.wait(30)
        server.should_exit = True
        assert _is_cut(idle)
        held.may_go.set()
        assert json.loads(_rest(client).partition(b"\r\n\r\n")[2])["replayed"] == 3
    assert len(office.copies()) == 3


def test_a_second_request_in_the_same_connection_is_not_answered():
    with served() as (_, place):
        one = f"GET /api/v1/dlq HTTP/1.1\r\n{HOST}{BEARER}\r\n"
        assert _exchange(place, one + one).count(b"HTTP/1.1 200") == 1


def test_an_upgrade_is_no_way_around(caplog):
    with served() as (_, place):
        head = f"GET /api/v1/dlq HTTP/1.1\r\n{HOST}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        assert _problem(_exchange(place, head)) == 401


def test_no_access_log_tells_the_query(caplog):
    caplog.set_level(0)
    with served() as (_, place):
        httpx.get(f"http://{place.address}/api/v1/dlq?token={TOKEN}")
    said = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert said
    assert TOKEN not in " ".join(f"{record.getMessage()} {vars(record)}" for record in said)


# -- where it listens --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "[::]:0"])
def test_where_others_can_come_it_wants_a_token(bind):
    try:
        socket.create_server(
            (bind.rpartition(":")[0].strip("[]"), 0),
            family=socket.AF_INET6 if "[" in bind else socket.AF_INET,
        ).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with pytest.raises(SettingsError) as raised:
        take_place(ConsoleSettings(bind=bind))
    assert "REDRIVE_CONSOLE__TOKEN" in str(raised.value)
    place = take_place(ConsoleSettings(bind=bind, token=TOKEN))
    place.socket.close()
    assert (place.hosts, place.credential.name) == (None, "console")


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "localhost:0"])
def test_for_this_machine_only_it_makes_a_token_each_time(bind):
    places = [take_place(ConsoleSettings(bind=bind)) for _ in range(2)]
    for place in places:
        place.socket.close()
    tokens = {place.credential.token for place in places}
    assert (len(tokens), min(map(len, tokens)) >= 43) == (2, True)
    assert {(place.is_made, place.credential.name) for place in places} == {(True, "one-time")}


def test_a_port_that_is_taken_is_told():
    first = take_place(ConsoleSettings(bind="127.0.0.1:0"))
    first.socket.listen()
    with pytest.raises(PortError, match="another process has this port"):
        take_place(ConsoleSettings(bind=first.address))
    first.socket.close()


def test_a_name_that_nobody_has_is_told():
    with pytest.raises(PortError, match=r"can't listen on nowhere\.invalid:9601"):
        take_place(ConsoleSettings(bind="nowhere.invalid:9601"))
