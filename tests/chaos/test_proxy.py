"""The proxy that stands between workers and brokers: what passes, and what doesn't."""

import socket
import threading
from contextlib import closing, contextmanager, suppress

import pytest

from tests.chaos.proxy import Proxies
from tests.waiting import until


class Echo:
    """A server that sends everything back. `heard`: all that came."""

    def __init__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._open = []
        self.port = self._socket.getsockname()[1]
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                one, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(one)
            threading.Thread(target=self._answer, args=(one,), daemon=True).start()

    def _answer(self, one):
        with one:
            try:
                while chunk := one.recv(1 << 16):
                    self.heard += chunk
                    one.sendall(chunk)
            except OSError:
                return

    def close(self):
        self._socket.close()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def servers():
    with closing(Echo()) as first, closing(Echo()) as second:
        yield first, second


@pytest.fixture
def proxies(servers):
    with Proxies(server.port for server in servers) as proxies:
        yield proxies


@contextmanager
def connected(port):
    with socket.create_connection(("127.0.0.1", port), 10) as one:
        yield one


def echoed(one, what):
    one.sendall(what)
    return received(one, len(what))


def received(one, count):
    found = b""
    while len(found) < count:
        chunk = one.recv(count - len(found))
        if not chunk:
            return found
        found += chunk
    return found


def test_it_passes_on_what_either_side_sends(proxies):
    large = bytes(range(256)) * 4096
    with connected(proxies.ports[0]) as one:
        assert echoed(one, b"hello") == b"hello"
        sender = threading.Thread(target=one.sendall, args=(large,))
        sender.start()
        assert received(one, len(large)) == large
        sender.join()


def test_a_cut_resets_open_connections_and_new_ones_and_no_other_way(proxies):
    with connected(proxies.ports[0]) as one, connected(proxies.ports[1]) as other:
        assert echoed(one, b"hello") == echoed(other, b"hello")
        proxies.cut([0])
        with pytest.raises(ConnectionError):
            received(one, 1)
        with pytest.raises(ConnectionError), connected(proxies.ports[0]) as new:
            received(new, 1)
        assert echoed(other, b"again") == b"again"
    proxies.restore([0])
    with connected(proxies.ports[0]) as one:
        assert echoed(one, b"after") == b"after"


def test_what_is_held_comes_afterwards_in_its_order(servers, proxies):
    with connected(proxies.ports[0]) as one, connected(proxies.ports[1]) as other:
        assert echoed(one, b"0") == b"0"
        proxies.hold([0])
        for number in b"123":
            one.sendall(bytes([number]))
        with connected(proxies.ports[0]) as new:
            new.sendall(b"4")
            # What comes through the other way, later, is a sign that the first one is held.
            assert echoed(other, b"sign") == b"sign"
            assert servers[0].heard == b"0"
            proxies.restore([0])
            assert (received(one, 3), received(new, 1)) == (b"123", b"4")


def test_what_is_asked_of_who_is_mute_arrives_and_its_answer_comes_when_it_is_over(servers, proxies):
    with connected(proxies.ports[0]) as one, connected(proxies.ports[1]) as other:
        assert echoed(one, b"0") == b"0"
        proxies.mute([0])
        one.sendall(b"1")
        until(lambda: servers[0].heard == b"01", "it arrives")
        assert echoed(other, b"sign") == b"sign"
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.recv(1)
        one.setblocking(True)
        proxies.restore([0])
        assert received(one, 1) == b"1"


def test_what_is_slow_comes_whole_and_in_its_order(proxies):
    proxies.slow([0], 0.01)
    text = b"".join(b"%d " % number for number in range(2000))
    with connected(proxies.ports[0]) as one:
        for at in range(0, len(text), 100):
            one.sendall(text[at : at + 100])
        assert received(one, len(text)) == text


def test_when_the_server_closes_so_does_the_connection(servers, proxies):
    with connected(proxies.ports[0]) as one:
        assert echoed(one, b"hello") == b"hello"
        servers[0].close()
        with pytest.raises(ConnectionError):
            received(one, 1)
