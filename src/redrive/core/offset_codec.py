"""
A map of finished offsets as text: the smallest of three encodings, and within the room there is.

*Runs* are lengths of unfinished and finished stretches in turn: small for few holes, however long the range. *Sparse* names
each unfinished offset by its distance: half the size where holes are single. A *bitmap* is best where every second offset is
a hole. Each costs time by the room, never by the range: what doesn't fit isn't looked at.
"""

import base64
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence

Range = tuple[int, int]
"""A half-open range of offsets: first, end."""

_RUNS, _SPARSE, _BITMAP = "r", "s", "b"
_FINISHED = re.compile("1+")
_ONE = ord("1")
#: Offsets are signed 64-bit numbers.
_END_OF_OFFSETS = 1 << 63


def encode_map(base: int, ranges: Sequence[Range], room_chars: int) -> str:
    """
    Give a text of at most `room_chars` that names as many of the finished offsets as fit, the nearest to `base` first.

    `ranges`: finished, ascending and apart, at or above `base`. Of encodings that say the same the shortest is taken. Empty when
    there is nothing to say or no room to say it.
    """
    if not ranges:
        return ""
    room_bytes = _bytes_in(room_chars - 1)
    said, _, tag, packed = max(
        (said, -len(packed), tag, packed)
        for tag, (packed, said) in (
            (_RUNS, _pack_runs(base, ranges, room_bytes)),
            (_SPARSE, _pack_sparse(base, ranges, room_bytes)),
            (_BITMAP, _pack_bitmap(base, ranges, room_bytes)),
        )
    )
    return tag + base64.b85encode(packed).decode() if said else ""


def decode_map(text: str, base: int) -> tuple[Range, ...]:
    """Give the finished ranges: ascending, apart, at or above `base`. Raises ValueError when no encoder wrote `text`."""
    if not text:
        return ()
    unpack = {_RUNS: unpack_runs, _SPARSE: _unpack_sparse, _BITMAP: _unpack_bitmap}.get(text[0])
    if unpack is None:
        raise ValueError("an unknown encoding")
    ranges = unpack(base64.b85decode(text[1:]), base)
    if ranges and ranges[-1][1] >= _END_OF_OFFSETS:
        raise ValueError("no offset is as large")
    return ranges


def unpack_runs(packed: bytes, base: int) -> tuple[Range, ...]:
    """Read pairs of lengths, unfinished and finished. Raises ValueError where there is half a pair or a finished nothing."""
    numbers = list(_varints(packed))
    if len(numbers) % 2:
        raise ValueError("half a pair")
    ranges = []
    at = base
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        first = at + gap
        at = first + length
        if not length or at >= _END_OF_OFFSETS:
            raise ValueError("no encoder writes this")
        ranges.append((first, at))
    return tuple(ranges)


def _bytes_in(chars: int) -> int:
    """How many bytes fit: base85 writes four as five characters, and a rest of n as n + 1."""
    whole, rest = divmod(max(0, chars), 5)
    return 4 * whole + max(0, rest - 1)


def _pack_runs(base: int, ranges: Sequence[Range], room_bytes: int) -> tuple[bytes, int]:
    packed = bytearray()
    at = base
    said = 0
    for first, end in ranges:
        step = _varint(first - at) + _varint(end - first)
        if len(packed) + len(step) > room_bytes:
            break
        packed += step
        said += end - first
        at = end
    return bytes(packed), said


def _unfinished(base: int, ranges: Sequence[Range]) -> Iterator[int]:
    """The unfinished offsets below the last finished one, then the end of the range."""
    at = base
    for first, end in ranges:
        yield from range(at, first)
        at = end
    yield at


def _pack_sparse(base: int, ranges: Sequence[Range], room_bytes: int) -> tuple[bytes, int]:
    """
    Each number is how many finished offsets lie before the next unfinished one. The last one's offset is the end: of it and
    above nothing is said, so that every beginning of the numbers is a map of its own.
    """
    packed = bytearray()
    at = base
    said = size = 0
    for offset in _unfinished(base, ranges):
        finished = offset - at
        if finished < 0x80:
            packed.append(finished)
        else:
            packed += _varint(finished)
        if len(packed) > room_bytes:
            break
        if finished:
            said += finished
            size = len(packed)
        at = offset + 1
    return bytes(packed[:size]), said


def _unpack_sparse(packed: bytes, base: int) -> tuple[Range, ...]:
    ranges = []
    at = base
    for finished in _varints(packed):
        if finished:
            ranges.append((at, at + finished))
        at += finished + 1
    return tuple(ranges)


def _pack_bitmap(base: int, ranges: Sequence[Range], room_bytes: int) -> tuple[bytes, int]:
    """One bit an offset, from `base` on, the lowest bit of a byte first; the last byte isn't zero."""
    width = min(room_bytes * 8, ranges[-1][1] - base)
    digits = bytearray(b"0") * width
    for first, end in ranges[: bisect_left(ranges, (base + width, 0))]:
        if end - first == 1:
            digits[first - base] = _ONE
        else:
            digits[first - base : end - base] = b"1" * (min(end - base, width) - (first - base))
    said = digits.count(_ONE)
    if not said:
        return b"", 0
    bits = int(digits[::-1], 2)
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little"), said


def _unpack_bitmap(packed: bytes, base: int) -> tuple[Range, ...]:
    bits = bin(int.from_bytes(packed, "little"))[:1:-1]
    return tuple((base + run.start(), base + run.end()) for run in _FINISHED.finditer(bits))


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varints(packed: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
        elif shift > 63:
            raise ValueError("too long for an offset")
    if shift:
        raise ValueError("cut off")
