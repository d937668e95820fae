"""
Pausing a listener for its whole group, by a person, until a person lets it go on.

What was said last of a listener stands in its state topic, under a key of its own, so compaction keeps just that: a process
that starts reads it before it joins the group, the others within two seconds. It needs no process to be reached, and
outlives them all.

A paused listener starts no new runs. What runs may end; what was fetched stays in memory, and no more is fetched; retries
wait beyond their dues; writes and commits go on, and the process stays ready and in its group.
"""

from typing import Literal

import msgspec

#: What such keys begin with; ":" is in no topic's name.
PAUSE = "pause:"
#: Who and why of one word together.
SAID_MOST_CHARS = 4_000


class Pausing(msgspec.Struct, frozen=True):
    """What `who` wants of a group's listener, since `when_ms` (epoch), and `why`."""

    action: Literal["pause", "resume"]
    group: str
    listener: str
    who: str
    when_ms: int
    why: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Pausing).decode


def is_pausing(key: bytes | None) -> bool:
    """Whether a record of a state topic is about pausing a listener."""
    return (key or b"").startswith(PAUSE.encode())


def write_pausing(pausing: Pausing) -> tuple[bytes, bytes]:
    """Key and value of the record that says so."""
    return _key(pausing), _encode(pausing)


def read_pausing(key: bytes | None, value: bytes | None) -> Pausing | None:
    """Gives what a record of a state topic says about pausing; None where that is nothing. Never raises."""
    if not is_pausing(key) or value is None:
        return None
    try:
        pausing = _decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError):
        return None
    # Under another's key it would neither replace what was said before nor be replaced.
    is_sound = key == _key(pausing) and len(pausing.who) + len(pausing.why) <= SAID_MOST_CHARS
    return pausing if is_sound else None


def _key(pausing: Pausing) -> bytes:
    # A group may have a slash in its name: another group's listener must not have the same key.
    group = pausing.group.replace("%", "%25").replace("/", "%2F")
    return f"{PAUSE}{group}/{pausing.listener}".encode()
