"""Where an assigned partition begins. Never a client's default: that would skip records, or repeat them, silently."""

from redrive.core.engine import Start
from redrive.core.metadata import decode_metadata


def start_at_committed(offset: int, metadata: str, identity: str) -> tuple[Start, str]:
    """
    Begin at the committed offset, with the map of what is finished above it. The second value says why a map that was
    there can't be used; then only the offset counts and records above it may run again.
    """
    restored = decode_metadata(metadata, offset, identity)
    return Start(offset, restored.ranges, (offset, metadata.rstrip("\0")), restored.heads), restored.ignored
