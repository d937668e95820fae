"""What a worker is asked over HTTP comes back as it was told, and whatever goes wrong is told in words."""

import contextlib
import http.server
import threading

import msgspec
import pytest

from redrive.adapters.http_probe import Shown, start_probe
from redrive.adapters.worker_http import ask_workers
from redrive.core.inspection import WorkersSeen, WorkerState
from redrive.errors import PortError

TOKEN = "s3cret-s3cret-s3cret"
SEEN = WorkersSeen(
    workers=(
        WorkerState(
            worker=1, host="h", pid=7, version="1", now_ms=9, step_age_s=0.1, is_ready=True, why=(), listeners=(), partitions=()
        ),
    ),
    silent=(2,),
)  # fmt: skip


@contextlib.contextmanager
def worker(token=TOKEN, state=lambda: msgspec.json.encode(SEEN)):
    with contextlib.closing(start_probe("127.0.0.1:0", Shown(lambda: None, bytes, state, token))) as probe:
        yield f"127.0.0.1:{probe.port}"


@contextlib.contextmanager
def stranger(answer):
    """Something else at that port, which notes the tokens that it is sent."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            tokens.append((self.path, self.headers["Authorization"]))
            answer(self)

        def log_message(self, *_):
            pass

    tokens = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}", tokens
    finally:
        server.shutdown()
        server.server_close()


def test_it_comes_back_as_it_was_told():
    with worker() as address:
        assert ask_workers(address, TOKEN) == SEEN


@pytest.mark.parametrize("host", ["0.0.0.0", "localhost"])
def test_an_address_that_stands_for_all_is_asked_on_this_machine(host):
    with worker() as address:
        assert ask_workers(f"{host}:{address.rpartition(':')[2]}", TOKEN) == SEEN


def test_a_wrong_token_is_told_and_not_shown():
    with worker() as address, pytest.raises(PortError) as refused:
        ask_workers(address, "another-s3cret-s3cret")
    assert "it has another http_token" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_process_without_a_token_is_told_how_to_get_one():
    with (
        worker(token="") as address,
        pytest.raises(PortError, match="set REDRIVE_HTTP_TOKEN for its process"),
    ):
        ask_workers(address, TOKEN)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:http", "no-such-host.invalid:9600"])
def test_where_nobody_answers_that_is_told(address):
    with pytest.raises(PortError, match="nothing answers at"):
        ask_workers(address, TOKEN)


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b"<html>", b'{"workers": [{}]}', b"[" * 100_000])
def test_what_another_thing_says_there_can_not_be_read(body):
    def answer(request):
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with stranger(answer) as (address, _), pytest.raises(PortError, match="is it another version of redrive"):
        ask_workers(address, TOKEN)


def test_the_token_goes_nowhere_else_though_it_is_told_to(monkeypatch):
    with stranger(lambda request: request.send_error(500)) as (elsewhere, tokens):

        def send_on(request):
            request.send_response(302)
            request.send_header("Location", f"http://{elsewhere}/worker")
            request.end_headers()

        monkeypatch.setenv("http_proxy", f"http://{elsewhere}")
        with stranger(send_on) as (address, _), pytest.raises(PortError, match="it answered 302"):
            ask_workers(address, TOKEN)
    assert tokens == []


def test_one_that_says_nothing_is_not_waited_for_without_end():
    release = threading.Event()
    with stranger(lambda _: release.wait(30)) as (address, _), pytest.raises(PortError, match="timed out"):
        ask_workers(address, TOKEN, timeout_s=0.2)
    release.set()
