"""Where an assigned partition begins. Never a client's default: that would skip records, or repeat them, silently."""

from redrive.core.engine import Start
from redrive.core.metadata import decode_metadata


def start_at_committed(offset: int, metadata: str, identity: str) -> Start:
    """Begin at the committed offset, with what its metadata says; where that can't be used only the offset counts."""
    restored = decode_metadata(metadata, offset, identity)
    return Start(offset, restored.ranges, (offset, metadata.rstrip("\0")), restored.heads, restored.ignored)
