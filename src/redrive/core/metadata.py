"""
What a commit says about a partition besides the offset: a text in the commit's metadata.

The map of finished offsets spares the next owner their repetition; the heads keep the attempts of records that wait in their
lane; the ledger is the crash guard's account. The map may be cut, from above: records it doesn't name run again. Ledger and
heads are never dropped.
"""

import base64
import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Self

import msgspec

from redrive.core.bit_columns import VALUE_LIMIT, pack_columns, unpack_columns
from redrive.core.offset_codec import Range, decode_map, encode_map, unpack_runs

#: Kafka's default `offset.metadata.max.bytes` is 4,096; the client adds a NUL, which other clients see.
METADATA_BUDGET_CHARS = 4095
_MAGIC = "r2"
#: No ledger, no heads, runs only, no checksum; such texts stand in groups that an earlier version committed.
_FIRST_MAGIC = "r1"
# ':' is not in the alphabet of base85, ',' neither.
_SEPARATOR = ":"
_LEDGER_SEPARATOR = ","
_NONCE = re.compile(r"[0-9A-Za-z_.-]{0,32}")
_OURS = re.compile(r"r[0-9]+:")
# Magic, base, identity and checksum at their longest, then a ledger.
_FRAME_CHARS = 2 + 19 + 8 + 5 + 6
_LEDGER_CHARS = 32 + 4 + 3 * 19 + 4


class Head(msgspec.Struct, frozen=True):
    """
    A failing record that waits in its lane. `attempt`: the runs it had. `due_ms`: when the next one may begin.
    `first_failed_ms`: when the first one failed. Times are epoch ms, UTC. Or one that became a dead letter, for which those
    behind it wait (`is_dead`): both times are then when that was.
    """

    attempt: int
    due_ms: int
    first_failed_ms: int

    @classmethod
    def dead(cls, now_ms: int) -> Self:
        """The head of a record whose dead letter is written."""
        return cls(0, now_ms, now_ms)

    @property
    def is_dead(self) -> bool:
        """Whether it became a dead letter. No number of attempts says it: a head that may run has had one at least."""
        return not self.attempt


#: No record that waits.
NO_HEADS: Mapping[int, Head] = MappingProxyType({})


class Ledger(msgspec.Struct, frozen=True):
    """
    The crash guard's account of a partition.

    `nonce`: of the process that works on it, empty when it was closed: at most 32 letters, digits, `_`, `.`, `-`. `crashes`:
    in a row without progress. `hi`: nothing at or above this offset had run. `ceil`: no offset at or above it starts, -1 for
    no ceiling. `solo`: the offset that runs alone, -1 for none.
    """

    nonce: str = ""
    crashes: int = 0
    hi: int = 0
    ceil: int = -1
    solo: int = -1


NO_LEDGER = Ledger()


class Restored(msgspec.Struct, frozen=True):
    """What the metadata of a commit said; or why nothing of it can be used (`ignored`)."""

    ranges: tuple[Range, ...] = ()
    heads: Mapping[int, Head] = {}
    ledger: Ledger = NO_LEDGER
    ignored: str = ""


def identity_of(cluster_id: str, topic_id: str) -> str:
    """
    A short hash of where an offset belongs.

    Mirroring tools copy a group's metadata to other offsets of another cluster, and a topic can be made anew under
    its name: metadata with another identity is ignored.
    """
    return hashlib.blake2s(f"{cluster_id}/{topic_id}".encode(), digest_size=4).hexdigest()


def heads_that_fit(budget: int = METADATA_BUDGET_CHARS) -> int:
    """
    So many heads surely take at most 75 % of `budget` together with a ledger, wherever they stand: within 2^32 offsets of
    the frontier, up to 100 attempts each, first failures and dues spread over a week. Heads of one afternoon take two
    thirds of that space.
    """
    # What is left after a count and, for each column, two widths and its least value.
    room_bits = (
        ((budget * 3 // 4 - _FRAME_CHARS - _LEDGER_CHARS) // 5 * 4 - 2) * 8 - 24 - 4 * 12 - 33 - 7 - 2 * 42
    )
    heads = max(0, room_bits) // _head_bits(1)
    while heads and heads * _head_bits(heads + 1) <= room_bits:
        heads += 1
    return heads


def _head_bits(heads: int) -> int:
    """The most that one of so many heads takes: Rice's code needs two bits more than the mean of a column."""
    between = (1 << 32) // heads
    return sum((most.bit_length() + 2) for most in (between, 100, 7 * 86_400_000, 7 * 86_400_000))


HEADS_MOST = heads_that_fit()


def encode_metadata(
    base: int,
    ranges: Sequence[Range],
    identity: str,
    *,
    ledger: Ledger = NO_LEDGER,
    heads: Mapping[int, Head] = NO_HEADS,
    budget: int = METADATA_BUDGET_CHARS,
) -> str:
    """
    Magic, base offset, identity, ledger, heads, map, checksum: at most `budget` characters while ledger and heads leave
    room for it (`heads_that_fit`); what is left goes to the map.

    `ranges`: finished, ascending and apart, at or above `base`. `heads`: by their offsets; below `base` all is finished.
    Raises ValueError for a nonce of other characters.
    """
    told = _SEPARATOR.join((_MAGIC, str(base), identity, _ledger_text(ledger), _heads_text(base, heads), ""))
    told += encode_map(base, ranges, budget - len(told) - len(_SEPARATOR) - 5)
    return _SEPARATOR.join((told, _checksum(told)))


def decode_metadata(text: str | None, base: int, identity: str) -> Restored:
    """
    Read what a commit at offset `base` says. Never raises: whoever wrote it, the frontier alone is enough to go on.
    """
    text = (text or "").rstrip("\0")
    if not text:
        return Restored()
    try:
        return _decode(text, base, identity)
    except ValueError:
        return Restored(ignored="the metadata is damaged")


def _decode(text: str, base: int, identity: str) -> Restored:
    parts = text.split(_SEPARATOR)
    if parts[0] not in (_MAGIC, _FIRST_MAGIC):
        writer = "a newer version of redrive" if _OURS.match(text) else "something else"
        return Restored(ignored=f"the metadata was written by {writer}")
    is_first = parts[0] == _FIRST_MAGIC
    if len(parts) != (6 if is_first else 7):
        raise ValueError("cut off")
    if not is_first and parts[6] != _checksum(text.rpartition(_SEPARATOR)[0]):
        raise ValueError("not what was written")
    if parts[1] != str(base):
        return Restored(ignored=f"the map belongs to offset {parts[1][:20]}, the committed one is {base}")
    if parts[2] != identity:
        return Restored(ignored="the map belongs to another cluster or an earlier topic of this name")
    if is_first:
        return Restored(unpack_runs(base64.b85decode(parts[5]), base))
    return Restored(decode_map(parts[5], base), _read_heads(parts[4], base), _read_ledger(parts[3]))


def _checksum(text: str) -> str:
    """A letter changed on the way may not claim an offset that nobody finished."""
    return base64.b85encode(zlib.crc32(text.encode()).to_bytes(4, "big")).decode()


def _ledger_text(ledger: Ledger) -> str:
    if ledger == NO_LEDGER:
        return ""
    if not _NONCE.fullmatch(ledger.nonce):
        raise ValueError(f"a nonce of other characters: {ledger.nonce!r}")
    return _LEDGER_SEPARATOR.join(map(str, msgspec.structs.astuple(ledger)))


def _read_ledger(text: str) -> Ledger:
    if not text:
        return NO_LEDGER
    nonce, crashes, hi, ceil, solo = text.split(_LEDGER_SEPARATOR)
    return Ledger(nonce, int(crashes), int(hi), int(ceil), int(solo))


def _heads_text(base: int, heads: Mapping[int, Head]) -> str:
    if not heads:
        return ""
    between, attempts, firsts, dues = [], [], [], []
    at = base
    for offset, head in sorted(heads.items()):
        if offset < base:
            continue
        between.append(offset - at)
        attempts.append(head.attempt)
        firsts.append(_in_bounds(head.first_failed_ms))
        dues.append(_in_bounds(head.due_ms))
        at = offset
    if not between:
        return ""
    return base64.b85encode(pack_columns((between, attempts, firsts, dues))).decode()


def _in_bounds(ms: int) -> int:
    """Times come from headers that anybody may write: whatever they say must not keep the rest from being committed."""
    return min(max(0, ms), VALUE_LIMIT - 1)


def _read_heads(text: str, base: int) -> Mapping[int, Head]:
    if not text:
        return {}
    found = {}
    at = base
    for between, attempt, first_failed_ms, due_ms in zip(
        *unpack_columns(base64.b85decode(text), 4), strict=True
    ):
        at += between
        found[at] = Head(attempt, due_ms, first_failed_ms)
    if at >= VALUE_LIMIT:
        raise ValueError("no offset is as large")
    return found
