"""Where an assigned partition begins. Never a client's default: that would skip records, or repeat them, silently."""

from redrive.core.engine import Start
from redrive.core.offsets import decode_metadata


def start_at_committed(offset: int, metadata: str, identity: str) -> tuple[Start, str]:
    """
    Begin at the committed offset, with the map of what is finished above it. The second value says why a map that was
    there can't be used; then only the offset counts and records above it may run again.
    """
    restored = decode_metadata(metadata, offset, identity)
    return Start(offset, restored.ranges, (offset, metadata.rstrip("\0"))), restored.ignored


def begins_at_end(*, wanted: str, is_source: bool, topic_was_committed: bool) -> bool:
    """
    Whether a partition without a committed offset begins at its end.

    Only where the listener says `start="latest"`, and only for the sources that were there when the group began:
    partitions added later hold records that nobody has read, as do tiers.
    """
    return wanted == "latest" and is_source and not topic_was_committed
