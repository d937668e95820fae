"""Where an assigned partition begins. Never a client's default: that would skip records, or repeat them, silently."""

from collections.abc import Mapping

import msgspec

from redrive.core.metadata import NO_HEADS, NO_LEDGER, Head, Ledger, decode_metadata
from redrive.core.offset_codec import Range


class Start(msgspec.Struct, frozen=True):
    """
    Where an assigned partition begins: `offset` None is its beginning; `acked` what the group has committed, `restored`
    what that says of finished records behind the offset, and `heads` of those that failed and wait. `ignored`: why it
    can't be used. `end`: what the log of a parked partition ends with. `ran_to`: nothing at or above that offset has run; asked
    for only when the process before ended uncleanly.
    """

    offset: int | None
    restored: tuple[Range, ...] = ()
    acked: tuple[int, str] | None = None
    heads: Mapping[int, Head] = NO_HEADS
    ignored: str = ""
    end: int = 0
    ledger: Ledger = NO_LEDGER
    ran_to: int | None = None


def start_at_committed(offset: int, metadata: str, identity: str) -> Start:
    """Begin at the committed offset, with what its metadata says; where that can't be used only the offset counts."""
    restored = decode_metadata(metadata, offset, identity)
    return Start(
        offset,
        restored.ranges,
        (offset, metadata.rstrip("\0")),
        restored.heads,
        restored.ignored,
        ledger=restored.ledger,
    )
