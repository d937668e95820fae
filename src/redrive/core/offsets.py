"""
What of one partition is finished, and how that is told in a commit.

The *frontier* is the offset below which all is finished; it is what Kafka's committed offset can say. Records finished
above it are kept as a map in the commit's metadata, so that one slow record doesn't make the next owner repeat the
hundred thousand behind it.
"""

import base64
import hashlib
from bisect import bisect_right
from collections.abc import Iterable
from itertools import islice, pairwise

import msgspec

#: Kafka's default `offset.metadata.max.bytes` is 4,096; the client adds a NUL, which other clients see.
METADATA_BUDGET_CHARS = 4095
#: More unfinished offsets than this are not looked through for a map: what fits into a commit ends long before.
_SCAN_OFFSETS = 20_000
_MAGIC = "r1"
# ':' is not in the alphabet of base85, ';' is.
_SEPARATOR = ":"

Range = tuple[int, int]
"""A half-open range of offsets: first, end."""


class OffsetMap:
    """
    The finished and unfinished offsets of one partition, during one assignment.

    `settled`: below it every offset is finished but those that are `open`. Offsets that don't exist (transaction
    markers, compaction) are never opened, so they are no holes.
    """

    __slots__ = ("_open", "_restored", "settled", "started")

    def __init__(self, start: int, restored: tuple[Range, ...] = (), *, started: bool = True) -> None:
        self.settled = start
        #: False while the start isn't a number yet (the beginning of a partition that nobody read before).
        self.started = started
        self._restored = restored
        self._open: dict[int, None] = {}

    @property
    def frontier(self) -> int:
        """All below is finished. Ascending: offsets are opened in the order in which they were fetched."""
        return next(iter(self._open), self.settled)

    @property
    def open_count(self) -> int:
        """How many offsets below `settled` are unfinished."""
        return len(self._open)

    def begin(self, first: int) -> None:
        """Tell the first offset ever seen, when the partition was started at its beginning."""
        self.settled = first
        self.started = True

    def open(self, offsets: Iterable[int]) -> None:
        """Mark fetched offsets, ascending and at or above `settled`, as unfinished. Settle behind them afterwards."""
        self._open.update(dict.fromkeys(offsets))

    def settle(self, end: int) -> None:
        """Everything below `end` was handed out: finished unless it is open."""
        self.settled = max(self.settled, end)

    def close(self, offset: int) -> None:
        """Mark one open offset as finished. Closing it twice is harmless: a late acknowledgement may do so."""
        self._open.pop(offset, None)

    def close_all(self, offsets: Iterable[int]) -> None:
        """Mark open offsets as finished."""
        pop = self._open.pop
        for offset in offsets:
            pop(offset, None)

    def restored_above(self, offset: int) -> bool:
        """Whether the map of the owner before knows finished records at or above `offset`."""
        return bool(self._restored) and self._restored[-1][1] > offset

    def was_finished(self, offset: int) -> bool:
        """Whether the owner before had finished this record: it must not run again."""
        at = bisect_right(self._restored, (offset, 1 << 63)) - 1
        return at >= 0 and offset < self._restored[at][1]

    def finished_above_frontier(self) -> tuple[Range, ...]:
        """The finished ranges from the frontier on; nothing above the highest finished offset is claimed."""
        if not self._open:
            ranges: list[Range] = []
        else:
            edges = list(islice(self._open, _SCAN_OFFSETS))
            if len(edges) == len(self._open):
                edges.append(self.settled)
            ranges = [(a + 1, b) for a, b in pairwise(edges) if b > a + 1]
        floor = self.settled
        ranges.extend((max(a, floor), b) for a, b in self._restored if b > floor)
        return tuple(ranges)

    def snapshot(self, identity: str) -> tuple[int, str]:
        """The frontier and its metadata, of one moment: what one commit says about this partition."""
        frontier = self.frontier
        return frontier, encode_metadata(frontier, self.finished_above_frontier(), identity)


def identity_of(cluster_id: str, topic_id: str) -> str:
    """
    A short hash of where an offset belongs.

    Mirroring tools copy a group's metadata to other offsets of another cluster, and a topic can be made anew under
    its name: a map with another identity is ignored.
    """
    return hashlib.blake2s(f"{cluster_id}/{topic_id}".encode(), digest_size=4).hexdigest()


class Restored(msgspec.Struct, frozen=True):
    """What the metadata of a commit said: the finished `ranges`, or why it can't be used (`ignored`)."""

    ranges: tuple[Range, ...] = ()
    ignored: str = ""


def encode_metadata(
    base: int, ranges: tuple[Range, ...], identity: str, budget: int = METADATA_BUDGET_CHARS
) -> str:
    """
    Magic, base offset, identity, ledger, heads, map. The last is cut from above until the text fits.

    A shorter map is always safe: records it doesn't name run again. Ledger and heads are empty until something
    writes them; only the map may ever be dropped.
    """
    head = _SEPARATOR.join((_MAGIC, str(base), identity, "", "")) + _SEPARATOR
    room_bytes = (budget - len(head)) // 5 * 4
    packed = bytearray()
    at = base
    for first, end in ranges:
        step = _varint(first - at) + _varint(end - first)
        if len(packed) + len(step) > room_bytes:
            break
        packed += step
        at = end
    return head + base64.b85encode(bytes(packed)).decode()


def decode_metadata(text: str | None, base: int, identity: str) -> Restored:
    """
    Read what a commit at offset `base` says. Never raises: whoever wrote it, the frontier alone is enough to go on.
    """
    text = (text or "").rstrip("\0")
    if not text:
        return Restored()
    parts = text.split(_SEPARATOR, 5)
    if len(parts) != 6 or parts[0] != _MAGIC:
        return Restored(ignored="the metadata was not written by redrive")
    if parts[1] != str(base):
        return Restored(ignored=f"the map belongs to offset {parts[1][:20]}, the committed one is {base}")
    if parts[2] != identity:
        return Restored(ignored="the map belongs to another cluster or an earlier topic of this name")
    try:
        return Restored(ranges=_unpack(base64.b85decode(parts[5]), base))
    except ValueError:
        return Restored(ignored="the map is damaged")


def _unpack(packed: bytes, base: int) -> tuple[Range, ...]:
    numbers = list(_varints(packed))
    if len(numbers) % 2:
        raise ValueError("odd")
    ranges = []
    at = base
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        first = at + gap
        at = first + length
        if not length or at >= 1 << 63:
            raise ValueError("absurd")
        ranges.append((first, at))
    return tuple(ranges)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varints(packed: bytes) -> Iterable[int]:
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
        elif shift > 63:
            raise ValueError("too long")
    if shift:
        raise ValueError("cut off")
