"""
Ways through a network that can be cut, held and made slow: a TCP proxy in front of each of several ports.

Cut: open connections are reset, and so are new ones. Held: connections stay, and nothing passes in either direction, as when
a cable is pulled. Mute: what is asked arrives, and no answer comes back. Slow: each byte comes later by so long. What was held,
mute or slow comes in its order.
"""

import asyncio
import contextlib
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable
from socket import SO_LINGER, SOL_SOCKET
from types import TracebackType
from typing import Any, Self

_CHUNK_BYTES = 1 << 16
#: So much may be under way in a slow connection; then its sender waits.
_MOST_CHUNKS = 64


class Way:
    """One proxy: from its `port` to `target`, both on the loopback interface. Belongs to its loop's thread."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._is_cut = False
        self._delay_s = 0.0
        self._is_open = asyncio.Event()
        self._is_open.set()
        self._answers = asyncio.Event()
        self._answers.set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=_CHUNK_BYTES)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def cut(self) -> None:
        """Reset all connections, and each new one until `restore`."""
        self._is_cut = True
        for writer in list(self._writers):
            _reset(writer)

    def hold(self) -> None:
        """Let nothing pass until `restore`; connections stay, and new ones are accepted."""
        self._is_open.clear()

    def mute(self) -> None:
        """Let no answer pass until `restore`."""
        self._answers.clear()

    def slow(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def restore(self) -> None:
        """As at the beginning."""
        self._is_cut = False
        self._delay_s = 0.0
        self._answers.set()
        self._is_open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            _reset(writer)
            return
        self._writers.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            await self._is_open.wait()
            back, there = await asyncio.open_connection("127.0.0.1", self.target, limit=_CHUNK_BYTES)
            self._writers.add(there)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._relay(reader, there, self._is_open))
                both.create_task(self._relay(back, writer, self._is_open, self._answers))
        except* (OSError, _Ended):
            pass
        finally:
            for one in (writer, there):
                if one is not None:
                    self._writers.discard(one)
                    _reset(one)

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *gates: asyncio.Event
    ) -> None:
        """One direction, to its end. Raises _Ended there: a Kafka client that is through closes both."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_CHUNKS)
        now = asyncio.get_running_loop().time

        async def take() -> None:
            chunk = b"-"
            while chunk:
                chunk = await reader.read(_CHUNK_BYTES)
                await under_way.put((now() + self._delay_s, chunk))

        async def give() -> None:
            while True:
                due, chunk = await under_way.get()
                if (wait_s := due - now()) > 0:
                    await asyncio.sleep(wait_s)
                for gate in gates:
                    await gate.wait()
                if not chunk:
                    raise _Ended
                writer.write(chunk)
                await writer.drain()

        async with asyncio.TaskGroup() as pair:
            pair.create_task(take())
            pair.create_task(give())


class _Ended(Exception):
    """One side of a connection is through."""


class Proxies:
    """
    A way to each of `targets`, on a thread of its own, while it lasts as a context manager. `ways` are numbered as `targets`.

    `cut`, `hold`, `mute`, `slow` and `restore` take the numbers of the ways they are about, and return when it is so.
    """

    def __init__(self, targets: Iterable[int]) -> None:
        self._targets = list(targets)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self.ways: list[Way] = []
        self._servers: list[asyncio.Server] = []

    @property
    def ports(self) -> list[int]:
        return [way.port for way in self.ways]

    def cut(self, numbers: Iterable[int]) -> None:
        self._do(numbers, Way.cut)

    def hold(self, numbers: Iterable[int]) -> None:
        self._do(numbers, Way.hold)

    def mute(self, numbers: Iterable[int]) -> None:
        self._do(numbers, Way.mute)

    def slow(self, numbers: Iterable[int], delay_s: float) -> None:
        self._do(numbers, lambda way: way.slow(delay_s))

    def restore(self, numbers: Iterable[int]) -> None:
        self._do(numbers, Way.restore)

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> None:
        self.ways = [Way(target) for target in self._targets]
        self._servers = [await way.listen() for way in self.ways]

    async def _close(self) -> None:
        for server, way in zip(self._servers, self.ways, strict=True):
            server.close()
            way.cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _do(self, numbers: Iterable[int], what: Callable[[Way], None]) -> None:
        chosen = [self.ways[number] for number in numbers]

        async def do() -> None:
            for way in chosen:
                what(way)

        self._wait(do())

    def _wait(self, asked: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(asked, self._loop).result(10)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close it as a broken network does: at once, whatever is on its way."""
    with contextlib.suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
